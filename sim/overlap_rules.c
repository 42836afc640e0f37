/* sim/overlap_rules.c - overlaps in words, what refuses them, and how batches are cut. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/overlap.h"

enum { BLACKWELL = 100, HOPPER_COMM_SMS = 3, BLACKWELL_COMM_SMS = 32, BLOCK_M_MIN = 64 };

static bool has_op(const struct sim_overlap_entry *table, enum sim_op op)
{
    for (; table->op != SIM_OP_END; table++)
        if (table->op == op) return true;
    return false;
}

/* Who op waits for, of those in the table: "after gate_up", or what lies before the layer. */
static size_t explain_needs(const struct sim_overlap *overlap,
                            const struct sim_overlap_entry *table, enum sim_op op, char *text,
                            size_t text_len)
{
    size_t used = 0;
    uint32_t needs = sim_overlap_needs(op);
    const char *join = "waits for";
    if (op == SIM_OP_DISPATCH && has_op(table, SIM_OP_DISPATCH_SEND))
        needs = 1u << SIM_OP_DISPATCH_SEND;
    if (op == SIM_OP_COMBINE && has_op(table, SIM_OP_COMBINE_SEND))
        needs = 1u << SIM_OP_COMBINE_SEND;
    if (op == SIM_OP_COMBINE && overlap->signals) {
        return (size_t)snprintf(text, text_len, "waits for each expert's blocks of down");
    }
    /* Where quantise stands between them, router needs no mention. */
    if (needs & 1u << SIM_OP_QUANTISE && has_op(table, SIM_OP_QUANTISE))
        needs &= ~(1u << SIM_OP_ROUTER);
    text[0] = '\0';
    for (int n = 0; n < SIM_OPS; n++) {
        if (!(needs & 1u << n) || !has_op(table, (enum sim_op)n)) continue;
        used += (size_t)snprintf(text + used, used < text_len ? text_len - used : 0, "%s %s", join,
                                 sim_op_name((enum sim_op)n));
        join = ",";
    }
    if (op == SIM_OP_TP_GATHER)
        used = (size_t)snprintf(text, text_len, "waits for the layer before%s",
                                overlap->next_layer ? ", but not its reduce_scatter" : "");
    if (op == SIM_OP_ATTENTION && overlap->next_layer)
        used += (size_t)snprintf(text + used, used < text_len ? text_len - used : 0,
                                 ", and the reduce_scatter of the layer before");
    return used;
}

size_t sim_overlap_explain(const struct sim_overlap *overlap, enum sim_mode mode, char *text,
                           size_t text_len)
{
    const struct sim_overlap_entry *table = overlap->table[mode == SIM_MODE_NORMAL];
    size_t used = 0;
    uint32_t stage = 0;
    char needs[160];
    assert(table != NULL && text_len > 0);
    text[0] = '\0';
#define ADD(...)                                                                                   \
    used += (size_t)snprintf(text + (used < text_len ? used : text_len - 1),                       \
                             used < text_len ? text_len - used : 0, __VA_ARGS__)
    ADD("%s: %s\n", overlap->name, overlap->summary);
    if (overlap->halves == 2)
        ADD("half A and half B take turns, B %" PRIu32 " stages behind\n",
            overlap->delta[mode == SIM_MODE_NORMAL]);
    for (; table->op != SIM_OP_END; table++) {
        if (table->op == SIM_OP_YIELD) {
            ADD("stage %" PRIu32 ":\n", ++stage);
            continue;
        }
        if (overlap->halves == 2 && stage == 0 && used > 0 && table->op == SIM_OP_TP_GATHER)
            ADD("stage 0:\n");
        explain_needs(overlap, overlap->table[mode == SIM_MODE_NORMAL], table->op, needs,
                      sizeof needs);
        ADD("  %-8s %-15s %s\n", sim_stream_name(table->stream), sim_op_name(table->op), needs);
    }
#undef ADD
    return used;
}

uint32_t sim_overlap_comm_sms(const struct sim_settings *settings,
                              const struct fabric_machine *machine)
{
    assert(machine->sm_count > 0);
    if (settings->comm_sms > 0) return settings->comm_sms;
    return machine->sm_version >= BLACKWELL ? BLACKWELL_COMM_SMS : HOPPER_COMM_SMS;
}

/* Is name one of the comma-separated list? */
static bool is_allowed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; *at != '\0';) {
        const size_t span = strcspn(at, ",");
        if (span == length && memcmp(at, name, span) == 0) return true;
        at += span + (at[span] == ',');
    }
    return false;
}

static int check_sbo(const struct sim_settings *settings, const struct fabric_machine *machine,
                     uint32_t block_m, char *err, size_t err_len)
{
    const bool blackwell = machine->sm_version >= BLACKWELL;
    const bool cutedsl = strcmp(settings->gemm, "cutedsl") == 0 ||
                         (blackwell && strcmp(settings->gemm, "auto") == 0);
    if (block_m < BLOCK_M_MIN)
        snprintf(err, err_len, "sbo_block_m: %" PRIu32 " rows per block: at least %d", block_m,
                 BLOCK_M_MIN);
    else if (blackwell && !cutedsl)
        snprintf(err, err_len,
                 "sbo_gemm: --gemm %s raises no signals on Blackwell: must be cutedsl",
                 settings->gemm);
    else if (!blackwell && cutedsl)
        snprintf(err, err_len,
                 "sbo_gemm: --gemm cutedsl has no kernel before Blackwell: must be "
                 "deepgemm");
    else if (!blackwell && !is_allowed(settings->allow, "sbo_wheel"))
        snprintf(err, err_len,
                 "sbo_wheel: the current wheel for SM90 has no signalling GEMM (--allow sbo_wheel "
                 "models one)");
    else
        return 0;
    return -1;
}

int sim_overlap_check(const struct sim_settings *settings, const struct fabric_machine *machine,
                      enum sim_mode mode, uint32_t block_m, char *err, size_t err_len)
{
    const struct sim_overlap *overlap = sim_overlap_find(settings->overlap);
    const bool normal = mode == SIM_MODE_NORMAL;
    const uint32_t held = normal              ? settings->sms
                          : overlap->comm_sms ? sim_overlap_comm_sms(settings, machine)
                                              : 0;
    assert(overlap != NULL);
    if (overlap->table[normal] == NULL) {
        snprintf(err, err_len, "overlap_mode: --overlap %s: not in --mode %s: needs %s",
                 overlap->name, normal ? "normal" : "ll", normal ? "ll" : "normal");
        return -1;
    }
    if (strcmp(overlap->name, "none") != 0 && held >= machine->sm_count) {
        snprintf(err, err_len,
                 "overlap_sms: %" PRIu32 " SMs for communication leave none of %" PRIu32
                 " to compute: at most %" PRIu32,
                 held, machine->sm_count, machine->sm_count - 1);
        return -1;
    }
    return overlap->signals ? check_sbo(settings, machine, block_m, err, err_len) : 0;
}

struct sim_overlap_split sim_overlap_split(const uint64_t *tokens, uint32_t sequences)
{
    struct sim_overlap_split split = {0, false, 0};
    uint64_t all = 0, sum = 0, best = 0;
    for (uint32_t s = 0; s < sequences; s++) all += tokens[s];
    best = all;
    for (uint32_t s = 0; s <= sequences; s++) {
        /* Twice the distance of the left part from half; the first nearest one wins. */
        const uint64_t off = 2 * sum > all ? 2 * sum - all : all - 2 * sum;
        if (off < best || s == 0) {
            best = off;
            split.sequences = s;
            split.left = sum;
        }
        if (s < sequences) sum += tokens[s];
    }
    assert(sum == all);
    if (100 * split.left >= 48 * all && 100 * split.left <= 52 * all) return split;
    split = (struct sim_overlap_split){0, true, all / 2};
    sum = 0;
    while (split.sequences < sequences && sum + tokens[split.sequences] <= split.left)
        sum += tokens[split.sequences++];
    assert(split.sequences <= sequences && sum <= split.left);
    split.chunked = sum < split.left;
    return split;
}

uint64_t sim_overlap_padded(uint64_t rows)
{
    uint64_t size = 1;
    while (size < rows && size < 8) size *= 2;
    return rows <= 8 ? (rows == 0 ? 0 : size) : (rows + 7) / 8 * 8;
}
