/* tests/test_phase.c - message by message gives the same bits as all at once.
 *
 * Every seed is another shape: ranks without tokens, columns without expert, duplicates, token
 * counts that differ. Landed arenas start as 0xFF, messages land in a shuffled order, and what
 * the phase operations leave is compared with the group operations, byte by byte. Then one
 * message is lost, doubled, swapped or damaged, and the comparison must notice. */
#include "tests/exchange.h"

#include "ref/ll_phase.h"
#include "ref/normal_phase.h"
#include "ref/quantise.h"
#include "ref/rows.h"

enum fault { FAULT_NONE, FAULT_LOST, FAULT_DOUBLED, FAULT_SWAPPED, FAULT_DAMAGED, FAULTS };

static uint8_t *poisoned(uint64_t bytes)
{
    uint8_t *arena = TEST_ARRAY(uint8_t, bytes);
    memset(arena, 0xFF, bytes);
    return arena;
}

/* Land count rows in a shuffled order. src_rows NULL: row i comes from i; map: it goes to map[i];
 * a fault spoils the first message (or the first two). */
static void land(uint64_t seed, uint64_t count, const uint64_t *src_rows, const uint64_t *dst_rows,
                 const uint8_t *src, uint8_t *dst, uint64_t row_bytes, enum fault fault)
{
    uint64_t state = seed;
    struct ref_move *moves = TEST_ARRAY(struct ref_move, count);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t at = test_below(&state, (uint32_t)i + 1);
        moves[i] = moves[at];
        moves[at] = (struct ref_move){.src_row = src_rows == NULL ? i : src_rows[i],
                                      .dst_row = dst_rows == NULL ? i : dst_rows[i]};
    }
    if (fault == FAULT_DAMAGED) {
        /* The exponent's highest bit of a bf16 below 2: no sum rounds that away. */
        uint32_t at = 17;
        while (src[moves[0].src_row * row_bytes + at] & 0x40) at += 2;
        ck_assert_uint_lt(at, row_bytes / 2);
        moves[0].corrupt_xor = 0x40;
        moves[0].corrupt_byte = at;
    }
    /* The partner: another row, and landing far away, since two copies of one row may change
     * places, and so may two summands of one token. */
    uint64_t other = 1, farthest = 0;
    for (uint64_t i = 1; i < count; i++) {
        const uint64_t a = moves[i].dst_row, b = moves[0].dst_row, distance = a > b ? a - b : b - a;
        if (moves[i].src_row == moves[0].src_row || distance <= farthest) continue;
        farthest = distance;
        other = i;
    }
    if (fault == FAULT_SWAPPED) {
        const uint64_t row = moves[0].dst_row;
        moves[0].dst_row = moves[other].dst_row;
        moves[other].dst_row = row;
    }
    if (fault == FAULT_DOUBLED) moves[other].src_row = moves[0].src_row;
    const uint64_t skip = fault == FAULT_LOST ? 1 : 0;
    const uint64_t half = skip + (count - skip) / 2; /* Two batches, as the clock makes them. */
    ref_deliver(moves + skip, half - skip, src, dst, row_bytes);
    ref_deliver(moves + half, count - half, src, dst, row_bytes);
}

/* --- low latency ----------------------------------------------------------------------------- */

struct ll {
    struct exchange in;
    enum ref_recipe recipe;
    uint64_t *blocks, *scratch, *home_start, *home_row;
    uint64_t row_count;
    struct ref_ll_rows group, phase;
    uint16_t *group_combined, *phase_combined;
};

static struct ref_ll_rows ll_rows(const struct ll *ll)
{
    const uint64_t groups = ll->in.hidden / 128;
    const bool packed = ref_recipe_scales(ll->recipe) == REF_SCALE_UE8M0;
    struct ref_ll_rows rows = {
        .payload = poisoned(ll->row_count * ref_ll_payload_bytes(ll->in.hidden, ll->recipe)),
        .src_token = TEST_ARRAY(int32_t, ll->row_count),
        .counts = TEST_ARRAY(int32_t, ll->in.routing.experts * ll->in.routing.ranks)};
    if (packed) {
        rows.scales_ue8m0 = TEST_ARRAY(uint32_t, ll->row_count * ((groups + 3) / 4));
    } else {
        rows.scales = TEST_ARRAY(float, ll->row_count *groups);
    }
    return rows;
}

static struct ll ll_make(uint64_t seed)
{
    static const enum ref_recipe recipes[4] = {REF_RECIPE_BF16, REF_RECIPE_LL, REF_RECIPE_LL_ROUND,
                                               REF_RECIPE_LL_UE8M0};
    uint64_t state = seed + 40;
    const uint32_t ranks = 1 + test_below(&state, 8);
    const uint32_t experts = ranks * (1 + test_below(&state, 4));
    struct ll ll = {.recipe = recipes[seed % 4]};
    ll.in = exchange_random(seed, ranks, experts, 1 + test_below(&state, 8), 12,
                            128 * (1 + test_below(&state, 6)));
    const uint64_t selections = ll.in.tokens * ll.in.routing.topk;
    ll.blocks = TEST_ARRAY(uint64_t, experts * ranks + 1);
    ll.scratch = TEST_ARRAY(uint64_t, experts);
    ll.home_start = TEST_ARRAY(uint64_t, ll.in.tokens + 1);
    ll.home_row = TEST_ARRAY(uint64_t, selections);
    ll.row_count = ref_ll_blocks(&ll.in.routing, ll.blocks);
    ck_assert_uint_eq(
        ref_rows_ll(&ll.in.routing, ll.blocks, ll.scratch, ll.home_start, ll.home_row),
        ll.row_count);
    ll.group = ll_rows(&ll);
    ll.phase = ll_rows(&ll);
    ll.group_combined = TEST_ARRAY(uint16_t, ll.in.tokens * ll.in.hidden);
    ll.phase_combined = TEST_ARRAY(uint16_t, ll.in.tokens * ll.in.hidden);
    ref_ll_dispatch(&ll.in.routing, ll.in.hidden, ll.recipe, ll.in.x, ll.blocks, ll.scratch,
                    &ll.group);
    return ll;
}

static void ll_dispatch_by_phase(struct ll *ll, enum fault fault)
{
    const uint32_t ranks = ll->in.routing.ranks, experts = ll->in.routing.experts;
    const uint64_t bytes = ref_ll_message_bytes(ll->in.hidden, ll->recipe);
    uint8_t *staged = poisoned(ll->in.tokens * bytes), *landed = poisoned(ll->row_count * bytes);
    int32_t *sent = TEST_ARRAY(int32_t, ranks * experts);
    int32_t *words = TEST_ARRAY(int32_t, ranks * experts);
    uint64_t *owner = TEST_ARRAY(uint64_t, ll->row_count);

    ref_rows_owner(ll->in.tokens, ll->home_start, owner); /* Slot -> token, the staged row. */
    for (uint32_t r = ranks; r-- > 0;)
        ref_ll_pack(&ll->in.routing, r, ll->in.hidden, ll->recipe, ll->in.x, staged, sent);
    land(ll->in.seed, ll->row_count, owner, ll->home_row, staged, landed, bytes, fault);
    for (uint32_t r = 0; r < ranks; r++) ref_deliver_counts(ranks, experts, r, sent, words);
    for (uint32_t r = ranks; r-- > 0;)
        ref_ll_unpack(&ll->in.routing, r, ll->in.hidden, ll->recipe, ll->blocks, words, landed,
                      &ll->phase);
}

static bool ll_rows_equal(const struct ll *ll)
{
    const struct ref_ll_rows *a = &ll->group, *b = &ll->phase;
    const uint64_t rows = ll->row_count, groups = ll->in.hidden / 128;
    return memcmp(a->payload, b->payload, rows * ref_ll_payload_bytes(ll->in.hidden, ll->recipe)) ==
               0 &&
           memcmp(a->src_token, b->src_token, rows * 4) == 0 &&
           memcmp(a->counts, b->counts, ll->in.routing.experts * ll->in.routing.ranks * 4) == 0 &&
           (a->scales == NULL || memcmp(a->scales, b->scales, rows * groups * 4) == 0) &&
           (a->scales_ue8m0 == NULL ||
            memcmp(a->scales_ue8m0, b->scales_ue8m0, rows * ((groups + 3) / 4) * 4) == 0);
}

static bool ll_combine_equals(struct ll *ll, enum fault fault)
{
    const uint64_t values = ll->row_count * ll->in.hidden;
    uint64_t state = ll->in.seed + 9;
    uint16_t *out = TEST_ARRAY(uint16_t, values), *staged = TEST_ARRAY(uint16_t, values);
    uint16_t *home = (uint16_t *)(void *)poisoned(2 * values);

    for (uint64_t i = 0; i < values; i++) out[i] = exchange_value(&state);
    ref_ll_combine(&ll->in.routing, ll->in.hidden, out, ll->blocks, ll->scratch,
                   ll->group_combined);
    for (uint32_t r = ll->in.routing.ranks; r-- > 0;)
        ref_ll_combine_pack(&ll->in.routing, r, ll->in.hidden, ll->blocks, out, staged);
    land(ll->in.seed, ll->row_count, ll->home_row, NULL, (const uint8_t *)staged, (uint8_t *)home,
         2 * ll->in.hidden, fault);
    for (uint32_t r = ll->in.routing.ranks; r-- > 0;)
        ref_ll_combine_unpack(&ll->in.routing, r, ll->in.hidden, ll->home_start, home,
                              ll->phase_combined);
    return memcmp(ll->group_combined, ll->phase_combined, ll->in.tokens * ll->in.hidden * 2) == 0;
}

START_TEST(low_latency_messages_give_the_group_result)
{
    struct ll ll = ll_make((uint64_t)_i);
    ll_dispatch_by_phase(&ll, FAULT_NONE);
    ck_assert_msg(ll_rows_equal(&ll), "dispatch, seed %d", _i);
    ck_assert_msg(ll_combine_equals(&ll, FAULT_NONE), "combine, seed %d", _i);
}
END_TEST

START_TEST(a_faulty_low_latency_message_shows) /* _i: fault, then shape */
{
    const enum fault fault = (enum fault)(1 + _i % (FAULTS - 1));
    struct ll ll = ll_make(100 + (uint64_t)_i);
    if (ll.in.tokens < 4 || ll.row_count < 4) return;
    ll_dispatch_by_phase(&ll, fault);
    ck_assert_msg(!ll_rows_equal(&ll), "dispatch, fault %d, seed %d", (int)fault, 100 + _i);
    ck_assert_msg(!ll_combine_equals(&ll, fault), "combine, fault %d, seed %d", (int)fault,
                  100 + _i);
}
END_TEST

START_TEST(a_count_that_never_came_leaves_its_rows_alone)
{
    const uint64_t counts[2] = {2, 1};
    const int64_t ids[3] = {1, 1, 1};
    struct ll ll = {.recipe = REF_RECIPE_BF16};
    ll.in = exchange_of(2, 2, 1, counts, ids, NULL);
    ll.in.hidden = 128;
    ll.blocks = TEST_ARRAY(uint64_t, 5);
    ll.row_count = ref_ll_blocks(&ll.in.routing, ll.blocks);
    ll.phase = ll_rows(&ll);
    const int32_t words[4] = {-1, -1, -2, 0}; /* Source 0 says one of its two; source 1 nothing. */
    const uint64_t bytes = ref_ll_message_bytes(128, REF_RECIPE_BF16);
    const uint8_t *landed = TEST_ARRAY(uint8_t, 3 * bytes);

    ref_ll_unpack(&ll.in.routing, 1, 128, REF_RECIPE_BF16, ll.blocks, words, landed, &ll.phase);
    ck_assert_int_eq(ll.phase.counts[2], 1);
    ck_assert_int_eq(ll.phase.counts[3], -1);
    ck_assert_uint_eq(ll.phase.payload[0], 0x00);   /* Written. */
    ck_assert_uint_eq(ll.phase.payload[256], 0xFF); /* Beyond the count. */
    ck_assert_uint_eq(ll.phase.payload[512], 0xFF); /* Never announced. */
}
END_TEST

START_TEST(messages_have_the_bytes_of_the_wire)
{
    ck_assert_uint_eq(ref_ll_message_bytes(7168, REF_RECIPE_LL), 7408);
    ck_assert_uint_eq(ref_ll_message_bytes(7168, REF_RECIPE_LL_UE8M0), 7408);
    ck_assert_uint_eq(ref_ll_message_bytes(7168, REF_RECIPE_BF16), 14352);
    ck_assert_uint_eq(ref_ll_message_bytes(2048, REF_RECIPE_LL), 2128);
    ck_assert_uint_eq(ref_record_dispatch(2 * 7168, 0, 8, true).bytes, 14416);
    ck_assert_uint_eq(ref_record_dispatch(7168, 4 * 56, 8, true).bytes, 7472);
    ck_assert_uint_eq(ref_record_combine(7168, 8, true).bytes, 14384);
    ck_assert_uint_eq(ref_record_dispatch(2 * 6144, 0, 8, true).bytes, 12368);
    ck_assert_uint_eq(ref_record_dispatch(6144, 4 * 48, 8, true).bytes, 6416);
    ck_assert_uint_eq(ref_record_combine(6144, 8, true).bytes, 12336);
}
END_TEST

/* --- normal mode ------------------------------------------------------------------------------ */

struct normal {
    struct exchange in;
    uint32_t gpus; /* Ranks per node. */
    bool internode;
    uint64_t scale_bytes;
    struct ref_record dispatch, combine;
    struct ref_normal_tokens tokens;
    uint64_t *blocks, *scratch, *home_start, *home_row;
    uint64_t *rail_start, *contribution_start, *contribution_row;
    uint64_t row_count, rail_count, home_count;
    struct ref_normal_rows group, phase;
};

static struct ref_normal_rows normal_rows(const struct normal *normal)
{
    const uint64_t rows = normal->row_count, ranks = normal->in.routing.ranks;
    return (struct ref_normal_rows){
        .payload = poisoned(rows * normal->tokens.payload_bytes),
        .scales = poisoned(rows * normal->scale_bytes),
        .topk_idx = TEST_ARRAY(int64_t, rows * normal->in.routing.topk),
        .topk_weights = TEST_ARRAY(float, rows * normal->in.routing.topk),
        .src_token = TEST_ARRAY(int32_t, rows),
        .src_meta = normal->internode ? TEST_ARRAY(int32_t, 2 * rows) : NULL,
        .counts = TEST_ARRAY(int32_t, ranks * ranks)};
}

static void normal_number(struct normal *normal)
{
    const struct ref_routing *routing = &normal->in.routing;
    const uint64_t pairs = (uint64_t)routing->ranks * routing->ranks;
    const uint64_t slots = normal->in.tokens * routing->topk;
    normal->blocks = TEST_ARRAY(uint64_t, pairs + 1);
    normal->scratch = TEST_ARRAY(uint64_t, 2 * routing->ranks);
    normal->home_start = TEST_ARRAY(uint64_t, normal->in.tokens + 1);
    normal->home_row = TEST_ARRAY(uint64_t, slots);
    normal->row_count = ref_normal_blocks(routing, normal->blocks);
    if (!normal->internode) {
        normal->home_count = ref_rows_normal(routing, normal->blocks, normal->scratch,
                                             normal->home_start, normal->home_row);
        return;
    }
    normal->rail_start = TEST_ARRAY(uint64_t, pairs + 1);
    normal->contribution_start = TEST_ARRAY(uint64_t, slots + 1);
    normal->contribution_row = TEST_ARRAY(uint64_t, slots);
    normal->rail_count = ref_rows_rails(routing, normal->gpus, normal->rail_start);
    normal->home_count = ref_rows_rail_home(routing, normal->gpus, normal->rail_start,
                                            normal->scratch, normal->home_start, normal->home_row);
    ck_assert_uint_eq(normal->home_count, normal->rail_count);
    ck_assert_uint_eq(ref_rows_contributions(routing, normal->gpus, normal->blocks,
                                             normal->rail_start, normal->scratch,
                                             normal->contribution_start, normal->contribution_row),
                      normal->row_count);
}

/* Even seeds: one node. Odd ones: 2..4 nodes of 1, 2 or 4 GPUs. */
static struct normal normal_make(uint64_t seed)
{
    uint64_t state = seed + 70;
    struct normal normal = {.internode = seed % 2 == 1};
    normal.gpus = normal.internode ? 1u << test_below(&state, 3) : 8;
    const uint32_t ranks =
        normal.internode ? normal.gpus * (2 + test_below(&state, 3)) : 1 + test_below(&state, 8);
    const uint32_t topk = 1 + test_below(&state, 9);
    normal.in = exchange_random(seed, ranks, ranks * (1 + test_below(&state, 4)), topk, 12,
                                128 * (1 + test_below(&state, 3)));
    normal.scale_bytes = normal.in.hidden / 128 * test_below(&state, 2) * 4;
    normal.tokens =
        (struct ref_normal_tokens){(const uint8_t *)normal.in.x, (const uint8_t *)normal.in.x,
                                   2 * normal.in.hidden, normal.scale_bytes};
    normal.dispatch =
        ref_record_dispatch(2 * normal.in.hidden, normal.scale_bytes, topk, normal.internode);
    normal.combine = ref_record_combine(normal.in.hidden, topk, normal.internode);
    normal_number(&normal);
    normal.group = normal_rows(&normal);
    normal.phase = normal_rows(&normal);
    ref_normal_dispatch(&normal.in.routing, normal.gpus, &normal.tokens, normal.blocks,
                        normal.scratch, &normal.group);
    return normal;
}

/* Both hops of dispatch; the fault strikes in the last. */
static uint8_t *normal_carry(const struct normal *normal, const uint8_t *staged, enum fault fault)
{
    const uint64_t bytes = normal->dispatch.bytes, seed = normal->in.seed;
    uint8_t *landed = poisoned(normal->row_count * bytes);
    uint64_t *token = TEST_ARRAY(uint64_t, normal->home_count);
    ref_rows_owner(normal->in.tokens, normal->home_start, token);
    if (!normal->internode) {
        land(seed, normal->row_count, token, normal->home_row, staged, landed, bytes, fault);
        return landed;
    }
    uint8_t *rails = poisoned(normal->rail_count * bytes);
    uint64_t *rail = TEST_ARRAY(uint64_t, normal->row_count);
    ref_rows_owner(normal->rail_count, normal->contribution_start, rail);
    land(seed, normal->rail_count, token, normal->home_row, staged, rails, bytes, FAULT_NONE);
    land(seed, normal->row_count, rail, normal->contribution_row, rails, landed, bytes, fault);
    return landed;
}

static bool normal_dispatch_equals(struct normal *normal, enum fault fault)
{
    const struct ref_routing *routing = &normal->in.routing;
    const uint32_t ranks = routing->ranks;
    const uint64_t rows = normal->row_count, cells = rows * routing->topk;
    uint8_t *staged = poisoned(normal->in.tokens * normal->dispatch.bytes);
    int32_t *sent = TEST_ARRAY(int32_t, ranks * ranks), *words = TEST_ARRAY(int32_t, ranks * ranks);
    const struct ref_normal_rows *a = &normal->group, *b = &normal->phase;

    for (uint32_t r = ranks; r-- > 0;)
        ref_normal_pack(routing, normal->gpus, r, &normal->dispatch, &normal->tokens, staged, sent);
    const uint8_t *landed = normal_carry(normal, staged, fault);
    for (uint32_t r = 0; r < ranks; r++) ref_deliver_counts(ranks, ranks, r, sent, words);
    for (uint32_t r = ranks; r-- > 0;)
        ref_normal_unpack(routing, normal->gpus, r, &normal->dispatch, normal->blocks, words,
                          landed, b);
    return memcmp(a->payload, b->payload, rows * normal->tokens.payload_bytes) == 0 &&
           memcmp(a->scales, b->scales, rows * normal->scale_bytes) == 0 &&
           memcmp(a->topk_idx, b->topk_idx, cells * 8) == 0 &&
           memcmp(a->topk_weights, b->topk_weights, cells * 4) == 0 &&
           memcmp(a->src_token, b->src_token, rows * 4) == 0 &&
           (!normal->internode || memcmp(a->src_meta, b->src_meta, rows * 8) == 0) &&
           memcmp(a->counts, b->counts, ranks * ranks * 4) == 0;
}

/* All hops of combine; the fault strikes in the first. */
static uint8_t *normal_return(const struct normal *normal, const uint8_t *staged, enum fault fault)
{
    const uint64_t bytes = normal->combine.bytes, seed = normal->in.seed;
    uint8_t *home = poisoned(normal->home_count * bytes);
    if (!normal->internode) {
        land(seed, normal->row_count, normal->home_row, NULL, staged, home, bytes, fault);
        return home;
    }
    uint8_t *contributions = poisoned(normal->row_count * bytes);
    uint8_t *rails = poisoned(normal->rail_count * bytes);
    land(seed, normal->row_count, normal->contribution_row, NULL, staged, contributions, bytes,
         fault);
    for (uint32_t f = normal->in.routing.ranks; f-- > 0;)
        ref_normal_forward(&normal->in.routing, f, &normal->combine, normal->rail_start,
                           normal->contribution_start, contributions, rails);
    land(seed, normal->rail_count, normal->home_row, NULL, rails, home, bytes, FAULT_NONE);
    return home;
}

static bool normal_combine_equals(struct normal *normal, enum fault fault)
{
    const struct ref_routing *routing = &normal->in.routing;
    const uint64_t hidden = normal->in.hidden, values = normal->row_count * hidden;
    const uint64_t out_values = normal->in.tokens * hidden;
    const uint64_t cells = normal->in.tokens * routing->topk;
    uint64_t state = normal->in.seed + 9;
    uint16_t *out = TEST_ARRAY(uint16_t, values), *bias = TEST_ARRAY(uint16_t, out_values);
    uint16_t *sums[2] = {TEST_ARRAY(uint16_t, out_values), TEST_ARRAY(uint16_t, out_values)};
    float *weights[2] = {TEST_ARRAY(float, cells), TEST_ARRAY(float, cells)};
    uint8_t *staged = poisoned(normal->row_count * normal->combine.bytes);

    for (uint64_t i = 0; i < values; i++) out[i] = exchange_value(&state);
    for (uint64_t i = 0; i < out_values; i++) bias[i] = exchange_value(&state);
    const struct ref_normal_combine_in in = {normal->in.hidden, out, normal->group.topk_weights,
                                             test_below(&state, 2) ? bias : NULL,
                                             test_below(&state, 2) ? normal->in.x : NULL};
    ref_normal_combine(routing, normal->gpus, &in, normal->blocks, normal->scratch, sums[0],
                       weights[0]);
    for (uint32_t r = routing->ranks; r-- > 0;)
        ref_normal_combine_pack(routing, r, &normal->combine, &in, normal->blocks,
                                normal->group.src_meta, normal->group.src_token, staged);
    const uint8_t *home = normal_return(normal, staged, fault);
    for (uint32_t r = routing->ranks; r-- > 0;)
        ref_normal_combine_unpack(routing, r, &normal->combine, normal->home_start, home, in.bias0,
                                  in.bias1, sums[1], weights[1]);
    return memcmp(sums[0], sums[1], out_values * 2) == 0 &&
           memcmp(weights[0], weights[1], cells * 4) == 0;
}

START_TEST(normal_messages_give_the_group_result)
{
    struct normal normal = normal_make((uint64_t)_i);
    ck_assert_msg(normal_dispatch_equals(&normal, FAULT_NONE), "dispatch, seed %d", _i);
    ck_assert_msg(normal_combine_equals(&normal, FAULT_NONE), "combine, seed %d", _i);
}
END_TEST

START_TEST(a_faulty_normal_message_shows) /* _i: fault, then shape */
{
    const enum fault fault = (enum fault)(1 + _i / 2 % (FAULTS - 1));
    struct normal normal = normal_make(200 + (uint64_t)_i);
    if (normal.in.tokens < 4 || normal.row_count < 4) return;
    ck_assert_msg(!normal_dispatch_equals(&normal, fault), "dispatch, fault %d, seed %d",
                  (int)fault, 200 + _i);
    ck_assert_msg(!normal_combine_equals(&normal, fault), "combine, fault %d, seed %d", (int)fault,
                  200 + _i);
}
END_TEST

START_TEST(of_two_messages_on_one_row_the_later_stays)
{
    const uint8_t src[2] = {0x11, 0x22};
    uint8_t dst[2] = {0xFF, 0xFF};
    const struct ref_move moves[3] = {{.src_row = 0, .dst_row = 1},
                                      {.src_row = 1, .dst_row = 1, .corrupt_xor = 0x80}};
    ref_deliver(moves, 2, src, dst, 1);
    ck_assert_uint_eq(dst[0], 0xFF);
    ck_assert_uint_eq(dst[1], 0xA2);
}
END_TEST

START_TEST(maps_are_one_to_one_and_invert)
{
    const struct normal normal = normal_make(300 + (uint64_t)_i);
    uint64_t *back = TEST_ARRAY(uint64_t, normal.home_count);
    memset(back, 0xFF, normal.home_count * sizeof *back);
    ref_rows_invert(normal.home_count, normal.home_row, back);
    for (uint64_t i = 0; i < normal.home_count; i++) ck_assert_uint_eq(back[normal.home_row[i]], i);
}
END_TEST

Suite *phase_suite(void)
{
    const int shapes = test_quick() ? 40 : 200;
    Suite *suite = suite_create("phase");
    TCase *ll = tcase_create("low latency");
    tcase_add_loop_test(ll, low_latency_messages_give_the_group_result, 0, shapes);
    tcase_add_loop_test(ll, a_faulty_low_latency_message_shows, 0, 24);
    tcase_add_test(ll, a_count_that_never_came_leaves_its_rows_alone);
    tcase_add_test(ll, messages_have_the_bytes_of_the_wire);
    suite_add_tcase(suite, ll);
    TCase *normal = tcase_create("normal");
    tcase_add_loop_test(normal, normal_messages_give_the_group_result, 0, shapes);
    tcase_add_loop_test(normal, a_faulty_normal_message_shows, 0, 48);
    tcase_add_test(normal, of_two_messages_on_one_row_the_later_stays);
    tcase_add_loop_test(normal, maps_are_one_to_one_and_invert, 0, 8);
    suite_add_tcase(suite, normal);
    return suite;
}
