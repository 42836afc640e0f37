/* sim/normal_chunks.c - which chunk sizes a run uses: the library's table, the caller's, or the
 * best of those that the library's tuning script tries. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "sim/normal_model.h"

/* Tokens per rank on which chunk sizes are compared: on one node; on several, all and then some. */
enum { SEARCH_TOKENS = 2048, SEARCH_TOKENS_ALL = 128, SEARCH_TOKENS_NODES = 1024 };

static void default_chunks(struct normal_run *run, uint32_t ranks)
{
    static const struct {
        uint32_t ranks, nvl[2], nvl_slots, rdma[2], rdma_slots;
    } table[] = {{2, {24, 10}, 256, {6, 6}, 128},   {4, {6, 9}, 256, {6, 6}, 128},
                 {8, {6, 4}, 256, {6, 6}, 128},     {16, {36, 4}, 288, {20, 12}, 128},
                 {64, {32, 1}, 288, {8, 8}, 128},   {96, {20, 1}, 480, {12, 8}, 128},
                 {128, {20, 1}, 560, {12, 8}, 128}, {144, {32, 2}, 720, {12, 8}, 128},
                 {160, {28, 2}, 720, {12, 8}, 128}};
    const size_t count = sizeof table / sizeof table[0];
    size_t i = 0;
    while (i + 1 < count && ranks > table[i].ranks) i++;
    run->nvl_chunk = table[i].nvl[run->combine];
    run->nvl_slots = table[i].nvl_slots;
    run->rdma_chunk = table[i].rdma[run->combine];
    run->rdma_slots =
        (table[i].rdma_slots + run->rdma_chunk - 1) / run->rdma_chunk * run->rdma_chunk;
}

/* The sizes that the library's own tuning tries: start, step, count for both kinds. */
struct ranges {
    uint32_t nvl[3], rdma[3];
};

static struct ranges tuning_ranges(const struct normal_run *run)
{
    const uint32_t nodes = run->plan->nodes;
    const struct ranges one = {{4, 2, 15}, {6, 1, 1}}, one_back = {{1, 1, 16}, {6, 1, 1}};
    const struct ranges many = {{4, 4, 11}, {4, 4, 8}};
    const struct ranges many_back = {{1, 1, 7}, {nodes == 2 ? 12 : 8, 4, nodes == 2 ? 6 : 7}};
    if (nodes == 1) return run->combine ? one_back : one;
    return run->combine ? many_back : many;
}

static void tuning_slots(struct normal_run *run)
{
    const uint32_t ranks = run->plan->ranks;
    const bool odd = ranks == 24 || ranks == 48 || ranks == 96 || ranks == 144 || ranks == 160;
    if (run->plan->nodes == 1)
        run->nvl_slots = ranks == 144 || ranks == 160 ? 720 : 256;
    else
        run->nvl_slots = odd ? 720 : 512;
    run->rdma_slots = (128 + run->rdma_chunk - 1) / run->rdma_chunk * run->rdma_chunk;
}

struct search {
    struct normal_run run;
    struct ranges ranges;
    uint64_t tried_ps[16][8]; /* 0: not yet. */
    char *err;
    size_t err_len;
};

/* The slowest rank's time with the i-th NVLink and the j-th RDMA chunk; 0 on failure. */
static uint64_t try_sizes(struct search *search, uint32_t i, uint32_t j)
{
    struct normal_run *run = &search->run;
    assert(i < search->ranges.nvl[2] && j < search->ranges.rdma[2]);
    if (search->tried_ps[i][j] > 0) return search->tried_ps[i][j];
    run->nvl_chunk = search->ranges.nvl[0] + i * search->ranges.nvl[1];
    run->rdma_chunk = search->ranges.rdma[0] + j * search->ranges.rdma[1];
    tuning_slots(run);
    if (normal_run_open(run, false, search->err, search->err_len) == 0 &&
        normal_run_kernel(run, search->err, search->err_len) == 0)
        for (uint32_t r = 0; r < run->plan->ranks; r++)
            search->tried_ps[i][j] = normal_max(search->tried_ps[i][j], run->ranks[r].end_ps);
    normal_run_close(run);
    return search->tried_ps[i][j];
}

/* The best of all sizes. */
static uint64_t try_all(struct search *search, uint32_t at[2])
{
    const uint32_t count[2] = {search->ranges.nvl[2], search->ranges.rdma[2]};
    uint64_t least_ps = try_sizes(search, at[0], at[1]);
    for (uint32_t i = 0; i < count[0] && least_ps > 0; i++)
        for (uint32_t j = 0; j < count[1]; j++) {
            const uint64_t now_ps = try_sizes(search, i, j);
            if (now_ps == 0) return 0;
            if (now_ps >= least_ps) continue;
            least_ps = now_ps;
            at[0] = i;
            at[1] = j;
        }
    return least_ps;
}

/* Downhill until no neighbour is better. */
static uint64_t try_downhill(struct search *search, uint32_t at[2])
{
    const uint32_t count[2] = {search->ranges.nvl[2], search->ranges.rdma[2]};
    uint64_t least_ps = try_sizes(search, at[0], at[1]);
    for (bool moved = least_ps > 0; moved;) {
        uint32_t to[2] = {at[0], at[1]};
        moved = false;
        for (int way = 0; way < 4; way++) {
            uint32_t near[2] = {at[0], at[1]};
            near[way / 2] += way % 2 ? 1u : UINT32_MAX;
            if (near[0] >= count[0] || near[1] >= count[1]) continue;
            const uint64_t now_ps = try_sizes(search, near[0], near[1]);
            if (now_ps == 0) return 0;
            if (now_ps >= least_ps) continue;
            least_ps = now_ps;
            memcpy(to, near, sizeof to);
            moved = true;
        }
        memcpy(at, to, sizeof at[0] * 2);
    }
    return least_ps;
}

/* On the first tokens of every rank: at becomes the best sizes (all: of all, else of those that
 * are downhill from it). */
static int search_some(const struct sim_exchange *exchange, struct search *search, uint32_t tokens,
                       bool all, uint32_t at[2])
{
    struct normal_plan some = {.ranks = 0};
    if (normal_plan_open(exchange->traffic, search->run.plan->channels, tokens, &some, search->err,
                         search->err_len) != 0)
        return -1;
    const struct normal_plan *whole = search->run.plan;
    search->run.plan = &some;
    memset(search->tried_ps, 0, sizeof search->tried_ps);
    const uint64_t least_ps = all ? try_all(search, at) : try_downhill(search, at);
    search->run.plan = whole;
    normal_plan_close(&some);
    return least_ps > 0 ? 0 : -1;
}

static uint32_t most_tokens(const struct normal_plan *plan)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < plan->ranks; r++)
        if (plan->tokens[r] > most) most = plan->tokens[r];
    return most;
}

/* Which chunk is best hardly depends on how many tokens follow once the pipeline is full, so
 * the sizes are compared on the first tokens of every rank. One node has one range of at most 16
 * sizes: all are tried. Several have two: all pairs on few tokens, as their times have many local
 * minima, and from the best of them downhill on more. */
int normal_choose_chunks(const struct sim_exchange *exchange, struct normal_run *run, char *err,
                         size_t err_len)
{
    uint32_t best[2] = {exchange->nvl_chunk, exchange->rdma_chunk};
    default_chunks(run, run->plan->ranks);
    if (exchange->best_chunk) {
        struct search search = {.run = *run, .err = err, .err_len = err_len};
        search.run.begin_ps = 1; /* So that a finished run never reads 0. */
        search.ranges = tuning_ranges(run);
        uint32_t at[2] = {search.ranges.nvl[2] / 2, search.ranges.rdma[2] / 2};
        assert(search.ranges.nvl[2] <= 16 && search.ranges.rdma[2] <= 8);
        const bool one = run->plan->nodes == 1;
        if (search_some(exchange, &search, one ? SEARCH_TOKENS : SEARCH_TOKENS_ALL, true, at) != 0)
            return -1;
        if (!one && most_tokens(run->plan) > SEARCH_TOKENS_ALL &&
            search_some(exchange, &search, SEARCH_TOKENS_NODES, false, at) != 0)
            return -1;
        best[0] = search.ranges.nvl[0] + at[0] * search.ranges.nvl[1];
        best[1] = search.ranges.rdma[0] + at[1] * search.ranges.rdma[1];
    }
    if (best[0] > 0) run->nvl_chunk = best[0];
    if (best[1] > 0) run->rdma_chunk = best[1];
    if (best[0] > 0 || best[1] > 0) tuning_slots(run);
    /* A caller's chunk beyond the library's limits would never find room: grow the rings. */
    if (run->nvl_slots < 2 * run->nvl_chunk) run->nvl_slots = 2 * run->nvl_chunk;
    if (run->nvl_slots < run->plan->nodes) run->nvl_slots = run->plan->nodes;
    if (run->rdma_slots < 2 * run->rdma_chunk) run->rdma_slots = 2 * run->rdma_chunk;
    assert(run->nvl_slots >= run->nvl_chunk && run->rdma_slots >= run->rdma_chunk);
    assert(run->nvl_chunk > 0 && run->rdma_chunk > 0);
    return 0;
}
