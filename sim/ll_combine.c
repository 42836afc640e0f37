/* sim/ll_combine.c - low-latency combine: groups send rows home, blocks sum them.
 *
 * Sending: a group's warps move one row each at a time, straight to a peer of the node, or
 * into the send buffer and through the NIC. When a group is through its flag goes to the
 * peer. Receiving: the blocks wait for all E flags, for each other, and sum
 * the rows of tokens b, b + grid, ... */
#include "sim/ll_state.h"

#include <assert.h>
#include <string.h>

static uint64_t group_rate(const struct ll *ll)
{
    return ll->costs->sm_send_bytes_per_s / ll->groups_per_block;
}

/* A row by one warp alone. */
static uint64_t row_ps(const struct ll *ll)
{
    return ll->costs->row_chain_ps +
           fabric_transfer_ps(ll->row_bytes, ll->costs->warp_send_bytes_per_s);
}

/* A group whose rows meet no other traffic: its warps take turns, and its SM moves so much. */
static uint64_t group_ps(const struct ll *ll, uint64_t rows)
{
    const uint64_t turns_ps = (rows + ll->warps - 1) / ll->warps * row_ps(ll);
    const uint64_t moved_ps =
        ll->costs->row_chain_ps + fabric_transfer_ps(rows * ll->row_bytes, group_rate(ll));
    return turns_ps > moved_ps ? turns_ps : moved_ps;
}

/* All warps of a group stage a row each: as fast as one warp, or as the SM lets them. */
static uint64_t wave_ps(const struct ll *ll, uint64_t rows)
{
    const uint64_t width = rows < ll->warps ? rows : ll->warps;
    const uint64_t rate_ps =
        ll->costs->row_chain_ps + fabric_transfer_ps(width * ll->row_bytes, group_rate(ll));
    return ll->costs->stage_ps + (rate_ps > row_ps(ll) ? rate_ps : row_ps(ll));
}

/* Row i of n crosses in the i-th part of the span. */
static void spread_rows(struct ll *ll, uint32_t group, uint64_t from_ps, uint64_t to_ps)
{
    const uint64_t first = ll->group[group].first_slot, rows = ll->group[group].rows;
    assert(to_ps >= from_ps);
    uint64_t at_ps = from_ps;
    for (uint64_t i = 0; i < rows; i++) {
        const uint64_t next_ps = from_ps + (to_ps - from_ps) * (i + 1) / rows;
        ll->slot_depart_ps[first + i] = at_ps;
        ll->slot_land_ps[first + i] = next_ps;
        at_ps = next_ps;
    }
}

/* What starts at once: groups with nothing to send, and those of the rank to itself. Groups by
 * NIC that are through in one turn of their warps go by their size, so that all of a size are
 * one event; larger ones each for itself. Groups by NVLink begin together, in LL_ROWS. */
static void start(struct ll *ll, uint32_t rank, uint64_t now_ps)
{
    uint32_t sized[LL_WARPS + 1];
    memset(sized, 0xff, sizeof sized);
    _Static_assert(LL_NONE == UINT32_MAX, "bytes of ones");
    ll->rank[rank].begin_ps = now_ps;
    for (uint32_t e = ll->experts; e-- > 0;) {
        const uint32_t group = rank * ll->experts + e;
        struct ll_group *g = &ll->group[group];
        if (g->rows > 0 && g->link_class == SIM_LINK_NVLINK) continue;
        if (g->rows > 0 && g->link_class == SIM_LINK_LOCAL) {
            const uint64_t end_ps = now_ps + group_ps(ll, g->rows);
            spread_rows(ll, group, now_ps, end_ps);
            ll_publish(ll, group, end_ps);
        } else if (g->rows <= ll->warps) {
            g->next = sized[g->rows];
            sized[g->rows] = group;
        } else {
            sim_engine_schedule(ll->engine, now_ps + wave_ps(ll, g->rows), LL_WAVE, group, 0);
        }
    }
    for (uint32_t rows = 0; rows <= ll->warps; rows++)
        if (sized[rows] != LL_NONE)
            sim_engine_schedule(ll->engine, now_ps + (rows > 0 ? wave_ps(ll, rows) : 0), LL_WAVES,
                                sized[rows], 0);
    sim_engine_schedule(ll->engine, now_ps + ll->costs->row_chain_ps, LL_ROWS, rank, 0);
}

static void link_rows(struct ll *ll, uint32_t rank, uint64_t now_ps)
{
    for (uint32_t e = 0; e < ll->experts; e++) {
        const uint32_t group = rank * ll->experts + e;
        const struct ll_group *g = &ll->group[group];
        const uint32_t width = g->rows < ll->warps ? g->rows : ll->warps;
        if (g->rows > 0 && g->link_class == SIM_LINK_NVLINK)
            ll_link_add(ll, rank, group, width, g->rows * ll->row_bytes / width, now_ps);
    }
}

static void land_group(struct ll *ll, uint32_t group, uint64_t now_ps)
{
    const struct ll_rank *rank = &ll->rank[ll->group[group].rank];
    const uint64_t rows = ll->group[group].rows;
    const uint64_t from_ps = rank->begin_ps + ll->costs->row_chain_ps;
    const uint64_t alone_ps = rank->begin_ps + group_ps(ll, rows);
    const uint64_t last_ps = now_ps > alone_ps ? now_ps : alone_ps;
    const uint64_t land_ps = ll_link_land(ll, ll->group[group].peer, from_ps, last_ps, rows);
    spread_rows(ll, group, from_ps, land_ps);
    ll_publish(ll, group, land_ps + ll->machine->nvlink_flight_ps);
}

/* A group by NIC is through when its last wave is posted and no row waits for a slot. */
static void pass_gate(struct ll *ll, uint32_t group, uint64_t now_ps)
{
    struct ll_group *g = &ll->group[group];
    assert(g->gates > 0);
    if (--g->gates == 0) ll_publish(ll, group, now_ps + (g->rows > 0 ? ll->costs->post_ps : 0));
}

void ll_combine_unstalled(struct ll *ll, uint32_t group, uint64_t now_ps)
{
    pass_gate(ll, group, now_ps);
}

static void post_wave(struct ll *ll, uint32_t group, uint64_t posted, uint64_t now_ps)
{
    const uint64_t rows = ll->group[group].rows;
    const uint64_t end = posted + ll->warps < rows ? posted + ll->warps : rows;
    ll->group[group].gates += ll_nic_post_rows(ll, group, (uint32_t)posted, (uint32_t)end, now_ps);
    if (end < rows)
        sim_engine_schedule(ll->engine, now_ps + wave_ps(ll, rows - end), LL_WAVE, group, end);
    else
        pass_gate(ll, group, now_ps);
}

/* A chain of groups of equal size has staged all its rows. */
static void post_waves(struct ll *ll, uint32_t first, uint64_t now_ps)
{
    for (uint32_t group = first; group != LL_NONE; group = ll->group[group].next) {
        ll->group[group].gates += ll_nic_post_rows(ll, group, 0, ll->group[group].rows, now_ps);
        pass_gate(ll, group, now_ps);
    }
}

void ll_combine_event(struct ll *ll, const struct sim_event *event)
{
    const uint64_t now_ps = event->time_ps;
    const uint32_t target = event->target;
    uint32_t job;

    switch ((enum ll_event)event->kind) {
    case LL_START: start(ll, target, now_ps); break;
    case LL_ROWS: link_rows(ll, target, now_ps); break;
    case LL_LINK:
        while (ll_link_take(ll, target, now_ps, &job)) land_group(ll, job, now_ps);
        break;
    case LL_WAVES: post_waves(ll, target, now_ps); break;
    case LL_WAVE: post_wave(ll, target, event->payload, now_ps); break;
    case LL_TOKEN:
    case LL_PUBLISH:
    case LL_NIC:
    case LL_TURN:
    case LL_CREDIT:
    default: assert(!"an event of combine");
    }
}
