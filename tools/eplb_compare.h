/* tools/eplb_compare.h - the same steps without replicas and with them, by every rule of choice. */
#ifndef TOOLS_EPLB_COMPARE_H
#define TOOLS_EPLB_COMPARE_H

#include "tools/commands.h"

/* Play settings (routing, model, ranks, steps) four times: as they are, then with settings.eplb
 * places and each policy; print imbalance and modelled times side by side. The exit status. */
int eplb_compare(const struct command_line *line, const struct sim_settings *settings);

#endif
