/* sim/all_to_all.c - three events a packet: it leaves, its head is at the switch, it is there. */
#include "sim/all_to_all.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabric/link.h"

enum { LEAVE, SWITCH, ARRIVE };

struct host {
    struct fabric_link out;    /* The host's port, then the hop to the switch. */
    struct fabric_link output; /* The switch's port to this host, then the second hop. */
    uint32_t left;             /* Packets still to send. */
    uint32_t step;             /* p mod (hosts - 1). */
};

struct exchange {
    const struct sim_all_to_all *shape;
    struct host *hosts;
    uint64_t arrived, end_ps;
};

static void leave(struct exchange *x, struct sim_engine *engine, uint32_t i, uint64_t now_ps)
{
    const struct sim_all_to_all *shape = x->shape;
    struct host *host = &x->hosts[i];
    const struct fabric_slot slot = fabric_link_send(&host->out, now_ps, shape->packet_bytes);
    uint32_t to = i + 1 + host->step;
    if (to >= shape->hosts) to -= shape->hosts;
    if (++host->step == shape->hosts - 1) host->step = 0;
    sim_engine_schedule(engine, slot.first_ps, SWITCH, to, slot.arrive_ps);
    if (--host->left > 0) sim_engine_schedule(engine, slot.sent_ps, LEAVE, i, 0);
}

static void handle(void *model, struct sim_engine *engine, const struct sim_event *event)
{
    struct exchange *x = (struct exchange *)model;
    switch (event->kind) {
    case LEAVE: leave(x, engine, event->target, event->time_ps); break;
    case SWITCH: {
        const struct fabric_slot slot =
            fabric_link_relay(&x->hosts[event->target].output, event->time_ps, event->payload,
                              x->shape->packet_bytes);
        sim_engine_schedule(engine, slot.arrive_ps, ARRIVE, event->target, 0);
        break;
    }
    case ARRIVE:
        x->arrived++;
        x->end_ps = event->time_ps; /* Events come in order of time. */
        break;
    default: assert(!"an event of the exchange");
    }
}

int sim_all_to_all_run(struct sim_engine *engine, const struct sim_all_to_all *shape,
                       struct sim_all_to_all_result *result, char *err, size_t err_len)
{
    struct exchange x = {.shape = shape};
    int status = -1;

    assert(shape->hosts >= 2 && shape->packet_bytes > 0 && shape->rate_bytes_per_s > 0);
    sim_engine_reset(engine);
    x.hosts = (struct host *)calloc(shape->hosts, sizeof *x.hosts);
    if (!x.hosts) {
        snprintf(err, err_len, "all-to-all of %u hosts: out of memory", shape->hosts);
        return -1;
    }
    for (uint32_t i = 0; i < shape->hosts; i++) {
        fabric_link_init(&x.hosts[i].out, shape->rate_bytes_per_s, shape->hop_ps);
        fabric_link_init(&x.hosts[i].output, shape->rate_bytes_per_s, shape->hop_ps);
        x.hosts[i].left = shape->packets;
        if (shape->packets > 0) sim_engine_schedule(engine, i * shape->host_skew_ps, LEAVE, i, 0);
    }
    if (sim_engine_run(engine, handle, &x, err, err_len) != 0) goto free_hosts;
    *result = (struct sim_all_to_all_result){.end_ps = x.end_ps,
                                             .arrived = x.arrived,
                                             .events = sim_engine_event_count(engine),
                                             .digest = sim_engine_digest(engine)};
    for (uint32_t i = 0; i < shape->hosts; i++) result->wait_ps += x.hosts[i].output.use.stall_ps;
    assert(x.arrived == (uint64_t)shape->hosts * shape->packets);
    status = 0;
free_hosts:
    free(x.hosts);
    return status;
}

uint64_t sim_all_to_all_closed_ps(const struct sim_all_to_all *shape)
{
    const uint64_t packet_ps = fabric_transfer_ps(shape->packet_bytes, shape->rate_bytes_per_s);
    assert(shape->host_skew_ps == 0);
    return shape->packets * packet_ps + 2 * shape->hop_ps;
}
