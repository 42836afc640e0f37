/* tests/test_normal.c - normal mode gives what the real kernels gave, and what a model of them
 * with queues gives between nodes, where nothing was captured.
 *
 * The model (struct wire) keeps real queues per (forwarder, source node, channel) and per
 * (receiver, forwarder, source node, channel) and never computes a row number: rows come out in
 * the order in which the queues are drained, as the library's receivers drain them. */
#include "tests/exchange.h"

#include "ref/expert.h"
#include "ref/layout.h"
#include "ref/normal.h"
#include "ref/quantise.h"
#include "ref/rows.h"

static const char *const CASES[] = {"normal_ep2_small",   "normal_ep2_masked",  "normal_ep2_hot",
                                    "normal_ep2_onerank", "normal_ep4_small",   "normal_ep4_masked",
                                    "normal_ep4_hot",     "normal_ep4_onerank", "normal_ep8_masked",
                                    "normal_ep8_hot",     "normal_ep8_onerank"};
enum { CASE_COUNT = sizeof CASES / sizeof CASES[0] };

struct received {
    uint64_t *blocks;
    uint64_t *scratch;
    uint64_t row_count;
    struct ref_normal_rows rows;
};

static struct received dispatch(const struct exchange *exchange, uint32_t ranks_per_node,
                                const void *payload, uint64_t payload_bytes, const void *scales,
                                uint64_t scale_bytes)
{
    const uint32_t ranks = exchange->routing.ranks, topk = exchange->routing.topk;
    struct received got = {.blocks = TEST_ARRAY(uint64_t, ranks * ranks + 1),
                           .scratch = TEST_ARRAY(uint64_t, ranks)};
    const struct ref_normal_tokens tokens = {(const uint8_t *)payload, (const uint8_t *)scales,
                                             payload_bytes, scale_bytes};
    got.row_count = ref_normal_blocks(&exchange->routing, got.blocks);
    got.rows.payload = TEST_ARRAY(uint8_t, got.row_count * payload_bytes);
    got.rows.scales = TEST_ARRAY(uint8_t, got.row_count * scale_bytes);
    got.rows.topk_idx = TEST_ARRAY(int64_t, got.row_count * topk);
    got.rows.topk_weights = TEST_ARRAY(float, got.row_count *topk);
    got.rows.src_token = TEST_ARRAY(int32_t, got.row_count);
    got.rows.src_meta = TEST_ARRAY(int32_t, 2 * got.row_count);
    got.rows.counts = TEST_ARRAY(int32_t, ranks * ranks);
    ref_normal_dispatch(&exchange->routing, ranks_per_node, &tokens, got.blocks, got.scratch,
                        &got.rows);
    return got;
}

/* First received row of rank r. */
static uint64_t rank_first(const struct received *got, uint32_t ranks, uint32_t r)
{
    return got->blocks[(uint64_t)r * ranks];
}

START_TEST(captured_dispatch_is_reproduced_bit_for_bit)
{
    struct capture capture;
    if (!capture_open(CASES[_i], &capture)) {
        test_skip("no captures");
        return;
    }
    const struct exchange in = capture_exchange(&capture);
    const uint32_t ranks = in.routing.ranks, topk = in.routing.topk, groups = in.hidden / 128;
    const struct received bf16 = dispatch(&in, ranks, in.x, 2 * in.hidden, NULL, 0);
    const struct received fp8 =
        dispatch(&in, ranks, capture_join(&capture, "x_fp8"), in.hidden,
                 capture_join(&capture, "x_scales"), groups * sizeof(float));

    for (uint32_t r = 0; r < ranks; r++) {
        const uint64_t first = rank_first(&bf16, ranks, r);
        const uint64_t rows = rank_first(&bf16, ranks, r + 1) - first;
        capture_equals(&capture, r, "recv_x", bf16.rows.payload + first * 2 * in.hidden,
                       rows * 2 * in.hidden);
        capture_equals(&capture, r, "recv_x_fp8", fp8.rows.payload + first * in.hidden,
                       rows * in.hidden);
        capture_equals(&capture, r, "recv_x_scales", fp8.rows.scales + first * groups * 4,
                       rows * groups * 4);
        capture_equals(&capture, r, "recv_topk_idx", bf16.rows.topk_idx + first * topk,
                       rows * topk * 8);
        capture_equals(&capture, r, "recv_topk_weights", bf16.rows.topk_weights + first * topk,
                       rows * topk * 4);
        capture_equals(&capture, r, "recv_src_idx", bf16.rows.src_token + first, rows * 4);
    }
}
END_TEST

START_TEST(captured_python_cast_is_reproduced_bit_for_bit)
{
    struct capture capture;
    if (!capture_open(CASES[_i], &capture)) {
        test_skip("no captures");
        return;
    }
    const struct exchange in = capture_exchange(&capture);
    const uint64_t groups = in.hidden / 128;
    uint8_t *codes = TEST_ARRAY(uint8_t, in.tokens * in.hidden);
    float *scales = TEST_ARRAY(float, in.tokens *groups);
    ref_quantise(REF_RECIPE_PY_CUDA, in.x, in.tokens, in.hidden, codes, scales);
    for (uint32_t r = 0; r < in.routing.ranks; r++) {
        const uint64_t first = in.routing.token_start[r];
        const uint64_t count = in.routing.token_start[r + 1] - first;
        capture_equals(&capture, r, "x_fp8", codes + first * in.hidden, count * in.hidden);
        capture_equals(&capture, r, "x_scales", scales + first * groups, count * groups * 4);
    }
}
END_TEST

START_TEST(captured_combine_is_reproduced_bit_for_bit)
{
    struct capture capture;
    if (!capture_open(CASES[_i], &capture)) {
        test_skip("no captures");
        return;
    }
    const struct exchange in = capture_exchange(&capture);
    const uint32_t ranks = in.routing.ranks, topk = in.routing.topk;
    const struct received got = dispatch(&in, ranks, in.x, 2 * in.hidden, NULL, 0);
    uint16_t *expert_out = TEST_ARRAY(uint16_t, got.row_count * in.hidden);
    uint16_t *combined = TEST_ARRAY(uint16_t, in.tokens * in.hidden);
    uint16_t *biased = TEST_ARRAY(uint16_t, in.tokens * in.hidden);
    float *weights = TEST_ARRAY(float, in.tokens *topk);
    struct ref_normal_combine_in combine = {in.hidden, expert_out, got.rows.topk_weights, NULL,
                                            NULL};

    ref_expert_standin(REF_RECIPE_BF16, got.rows.payload, NULL, got.row_count, in.hidden,
                       expert_out);
    ref_normal_combine(&in.routing, ranks, &combine, got.blocks, got.scratch, combined, weights);
    combine.bias0 = (const uint16_t *)capture_join(&capture, "bias0");
    combine.bias1 = (const uint16_t *)capture_join(&capture, "bias1");
    ref_normal_combine(&in.routing, ranks, &combine, got.blocks, got.scratch, biased, NULL);
    for (uint32_t r = 0; r < ranks; r++) {
        const uint64_t row = rank_first(&got, ranks, r);
        const uint64_t rows = rank_first(&got, ranks, r + 1) - row;
        const uint64_t token = in.routing.token_start[r];
        const uint64_t tokens = in.routing.token_start[r + 1] - token;
        capture_equals(&capture, r, "expert_out", expert_out + row * in.hidden,
                       rows * in.hidden * 2);
        capture_equals(&capture, r, "combined_x", combined + token * in.hidden,
                       tokens * in.hidden * 2);
        capture_equals(&capture, r, "combined_x_bias", biased + token * in.hidden,
                       tokens * in.hidden * 2);
        capture_equals(&capture, r, "combined_topk_weights", weights + token * topk,
                       tokens * topk * 4);
    }
}
END_TEST

/* --- the model between nodes --------------------------------------------------------------- */

enum { QUEUE_MAX = 512 };
struct record {
    uint32_t rank;
    uint64_t token;
    uint32_t gpus; /* Bits of the destination node's GPUs. */
    uint64_t rail; /* Its row at the forwarder. */
    uint32_t head; /* Its place in the queue it was put into. */
};
struct queue {
    uint32_t count;
    struct record *records;
};
struct wire {
    uint32_t nodes, gpus, channels;
    struct queue *rdma; /* [forwarder][source node][channel] */
    struct queue *nvl;  /* [receiver][forwarder's GPU][source node][channel] */
};

static struct record *push(struct queue *queue, struct record record)
{
    if (queue->records == NULL) queue->records = TEST_ARRAY(struct record, QUEUE_MAX);
    ck_assert_uint_lt(queue->count, QUEUE_MAX);
    record.head = queue->count;
    queue->records[queue->count] = record;
    return &queue->records[queue->count++];
}

static struct queue *rdma_queue(const struct wire *wire, uint32_t forwarder, uint32_t node,
                                uint32_t channel)
{
    return &wire->rdma[(forwarder * wire->nodes + node) * wire->channels + channel];
}

static struct queue *nvl_queue(const struct wire *wire, uint32_t receiver, uint32_t rail,
                               uint32_t node, uint32_t channel)
{
    return &wire->nvl[((receiver * wire->gpus + rail) * wire->nodes + node) * wire->channels +
                      channel];
}

/* Senders: every rank's tokens, channel by channel, to the same GPU index of each node. */
static void model_send(const struct exchange *in, const struct wire *wire)
{
    const uint32_t local = in->routing.experts / in->routing.ranks;
    for (uint32_t s = 0; s < in->routing.ranks; s++) {
        const uint64_t first = in->routing.token_start[s];
        const uint64_t count = in->routing.token_start[s + 1] - first;
        const uint64_t per = (count + wire->channels - 1) / wire->channels;
        for (uint64_t t = 0; t < count; t++)
            for (uint32_t n = 0; n < wire->nodes; n++) {
                uint32_t gpus = 0;
                for (uint32_t k = 0; k < in->routing.topk; k++) {
                    const int64_t id = in->routing.topk_idx[(first + t) * in->routing.topk + k];
                    if (id >= 0 && id / local / wire->gpus == n)
                        gpus |= 1u << (id / local % wire->gpus);
                }
                if (gpus == 0) continue;
                push(rdma_queue(wire, n * wire->gpus + s % wire->gpus, s / wire->gpus,
                                (uint32_t)(t / per)),
                     (struct record){.rank = s, .token = first + t, .gpus = gpus});
            }
    }
}

/* Forwarders: number the rail rows in order, hand each record to the GPUs of its bits. */
static uint64_t model_forward(const struct exchange *in, const struct wire *wire)
{
    uint64_t rail = 0;
    for (uint32_t f = 0; f < in->routing.ranks; f++)
        for (uint32_t n = 0; n < wire->nodes; n++)
            for (uint32_t c = 0; c < wire->channels; c++) {
                struct queue *queue = rdma_queue(wire, f, n, c);
                for (uint32_t i = 0; i < queue->count; i++) {
                    queue->records[i].rail = rail++;
                    for (uint32_t g = 0; g < wire->gpus; g++)
                        if (queue->records[i].gpus >> g & 1)
                            push(nvl_queue(wire, f / wire->gpus * wire->gpus + g, f % wire->gpus, n,
                                           c),
                                 queue->records[i]);
                }
            }
    return rail;
}

static struct wire model_run(const struct exchange *in, uint32_t gpus, uint32_t channels,
                             uint64_t *rails)
{
    struct wire wire = {in->routing.ranks / gpus, gpus, channels, NULL, NULL};
    wire.rdma = TEST_ARRAY(struct queue, in->routing.ranks * wire.nodes * channels);
    wire.nvl = TEST_ARRAY(struct queue, in->routing.ranks * gpus * wire.nodes * channels);
    model_send(in, &wire);
    *rails = model_forward(in, &wire);
    return wire;
}

/* Seed n is a shape: 2..4 nodes of 2 or 4 GPUs. */
static struct exchange model_exchange(uint64_t seed, uint32_t *gpus, uint32_t *channels)
{
    uint64_t state = seed + 1000;
    const uint32_t nodes = 2 + test_below(&state, 3);
    *gpus = 2 + 2 * test_below(&state, 2);
    *channels = 1 + test_below(&state, 4);
    const uint32_t ranks = nodes * *gpus;
    return exchange_random(seed, ranks, ranks * (1 + test_below(&state, 3)),
                           1 + test_below(&state, 8), 9, 128);
}

START_TEST(rows_between_nodes_come_out_as_the_queues_drain)
{
    uint32_t gpus, channels;
    uint64_t rails, row = 0;
    const struct exchange in = model_exchange((uint64_t)_i, &gpus, &channels);
    const struct wire wire = model_run(&in, gpus, channels, &rails);
    const struct received got = dispatch(&in, gpus, in.x, 2 * in.hidden, NULL, 0);

    for (uint32_t d = 0; d < in.routing.ranks; d++)
        for (uint32_t n = 0; n < wire.nodes; n++)
            for (uint32_t rail = 0; rail < gpus; rail++) {
                uint64_t before = row;
                for (uint32_t c = 0; c < channels; c++) {
                    const struct queue *queue = nvl_queue(&wire, d, rail, n, c);
                    for (uint32_t i = 0; i < queue->count; i++, row++) {
                        const struct record *record = &queue->records[i];
                        const uint64_t token = record->token;
                        ck_assert_uint_eq(record->rank, n * gpus + rail);
                        ck_assert_msg(memcmp(got.rows.payload + row * 2 * in.hidden,
                                             in.x + token * in.hidden, 2 * in.hidden) == 0,
                                      "seed %" PRIu64 " row %" PRIu64, in.seed, row);
                        ck_assert_uint_eq((uint64_t)got.rows.src_token[row],
                                          token - in.routing.token_start[record->rank]);
                        ck_assert_int_eq(got.rows.src_meta[2 * row], (int32_t)n);
                        ck_assert_int_eq(got.rows.src_meta[2 * row + 1], (int32_t)record->gpus);
                    }
                }
                ck_assert_uint_eq((uint64_t)got.rows.counts[d * in.routing.ranks + n * gpus + rail],
                                  row - before);
            }
    ck_assert_uint_eq(row, got.row_count);
}
END_TEST

/* What the forwarder of node n would send home for a token: rows added in a plain loop. */
static bool slow_partial(const struct exchange *in, const struct received *got, uint32_t gpus,
                         uint64_t token, uint32_t home, uint32_t node, const uint16_t *expert_out,
                         uint32_t channel, float *partial)
{
    float sum = 0;
    bool any = false;
    for (uint32_t d = node * gpus; d < (node + 1) * gpus; d++) {
        const uint64_t block = (uint64_t)d * in->routing.ranks + home;
        for (uint64_t row = got->blocks[block]; row < got->blocks[block + 1]; row++) {
            if (in->routing.token_start[home] + (uint64_t)got->rows.src_token[row] != token)
                continue;
            sum += slow_f32(expert_out[row * in->hidden + channel]);
            any = true;
        }
    }
    *partial = slow_f32(slow_bf16(sum));
    return any;
}

START_TEST(combine_between_nodes_rounds_once_a_node_and_once_at_home)
{
    uint32_t gpus, channels;
    const struct exchange in = model_exchange((uint64_t)_i, &gpus, &channels);
    const struct received got = dispatch(&in, gpus, in.x, 2 * in.hidden, NULL, 0);
    uint64_t state = in.seed ^ 77;
    uint16_t *expert_out = TEST_ARRAY(uint16_t, got.row_count * in.hidden);
    uint16_t *bias = TEST_ARRAY(uint16_t, in.tokens * in.hidden);
    uint16_t *combined = TEST_ARRAY(uint16_t, in.tokens * in.hidden);
    float *weights = TEST_ARRAY(float, in.tokens *in.routing.topk);
    for (uint64_t i = 0; i < got.row_count * in.hidden; i++) expert_out[i] = exchange_value(&state);
    for (uint64_t i = 0; i < in.tokens * in.hidden; i++) bias[i] = exchange_value(&state);
    const struct ref_normal_combine_in combine = {in.hidden, expert_out, got.rows.topk_weights,
                                                  NULL, bias};
    ref_normal_combine(&in.routing, gpus, &combine, got.blocks, got.scratch, combined, weights);

    for (uint64_t t = 0; t < in.tokens; t++) {
        const uint32_t home = ref_token_home(&in.routing, t);
        for (uint32_t c = 0; c < in.hidden; c += 7) {
            float sum = 0.0f + slow_f32(bias[t * in.hidden + c]), partial;
            for (uint32_t n = 0; n < in.routing.ranks / gpus; n++)
                if (slow_partial(&in, &got, gpus, t, home, n, expert_out, c, &partial))
                    sum += partial;
            if (combined[t * in.hidden + c] != slow_bf16(sum))
                ck_abort_msg("seed %" PRIu64 " token %" PRIu64 " channel %" PRIu32
                             ": %04x, not %04x",
                             in.seed, t, c, combined[t * in.hidden + c], slow_bf16(sum));
        }
        for (uint32_t k = 0; k < in.routing.topk; k++) {
            const uint64_t at = t * in.routing.topk + k;
            const float right = in.routing.topk_idx[at] < 0 ? 0.0f : in.routing.topk_weights[at];
            ck_assert_msg(memcmp(&weights[at], &right, 4) == 0, "seed %" PRIu64, in.seed);
        }
    }
}
END_TEST

#define PREFIX_CHECK(what, ours, right)                                                            \
    if ((int64_t)(ours) != (int64_t)(right))                                                       \
    ck_abort_msg("seed %" PRIu64 ": " what " is %d, not %d", in.seed, (int)(ours), (int)(right))

START_TEST(tables_between_nodes_count_what_the_queues_hold)
{
    uint32_t gpus, channels;
    uint64_t rails;
    const struct exchange in = model_exchange((uint64_t)_i, &gpus, &channels);
    const struct wire wire = model_run(&in, gpus, channels, &rails);
    const uint32_t ranks = in.routing.ranks, nodes = wire.nodes;
    struct ref_internode_out out = {
        .rdma_channel_prefix_matrix = TEST_ARRAY(int32_t, ranks * nodes * channels),
        .gbl_channel_prefix_matrix = TEST_ARRAY(int32_t, ranks * ranks * channels),
        .recv_rdma_channel_prefix_matrix = TEST_ARRAY(int32_t, ranks * nodes * channels),
        .recv_rdma_rank_prefix_sum = TEST_ARRAY(int32_t, ranks * nodes),
        .recv_gbl_channel_prefix_matrix = TEST_ARRAY(int32_t, ranks * ranks * channels),
        .recv_gbl_rank_prefix_sum = TEST_ARRAY(int32_t, ranks * ranks)};
    ref_internode_handle(&in.routing, gpus, channels, &out);

    for (uint32_t me = 0; me < ranks; me++) {
        uint32_t rail_rows = 0, rows = 0;
        for (uint32_t n = 0; n < nodes; n++) {
            uint32_t sent = 0, got = 0;
            for (uint32_t c = 0; c < channels; c++) {
                const uint32_t at = (me * nodes + n) * channels + c;
                sent += rdma_queue(&wire, n * gpus + me % gpus, me / gpus, c)->count;
                got += rdma_queue(&wire, me, n, c)->count;
                PREFIX_CHECK("rdma_channel", out.rdma_channel_prefix_matrix[at], sent);
                PREFIX_CHECK("recv_rdma_channel", out.recv_rdma_channel_prefix_matrix[at], got);
            }
            rail_rows += got;
            PREFIX_CHECK("recv_rdma_rank", out.recv_rdma_rank_prefix_sum[me * nodes + n],
                         rail_rows);
        }
        for (uint32_t r = 0; r < ranks; r++) {
            uint32_t sent = 0;
            for (uint32_t c = 0; c < channels; c++) {
                const uint32_t at = (me * ranks + r) * channels + c;
                sent += nvl_queue(&wire, r, me % gpus, me / gpus, c)->count;
                PREFIX_CHECK("gbl_channel", out.gbl_channel_prefix_matrix[at], sent);
                PREFIX_CHECK("recv_gbl_channel", out.recv_gbl_channel_prefix_matrix[at], rows);
                rows += nvl_queue(&wire, me, r % gpus, r / gpus, c)->count;
            }
            PREFIX_CHECK("recv_gbl_rank", out.recv_gbl_rank_prefix_sum[me * ranks + r], rows);
        }
    }
}
END_TEST

/* -1 runs backwards to the next head of its channel, as one reads it off the queue. */
static int32_t rewritten(const int32_t *heads, uint64_t stride, uint64_t at, uint64_t end)
{
    if (heads[at * stride] >= 0) return heads[at * stride];
    for (uint64_t next = at + 1; next < end; next++)
        if (heads[next * stride] >= 0) return -heads[next * stride] - 1;
    return -REF_HEAD_NONE_FOLLOWS - 1;
}

START_TEST(heads_between_nodes_are_places_in_the_queues)
{
    uint32_t gpus, channels;
    uint64_t rails;
    const struct exchange in = model_exchange((uint64_t)_i, &gpus, &channels);
    const struct wire wire = model_run(&in, gpus, channels, &rails);
    const uint32_t ranks = in.routing.ranks, nodes = wire.nodes;
    const uint64_t bytes = rails * gpus * sizeof(int32_t);
    int32_t *nvl = TEST_ARRAY(int32_t, rails * gpus), *right = TEST_ARRAY(int32_t, rails * gpus);
    int32_t *rdma = TEST_ARRAY(int32_t, in.tokens * nodes);
    const struct ref_internode_out out = {.send_rdma_head = rdma, .send_nvl_head = nvl};
    int32_t *right_rdma = TEST_ARRAY(int32_t, in.tokens * nodes);

    memset(right, 0xFF, bytes);
    memset(right_rdma, 0xFF, in.tokens * nodes * sizeof(int32_t));
    for (uint32_t i = 0; i < ranks * gpus * nodes * channels; i++)
        for (uint32_t j = 0; j < wire.nvl[i].count; j++)
            right[wire.nvl[i].records[j].rail * gpus + i / channels / nodes / gpus % gpus] =
                (int32_t)wire.nvl[i].records[j].head;
    for (uint32_t i = 0; i < ranks * nodes * channels; i++)
        for (uint32_t j = 0; j < wire.rdma[i].count; j++)
            right_rdma[wire.rdma[i].records[j].token * nodes + i / channels / nodes / gpus] =
                (int32_t)j;
    ref_internode_handle(&in.routing, gpus, channels, &out);
    ck_assert_msg(memcmp(nvl, right, bytes) == 0, "seed %" PRIu64, in.seed);
    ck_assert_msg(memcmp(rdma, right_rdma, in.tokens * nodes * 4) == 0, "seed %" PRIu64, in.seed);

    ref_internode_head_rewrite(&in.routing, gpus, channels, rdma, nvl);
    uint64_t row = 0;
    for (uint32_t i = 0; i < ranks * nodes * channels; i++) {
        const uint64_t end = row + wire.rdma[i].count;
        for (; row < end; row++)
            for (uint32_t g = 0; g < gpus; g++)
                PREFIX_CHECK("rewritten head", nvl[row * gpus + g],
                             rewritten(right + g, gpus, row, end));
    }
    ck_assert_uint_eq(row, rails);
}
END_TEST

Suite *normal_suite(void)
{
    Suite *suite = suite_create("normal");
    TCase *captures = tcase_create("captures");
    tcase_add_loop_test(captures, captured_dispatch_is_reproduced_bit_for_bit, 0, CASE_COUNT);
    tcase_add_loop_test(captures, captured_python_cast_is_reproduced_bit_for_bit, 0, CASE_COUNT);
    tcase_add_loop_test(captures, captured_combine_is_reproduced_bit_for_bit, 0, CASE_COUNT);
    suite_add_tcase(suite, captures);
    TCase *nodes = tcase_create("nodes");
    tcase_add_loop_test(nodes, rows_between_nodes_come_out_as_the_queues_drain, 0, 12);
    tcase_add_loop_test(nodes, combine_between_nodes_rounds_once_a_node_and_once_at_home, 0, 12);
    tcase_add_loop_test(nodes, tables_between_nodes_count_what_the_queues_hold, 0, 12);
    tcase_add_loop_test(nodes, heads_between_nodes_are_places_in_the_queues, 0, 12);
    suite_add_tcase(suite, nodes);
    return suite;
}
