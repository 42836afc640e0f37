/* sim/streams.c - continuous batching over a captured trace. */
#include "sim/streams.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t begin_of(const struct sim_streams *streams, uint64_t request)
{
    return (uint64_t)streams->offsets[request];
}

static uint64_t end_of(const struct sim_streams *streams, uint64_t request)
{
    return (uint64_t)streams->offsets[request + 1];
}

/* While the stream's request has no token left, take the slot's next one. Ends, because one
 * request has a token (checked at open) and the slot's requests s + S x n reach it or, when S and
 * N share a factor, at most N replacements show that they do not: then any request will do. */
static void settle(struct sim_streams *streams, uint64_t s)
{
    uint64_t tries = 0;
    while (streams->token[s] >= end_of(streams, streams->request[s])) {
        streams->replaced[s]++;
        streams->request[s] =
            (s + streams->count * streams->replaced[s] + tries / streams->requests) %
            streams->requests;
        streams->token[s] = begin_of(streams, streams->request[s]);
        tries++;
        assert(tries <= streams->requests * (streams->requests + 1));
    }
}

int sim_streams_open(const int64_t *offsets, uint64_t requests, uint64_t count,
                     struct sim_streams *streams, char *err, size_t err_len)
{
    struct sim_streams made = {count, requests, offsets, NULL, NULL, NULL};

    assert(offsets != NULL && offsets[0] == 0);
    if (requests == 0 || offsets[requests] == 0) {
        snprintf(err, err_len, "trace: no tokens: at least one request with one token is needed");
        return -1;
    }
    made.token = (uint64_t *)calloc(count + 1, sizeof *made.token);
    made.request = (uint64_t *)calloc(count + 1, sizeof *made.request);
    made.replaced = (uint64_t *)calloc(count + 1, sizeof *made.replaced);
    if (made.token == NULL || made.request == NULL || made.replaced == NULL) {
        sim_streams_close(&made);
        snprintf(err, err_len, "%" PRIu64 " decode streams: out of memory", count);
        return -1;
    }
    const uint64_t laps = (count + requests - 1) / requests;
    for (uint64_t s = 0; s < count; s++) {
        const uint64_t request = s % requests;
        const uint64_t length = (uint64_t)(offsets[request + 1] - offsets[request]);
        made.request[s] = request;
        made.token[s] = begin_of(&made, request) + length * (s / requests) / laps;
        settle(&made, s);
    }
    *streams = made;
    return 0;
}

void sim_streams_advance(struct sim_streams *streams)
{
    for (uint64_t s = 0; s < streams->count; s++) {
        streams->token[s]++;
        settle(streams, s);
    }
}

void sim_streams_close(struct sim_streams *streams)
{
    free(streams->token);
    free(streams->request);
    free(streams->replaced);
    memset(streams, 0, sizeof *streams);
}
