/* sim/case_play.h - one named case through one backend, compared with the reference bit by bit.
 *
 * The reference's group operations say what is right. A backend's group operations are compared
 * with them and then, where it has phases, its phase path with the messages landing in an order
 * drawn from the case; of the reference itself only the phase path is. Result arrays are filled
 * with 0xFF before each path (NaN in every format), behind the last row too: a row not written and
 * a row too many both show. */
#ifndef SIM_CASE_PLAY_H
#define SIM_CASE_PLAY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/backend.h"
#include "sim/case_inputs.h"
#include "sim/compare.h"
#include "sim/datapath.h"

enum sim_case_outcome {
    SIM_CASE_PASSED,
    SIM_CASE_FAILED,
    SIM_CASE_SKIPPED,
    SIM_CASE_BROKEN,
    SIM_CASE_UNTRIED
};

struct sim_case_verdict {
    enum sim_case_outcome outcome;
    uint64_t input_digest;
    uint64_t expected_digest; /* Of the reference's group operations, as sim_case_digest. */
    uint64_t output_digest;   /* Both paths of the backend; equals expected_digest when right. */
    uint64_t bytes;           /* Host memory, sim_case_inputs.bytes. */
    uint64_t compared_bytes;
    uint64_t mismatches;       /* Rows that differ. */
    uint64_t kernel_ns;        /* Backend cuda: GPU time of the group operations; else 0. */
    struct sim_mismatch first; /* When failed; the row pointers are NULL. */
    char broken[512];          /* What the backend said when it failed; then nothing was judged. */
};

/* How to play. Many threads may share a player: its lock is held around the use of the backend's
 * state, which is opened anew after a failure. */
struct sim_case_player {
    const struct sim_backend_ops *backend; /* NULL: the reference. Borrowed. */
    const struct sim_backend_place *place; /* Where it is opened; NULL: the default. */
    bool reference; /* Only the reference's group operations, for their digests. */
    void *state;    /* Owned; NULL: not open, or to be opened anew. */
    pthread_mutex_t lock;
};

/* Open the backend, unless it is the reference. 0, or -1 with err. Close in any case. */
int sim_case_player_open(struct sim_case_player *player, const struct sim_backend_ops *backend,
                         const struct sim_backend_place *place, bool reference, char *err,
                         size_t err_len);
void sim_case_player_close(struct sim_case_player *player);

/* 0; -1 with err when memory failed, or the backend cannot be opened anew; SIM_CASE_TOO_LARGE with
 * err. A mismatch and a backend that fails are answers, not failures. */
int sim_case_play(struct sim_case_player *player, const struct sim_table_case *table_case,
                  struct sim_case_verdict *verdict, char *err, size_t err_len);

/* Digest of one path's results: counts, then rows with their expert output, then combined tokens
 * and weight sums. In low latency the rows of a block (expert, source rank) are added up, so their
 * order is no part of it; everything else is taken in order. */
uint64_t sim_case_digest(const struct sim_layer_input *input,
                         const struct sim_layer_results *results);

#endif
