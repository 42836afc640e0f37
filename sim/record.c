/* sim/record.c - rows of one cell, in a fixed order. */
#include "sim/record.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "fabric/link.h"
#include "sim/hbm.h"

#include "sim/step.h"

static const char *const OPS[SIM_DIRECTIONS] = {"dispatch", "combine"};
static const char *const CLASSES[SIM_LINK_CLASSES] = {"local", "nvlink", "nic"};

static int record_loads(struct trace_db *db, const struct sim_cell *cell, char *err, size_t err_len)
{
    const struct ref_routing *routing = &cell->routing;
    uint64_t rows[4096] = {0};
    assert(routing->experts <= 4096);
    for (uint64_t i = 0; i < ref_token_count(routing) * routing->topk; i++) {
        assert(routing->topk_idx[i] < (int64_t)routing->experts);
        if (routing->topk_idx[i] >= 0) rows[routing->topk_idx[i]]++;
    }
    for (uint32_t e = 0; e < routing->experts; e++) {
        const struct trace_expert_load row = {cell->step, cell->layer,
                                              e / ref_local_experts(routing), e, rows[e]};
        if (trace_db_expert_load(db, &row, err, err_len) != 0) return -1;
    }
    return 0;
}

static int record_checks(struct trace_db *db, const struct sim_cell *cell, char *err,
                         size_t err_len)
{
    for (uint32_t i = 0; i < SIM_STAGES * cell->plan->ranks; i++) {
        const struct sim_check *check = &cell->checks[i];
        const bool wrong = check->mismatch_count > 0;
        assert(check->rank < cell->plan->ranks);
        const struct trace_check_result row = {.step = cell->step,
                                               .layer = cell->layer,
                                               .stage = sim_stage_name(check->stage),
                                               .backend = cell->plan->settings.backend,
                                               .rank = check->rank,
                                               .rows = check->rows,
                                               .bytes = check->bytes,
                                               .digest = check->digest,
                                               .mismatch_count = check->mismatch_count,
                                               .expert = wrong ? check->expert : -1,
                                               .src_rank = wrong ? (int64_t)check->src_rank : -1,
                                               .src_token = wrong ? (int64_t)check->src_token : -1,
                                               .channel = wrong ? check->channel : -1,
                                               .expected_hex = wrong ? check->expected_hex : NULL,
                                               .actual_hex = wrong ? check->actual_hex : NULL,
                                               .cause = wrong ? check->cause : NULL};
        if (trace_db_check_result(db, &row, err, err_len) != 0) return -1;
    }
    return 0;
}

static int record_wrong(struct trace_db *db, const struct sim_cell *cell, char *err, size_t err_len)
{
    for (uint32_t i = 0; i < sim_wrong_rows_listed(cell->wrong); i++) {
        const struct sim_wrong_row *wrong = &cell->wrong->rows[i];
        const struct trace_wrong_row row = {
            cell->step,      cell->layer,   sim_stage_name((enum sim_stage)wrong->stage),
            wrong->rank,     wrong->expert, wrong->src_rank,
            wrong->src_token};
        if (trace_db_wrong_row(db, &row, err, err_len) != 0) return -1;
    }
    return 0;
}

/* A rank's kernel as a span, or in hook mode its two, the second behind the pause. */
static int record_kernels(struct trace_db *db, const struct sim_cell *cell,
                          enum sim_direction direction, struct trace_span *span, char *err,
                          size_t err_len)
{
    static const char *const HALVES[SIM_DIRECTIONS][2] = {{"dispatch_send", "dispatch_recv"},
                                                          {"combine_send", "combine_recv"}};
    const struct sim_timing *timing = &cell->timing[direction];
    if (!cell->plan->hook) return trace_db_span(db, span, err, err_len);
    const uint64_t end_ps = span->end_ps;
    assert(timing->send_ps[span->rank] <= end_ps - span->start_ps);
    assert(timing->recv_ps[span->rank] <= end_ps - span->start_ps);
    span->op = HALVES[direction][0];
    span->end_ps = span->start_ps + timing->send_ps[span->rank];
    if (trace_db_span(db, span, err, err_len) != 0) return -1;
    span->op = HALVES[direction][1];
    span->start_ps = end_ps - timing->recv_ps[span->rank];
    span->end_ps = end_ps;
    span->bytes = span->rows = 0; /* Counted where they were sent. */
    return trace_db_span(db, span, err, err_len);
}

/* What each rank's kernel did: when, and the rows and bytes that it sent. */
static int record_ranks(struct trace_db *db, const struct sim_cell *cell,
                        enum sim_direction direction, const struct sim_pair_bytes *pairs, char *err,
                        size_t err_len)
{
    const struct sim_timing *timing = &cell->timing[direction];
    const uint32_t ranks = cell->plan->ranks;
    assert(timing->ranks >= ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        struct trace_span span = {
            cell->step,        cell->layer, r, "comm", OPS[direction], cell->start_ps[direction][r],
            timing->end_ps[r], 0,           0};
        assert(timing->awaited[r] < ranks && timing->end_ps[r] >= span.start_ps);
        for (uint32_t dst = 0; dst < ranks; dst++) {
            span.bytes += pairs[(size_t)r * ranks + dst].wire;
            span.rows += pairs[(size_t)r * ranks + dst].messages;
        }
        /* A whole step tells its own spans (sim/step_record.h). */
        if (!sim_step_wanted(&cell->plan->settings) &&
            record_kernels(db, cell, direction, &span, err, err_len) != 0)
            return -1;
        const struct trace_wait wait = {cell->step, cell->layer,        OPS[direction],
                                        r,          timing->awaited[r], timing->wait_ps[r]};
        if (wait.awaited == r || wait.wait_ps == 0) continue;
        if (trace_db_wait(db, &wait, err, err_len) != 0) return -1;
    }
    return 0;
}

static int record_pairs(struct trace_db *db, const struct sim_cell *cell,
                        enum sim_direction direction, const struct sim_pair_bytes *pairs, char *err,
                        size_t err_len)
{
    const uint32_t ranks = cell->plan->ranks;
    for (uint32_t src = 0; src < ranks; src++) {
        for (uint32_t dst = 0; dst < ranks; dst++) {
            const struct sim_pair_bytes *pair = &pairs[(size_t)src * ranks + dst];
            const struct trace_message_stat row = {
                cell->step,
                cell->layer,
                OPS[direction],
                src,
                dst,
                CLASSES[sim_traffic_link(&cell->traffic, src, dst)],
                pair->messages,
                pair->formula,
                pair->distinct_rank,
                pair->wire};
            assert(pair->messages > 0 || pair->wire == 0);
            if (pair->messages == 0 && pair->formula == 0) continue;
            if (trace_db_message_stat(db, &row, err, err_len) != 0) return -1;
        }
    }
    return 0;
}

static int record_resources(struct trace_db *db, const struct sim_cell *cell,
                            enum sim_direction direction, char *err, size_t err_len)
{
    const struct sim_timing *timing = &cell->timing[direction];
    assert(timing->resource_count <= timing->resource_max);
    for (uint32_t i = 0; i < timing->resource_count; i++) {
        const struct sim_resource_use *use = &timing->resources[i];
        const struct trace_resource_use row = {cell->step, cell->layer,     OPS[direction],
                                               use->name,  use->kind,       use->busy_ps,
                                               use->bytes, use->queue_peak, use->stall_ps};
        if (trace_db_resource_use(db, &row, err, err_len) != 0) return -1;
    }
    return 0;
}

/* Memory of every rank: counted, so nobody waits for it. */
static int record_memory(struct trace_db *db, const struct sim_cell *cell,
                         enum sim_direction direction, const struct sim_pair_bytes *pairs,
                         char *err, size_t err_len)
{
    const struct sim_exchange exchange = sim_cell_exchange(cell, direction);
    const uint64_t rate = cell->plan->machine.hbm_bytes_per_s;
    uint64_t bytes[SIM_RANKS_MAX];
    assert(cell->plan->ranks <= SIM_RANKS_MAX);
    if (rate == 0) return 0;
    sim_hbm_bytes(&exchange, pairs, bytes);
    for (uint32_t r = 0; r < cell->plan->ranks; r++) {
        char name[32];
        snprintf(name, sizeof name, "rank%" PRIu32 ".hbm", r);
        const struct trace_resource_use row = {.step = cell->step,
                                               .layer = cell->layer,
                                               .op = OPS[direction],
                                               .resource = name,
                                               .kind = "hbm",
                                               .busy_ps = fabric_transfer_ps(bytes[r], rate),
                                               .bytes = bytes[r]};
        if (trace_db_resource_use(db, &row, err, err_len) != 0) return -1;
    }
    return 0;
}

static int record_messages(struct trace_db *db, const struct sim_cell *cell,
                           enum sim_direction direction, char *err, size_t err_len)
{
    const struct sim_traffic *traffic = &cell->traffic;
    const struct sim_timing *timing = &cell->timing[direction];
    const uint32_t local = traffic->experts / traffic->ranks;
    assert(traffic->messages[direction] != NULL || traffic->message_count[direction] == 0);
    assert(timing->message_max >= traffic->message_count[direction]);
    for (uint64_t m = 0; m < traffic->message_count[direction]; m++) {
        const struct sim_message *message = &traffic->messages[direction][m];
        const bool remote = message->link_class == SIM_LINK_NIC;
        const struct trace_message row = {
            .step = cell->step,
            .layer = cell->layer,
            .op = OPS[direction],
            .src_rank = message->src_rank,
            .dst_rank = message->dst_rank,
            .link_class = CLASSES[message->link_class],
            /* LL: the local index of the expert at whichever end it lives. */
            .qp = remote && message->expert >= 0 ? message->expert % (int64_t)local : -1,
            .bytes = traffic->row_bytes[direction],
            .rows = 1,
            .send_ps = timing->depart_ps[m],
            .land_ps = timing->land_ps[m]};
        if (trace_db_message(db, &row, err, err_len) != 0) return -1;
    }
    return 0;
}

int sim_record_cell(struct trace_db *db, const struct sim_cell *cell, enum sim_detail detail,
                    const struct sim_pair_bytes *pairs, char *err, size_t err_len)
{
    const size_t pair_count = (size_t)cell->plan->ranks * cell->plan->ranks;
    if (record_loads(db, cell, err, err_len) != 0) return -1;
    if (cell->played &&
        (record_checks(db, cell, err, err_len) != 0 || record_wrong(db, cell, err, err_len) != 0))
        return -1;
    for (int d = 0; detail != SIM_DETAIL_SUMMARY && d < SIM_DIRECTIONS; d++) {
        const enum sim_direction direction = (enum sim_direction)d;
        const struct sim_pair_bytes *own = pairs + (size_t)d * pair_count;
        if (record_ranks(db, cell, direction, own, err, err_len) != 0 ||
            record_pairs(db, cell, direction, own, err, err_len) != 0 ||
            record_resources(db, cell, direction, err, err_len) != 0 ||
            record_memory(db, cell, direction, own, err, err_len) != 0)
            return -1;
        if (detail == SIM_DETAIL_MESSAGE && record_messages(db, cell, direction, err, err_len) != 0)
            return -1;
    }
    return 0;
}

int sim_record_breakdown(struct trace_db *db, const struct sim_cell *cell,
                         const struct sim_breakdown *breakdown, char *err, size_t err_len)
{
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        const struct sim_attribution *made = &breakdown->cell[d];
        assert(made->ranks == cell->plan->ranks && made->slowest < made->ranks);
        for (uint32_t i = 0; i < made->ranks * SIM_PARTS; i++) {
            const enum sim_part part = (enum sim_part)(i % SIM_PARTS);
            const struct trace_attribution row = {
                cell->step,    cell->layer,         OPS[d],
                i / SIM_PARTS, sim_part_name(part), made->part_ps[i]};
            if (row.ps == 0) continue;
            if (trace_db_attribution(db, &row, err, err_len) != 0) return -1;
        }
        for (int k = 0; k < SIM_WIDENINGS; k++) {
            const struct trace_whatif row = {cell->step,
                                             cell->layer,
                                             OPS[d],
                                             sim_widening_name((enum sim_widening)k),
                                             made->took_ps[made->slowest],
                                             breakdown->cell_after_ps[d][k]};
            if (trace_db_whatif(db, &row, err, err_len) != 0) return -1;
        }
    }
    return 0;
}

int sim_record_faults(struct trace_db *db, const struct sim_scenario *scenario, char *err,
                      size_t err_len)
{
    for (uint32_t f = 0; f < scenario->count; f++) {
        const struct sim_fault *fault = &scenario->faults[f];
        char target[96], detail[96];
        assert(fault->stage < SIM_DIRECTIONS);
        if (fault->kind == SIM_FAULT_DELAY)
            snprintf(target, sizeof target, "rank %" PRIu32, fault->rank);
        else
            snprintf(target, sizeof target,
                     "rank %" PRIu32 " token %" PRIu32 " expert %" PRId32 " peer %" PRId32,
                     fault->target.source, fault->target.token, fault->target.expert,
                     fault->target.peer);
        snprintf(detail, sizeof detail, "layer %" PRIu32 ", %s, hop %" PRIu32, fault->layer,
                 OPS[fault->stage], fault->hop);
        const struct trace_fault row = {fault->step, fault->delay_ps, sim_fault_name(fault->kind),
                                        target, detail};
        if (trace_db_fault(db, &row, err, err_len) != 0) return -1;
    }
    return 0;
}
