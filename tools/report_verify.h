/* tools/report_verify.h - what `epsim verify` prints of a report. */
#ifndef TOOLS_REPORT_VERIFY_H
#define TOOLS_REPORT_VERIFY_H

#include "sim/verify.h"
#include "tools/commands.h"

/* What only the table of cases has. */
struct report_cases {
    double wall_s;
    uint64_t bytes_max; /* Host memory of the largest case. */
};

/* Print the report, as text or one document; cases is NULL for captures. Returns the exit status:
 * a broken backend is a failing environment, whatever else was found. */
int report_verify(const struct command_line *line, const char *backend,
                  const struct sim_verify_report *report, const struct report_cases *cases);

#endif
