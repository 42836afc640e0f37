/* sim/explore_replay.c - a schedule played on the data path, so that the comparison says which
 * rows it spoilt.
 *
 * The layer is the smallest that shows it: two ranks with one expert each, one choice a token.
 * Rank 0's rows for expert 1 are the ones at stake; what lands, where and before or after the
 * receiver reads, follows from the schedule. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/ll_phase.h"
#include "ref/quantise.h"
#include "sim/datapath.h"
#include "sim/datapath_check.h"
#include "sim/explore_walk.h"
#include "sim/rng.h"

enum { RANKS = 2, HIDDEN = REF_GROUP_CHANNELS, PURPOSE_X = 0x6578 };

/* Everything of one layer; owned. */
struct layer {
    uint64_t token_start[RANKS + 1];
    int64_t *topk_idx;
    float *weights;
    uint16_t *x;
    struct ref_routing routing;
    struct sim_traffic traffic;
    struct sim_schedule schedule[SIM_DIRECTIONS];
    struct sim_check checks[SIM_STAGES * RANKS];
};

static void free_layer(struct layer *layer)
{
    free(layer->topk_idx);
    free(layer->weights);
    free(layer->x);
    sim_traffic_free(&layer->traffic);
    for (int d = 0; d < SIM_DIRECTIONS; d++) sim_schedule_free(&layer->schedule[d]);
}

/* rows tokens of rank 0 choose expert 1, then come silent ones that choose none; as many of
 * rank 1 choose expert 0 where both ways matter. */
static int load_routing(struct layer *layer, uint32_t rows, uint32_t silent, bool both, char *err,
                        size_t err_len)
{
    const struct sim_traffic_shape shape = {
        .mode = SIM_MODE_LL,
        .ranks_per_node = 1,
        .row_bytes = {ref_ll_message_bytes(HIDDEN, REF_RECIPE_LL), 2 * HIDDEN},
        .formula_bytes = {HIDDEN, 2 * HIDDEN}};
    const uint64_t at_0 = (uint64_t)rows + silent, tokens = at_0 + (both ? rows : 0);
    struct sim_rng rng = sim_rng_stream(1, PURPOSE_X, 0, 0, 0);

    layer->token_start[1] = at_0;
    layer->token_start[2] = tokens;
    layer->topk_idx = (int64_t *)malloc(tokens * sizeof *layer->topk_idx);
    layer->weights = (float *)malloc(tokens * sizeof *layer->weights);
    layer->x = (uint16_t *)malloc(tokens * HIDDEN * sizeof *layer->x);
    if (layer->topk_idx == NULL || layer->weights == NULL || layer->x == NULL) {
        snprintf(err, err_len, "explore: replay of %" PRIu64 " tokens: out of memory", tokens);
        return -1;
    }
    for (uint64_t t = 0; t < tokens; t++) {
        layer->topk_idx[t] = t < rows ? 1 : t < at_0 ? -1 : 0;
        layer->weights[t] = 1.0F;
        /* BF16 of either sign in [1, 2): 7 random bits of mantissa under exponent 127. */
        for (uint32_t c = 0; c < HIDDEN; c += 4) {
            uint64_t bits =
                (sim_rng_next(&rng) & UINT64_C(0x807f807f807f807f)) | UINT64_C(0x3f803f803f803f80);
            memcpy(&layer->x[t * HIDDEN + c], &bits, sizeof bits);
        }
    }
    layer->routing =
        (struct ref_routing){RANKS, RANKS, 1, layer->token_start, layer->topk_idx, layer->weights};
    return sim_traffic_build(&layer->routing, &shape, &layer->traffic, err, err_len);
}

/* Pack, on_time messages in the order given, unpack, and the late rest. The caller fills
 * schedule->messages, of which there is room for message_max. */
static int open_schedule(struct sim_schedule *schedule, enum sim_direction direction,
                         uint64_t message_max, char *err, size_t err_len)
{
    schedule->direction = direction;
    schedule->message_max = message_max;
    schedule->call_max = 2 * RANKS + 2;
    schedule->messages =
        (struct sim_message *)malloc((message_max + 1) * sizeof *schedule->messages);
    schedule->calls = (struct sim_call *)malloc(schedule->call_max * sizeof *schedule->calls);
    if (schedule->messages != NULL && schedule->calls != NULL) return 0;
    snprintf(err, err_len, "explore: replay of %" PRIu64 " messages: out of memory", message_max);
    return -1;
}

static void add_message(struct sim_schedule *schedule, const struct sim_message *message)
{
    assert(schedule->message_count < schedule->message_max);
    schedule->messages[schedule->message_count++] = *message;
}

static void set_calls(struct sim_schedule *schedule, uint64_t on_time)
{
    const uint64_t late = schedule->message_count - on_time;
    struct sim_call *call = schedule->calls;

    assert(on_time <= schedule->message_count);
    for (uint32_t r = 0; r < RANKS; r++) *call++ = (struct sim_call){SIM_CALL_PACK, r, 0, 0};
    *call++ = (struct sim_call){SIM_CALL_DELIVER, 0, 0, on_time};
    for (uint32_t r = 0; r < RANKS; r++) *call++ = (struct sim_call){SIM_CALL_UNPACK, r, 0, 0};
    *call++ = (struct sim_call){SIM_CALL_DELIVER, 0, on_time, late};
    schedule->call_count = (uint64_t)(call - schedule->calls);
    assert(schedule->call_count <= schedule->call_max);
}

/* What lands at rank 1, in order, behind what the schedule holds already; messages: rank 0's rows,
 * by token. Each returns how many of the schedule's messages land before the receiver reads. */

/* The sends that were done when the poller saw its value are in time, the others are not. */
static uint64_t land_sentinel(const struct sim_exploration *exploration,
                              const struct sim_message *messages, struct sim_schedule *schedule)
{
    uint64_t on_time = schedule->message_count;
    for (uint64_t s = 0; s < exploration->step_count; s++)
        on_time += exploration->steps[s] == SENTINEL_SEND;
    for (uint32_t t = 0; t < exploration->ask.tokens; t++) add_message(schedule, &messages[t]);
    assert(on_time < schedule->message_count);
    return on_time;
}

/* Request D stands where request 0 stood, so the NIC sends it in that one's place and again in
 * its own, and request 0 never; the others follow in order. The receiver reads once the flag,
 * request M, has landed. Requests above M are combine's and touch no row of dispatch. */
static uint64_t land_qp(const struct sim_exploration *exploration,
                        const struct sim_message *messages, struct sim_schedule *schedule)
{
    const uint32_t flag = exploration->ask.tokens, over = exploration->ask.depth;
    const uint64_t before = schedule->message_count;

    assert(exploration->step_count == (uint64_t)over + 1 && over >= 1);
    if (over < flag) add_message(schedule, &messages[over]);
    for (uint32_t p = 1; p < flag; p++) add_message(schedule, &messages[p]);
    return over == flag ? before : schedule->message_count;
}

/* Call 2 lands in the buffer of result 0, row on row; its tokens are the silent ones. */
static uint64_t land_buffers(const struct sim_exploration *exploration,
                             const struct sim_message *messages, struct sim_schedule *schedule)
{
    const uint32_t rows = exploration->ask.tokens;
    for (uint32_t t = 0; t < rows; t++) add_message(schedule, &messages[t]);
    for (uint32_t t = 0; t < rows; t++) {
        struct sim_message other = messages[t];
        other.src_row += rows;
        other.token += rows;
        add_message(schedule, &other);
    }
    return schedule->message_count;
}

static int load_schedules(const struct sim_exploration *exploration, struct layer *layer, char *err,
                          size_t err_len)
{
    const uint64_t rows = exploration->ask.tokens;
    struct sim_schedule *dispatch = &layer->schedule[SIM_DISPATCH];
    struct sim_schedule *combine = &layer->schedule[SIM_COMBINE];
    const struct sim_message *messages = layer->traffic.messages[SIM_DISPATCH];
    const uint64_t count = layer->traffic.message_count[SIM_DISPATCH];
    uint64_t on_time = 0;

    assert(count == layer->traffic.message_count[SIM_COMBINE] && count % rows == 0);
    if (open_schedule(dispatch, SIM_DISPATCH, 2 * count, err, err_len) != 0 ||
        open_schedule(combine, SIM_COMBINE, count, err, err_len) != 0)
        return -1;
    for (uint64_t m = rows; m < count; m++) add_message(dispatch, &messages[m]); /* Rank 1's. */
    switch (exploration->ask.protocol) {
    case SIM_EXPLORE_SENTINEL: on_time = land_sentinel(exploration, messages, dispatch); break;
    case SIM_EXPLORE_QP: on_time = land_qp(exploration, messages, dispatch); break;
    case SIM_EXPLORE_BUFFERS: on_time = land_buffers(exploration, messages, dispatch); break;
    }
    set_calls(dispatch, on_time);
    for (uint64_t m = 0; m < count; m++)
        add_message(combine, &layer->traffic.messages[SIM_COMBINE][m]);
    set_calls(combine, count);
    return 0;
}

/* Rows of rank 1 that differ in any part, all of them; the data path names the first alone. */
static int load_rows(const struct layer *layer, const struct sim_datapath *path,
                     const struct sim_layer_input *input, struct sim_exploration *exploration,
                     char *err, size_t err_len)
{
    const struct sim_layer_results *expected = sim_datapath_expected(path);
    const uint64_t wrong = layer->checks[SIM_STAGE_DISPATCH * RANKS + 1].mismatch_count;
    struct sim_check_part parts[SIM_CHECK_PARTS_MAX];
    uint64_t first = 0, rows = 0;
    const uint32_t count = sim_check_parts(input, expected, sim_datapath_actual(path),
                                           SIM_STAGE_DISPATCH, 1, &first, &rows, parts);

    assert(rows == exploration->ask.tokens && wrong > 0);
    exploration->rows = (struct sim_explore_row *)malloc(wrong * sizeof *exploration->rows);
    if (exploration->rows == NULL) {
        snprintf(err, err_len, "explore: %" PRIu64 " wrong rows: out of memory", wrong);
        return -1;
    }
    for (uint64_t row = 0; row < rows; row++) {
        bool same = true;
        for (uint32_t p = 0; same && p < count; p++)
            same = memcmp(parts[p].expected + row * parts[p].row_bytes,
                          parts[p].actual + row * parts[p].row_bytes, parts[p].row_bytes) == 0;
        if (same) continue;
        assert(exploration->row_count < wrong);
        exploration->rows[exploration->row_count++] =
            (struct sim_explore_row){1, 0, (uint32_t)expected->received.src_token[first + row]};
    }
    assert(exploration->row_count == wrong);
    return 0;
}

int sim_explore_replay(struct sim_exploration *exploration, char *err, size_t err_len)
{
    const struct sim_explore_ask *ask = &exploration->ask;
    struct layer layer;
    struct sim_datapath *path = NULL;
    int status = -1;

    assert(!exploration->safe && exploration->rows == NULL);
    memset(&layer, 0, sizeof layer);
    if (load_routing(&layer, ask->tokens, ask->protocol == SIM_EXPLORE_BUFFERS ? ask->tokens : 0,
                     ask->protocol == SIM_EXPLORE_QP, err, err_len) != 0 ||
        load_schedules(exploration, &layer, err, err_len) != 0)
        goto free_layer;
    path = sim_datapath_open(sim_backend_ref(), NULL, err, err_len);
    if (path == NULL) goto free_layer;
    const struct sim_layer_input input = {.routing = &layer.routing,
                                          .traffic = &layer.traffic,
                                          .hidden = HIDDEN,
                                          .recipe = REF_RECIPE_LL,
                                          .expert = SIM_EXPERT_STANDIN,
                                          .x = layer.x};
    if (sim_datapath_layer(path, &input, layer.schedule, layer.checks, NULL, err, err_len) == 0)
        status = load_rows(&layer, path, &input, exploration, err, err_len);
    sim_datapath_close(path);
free_layer:
    free_layer(&layer);
    return status;
}
