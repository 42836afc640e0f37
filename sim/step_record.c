/* sim/step_record.c - feeds a run's cells to the step, and its kernels to the database. */
#include "sim/step_record.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ref/digest.h"

static int write_span(void *context, const struct sim_step_span *span, char *err, size_t err_len)
{
    const struct sim_step_record *record = (const struct sim_step_record *)context;
    const bool halved = record->times.halved;
    char op[32];
    if (record->db == NULL || strcmp(record->plan->settings.detail, "summary") == 0) return 0;
    snprintf(op, sizeof op, "%s%s", sim_op_name(span->op),
             !halved || span->dense ? ""
             : span->half == 0      ? ".a"
                                    : ".b");
    const struct trace_span row = {.step = span->step,
                                   .layer = span->dense ? TRACE_NO_LAYER : span->layer,
                                   .rank = span->rank,
                                   .stream = sim_stream_name(span->stream),
                                   .op = op,
                                   .start_ps = span->start_ps,
                                   .end_ps = span->end_ps,
                                   .bytes = span->bytes,
                                   .rows = span->rows};
    return trace_db_span(record->db, &row, err, err_len);
}

int sim_step_record_open(const struct sim_plan *plan, struct sim_step_record *record, char *err,
                         size_t err_len)
{
    memset(record, 0, sizeof *record);
    record->plan = plan;
    record->step = sim_step_open(plan, write_span, record, err, err_len);
    if (record->step == NULL) return -1;
    record->times.halved = sim_step_halved(record->step);
    sim_step_memory(plan, &record->memory);
    return 0;
}

void sim_step_record_close(struct sim_step_record *record)
{
    sim_step_close(record->step);
    memset(record, 0, sizeof *record);
}

int sim_step_record_cell(struct sim_step_record *record, const struct sim_cell *cell,
                         uint32_t layer_index, char *err, size_t err_len)
{
    struct sim_step_times times;
    assert(layer_index < record->plan->layer_count);
    if (layer_index == 0) {
        record->start_ps = sim_step_now_ps(record->step);
        if (sim_step_begin(record->step, cell->step, err, err_len) != 0) return -1;
    }
    if (sim_step_layer(record->step, &cell->routing, cell->layer, err, err_len) != 0) return -1;
    if (layer_index + 1 < record->plan->layer_count) return 0;
    if (sim_step_end(record->step, &times, err, err_len) != 0) return -1;
    sim_step_times_add(&record->times, &times);
    record->steps++;
    record->digest = ref_digest_mix(record->digest, times.step_ps);
    for (int o = 0; o < SIM_OPS; o++)
        record->digest = ref_digest_mix(record->digest, times.op_ps[o]);
    return 0;
}

void sim_step_record_mean(struct sim_step_record *record)
{
    if (record->steps > 0) sim_step_times_divide(&record->times, record->steps);
}
