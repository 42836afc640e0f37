/* sim/timing.c - the arrays that an exchange answers in. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/exchange.h"

enum { RESOURCES_PER_RANK = 8 }; /* Links and NIC in both directions, SMs, QPs, HBM, one spare. */

int sim_timing_open(struct sim_timing *timing, uint32_t ranks, uint64_t message_max, char *err,
                    size_t err_len)
{
    assert(ranks > 0);
    struct sim_timing made = {
        .message_max = message_max, .ranks = ranks, .resource_max = RESOURCES_PER_RANK * ranks};
    made.land_ps = (uint64_t *)calloc(message_max + 1, sizeof *made.land_ps);
    made.depart_ps = (uint64_t *)calloc(message_max + 1, sizeof *made.depart_ps);
    made.end_ps = (uint64_t *)calloc(ranks, sizeof *made.end_ps);
    made.send_ps = (uint64_t *)calloc(ranks, sizeof *made.send_ps);
    made.recv_ps = (uint64_t *)calloc(ranks, sizeof *made.recv_ps);
    made.notify_ps = (uint64_t *)calloc(ranks, sizeof *made.notify_ps);
    made.awaited = (uint32_t *)calloc(ranks, sizeof *made.awaited);
    made.wait_ps = (uint64_t *)calloc(ranks, sizeof *made.wait_ps);
    made.resources = (struct sim_resource_use *)calloc(made.resource_max, sizeof *made.resources);
    if (made.land_ps && made.depart_ps && made.end_ps && made.send_ps && made.recv_ps &&
        made.notify_ps && made.awaited && made.wait_ps && made.resources) {
        *timing = made;
        return 0;
    }
    snprintf(err, err_len, "times of %llu messages: out of memory",
             (unsigned long long)message_max);
    sim_timing_close(&made);
    return -1;
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
    memset(timing, 0, sizeof *timing);
}
