/* sim/explore.h - three promises of the low-latency mode, walked through every interleaving.
 *
 *   sentinel  The completion counter of one destination expert (DeepEP dd758ca,
 *             internode_ll.cu:280-331): A adds the tag, B adds tag - n, C adds 1 for each of n
 *             sends that is done; the poller publishes the count when it sees 2 * tag. Ordered:
 *             the poller starts after B, as a block barrier has it in the shipped kernel.
 *   qp        One queue pair's ring of work requests, whose room nobody checks: dispatch and
 *             combine each post up to M rows and a flag, and a kernel posts once the one before
 *             the last is through.
 *   buffers   Two receive buffers taken in turn by every call, while up to N results are held
 *             unread; results are read in the order of their calls, as a stream does.
 *
 * A walk visits every reachable state, breadth first, so a schedule that breaks the promise is
 * the shortest one. It is then played on the reference's phase operations and compared like
 * any other layer, which names the rows that went wrong. */
#ifndef SIM_EXPLORE_H
#define SIM_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_explore_protocol { SIM_EXPLORE_SENTINEL, SIM_EXPLORE_QP, SIM_EXPLORE_BUFFERS };

enum {
    SIM_EXPLORE_TAG = 1024,   /* FINISHED_SUM_TAG of the shipped kernel. */
    SIM_EXPLORE_DEPTH = 1024, /* NVSHMEM's default queue pair depth. */
    SIM_EXPLORE_TOKENS_MAX = 1 << 20,
    SIM_EXPLORE_CAPACITY_MAX = 4096, /* qp: its states grow with the square. */
    SIM_EXPLORE_DEPTH_MAX = 1 << 20,
    SIM_EXPLORE_OUTSTANDING_MAX = 1024
};

struct sim_explore_ask {
    enum sim_explore_protocol protocol;
    uint32_t tokens;      /* Rows of one call to one expert: n of sentinel, M of qp. At least 1. */
    uint32_t tag;         /* sentinel */
    bool ordered;         /* sentinel */
    uint32_t depth;       /* qp */
    uint32_t outstanding; /* buffers */
};

/* A received row that differs from the reference's. */
struct sim_explore_row {
    uint32_t expert;
    uint32_t src_rank;
    uint32_t src_token; /* Whose row belongs there. */
};

struct sim_exploration {
    struct sim_explore_ask ask;
    bool safe;
    uint64_t states;     /* Reachable, the broken ones among them. */
    uint64_t step_count; /* Of the shortest schedule that breaks the promise; 0 when safe. */
    uint8_t *steps;      /* Owned: what happens, by the protocol's own numbers. */
    uint64_t row_count;  /* Rows that the replay found wrong; 0 when safe. */
    struct sim_explore_row *rows; /* Owned. */
};

const char *sim_explore_name(enum sim_explore_protocol protocol); /* "sentinel", ..., static. */

/* Walk and, when unsafe, replay. The ask must be within the limits above. 0, or -1 with err
 * (memory). *out is written only on success; free it with sim_explore_free. */
int sim_explore(const struct sim_explore_ask *ask, struct sim_exploration *out, char *err,
                size_t err_len);
void sim_explore_free(struct sim_exploration *exploration); /* Safe on a zeroed struct. */

/* A schedule in words, line by line. Start from a zeroed reader. */
struct sim_explore_reader {
    uint64_t at;      /* The next step. */
    uint64_t done[4]; /* Moves of each kind before it. */
};

/* Write the next line: one step, or, for people, all that can be said in one. false at the end. */
bool sim_explore_line(const struct sim_exploration *exploration, struct sim_explore_reader *reader,
                      bool for_people, char *text, size_t text_len);

#endif
