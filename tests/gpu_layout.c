/* tests/gpu_layout.c - counts, prefix matrices and queue places on the GPU are the reference's.
 *
 * Method: random routings with empty ranks, columns without expert and duplicates, several numbers
 * of ranks and channels; every table compared byte by byte. */
#include "ref/layout.h"
#include "ref/ll.h"
#include "ref/normal.h"
#include "tests/gpu_support.h"

Suite *gpu_layout_suite(void);

enum part {
    STARTS,
    IDX,
    LL_BLOCKS,
    NORMAL_BLOCKS,
    PREFIX,
    PER_RANK,
    PER_NODE,
    PER_EXPERT,
    IN_RANK,
    SENT,
    RECEIVED,
    HEADS,
    PARTS
};

enum { SEEDS = 12 };

struct shape {
    uint32_t ranks, experts, topk, ranks_per_node, nodes, channels;
};

static struct shape shape_of(uint64_t seed)
{
    static const struct shape shapes[] = {{8, 32, 4, 8, 1, 10}, {16, 64, 8, 8, 2, 4},
                                          {2, 4, 2, 8, 1, 1},   {12, 36, 9, 4, 3, 7},
                                          {1, 6, 3, 8, 1, 3},   {8, 256, 8, 2, 4, 12}};
    return shapes[seed % 6];
}

static void plan(struct gpu *gpu, const struct exchange *made, const struct shape *shape)
{
    const uint64_t ranks = shape->ranks, row = ranks * sizeof(int32_t);
    const uint64_t *tokens = made->routing.token_start;
    uint64_t *each = TEST_ARRAY(uint64_t, ranks + 1);
    for (uint64_t r = 0; r <= ranks; r++) each[r] = r;
    const struct gpu_part parts[PARTS] = {
        [STARTS] = {NULL, ranks + 1, 8},
        [IDX] = {NULL, made->tokens, 8 * (uint64_t)shape->topk},
        [LL_BLOCKS] = {NULL, ranks * shape->experts + 1, 8},
        [NORMAL_BLOCKS] = {NULL, ranks * ranks + 1, 8},
        [PREFIX] = {NULL, ranks, row},
        [PER_RANK] = {each, 0, row},
        [PER_NODE] = {each, 0, shape->nodes * sizeof(int32_t)},
        [PER_EXPERT] = {each, 0, shape->experts * sizeof(int32_t)},
        [IN_RANK] = {tokens, 0, ranks},
        [SENT] = {each, 0, row * shape->channels},
        [RECEIVED] = {each, 0, row * shape->channels},
        [HEADS] = {tokens, 0, row}};
    TEST_GPU(gpu_plan, gpu, shape->ranks, parts, PARTS);
    for (uint32_t p = 0; p < PARTS; p++) TEST_GPU(gpu_fill, gpu, gpu_plan_buffer(gpu, p), 0xFF);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, STARTS), tokens);
    TEST_GPU(gpu_write, gpu, gpu_plan_buffer(gpu, IDX), made->routing.topk_idx);
}

static struct gpu_routing routing_of(struct gpu *gpu, const struct exchange *made)
{
    return (struct gpu_routing){.ranks = made->routing.ranks,
                                .experts = made->routing.experts,
                                .topk = made->routing.topk,
                                .token_start = made->routing.token_start,
                                .starts = gpu_plan_buffer(gpu, STARTS),
                                .topk_idx = gpu_plan_buffer(gpu, IDX)};
}

struct bench {
    uint64_t seed;
    struct shape shape;
    struct exchange made;
    struct gpu *gpu;
    struct gpu_routing routing;
};

static struct bench open_bench(int i)
{
    struct bench bench = {.seed = (uint64_t)(i % SEEDS) + 1};
    bench.shape = shape_of(bench.seed);
    bench.made = exchange_random(bench.seed, bench.shape.ranks, bench.shape.experts,
                                 bench.shape.topk, 90, 128);
    bench.gpu = test_gpu_open(i / SEEDS);
    plan(bench.gpu, &bench.made, &bench.shape);
    bench.routing = routing_of(bench.gpu, &bench.made);
    return bench;
}

static void equals(const struct bench *bench, enum part part, const void *expected, uint64_t bytes,
                   const char *what)
{
    test_gpu_equals(bench->gpu, gpu_plan_buffer(bench->gpu, part), expected, bytes, what,
                    bench->seed);
}

START_TEST(blocks_begin_where_the_reference_says)
{
    struct bench bench = open_bench(_i);
    const uint64_t ll = (uint64_t)bench.shape.ranks * bench.shape.experts + 1;
    const uint64_t normal = (uint64_t)bench.shape.ranks * bench.shape.ranks + 1;
    uint64_t *expected = TEST_ARRAY(uint64_t, ll > normal ? ll : normal);

    TEST_GPU(gpu_ll_blocks, bench.gpu, &bench.routing, gpu_plan_buffer(bench.gpu, LL_BLOCKS));
    (void)ref_ll_blocks(&bench.made.routing, expected);
    equals(&bench, LL_BLOCKS, expected, ll * 8, "low latency");
    TEST_GPU(gpu_normal_blocks, bench.gpu, &bench.routing,
             gpu_plan_buffer(bench.gpu, NORMAL_BLOCKS));
    (void)ref_normal_blocks(&bench.made.routing, expected);
    equals(&bench, NORMAL_BLOCKS, expected, normal * 8, "normal");
    gpu_close(bench.gpu);
}
END_TEST

START_TEST(layout_outputs_are_the_references)
{
    struct bench bench = open_bench(_i);
    const struct shape *shape = &bench.shape;
    const uint64_t ranks = shape->ranks;
    const struct ref_layout_out expected = {TEST_ARRAY(int32_t, ranks * ranks),
                                            TEST_ARRAY(int32_t, ranks * shape->nodes),
                                            TEST_ARRAY(int32_t, ranks * shape->experts),
                                            TEST_ARRAY(uint8_t, bench.made.tokens * ranks)};
    const struct gpu_layout_out out = {
        gpu_plan_buffer(bench.gpu, PER_RANK), gpu_plan_buffer(bench.gpu, PER_NODE),
        gpu_plan_buffer(bench.gpu, PER_EXPERT), gpu_plan_buffer(bench.gpu, IN_RANK)};

    ref_layout(&bench.made.routing, shape->ranks_per_node, &expected);
    TEST_GPU(gpu_layout, bench.gpu, &bench.routing, shape->ranks_per_node, 0, shape->ranks, &out);
    equals(&bench, PER_RANK, expected.num_tokens_per_rank, ranks * ranks * 4, "per rank");
    equals(&bench, PER_NODE, expected.num_tokens_per_rdma_rank, ranks * shape->nodes * 4,
           "per node");
    equals(&bench, PER_EXPERT, expected.num_tokens_per_expert, ranks * shape->experts * 4,
           "per expert");
    equals(&bench, IN_RANK, expected.is_token_in_rank, bench.made.tokens * ranks, "in rank");
    gpu_close(bench.gpu);
}
END_TEST

START_TEST(prefix_matrices_and_heads_are_the_references)
{
    struct bench bench = open_bench(_i);
    const struct shape *shape = &bench.shape;
    const uint64_t ranks = shape->ranks, cells = ranks * ranks * shape->channels;
    const struct ref_intranode_out expected = {
        TEST_ARRAY(int32_t, ranks * ranks), TEST_ARRAY(int32_t, cells), TEST_ARRAY(int32_t, cells),
        TEST_ARRAY(int32_t, bench.made.tokens * ranks)};
    const struct gpu_intranode_out out = {
        gpu_plan_buffer(bench.gpu, PREFIX), gpu_plan_buffer(bench.gpu, SENT),
        gpu_plan_buffer(bench.gpu, RECEIVED), gpu_plan_buffer(bench.gpu, HEADS)};

    ref_intranode_handle(&bench.made.routing, shape->channels, &expected);
    TEST_GPU(gpu_intranode_handle, bench.gpu, &bench.routing, shape->channels, &out);
    equals(&bench, PREFIX, expected.rank_prefix_matrix, ranks * ranks * 4, "rank prefix");
    equals(&bench, SENT, expected.channel_prefix_matrix, cells * 4, "channel prefix");
    equals(&bench, RECEIVED, expected.recv_channel_prefix_matrix, cells * 4, "received prefix");
    equals(&bench, HEADS, expected.send_head, bench.made.tokens * ranks * 4, "send head");

    ref_send_head_rewrite(&bench.made.routing, shape->channels, expected.send_head);
    for (int round = 0; round < 2; round++) { /* Twice is the same as once. */
        TEST_GPU(gpu_send_head_rewrite, bench.gpu, &bench.routing, shape->channels, shape->ranks,
                 out.send_head);
        equals(&bench, HEADS, expected.send_head, bench.made.tokens * ranks * 4, "rewritten head");
    }
    gpu_close(bench.gpu);
}
END_TEST

Suite *gpu_layout_suite(void)
{
    Suite *suite = suite_create("layout");
    TCase *tests = tcase_create("layout");
    const int rounds = SEEDS * test_gpu_places();
    tcase_add_loop_test(tests, blocks_begin_where_the_reference_says, 0, rounds);
    tcase_add_loop_test(tests, layout_outputs_are_the_references, 0, rounds);
    tcase_add_loop_test(tests, prefix_matrices_and_heads_are_the_references, 0, rounds);
    suite_add_tcase(suite, tests);
    return suite;
}
