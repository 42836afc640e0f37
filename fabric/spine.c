/* fabric/spine.c - which way a message takes between leaf switches, and what it waits for there. */
#include "fabric/spine.h"

#include <assert.h>

uint32_t fabric_spine_leaves(uint32_t nodes, uint32_t rails, uint32_t leaf_nodes)
{
    assert(nodes > 0 && rails > 0 && leaf_nodes > 0);
    return ((nodes - 1) / leaf_nodes + 1) * rails;
}

void fabric_spine_reset(struct fabric_spine *spine, uint64_t port_bytes_per_s, uint64_t hop_ps)
{
    assert(spine->uplinks > 0 && spine->leaves > 0 && spine->leaf_nodes > 0);
    for (uint32_t port = 0; port < spine->leaves * spine->uplinks; port++) {
        fabric_link_init(&spine->up[port], port_bytes_per_s, hop_ps);
        fabric_link_init(&spine->down[port], port_bytes_per_s, hop_ps);
    }
    spine->messages = spine->waited = 0;
}

static uint32_t leaf_of(const struct fabric_spine *spine, uint32_t rank)
{
    const uint32_t leaf =
        rank / spine->rails / spine->leaf_nodes * spine->rails + rank % spine->rails;
    assert(leaf < spine->leaves);
    return leaf;
}

bool fabric_spine_same_leaf(const struct fabric_spine *spine, uint32_t src, uint32_t dst)
{
    return leaf_of(spine, src) == leaf_of(spine, dst);
}

static uint64_t mix(uint64_t value) /* splitmix64's finaliser: every bit in moves every bit out. */
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

uint32_t fabric_spine_hash(const struct fabric_spine *spine, uint32_t src, uint32_t dst,
                           uint32_t flow)
{
    const uint64_t ends = mix(spine->seed + ((uint64_t)src << 32 | dst));
    const uint64_t high = mix(ends + flow + 1) >> 32;
    return (uint32_t)(high * spine->uplinks >> 32);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The first of the ways that are free soonest: the switches know the load of both their hops. */
static uint32_t freest(const struct fabric_link *up, const struct fabric_link *down,
                       uint32_t uplinks, uint64_t now_ps)
{
    uint32_t best = 0;
    uint64_t best_ps = UINT64_MAX;
    for (uint32_t u = 0; u < uplinks && best_ps > now_ps; u++) {
        const uint64_t free_ps = later(up[u].busy_until_ps, down[u].busy_until_ps);
        if (free_ps >= best_ps) continue;
        best = u;
        best_ps = free_ps;
    }
    return best;
}

uint64_t fabric_spine_cross(struct fabric_spine *spine, uint32_t src, uint32_t dst, uint32_t flow,
                            uint64_t now_ps, uint64_t first_ps, uint64_t last_ps, uint64_t bytes)
{
    const uint32_t from = leaf_of(spine, src), to = leaf_of(spine, dst);
    if (from == to) return 0;
    struct fabric_link *up = &spine->up[from * spine->uplinks];
    struct fabric_link *down = &spine->down[to * spine->uplinks];
    const uint64_t base_ps = now_ps < first_ps ? now_ps : first_ps;
    const uint32_t way = spine->adaptive ? freest(up, down, spine->uplinks, base_ps)
                                         : fabric_spine_hash(spine, src, dst, flow);
    assert(way < spine->uplinks && last_ps >= first_ps);
    const struct fabric_slot rise =
        fabric_link_relay(&up[way], base_ps, base_ps + (last_ps - first_ps), bytes);
    const struct fabric_slot fall =
        fabric_link_relay(&down[way], rise.first_ps, rise.arrive_ps, bytes);
    const uint64_t alone_ps = last_ps + up[way].flight_ps + down[way].flight_ps;
    spine->messages++;
    if (fall.arrive_ps > alone_ps) spine->waited++;
    return later(fall.arrive_ps, alone_ps) - last_ps + (spine->adaptive ? spine->adaptive_ps : 0);
}
