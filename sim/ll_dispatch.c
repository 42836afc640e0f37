/* sim/ll_dispatch.c - low-latency dispatch, sending: blocks walk tokens.
 *
 * All warps of a block cast and stage a token, then one warp per selection sends it,
 * and the block goes on when every send is complete: stores to a peer when acknowledged, a
 * put when posted. Since all blocks cast at the same time, the wire idles meanwhile: the chain
 * adds to the wire time. A group's count goes out when block 0 has added its share to the
 * group's finish counter, its own block is through, and all n sends are complete. */
#include "sim/ll_state.h"

#include <assert.h>

/* One of the things that the count of a group waits for happens at at_ps, now or later. */
static void pass_gate(struct ll *ll, uint32_t group, uint64_t at_ps)
{
    struct ll_group *g = &ll->group[group];
    assert(g->gates > 0);
    g->gate_ps = ll_later(g->gate_ps, at_ps);
    if (--g->gates > 0) return;
    const uint64_t passes = (group - g->rank * ll->experts) / LL_WARPS + 1;
    const uint64_t added_ps = ll->rank[g->rank].begin_ps + passes * ll->costs->expert_pass_ps;
    ll_publish(ll, group, ll_later(g->gate_ps, added_ps) + ll->costs->publish_ps);
}

static void end_block(struct ll *ll, uint32_t block, uint64_t at_ps)
{
    const uint32_t rank = block / ll->jobs_max;
    const uint32_t first = block % ll->jobs_max * ll->groups_per_block;
    for (uint32_t e = first; e < first + ll->groups_per_block && e < ll->experts; e++)
        pass_gate(ll, rank * ll->experts + e, at_ps);
}

/* The block's next token, and those of the blocks chained to it. */
static void cast_token(struct ll *ll, uint32_t block, uint64_t now_ps)
{
    sim_engine_schedule(ll->engine, now_ps + ll->token_ps, LL_TOKEN, block, 0);
}

static void start(struct ll *ll, uint32_t rank, uint64_t now_ps)
{
    const uint64_t first = ll->traffic->token_start[rank];
    const uint64_t tokens = ll->traffic->token_start[rank + 1] - first;
    ll->rank[rank].begin_ps = now_ps;
    uint32_t chain = LL_NONE; /* All first tokens are cast at once: one event. */
    for (uint32_t b = ll->grid; b-- > 0;) {
        const uint32_t block = rank * ll->jobs_max + b;
        ll->block[block] = (struct ll_block){.token = first + b, .next = chain};
        if (b < tokens)
            chain = block;
        else
            end_block(ll, block, now_ps);
    }
    if (chain != LL_NONE) cast_token(ll, chain, now_ps);
}

/* The groups that the block's token is sent to, in the order of its messages: from the choices,
 * which lie closer together than messages do. */
static uint32_t sends_of(const struct ll *ll, uint32_t block, uint32_t group[REF_TOPK_MAX])
{
    const uint32_t topk = ll->traffic->topk, first = block / ll->jobs_max * ll->experts;
    const int64_t *choice = ll->traffic->topk_idx + ll->block[block].token * topk;
    uint32_t count = 0;
    for (uint32_t k = 0; k < topk; k++)
        if (choice[k] >= 0) group[count++] = first + (uint32_t)choice[k];
    return count;
}

/* On to the next token, if every send of the block's to its count groups is complete, or will be
 * at a time that is known. */
static void settle(struct ll *ll, uint32_t block, const uint32_t *group, uint32_t count)
{
    struct ll_block *b = &ll->block[block];
    if (b->linked != 0 || b->stalled > 0) return;
    for (uint32_t i = 0; i < count; i++) pass_gate(ll, group[i], b->done_ps);
    b->token += ll->grid;
    if (b->token < ll->traffic->token_start[block / ll->jobs_max + 1])
        cast_token(ll, block, b->done_ps);
    else
        end_block(ll, block, b->done_ps);
}

/* A token is staged: send every selection. */
static void send_token(struct ll *ll, uint32_t block, uint64_t now_ps)
{
    struct ll_block *b = &ll->block[block];
    const uint64_t first = ll->traffic->home_start[b->token];
    const uint64_t stored_ps = now_ps + ll->row_store_ps, posted_ps = now_ps + ll->costs->post_ps;
    uint32_t group[REF_TOPK_MAX], linked = 0;
    const uint32_t count = sends_of(ll, block, group);

    assert(first + count == ll->traffic->home_start[b->token + 1]);
    b->issued_ps = b->done_ps = now_ps;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t link_class = ll->group[group[i]].link_class;
        uint64_t done_ps = stored_ps;
        if (link_class == SIM_LINK_NIC) {
            if (!ll_nic_post(ll, group[i], (uint32_t)(first + i), now_ps)) b->stalled++;
            done_ps = posted_ps;
        } else {
            ll->message_slot[first + i] = LL_NONE;
            ll->timing->depart_ps[first + i] = now_ps;
            ll->timing->land_ps[first + i] = stored_ps; /* By NVLink: until it lands. */
            if (link_class == SIM_LINK_NVLINK) linked |= UINT32_C(1) << i;
        }
        b->done_ps = ll_later(b->done_ps, done_ps);
    }
    b->linked = linked;
    if (linked != 0)
        ll_link_add(ll, block / ll->jobs_max, block, (uint32_t)__builtin_popcount(linked),
                    ll->row_bytes, now_ps);
    settle(ll, block, group, count);
}

static void send_tokens(struct ll *ll, uint32_t first, uint64_t now_ps)
{
    for (uint32_t block = first; block != LL_NONE;) {
        const uint32_t next = ll->block[block].next;
        ll->block[block].next = LL_NONE; /* From its second token on a block goes by itself. */
        send_token(ll, block, now_ps);
        block = next;
    }
}

/* The block's stores have left the GPU: they land, and the acknowledgement comes back. */
static void land_token(struct ll *ll, uint32_t block, uint64_t now_ps)
{
    struct ll_block *b = &ll->block[block];
    const uint64_t first = ll->traffic->home_start[b->token];
    uint32_t group[REF_TOPK_MAX];
    const uint32_t count = sends_of(ll, block, group);
    uint32_t linked = b->linked;
    assert(linked != 0 && linked >> (count - 1) <= 1);
    for (b->linked = 0; linked != 0; linked &= linked - 1) {
        const uint32_t i = (uint32_t)__builtin_ctz(linked);
        const struct ll_group *g = &ll->group[group[i]];
        const uint64_t land_ps = ll_link_land(ll, g->peer, b->issued_ps, now_ps, 1);
        const uint64_t known_ps = land_ps + ll->machine->nvlink_flight_ps;
        ll->timing->land_ps[first + i] = land_ps;
        b->done_ps = ll_later(b->done_ps, known_ps);
    }
    b->done_ps = ll_later(b->done_ps, now_ps);
    settle(ll, block, group, count);
}

/* Messages that went by NIC have their times by slot; gather them. */
void ll_dispatch_gather(struct ll *ll)
{
    for (uint64_t m = 0; m < ll->message_count; m++) {
        const uint32_t slot = ll->message_slot[m];
        if (slot == LL_NONE) continue;
        ll->timing->depart_ps[m] = ll->slot_depart_ps[slot];
        ll->timing->land_ps[m] = ll->slot_land_ps[slot];
    }
}

/* Which of count parts that begin at start[] holds entry. */
static uint64_t part_of(const uint64_t *start, uint64_t count, uint64_t entry)
{
    uint64_t first = 0, last = count;
    assert(entry < start[count]);
    while (last - first > 1) {
        const uint64_t middle = (first + last) / 2;
        if (start[middle] <= entry)
            first = middle;
        else
            last = middle;
    }
    return first;
}

void ll_dispatch_unstalled(struct ll *ll, uint32_t message, uint64_t now_ps)
{
    const struct sim_traffic *traffic = ll->traffic;
    const uint64_t tokens = traffic->token_start[ll->ranks];
    const uint64_t token = part_of(traffic->home_start, tokens, message);
    const uint64_t rank = part_of(traffic->token_start, ll->ranks, token);
    const uint32_t block =
        (uint32_t)(rank * ll->jobs_max + (token - traffic->token_start[rank]) % ll->grid);
    struct ll_block *b = &ll->block[block];
    uint32_t group[REF_TOPK_MAX];
    const uint64_t posted_ps = now_ps + ll->costs->post_ps;
    assert(b->stalled > 0);
    b->stalled--;
    b->done_ps = ll_later(b->done_ps, posted_ps);
    settle(ll, block, group, sends_of(ll, block, group));
}

void ll_dispatch_event(struct ll *ll, const struct sim_event *event)
{
    const uint64_t now_ps = event->time_ps;
    const uint32_t target = event->target;
    uint32_t job;

    switch ((enum ll_event)event->kind) {
    case LL_START: start(ll, target, now_ps); break;
    case LL_TOKEN: send_tokens(ll, target, now_ps); break;
    case LL_LINK:
        while (ll_link_take(ll, target, now_ps, &job)) land_token(ll, job, now_ps);
        break;
    case LL_ROWS:
    case LL_WAVES:
    case LL_WAVE:
    case LL_PUBLISH:
    case LL_NIC:
    case LL_TURN:
    case LL_CREDIT:
    default: assert(!"an event of dispatch");
    }
}
