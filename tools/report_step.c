/* tools/report_step.c - prints a whole step: kernels, memory, rate. */
#include "tools/report_step.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/what_if.h"
#include "tools/table.h"

enum { SCHEDULE_BYTES = 8192 };

static const struct sim_overlap *overlap_of(const struct sim_step_record *record)
{
    return sim_overlap_find(record->plan->settings.overlap);
}

/* The stream that the schedule gives op; dense layers add ffn, which is compute. */
static const char *stream_of(const struct sim_step_record *record, enum sim_op op)
{
    const struct sim_overlap_entry *entry =
        overlap_of(record)->table[record->plan->mode == SIM_MODE_NORMAL];
    for (; entry->op != SIM_OP_END; entry++)
        if (entry->op == op) return sim_stream_name(entry->stream);
    return sim_stream_name(SIM_STREAM_MAIN);
}

static void print_kernels(const struct sim_step_record *record)
{
    /* In a layer's order; the send halves stand before what receives. */
    static const enum sim_op ORDER[SIM_OPS] = {
        SIM_OP_TP_GATHER,     SIM_OP_PROJECTION, SIM_OP_ATTENTION,     SIM_OP_TP_SCATTER,
        SIM_OP_GATHER,        SIM_OP_ROUTER,     SIM_OP_FFN,           SIM_OP_QUANTISE,
        SIM_OP_DISPATCH_SEND, SIM_OP_DISPATCH,   SIM_OP_SHARED,        SIM_OP_PERMUTE,
        SIM_OP_GATE_UP,       SIM_OP_ACTIVATION, SIM_OP_DOWN,          SIM_OP_UNPERMUTE,
        SIM_OP_COMBINE_SEND,  SIM_OP_COMBINE,    SIM_OP_REDUCE_SCATTER};
    const struct sim_step_times *times = &record->times;
    struct table *table = table_open("kernel|stream|>MoE layer us|>share|>dense layer us|>step ms");
    for (int i = 0; i < SIM_OPS; i++) {
        const enum sim_op op = ORDER[i];
        const double us = (double)times->op_ps[op] / 1e6;
        const double dense_us = (double)times->dense_op_ps[op] / 1e6;
        if (times->op_ps[op] == 0 && times->dense_op_ps[op] == 0) continue;
        table_cell(table, "%s", sim_op_name(op));
        table_cell(table, "%s", stream_of(record, op));
        table_cell(table, "%.1f", us);
        table_cell(table, "%.0f %%", 100 * us * 1e6 / (double)times->layer_ps);
        table_cell(table, "%.1f", dense_us);
        table_cell(table, "%.2f", (us * times->moe_layers + dense_us * times->dense_layers) / 1e3);
    }
    table_print(table, stdout);
    table_close(table);
}

void report_step_print(const struct sim_step_record *record, bool schedule)
{
    const struct sim_step_times *times = &record->times;
    const struct sim_step_memory *memory = &record->memory;
    char text[6][16];
    if (schedule) {
        char *words = (char *)malloc(SCHEDULE_BYTES);
        if (words != NULL) {
            sim_overlap_explain(overlap_of(record), record->plan->mode, words, SCHEDULE_BYTES);
            printf("\n%s", words);
        }
        free(words);
    }
    printf("\nwhole step, modelled; a kernel: mean of all ranks%s, waiting included\n\n",
           times->halved ? ", both halves added up" : "");
    print_kernels(record);
    printf("\nstep      %.3f ms: %" PRIu32 " MoE layers of %.1f us", (double)times->step_ps / 1e9,
           times->moe_layers, (double)times->layer_ps / 1e6);
    if (times->simulated != times->moe_layers) printf(" (%" PRIu32 " simulated)", times->simulated);
    if (times->dense_layers > 0)
        printf(", %" PRIu32 " dense of %.1f us", times->dense_layers,
               (double)times->dense_ps / 1e6);
    printf("; overlap %s\n", record->plan->settings.overlap);
    printf("rate      %" PRIu64 " tokens/s per GPU%s (%" PRIu64 " rows of %" PRIu64
           " requests)\n          embedding, logits and sampling are not in it\n",
           times->rows_per_s_gpu,
           record->plan->settings.verify > 1 ? ", were all rows accepted" : "", times->rows,
           times->requests);
    if (sim_step_note(record->step)[0] != '\0')
        table_line("note", sim_step_note(record->step), stdout);
    printf("memory    a rank: experts %s, other weights %s, buffers %s, workspace %s;\n"
           "          %s left for KV: %" PRIu64 " tokens of %s\n",
           table_bytes(memory->expert_bytes, text[0]), table_bytes(memory->other_bytes, text[1]),
           table_bytes(memory->buffer_bytes, text[2]),
           table_bytes(memory->workspace_bytes, text[3]), table_bytes(memory->kv_bytes, text[4]),
           memory->kv_tokens, table_bytes(memory->kv_token_bytes, text[5]));
    if (memory->held_bytes > memory->hbm_bytes)
        printf("          does not fit: %s of weights, buffers and workspace on a GPU of %s: times "
               "and rate\n          are of a machine with room for them\n",
               table_bytes(memory->held_bytes, text[0]), table_bytes(memory->hbm_bytes, text[1]));
    else if (record->plan->settings.context > 0 &&
             sim_what_if_kv_tokens(record->plan) > memory->kv_tokens)
        printf("          too few: the requests of the fullest rank need %" PRIu64 " tokens\n",
               sim_what_if_kv_tokens(record->plan));
}

static json_t *ops_json(const uint64_t *op_ps)
{
    json_t *json = json_object();
    for (int o = 0; o < SIM_OPS; o++)
        if (op_ps[o] > 0)
            json_object_set_new(json, sim_op_name((enum sim_op)o),
                                json_real((double)op_ps[o] / 1e6));
    return json;
}

static json_t *memory_json(const struct sim_step_memory *memory)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "hbm_bytes",
                     (json_int_t)memory->hbm_bytes, "expert_bytes",
                     (json_int_t)memory->expert_bytes, "other_bytes",
                     (json_int_t)memory->other_bytes, "buffer_bytes",
                     (json_int_t)memory->buffer_bytes, "workspace_bytes",
                     (json_int_t)memory->workspace_bytes, "kv_bytes", (json_int_t)memory->kv_bytes,
                     "kv_token_bytes", (json_int_t)memory->kv_token_bytes, "kv_tokens",
                     (json_int_t)memory->kv_tokens, "held_bytes", (json_int_t)memory->held_bytes,
                     "weights_fit", memory->held_bytes <= memory->hbm_bytes);
}

json_t *report_step_json(const struct sim_step_record *record, bool schedule)
{
    const struct sim_step_times *times = &record->times;
    json_t *json = json_object();
    json_object_set_new(json, "modelled", json_true());
    json_object_set_new(json, "overlap", json_string(record->plan->settings.overlap));
    json_object_set_new(json, "halves", json_integer(times->halved ? 2 : 1));
    json_object_set_new(json, "note", json_string(sim_step_note(record->step)));
    json_object_set_new(json, "step_us", json_real((double)times->step_ps / 1e6));
    json_object_set_new(json, "layer_us", json_real((double)times->layer_ps / 1e6));
    json_object_set_new(json, "dense_layer_us", json_real((double)times->dense_ps / 1e6));
    json_object_set_new(json, "moe_layers", json_integer(times->moe_layers));
    json_object_set_new(json, "dense_layers", json_integer(times->dense_layers));
    json_object_set_new(json, "simulated_layers", json_integer(times->simulated));
    json_object_set_new(json, "rows", json_integer((json_int_t)times->rows));
    json_object_set_new(json, "requests", json_integer((json_int_t)times->requests));
    json_object_set_new(json, "tokens_per_s_per_gpu",
                        json_integer((json_int_t)times->rows_per_s_gpu));
    json_object_set_new(json, "kernels_us", ops_json(times->op_ps));
    json_object_set_new(json, "dense_kernels_us", ops_json(times->dense_op_ps));
    json_object_set_new(json, "wire_bytes",
                        json_pack("{s:I, s:I, s:I}", "local",
                                  (json_int_t)times->wire_bytes[SIM_LINK_LOCAL], "nvlink",
                                  (json_int_t)times->wire_bytes[SIM_LINK_NVLINK], "nic",
                                  (json_int_t)times->wire_bytes[SIM_LINK_NIC]));
    json_object_set_new(json, "collective_bytes",
                        json_integer((json_int_t)times->collective_bytes));
    json_object_set_new(json, "memory", memory_json(&record->memory));
    if (schedule) {
        char *words = (char *)malloc(SCHEDULE_BYTES);
        if (words != NULL) {
            sim_overlap_explain(overlap_of(record), record->plan->mode, words, SCHEDULE_BYTES);
            json_object_set_new(json, "schedule", json_string(words));
        }
        free(words);
    }
    return json;
}
