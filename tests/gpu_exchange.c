/* tests/gpu_exchange.c - whole exchanges through the backend table: the kernels against the
 * reference, in every mode, recipe and number of nodes, faultless and with every fault.
 *
 * Method: random routings with empty ranks, columns without expert, duplicates and NaN weights
 * beside them. Group operations byte by byte; phases with the messages in a shuffled order, one of
 * them perhaps lost, doubled, swapped or damaged: then the same rows are wrong on both sides. */
#include "ref/quantise.h"
#include "sim/backends.h"
#include "sim/received.h"
#include "sim/transport.h"
#include "tests/gpu_support.h"

Suite *gpu_exchange_suite(void);

enum { SEEDS = 24, QUICK_SEEDS = 6, QUICK_FAULT_SEEDS = 3, MLP_SEEDS = 8, LEAST_MLP_SEED = 4 };
enum fault { FAULT_NONE, FAULT_LOST, FAULT_DOUBLED, FAULT_SWAPPED, FAULT_DAMAGED, FAULTS };

struct shape {
    enum sim_mode mode;
    uint32_t ranks, experts, topk, ranks_per_node, hidden;
};
static const struct shape shapes[] = {
    {SIM_MODE_LL, 8, 32, 4, 8, 512},      {SIM_MODE_NORMAL, 8, 32, 4, 8, 512},
    {SIM_MODE_NORMAL, 16, 64, 8, 8, 256}, {SIM_MODE_LL, 2, 6, 3, 8, 640},
    {SIM_MODE_NORMAL, 12, 24, 9, 4, 128}, {SIM_MODE_LL, 16, 64, 11, 8, 1024}};
static const uint32_t recipes[] = {REF_RECIPE_LL, REF_RECIPE_BF16, REF_RECIPE_LL_UE8M0,
                                   REF_RECIPE_LL_ROUND, REF_RECIPE_PY_CUDA};

struct bench {
    uint64_t seed;
    struct exchange made;
    struct sim_traffic traffic;
    struct sim_layer_input input;
    const struct sim_backend_ops *ops[2]; /* The reference, the kernels. */
    void *state[2];
    struct sim_results results[2];
};

/* The MLP, slow on the reference, for early seeds that have FP8 rows: in normal mode on one node
 * and on several, and in low latency. */
static enum sim_expert expert_of(uint64_t seed)
{
    if (seed % 3 == 0) return SIM_EXPERT_IDENTITY;
    if (test_least() && seed != LEAST_MLP_SEED) return SIM_EXPERT_STANDIN;
    if (seed <= MLP_SEEDS && recipes[seed % 5] != REF_RECIPE_BF16) return SIM_EXPERT_MLP;
    return SIM_EXPERT_STANDIN;
}

static void open_bench(struct bench *bench, uint64_t seed, int place, enum sim_transport transport)
{
    const struct shape *shape = &shapes[seed % 6];
    const struct sim_traffic_shape traffic = {
        .mode = shape->mode, .ranks_per_node = shape->ranks_per_node, .nvlink = true};
    const struct sim_backend_place where = {.transport = transport,
                                            .gpus = place == 0 ? 1 : test_gpu_count(),
                                            .interleave = place == 2,
                                            .in_flight = seed % 7 == 0 ? 2 : 1};
    char err[256] = "";

    memset(bench, 0, sizeof *bench);
    bench->seed = seed;
    bench->made =
        exchange_random(seed, shape->ranks, shape->experts, shape->topk, 40, shape->hidden);
    ck_assert_msg(
        sim_traffic_build(&bench->made.routing, &traffic, &bench->traffic, err, sizeof err) == 0,
        "%s", err);
    bench->input = (struct sim_layer_input){.routing = &bench->made.routing,
                                            .traffic = &bench->traffic,
                                            .hidden = shape->hidden,
                                            .recipe = recipes[seed % 5],
                                            .expert = expert_of(seed),
                                            .mlp_inter = REF_GROUP_CHANNELS,
                                            .weight_seed = seed,
                                            .x = bench->made.x};
    if (shape->mode == SIM_MODE_NORMAL && seed % 2 == 1) bench->input.bias0 = bench->made.x;
    if (shape->mode == SIM_MODE_NORMAL && seed % 4 == 1) bench->input.bias1 = bench->made.x;
    bench->ops[0] = sim_backend_ref();
    bench->ops[1] = sim_backend_cuda();
    for (int b = 0; b < 2; b++) {
        ck_assert_msg(sim_backend_open(bench->ops[b], &where, &bench->state[b], err, sizeof err) ==
                          0,
                      "%s", err);
        ck_assert_int_eq(sim_results_reserve(&bench->results[b], &bench->input, err, sizeof err),
                         0);
    }
}

static void close_bench(struct bench *bench)
{
    for (int b = 0; b < 2; b++) {
        bench->ops[b]->close(bench->state[b]);
        sim_results_free(&bench->results[b]);
    }
    sim_traffic_free(&bench->traffic);
}

/* Rows of one array that differ between two results: their numbers, added up into a hash. */
static uint64_t differing(const void *a, const void *b, uint64_t rows, uint64_t row_bytes,
                          uint64_t *hash)
{
    uint64_t count = 0;
    for (uint64_t row = 0; a != NULL && row < rows; row++) {
        if (memcmp((const uint8_t *)a + row * row_bytes, (const uint8_t *)b + row * row_bytes,
                   row_bytes) == 0)
            continue;
        count++;
        *hash = *hash * 31 + row;
    }
    return count;
}

struct wrong_rows {
    uint64_t received, expert, combined, hash;
};

static struct wrong_rows compare(const struct bench *bench, const struct sim_results *a,
                                 const struct sim_results *b)
{
    const struct sim_row_shape shape = sim_row_shape(&bench->input);
    const uint64_t rows = bench->traffic.received_rows, topk = bench->made.routing.topk;
    const void *scales_a = a->received.scales != NULL ? (const void *)a->received.scales
                                                      : (const void *)a->received.scales_ue8m0;
    const void *scales_b = b->received.scales != NULL ? (const void *)b->received.scales
                                                      : (const void *)b->received.scales_ue8m0;
    struct wrong_rows wrong = {0};
    wrong.received =
        differing(a->received.payload, b->received.payload, rows, shape.payload_bytes,
                  &wrong.hash) +
        differing(scales_a, scales_b, rows, shape.scale_bytes, &wrong.hash) +
        differing(a->received.src_token, b->received.src_token, rows, 4, &wrong.hash) +
        differing(a->received.topk_idx, b->received.topk_idx, rows, 8 * topk, &wrong.hash) +
        differing(a->received.topk_weights, b->received.topk_weights, rows, 4 * topk, &wrong.hash) +
        differing(a->received.counts, b->received.counts, shape.blocks, 4, &wrong.hash);
    wrong.expert =
        differing(a->expert_out, b->expert_out, rows, 2 * bench->input.hidden, &wrong.hash);
    wrong.combined = differing(a->combined.x, b->combined.x, bench->made.tokens,
                               2 * bench->input.hidden, &wrong.hash) +
                     differing(a->combined.topk_weights, b->combined.topk_weights,
                               bench->made.tokens, 4 * topk, &wrong.hash);
    return wrong;
}

static void play_group(struct bench *bench, int b)
{
    const struct sim_backend_ops *ops = bench->ops[b];
    struct sim_results *out = &bench->results[b];
    char err[256] = "";
    ck_assert_msg(
        ops->dispatch(bench->state[b], &bench->input, &out->received, err, sizeof err) == 0 &&
            ops->expert(bench->state[b], &bench->input, &out->received, out->expert_out, err,
                        sizeof err) == 0 &&
            ops->combine(bench->state[b], &bench->input, out->expert_out,
                         out->received.topk_weights, &out->combined, err, sizeof err) == 0,
        "%s: %s", ops->name, err);
}

static void check_group(uint64_t seed, int place, enum sim_transport transport)
{
    struct bench bench;
    open_bench(&bench, seed, place, transport);
    play_group(&bench, 0);
    play_group(&bench, 1);
    const struct wrong_rows wrong = compare(&bench, &bench.results[0], &bench.results[1]);
    ck_assert_msg(wrong.received + wrong.expert + wrong.combined == 0,
                  "seed %" PRIu64 ": %" PRIu64 " received, %" PRIu64 " expert, %" PRIu64
                  " combined rows differ",
                  bench.seed, wrong.received, wrong.expert, wrong.combined);
    close_bench(&bench);
}

START_TEST(group_operations_are_the_references)
{
    if (test_quick() && _i % SEEDS >= QUICK_SEEDS) return;
    if (test_least() && _i / SEEDS != test_gpu_places() - 1) return;
    check_group((uint64_t)(_i % SEEDS) + 1, _i / SEEDS, SIM_TRANSPORT_DRIVEN);
}
END_TEST

/* The direct transport, where it takes the layer: in one launch a rank when each has a GPU to
 * itself, split where somebody else may be at work on it. */
START_TEST(group_operations_on_the_direct_transport_are_the_references)
{
    const uint64_t seed = (uint64_t)(_i % SEEDS) + 1;
    struct bench bench;
    char why[192];

    if (test_quick() && _i % SEEDS >= QUICK_SEEDS) return;
    if (test_least() && _i / SEEDS != test_gpu_places() - 1) return;
    open_bench(&bench, seed, _i / SEEDS, SIM_TRANSPORT_DRIVEN);
    const struct sim_transport_shape shape = sim_transport_shape(&bench.input);
    const bool takes = sim_transport_takes(&shape, test_gpu_count(), why, sizeof why) == 0;
    close_bench(&bench);
    if (takes) check_group(seed, _i / SEEDS, SIM_TRANSPORT_DIRECT);
}
END_TEST

/* The direction's messages, hop by hop in a shuffled order, with one fault among the first hop's;
 * returns how many. */
static uint64_t shuffle(const struct bench *bench, enum sim_direction direction, enum fault fault,
                        struct sim_message *out)
{
    const struct sim_message *messages = bench->traffic.messages[direction];
    const uint64_t count = bench->traffic.message_count[direction];
    uint64_t state = bench->seed + direction, first = 0;

    for (uint64_t i = 0; i < count; i++) {
        if (i > 0 && messages[i].hop != messages[i - 1].hop) first = i;
        const uint64_t at = first + test_below(&state, (uint32_t)(i - first) + 1);
        out[i] = out[at];
        out[at] = messages[i];
    }
    if (count < 2 || out[0].hop != out[1].hop) return count;
    uint64_t other = 0; /* A message between the same two ranks. */
    for (uint64_t i = 1; other == 0 && i < count; i++)
        if (out[i].hop == out[0].hop && out[i].src_rank == out[0].src_rank &&
            out[i].dst_rank == out[0].dst_rank)
            other = i;
    switch (fault) {
    case FAULT_LOST: memmove(out, out + 1, (count - 1) * sizeof *out); return count - 1;
    case FAULT_DOUBLED:
        if (other > 0) out[0].dst_row = out[other].dst_row;
        break;
    case FAULT_SWAPPED:
        if (other > 0) {
            const uint64_t row = out[0].dst_row;
            out[0].dst_row = out[other].dst_row;
            out[other].dst_row = row;
        }
        break;
    case FAULT_DAMAGED:
        out[0].corrupt_byte = 21;
        out[0].corrupt_xor = 0x41;
        break;
    case FAULT_NONE:
    case FAULTS: break;
    }
    return count;
}

static void play_direction(struct bench *bench, int b, enum sim_direction direction,
                           enum fault fault)
{
    const struct sim_backend_ops *ops = bench->ops[b];
    const uint32_t ranks = bench->made.routing.ranks;
    struct sim_message *messages = (struct sim_message *)test_alloc(
        bench->traffic.message_count[direction], sizeof(struct sim_message));
    const uint64_t count = shuffle(bench, direction, fault, messages);
    uint64_t split = 0;
    char err[256] = "";

    while (split < count && messages[split].hop == 0) split++;
    const uint64_t half = split / 2;
    for (uint32_t r = 0; r < ranks; r++)
        ck_assert_int_eq(ops->pack(bench->state[b], direction, r, err, sizeof err), 0);
    ck_assert_int_eq(ops->deliver(bench->state[b], direction, messages, half, err, sizeof err), 0);
    ck_assert_int_eq(
        ops->deliver(bench->state[b], direction, messages + half, split - half, err, sizeof err),
        0);
    if (bench->traffic.rail_rows > 0)
        for (uint32_t r = 0; r < ranks; r++)
            ck_assert_int_eq(ops->forward(bench->state[b], direction, r, err, sizeof err), 0);
    ck_assert_int_eq(
        ops->deliver(bench->state[b], direction, messages + split, count - split, err, sizeof err),
        0);
    for (uint32_t r = 0; r < ranks; r++)
        ck_assert_int_eq(ops->unpack(bench->state[b], direction, r, err, sizeof err), 0);
}

static struct sim_results play_phases(struct bench *bench, int b, enum sim_direction faulty,
                                      enum fault fault)
{
    const struct sim_backend_ops *ops = bench->ops[b];
    struct sim_results shown = {0};
    char err[256] = "";

    ck_assert_msg(ops->begin(bench->state[b], &bench->input, err, sizeof err) == 0, "%s", err);
    play_direction(bench, b, SIM_DISPATCH, faulty == SIM_DISPATCH ? fault : FAULT_NONE);
    for (uint32_t r = 0; r < bench->made.routing.ranks; r++)
        ck_assert_int_eq(ops->run_expert(bench->state[b], r, err, sizeof err), 0);
    play_direction(bench, b, SIM_COMBINE, faulty == SIM_COMBINE ? fault : FAULT_NONE);
    ck_assert_msg(ops->read(bench->state[b], &shown.received, &shown.expert_out, &shown.combined,
                            err, sizeof err) == 0,
                  "%s", err);
    return shown;
}

START_TEST(phases_spoil_the_same_rows_as_the_references)
{
    const enum fault fault = (enum fault)(_i % FAULTS);
    const enum sim_direction faulty = _i / FAULTS % 2 == 0 ? SIM_DISPATCH : SIM_COMBINE;
    const int seed = _i / FAULTS / 2;
    struct bench bench;

    if (test_quick() && seed % SEEDS >= QUICK_FAULT_SEEDS) return;
    if (test_least() && (fault == FAULT_LOST || fault == FAULT_DOUBLED || fault == FAULT_SWAPPED))
        return; /* Other lists of messages for the same kernels. */
    if (test_least() && seed / SEEDS != test_gpu_places() - 1) return;
    open_bench(&bench, (uint64_t)(seed % SEEDS) + 1, seed / SEEDS, SIM_TRANSPORT_DRIVEN);
    play_group(&bench, 0);
    const struct sim_results ref = play_phases(&bench, 0, faulty, fault);
    const struct sim_results cuda = play_phases(&bench, 1, faulty, fault);
    const struct wrong_rows between = compare(&bench, &ref, &cuda);
    const struct wrong_rows wrong = compare(&bench, &bench.results[0], &cuda);
    const struct wrong_rows expected = compare(&bench, &bench.results[0], &ref);
    ck_assert_msg(between.received + between.expert + between.combined == 0,
                  "seed %" PRIu64 ", fault %d: %" PRIu64 " received, %" PRIu64 " expert, %" PRIu64
                  " combined rows are not the reference's",
                  bench.seed, fault, between.received, between.expert, between.combined);
    ck_assert_mem_eq(&wrong, &expected, sizeof wrong);
    if (fault == FAULT_NONE) ck_assert_uint_eq(wrong.received + wrong.expert + wrong.combined, 0);
    if (fault == FAULT_LOST && bench.traffic.received_rows > 1)
        ck_assert_uint_gt(wrong.received + wrong.combined, 0);
    close_bench(&bench);
}
END_TEST

Suite *gpu_exchange_suite(void)
{
    Suite *suite = suite_create("exchange");
    const int places = test_gpu_places();
    TCase *group = tcase_create("group"), *direct = tcase_create("direct");
    TCase *phases = tcase_create("phases");
    tcase_set_timeout(group, 0);
    tcase_set_timeout(direct, 0);
    tcase_set_timeout(phases, 0);
    tcase_add_loop_test(group, group_operations_are_the_references, 0, SEEDS * places);
    tcase_add_loop_test(direct, group_operations_on_the_direct_transport_are_the_references, 0,
                        SEEDS * places);
    tcase_add_loop_test(phases, phases_spoil_the_same_rows_as_the_references, 0,
                        2 * FAULTS * SEEDS * places);
    suite_add_tcase(suite, group);
    suite_add_tcase(suite, direct);
    suite_add_tcase(suite, phases);
    return suite;
}
