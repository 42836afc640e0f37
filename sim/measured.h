/* sim/measured.h - rows of measurements, as CSV files hold them.
 *
 * The kind of a file is told from its header line: `calibrate` (dispatch and combine kernels),
 * `expert_compute` or `attention`. Columns may stand in any order; unknown ones are ignored. */
#ifndef SIM_MEASURED_H
#define SIM_MEASURED_H

#include <stddef.h>
#include <stdint.h>

enum sim_measured_kind {
    SIM_MEASURED_CALIBRATE,
    SIM_MEASURED_EXPERT_COMPUTE,
    SIM_MEASURED_ATTENTION,
    SIM_MEASURED_KINDS
};

/* Fields that the file's kind does not have are 0 or "". */
struct sim_measured_row {
    char id[96];      /* The id column, or FILE:LINE where there is none. */
    char machine[96]; /* A preset or a path. */
    char stack[32];   /* "" = the machine's defaults. */
    char mode[8];     /* calibrate: ll | normal; else compute */
    char op[24];      /* calibrate: dispatch, combine, and _send, _recv, _notify of them;
                         expert_compute: its layout; attention. */
    char dtype[8];    /* calibrate: what dispatch carries, fp8 | bf16 */
    char grade[16];   /* A, B, C or ""; any other counts as A and B do. */
    char kernel[32], layout[16], routing[16];
    uint32_t nodes, gpus_per_node, ep, tokens, hidden, topk, experts, sms, capacity;
    uint32_t moe_inter;               /* expert_compute */
    uint32_t heads, batch, kv_tokens; /* attention */
    uint64_t measured_ps;             /* Above 0. */
    uint32_t line;
    const char *path; /* As given to sim_measured_read, borrowed; NULL: not from a file. */
};

struct sim_measured {
    enum sim_measured_kind kind;
    size_t count;
    struct sim_measured_row *rows; /* Owned; in the file's order. */
};

/* 0, or -1 with "FILE:LINE: column: 'value': allowed". *measured is written only on success;
 * path must outlive it. */
int sim_measured_read(const char *path, struct sim_measured *measured, char *err, size_t err_len);
void sim_measured_free(struct sim_measured *measured); /* Safe on a zeroed struct. */

/* The same line in err, of a row that was read but cannot be answered: column is one of the file's,
 * whose value in this row is shown. Returns -1. */
int sim_measured_refuse(const struct sim_measured_row *row, const char *column, const char *allowed,
                        char *err, size_t err_len);

const char *sim_measured_kind_name(enum sim_measured_kind kind); /* Static. */

#endif
