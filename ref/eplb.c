/* ref/eplb.c - replicas of experts, packed on GPUs. */
#include "ref/eplb.h"

#include <assert.h>
#include <string.h>

bool ref_eplb_is_hierarchical(const struct ref_eplb_shape *shape)
{
    assert(shape->nodes > 0);
    return shape->groups % shape->nodes == 0;
}

bool ref_eplb_shape_ok(const struct ref_eplb_shape *shape)
{
    return shape->experts > 0 && shape->groups > 0 && shape->nodes > 0 && shape->gpus > 0 &&
           shape->replicas >= shape->experts && shape->replicas <= INT32_MAX &&
           shape->replicas % shape->gpus == 0 && shape->gpus % shape->nodes == 0 &&
           shape->experts % shape->groups == 0;
}

/* Where the parts of the caller's scratch stand. */
struct scratch {
    uint32_t *order, *merged;    /* [replicas] each: items by weight. */
    uint32_t *bin, *slot, *held; /* [replicas] each: what pack answers, and bins' fill. */
    uint32_t *expert, *ordinal;  /* [replicas] each: one node's replicas before packing. */
    uint32_t *node_major;        /* [experts] */
    float *weight, *load, *sums; /* [replicas] each. */
};

static struct scratch split_scratch(uint32_t replicas, uint32_t *words, float *loads)
{
    const uint64_t n = replicas;
    return (struct scratch){.order = words,
                            .merged = words + n,
                            .bin = words + 2 * n,
                            .slot = words + 3 * n,
                            .held = words + 4 * n,
                            .expert = words + 5 * n,
                            .ordinal = words + 6 * n,
                            .node_major = words + 7 * n,
                            .weight = loads,
                            .load = loads + n,
                            .sums = loads + 2 * n};
}

/* Items by weight descending, index ascending: merging runs of 1, 2, 4, ... keeps ties in order. */
static void sort_descending(const float *weight, uint32_t count, struct scratch *scratch)
{
    for (uint32_t i = 0; i < count; i++) scratch->order[i] = i;
    for (uint64_t run = 1; run < count; run *= 2) {
        for (uint64_t first = 0; first < count; first += 2 * run) {
            const uint64_t middle = first + run < count ? first + run : count;
            const uint64_t end = first + 2 * run < count ? first + 2 * run : count;
            uint64_t left = first, right = middle;
            for (uint64_t at = first; at < end; at++) {
                const bool take_left =
                    right == end || (left < middle &&
                                     weight[scratch->order[left]] >= weight[scratch->order[right]]);
                scratch->merged[at] = scratch->order[take_left ? left++ : right++];
            }
        }
        uint32_t *swapped = scratch->order;
        scratch->order = scratch->merged;
        scratch->merged = swapped;
    }
}

/* Give count items to bins, count / bins each: heaviest item first, to the lightest bin that has
 * room. Fills scratch->bin and ->slot by item. One item a bin: item i is bin i, unsorted. */
static void pack(const float *weight, uint32_t count, uint32_t bins, struct scratch *scratch)
{
    const uint32_t room = count / bins;
    assert(count % bins == 0 && room > 0);
    if (room == 1) {
        for (uint32_t i = 0; i < count; i++) scratch->bin[i] = i;
        memset(scratch->slot, 0, count * sizeof *scratch->slot);
        return;
    }
    sort_descending(weight, count, scratch);
    for (uint32_t b = 0; b < bins; b++) {
        scratch->sums[b] = 0;
        scratch->held[b] = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t item = scratch->order[i];
        uint32_t lightest = bins;
        for (uint32_t b = 0; b < bins; b++)
            if (scratch->held[b] < room &&
                (lightest == bins || scratch->sums[b] < scratch->sums[lightest]))
                lightest = b;
        assert(lightest < bins);
        scratch->bin[item] = lightest;
        scratch->slot[item] = scratch->held[lightest]++;
        scratch->sums[lightest] += weight[item];
    }
}

/* Experts in the order of the nodes that their groups go to. */
static void order_by_node(const struct ref_eplb_shape *shape, uint32_t groups, uint32_t nodes,
                          const float *weights, struct scratch *scratch)
{
    const uint32_t group_size = shape->experts / groups, groups_per_node = groups / nodes;
    for (uint32_t g = 0; g < groups; g++) {
        scratch->weight[g] = 0;
        for (uint32_t i = 0; i < group_size; i++)
            scratch->weight[g] += weights[(uint64_t)g * group_size + i];
    }
    pack(scratch->weight, groups, nodes, scratch);
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t place = scratch->bin[g] * groups_per_node + scratch->slot[g];
        for (uint32_t i = 0; i < group_size; i++)
            scratch->node_major[place * group_size + i] = g * group_size + i;
    }
}

/* count replicas of a node's experts: one of each, then again and again one more of the expert
 * whose replicas carry most. Fills scratch->expert (index in experts) and ->ordinal. */
static void replicate(const uint32_t *experts, uint32_t expert_count, uint32_t count,
                      const float *weights, uint32_t *logcnt, struct scratch *scratch)
{
    assert(expert_count > 0 && expert_count <= count);
    for (uint32_t e = 0; e < expert_count; e++) {
        scratch->expert[e] = e;
        scratch->ordinal[e] = 0;
        logcnt[experts[e]] = 1;
        scratch->load[e] = weights[experts[e]];
    }
    for (uint32_t r = expert_count; r < count; r++) {
        uint32_t heaviest = 0;
        for (uint32_t e = 1; e < expert_count; e++)
            if (scratch->load[e] > scratch->load[heaviest]) heaviest = e;
        const uint32_t logical = experts[heaviest];
        scratch->expert[r] = heaviest;
        scratch->ordinal[r] = logcnt[logical]++;
        scratch->load[heaviest] = weights[logical] / (float)logcnt[logical];
    }
}

void ref_eplb_layer(const struct ref_eplb_shape *shape, const float *weights,
                    struct ref_logical *phy2log, uint32_t *ordinal, uint32_t *logcnt,
                    uint32_t *words, float *loads)
{
    assert(ref_eplb_shape_ok(shape));
    const bool hierarchical = ref_eplb_is_hierarchical(shape);
    const uint32_t nodes = hierarchical ? shape->nodes : 1;
    const uint32_t groups = hierarchical ? shape->groups : 1;
    const uint32_t node_experts = shape->experts / nodes, node_replicas = shape->replicas / nodes;
    const uint32_t gpu_replicas = shape->replicas / shape->gpus;
    struct scratch scratch = split_scratch(shape->replicas, words, loads);

    order_by_node(shape, groups, nodes, weights, &scratch);
    for (uint32_t node = 0; node < nodes; node++) {
        const uint32_t *experts = scratch.node_major + (uint64_t)node * node_experts;
        replicate(experts, node_experts, node_replicas, weights, logcnt, &scratch);
        for (uint32_t r = 0; r < node_replicas; r++) {
            const uint32_t logical = experts[scratch.expert[r]];
            scratch.weight[r] = weights[logical] / (float)logcnt[logical];
        }
        pack(scratch.weight, node_replicas, shape->gpus / nodes, &scratch);
        for (uint32_t r = 0; r < node_replicas; r++) {
            const uint32_t place =
                node * node_replicas + scratch.bin[r] * gpu_replicas + scratch.slot[r];
            assert(place < shape->replicas);
            phy2log[place].id = (int32_t)experts[scratch.expert[r]];
            ordinal[place] = scratch.ordinal[r];
        }
    }
}

void ref_eplb_log2phy(const struct ref_eplb_shape *shape, const struct ref_logical *phy2log,
                      const uint32_t *ordinal, uint32_t width, struct ref_physical *log2phy)
{
    const uint64_t cells = (uint64_t)shape->experts * width;
    for (uint64_t i = 0; i < cells; i++) log2phy[i].id = -1;
    for (uint32_t p = 0; p < shape->replicas; p++) {
        assert(phy2log[p].id >= 0 && (uint32_t)phy2log[p].id < shape->experts);
        assert(ordinal[p] < width);
        struct ref_physical *cell = &log2phy[(uint64_t)phy2log[p].id * width + ordinal[p]];
        assert(cell->id == -1);
        cell->id = (int32_t)p;
    }
}

void ref_eplb_gpu_load(const struct ref_eplb_shape *shape, const float *weights,
                       const struct ref_logical *phy2log, const uint32_t *logcnt, double *gpu_load)
{
    const uint32_t gpu_replicas = shape->replicas / shape->gpus;
    for (uint32_t g = 0; g < shape->gpus; g++) {
        gpu_load[g] = 0;
        for (uint32_t p = g * gpu_replicas; p < (g + 1) * gpu_replicas; p++)
            gpu_load[g] += (double)weights[phy2log[p].id] / (double)logcnt[phy2log[p].id];
    }
}

/* The lowest replica of the expert on GPUs [first, first + gpus); -1 when there is none. */
static int32_t nearest(const struct ref_placement *placement, uint32_t expert, uint32_t first,
                       uint32_t gpus)
{
    const struct ref_physical *replicas = placement->log2phy + (uint64_t)expert * placement->width;
    const uint32_t gpu_replicas = placement->shape.replicas / placement->shape.gpus;
    int32_t found = -1;

    for (uint32_t r = 0; r < placement->logcnt[expert]; r++) {
        const uint32_t gpu = (uint32_t)replicas[r].id / gpu_replicas;
        if (gpu - first < gpus && (found < 0 || replicas[r].id < found)) found = replicas[r].id;
    }
    return found;
}

/* Of the expert's replicas the one dealt to fewest ranks so far, the lowest id among those. */
static int32_t deal(const struct ref_placement *placement, uint32_t expert, uint32_t *dealt)
{
    const struct ref_physical *replicas = placement->log2phy + (uint64_t)expert * placement->width;
    uint32_t least = 0;
    for (uint32_t r = 1; r < placement->logcnt[expert]; r++)
        if (dealt[r] < dealt[least] ||
            (dealt[r] == dealt[least] && replicas[r].id < replicas[least].id))
            least = r;
    dealt[least]++;
    return replicas[least].id;
}

void ref_replica_static(const struct ref_placement *placement, struct ref_physical *table,
                        uint32_t *scratch)
{
    const struct ref_eplb_shape *shape = &placement->shape;
    const uint32_t node_gpus = shape->gpus / shape->nodes;

    for (uint32_t e = 0; e < shape->experts; e++) {
        assert(placement->logcnt[e] >= 1 && placement->logcnt[e] <= placement->width);
        memset(scratch, 0, placement->width * sizeof *scratch);
        for (uint32_t gpu = 0; gpu < shape->gpus; gpu++) {
            int32_t chosen = nearest(placement, e, gpu, 1);
            if (chosen < 0) chosen = nearest(placement, e, gpu / node_gpus * node_gpus, node_gpus);
            if (chosen < 0) chosen = deal(placement, e, scratch);
            table[(uint64_t)gpu * shape->experts + e].id = chosen;
        }
    }
}

static struct ref_physical replica(const struct ref_placement *placement, struct ref_logical expert,
                                   uint64_t number)
{
    assert(expert.id >= 0 && (uint32_t)expert.id < placement->shape.experts);
    const uint32_t count = placement->logcnt[expert.id];
    assert(count >= 1 && count <= placement->width);
    return placement->log2phy[(uint64_t)expert.id * placement->width + number % count];
}

struct ref_physical ref_replica_row_mod(const struct ref_placement *placement,
                                        struct ref_logical expert, uint64_t row)
{
    return replica(placement, expert, row);
}

struct ref_physical ref_replica_row_hash(const struct ref_placement *placement,
                                         struct ref_logical expert, uint64_t row)
{
    return replica(placement, expert, (uint32_t)(row * UINT64_C(2654435769)));
}
