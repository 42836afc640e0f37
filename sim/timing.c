/* sim/timing.c - storage of one exchange's times. */
#include "sim/timing.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sim_timing_open(struct sim_timing *timing, uint32_t ranks, uint64_t message_max, char *err,
                    size_t err_len)
{
    /* In, out and NIC in, out of every rank, its SMs, queue pairs and memory, and some spare. */
    struct sim_timing made = {
        .message_max = message_max, .ranks = ranks, .resource_max = 8 * ranks + 16};
    uint64_t **per_rank[] = {&made.end_ps, &made.send_ps, &made.recv_ps, &made.notify_ps,
                             &made.wait_ps};

    assert(ranks > 0);
    made.land_ps = (uint64_t *)calloc(message_max + 1, sizeof(uint64_t));
    made.depart_ps = (uint64_t *)calloc(message_max + 1, sizeof(uint64_t));
    made.awaited = (uint32_t *)calloc(ranks, sizeof(uint32_t));
    made.resources =
        (struct sim_resource_use *)calloc(made.resource_max, sizeof(struct sim_resource_use));
    bool whole = made.land_ps != NULL && made.depart_ps != NULL && made.awaited != NULL &&
                 made.resources != NULL;
    for (size_t i = 0; i < sizeof per_rank / sizeof per_rank[0]; i++) {
        *per_rank[i] = (uint64_t *)calloc(ranks, sizeof(uint64_t));
        whole = whole && *per_rank[i] != NULL;
    }
    if (!whole) {
        sim_timing_close(&made);
        snprintf(err, err_len, "times of %" PRIu64 " messages: out of memory", message_max);
        return -1;
    }
    *timing = made;
    return 0;
}

int sim_timing_fit(struct sim_timing *timing, uint32_t ranks, uint64_t messages, char *err,
                   size_t err_len)
{
    if (timing->land_ps != NULL && timing->message_max >= messages) {
        assert(timing->ranks == ranks);
        return 0;
    }
    sim_timing_close(timing);
    return sim_timing_open(timing, ranks, messages + messages / 8, err, err_len);
}

void sim_timing_add_leaves(struct sim_timing *timing, const struct fabric_network *network)
{
    struct fabric_use did;
    for (uint32_t port = 0; fabric_network_leaf(network, port / 2, port % 2 == 0, &did); port++) {
        assert(timing->resource_count < timing->resource_max);
        struct sim_resource_use *use = &timing->resources[timing->resource_count++];
        *use = (struct sim_resource_use){
            .kind = "switch", .busy_ps = did.busy_ps, .bytes = did.bytes, .stall_ps = did.stall_ps};
        snprintf(use->name, sizeof use->name, "leaf%u.%s", port / 2, port % 2 == 0 ? "up" : "down");
    }
}

void sim_timing_close(struct sim_timing *timing)
{
    free(timing->land_ps);
    free(timing->depart_ps);
    free(timing->end_ps);
    free(timing->send_ps);
    free(timing->recv_ps);
    free(timing->notify_ps);
    free(timing->awaited);
    free(timing->wait_ps);
    free(timing->resources);
    free(timing->scratch);
    memset(timing, 0, sizeof *timing);
}

void *sim_timing_reserve(struct sim_timing *timing, size_t bytes)
{
    if (bytes <= timing->scratch_bytes) return timing->scratch;
    free(timing->scratch);
    timing->scratch = malloc(bytes);
    timing->scratch_bytes = timing->scratch ? bytes : 0;
    return timing->scratch;
}
