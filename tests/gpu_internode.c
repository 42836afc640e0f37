/* tests/gpu_internode.c - the handle of a dispatch across nodes is the reference's, table by table.
 *
 * Method: random routings with empty ranks, columns without expert and duplicates, several numbers
 * of nodes, GPUs a node and channels. */
#include "ref/layout.h"
#include "ref/rows.h"
#include "tests/gpu_support.h"

Suite *gpu_internode_suite(void);

enum part {
    STARTS,
    IDX,
    SENT_NODE,
    SENT_RANK,
    FROM_NODE,
    FROM_NODE_SUM,
    FROM_RANK,
    FROM_RANK_SUM,
    NODE_HEAD,
    RAIL_HEAD,
    PARTS
};

enum { SEEDS = 10 };

struct shape {
    uint32_t ranks, experts, topk, ranks_per_node, nodes, channels;
};

static const struct shape shapes[] = {{16, 64, 8, 8, 2, 4},
                                      {12, 36, 9, 4, 3, 7},
                                      {8, 256, 8, 2, 4, 12},
                                      {4, 8, 1, 1, 4, 1},
                                      {8, 32, 4, 8, 1, 10}};

struct layer {
    struct shape shape;
    struct exchange made;
    uint64_t rails;
    uint64_t *rail_start; /* Of each forwarder. */
    struct ref_internode_out expected;
    uint64_t bytes[PARTS]; /* Of the expected tables. */
    uint64_t seed;
};

static struct layer make_layer(uint64_t seed)
{
    struct layer layer = {.shape = shapes[seed % (sizeof shapes / sizeof shapes[0])], .seed = seed};
    const struct shape *shape = &layer.shape;
    const uint64_t ranks = shape->ranks, by_node = ranks * shape->nodes, by_rank = ranks * ranks;
    uint64_t *starts = TEST_ARRAY(uint64_t, ranks * ranks + 1);

    layer.made = exchange_random(seed, shape->ranks, shape->experts, shape->topk, 90, 128);
    layer.rails = ref_rows_rails(&layer.made.routing, shape->ranks_per_node, starts);
    layer.rail_start = TEST_ARRAY(uint64_t, ranks + 1);
    for (uint64_t r = 0; r <= ranks; r++) layer.rail_start[r] = starts[r * ranks];
    layer.bytes[SENT_NODE] = layer.bytes[FROM_NODE] = 4 * by_node * shape->channels;
    layer.bytes[SENT_RANK] = layer.bytes[FROM_RANK] = 4 * by_rank * shape->channels;
    layer.bytes[FROM_NODE_SUM] = 4 * by_node;
    layer.bytes[FROM_RANK_SUM] = 4 * by_rank;
    layer.bytes[NODE_HEAD] = 4 * layer.made.tokens * shape->nodes;
    layer.bytes[RAIL_HEAD] = 4 * layer.rails * shape->ranks_per_node;
    int32_t *tables[PARTS];
    for (int p = SENT_NODE; p < PARTS; p++)
        tables[p] = (int32_t *)(void *)TEST_ARRAY(uint8_t, layer.bytes[p] + 4);
    layer.expected = (struct ref_internode_out){
        tables[SENT_NODE], tables[SENT_RANK],     tables[FROM_NODE], tables[FROM_NODE_SUM],
        tables[FROM_RANK], tables[FROM_RANK_SUM], tables[NODE_HEAD], tables[RAIL_HEAD]};
    ref_internode_handle(&layer.made.routing, shape->ranks_per_node, shape->channels,
                         &layer.expected);
    return layer;
}

static struct gpu *open_layer(const struct layer *layer, int place)
{
    const struct shape *shape = &layer->shape;
    const uint64_t ranks = shape->ranks, *tokens = layer->made.routing.token_start;
    uint64_t *each = TEST_ARRAY(uint64_t, ranks + 1);
    struct gpu *gpu = test_gpu_open(place);

    for (uint64_t r = 0; r <= ranks; r++) each[r] = r;
    struct gpu_part parts[PARTS] = {
        [STARTS] = {NULL, ranks + 1, 8},
        [IDX] = {NULL, layer->made.tokens, 8 * (uint64_t)shape->topk},
        [NODE_HEAD] = {tokens, 0, 4 * (uint64_t)shape->nodes},
        [RAIL_HEAD] = {layer->rail_start, 0, 4 * (uint64_t)shape->ranks_per_node}};
    for (int p = SENT_NODE; p <= FROM_RANK_SUM; p++)
        parts[p] = (struct gpu_part){each, 0, layer->bytes[p] / ranks};
    TEST_GPU(gpu_plan, gpu, shape->ranks, parts, PARTS);
    for (uint32_t p = 0; p < PARTS; p++) TEST_GPU(gpu_fill, gpu, gpu_plan_buffer(gpu, p), 0xFF);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, STARTS), tokens);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, IDX), layer->made.routing.topk_idx);
    return gpu;
}

static void equals(struct gpu *gpu, const struct layer *layer, enum part part, const void *expected,
                   const char *what)
{
    test_gpu_equals(gpu, gpu_plan_buffer(gpu, part), expected, layer->bytes[part], what,
                    layer->seed);
}

START_TEST(every_table_and_both_heads_are_the_references)
{
    struct layer layer = make_layer((uint64_t)(_i % SEEDS) + 1);
    const struct shape *shape = &layer.shape;
    const struct ref_internode_out *expected = &layer.expected;
    struct gpu *gpu = open_layer(&layer, _i / SEEDS);
    const struct gpu_routing routing = {.ranks = shape->ranks,
                                        .experts = shape->experts,
                                        .topk = shape->topk,
                                        .token_start = layer.made.routing.token_start,
                                        .starts = gpu_plan_buffer(gpu, STARTS),
                                        .topk_idx = gpu_plan_buffer(gpu, IDX)};
    const struct gpu_internode_out out = {
        gpu_plan_buffer(gpu, SENT_NODE), gpu_plan_buffer(gpu, SENT_RANK),
        gpu_plan_buffer(gpu, FROM_NODE), gpu_plan_buffer(gpu, FROM_NODE_SUM),
        gpu_plan_buffer(gpu, FROM_RANK), gpu_plan_buffer(gpu, FROM_RANK_SUM),
        gpu_plan_buffer(gpu, NODE_HEAD), gpu_plan_buffer(gpu, RAIL_HEAD)};

    TEST_GPU(gpu_internode_handle, gpu, &routing, shape->ranks_per_node, shape->channels, &out);
    equals(gpu, &layer, SENT_NODE, expected->rdma_channel_prefix_matrix, "to nodes");
    equals(gpu, &layer, SENT_RANK, expected->gbl_channel_prefix_matrix, "to ranks");
    equals(gpu, &layer, FROM_NODE, expected->recv_rdma_channel_prefix_matrix, "from nodes");
    equals(gpu, &layer, FROM_NODE_SUM, expected->recv_rdma_rank_prefix_sum, "sums of nodes");
    equals(gpu, &layer, FROM_RANK, expected->recv_gbl_channel_prefix_matrix, "from ranks");
    equals(gpu, &layer, FROM_RANK_SUM, expected->recv_gbl_rank_prefix_sum, "sums of ranks");
    equals(gpu, &layer, NODE_HEAD, expected->send_rdma_head, "heads to nodes");
    equals(gpu, &layer, RAIL_HEAD, expected->send_nvl_head, "heads to GPUs");

    ref_internode_head_rewrite(&layer.made.routing, shape->ranks_per_node, shape->channels,
                               expected->send_rdma_head, expected->send_nvl_head);
    for (int round = 0; round < 2; round++) { /* Twice is the same as once. */
        TEST_GPU(gpu_internode_head_rewrite, gpu, &routing, shape->ranks_per_node, shape->channels,
                 &out);
        equals(gpu, &layer, NODE_HEAD, expected->send_rdma_head, "rewritten heads to nodes");
        equals(gpu, &layer, RAIL_HEAD, expected->send_nvl_head, "rewritten heads to GPUs");
    }
    gpu_close(gpu);
}
END_TEST

Suite *gpu_internode_suite(void)
{
    Suite *suite = suite_create("internode");
    TCase *tests = tcase_create("internode");
    tcase_add_loop_test(tests, every_table_and_both_heads_are_the_references, 0,
                        SEEDS * test_gpu_places());
    suite_add_tcase(suite, tests);
    return suite;
}
