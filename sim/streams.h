/* sim/streams.h - continuous batching: which trace token every decode slot plays next.
 *
 * Stream s of S (s counts the slots of rank 0, then of rank 1, ...) plays request s mod N. Where
 * several streams play one request they spread over it: with laps = ceil(S / N), stream s starts at
 * token floor(length x (s div N) / laps). At the end of its request a slot takes request
 * (s + S x times replaced) mod N from token 0; an empty request is passed over like a finished
 * one. */
#ifndef SIM_STREAMS_H
#define SIM_STREAMS_H

#include <stddef.h>
#include <stdint.h>

struct sim_streams {
    uint64_t count;         /* S */
    uint64_t requests;      /* N */
    const int64_t *offsets; /* [N + 1], borrowed: request r is trace tokens [r, r + 1). */
    uint64_t *token;        /* [S], owned: the trace token each stream plays in this step. */
    uint64_t *request;      /* [S], owned. */
    uint64_t *replaced;     /* [S], owned: times the slot took another request. */
};

/* offsets must outlive the streams, ascend from 0 and hold at least one token. 0, or -1 with err.
 * *streams is written only on success. */
int sim_streams_open(const int64_t *offsets, uint64_t requests, uint64_t count,
                     struct sim_streams *streams, char *err, size_t err_len);
void sim_streams_advance(struct sim_streams *streams); /* Every stream goes one token on. */
void sim_streams_close(struct sim_streams *streams);   /* Safe on a zeroed struct. */

#endif
