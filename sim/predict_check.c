/* sim/predict_check.c - which measured rows of dispatch and combine have an answer. */
#include "sim/predict_parts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ref/routing.h"
#include "sim/generator.h"

enum { TOKENS_MAX = 65536, ALL_TOKENS_MAX = 1 << 24, HIDDEN_MAX = 65536, SMS_MAX = 1024 };

struct finding {
    const char *column; /* NULL: none yet. */
    char allowed[160];
};

__attribute__((format(printf, 3, 4))) static void find(struct finding *finding, const char *column,
                                                       const char *allowed, ...)
{
    va_list list;
    assert(finding->column == NULL);
    finding->column = column;
    va_start(list, allowed);
    vsnprintf(finding->allowed, sizeof finding->allowed, allowed, list);
    va_end(list);
}

static bool is_one_of(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

static void check_words(const struct sim_measured_row *row, struct finding *finding)
{
    static const char *const ll[] = {"dispatch",      "combine",      "dispatch_send",
                                     "dispatch_recv", "combine_send", "combine_recv"};
    static const char *const normal[] = {"dispatch", "combine", "dispatch_notify",
                                         "combine_notify"};
    if (strcmp(row->mode, "ll") != 0 && strcmp(row->mode, "normal") != 0)
        find(finding, "mode", "ll or normal");
    else if (row->mode[0] == 'l' && !is_one_of(row->op, ll, sizeof ll / sizeof ll[0]))
        find(finding, "op", "of mode ll: dispatch or combine, alone or with _send or _recv");
    else if (row->mode[0] == 'n' && !is_one_of(row->op, normal, sizeof normal / sizeof normal[0]))
        find(finding, "op", "of mode normal: dispatch or combine, alone or with _notify");
    else if (strcmp(row->dtype, "fp8") != 0 && strcmp(row->dtype, "bf16") != 0)
        find(finding, "dispatch_dtype", "fp8 or bf16");
}

/* Nodes that are full, or one of which some GPUs take part; more GPUs on it than the machine has
 * are another machine's. */
static void check_ranks(const struct sim_measured_row *row, const struct fabric_machine *machine,
                        struct finding *finding)
{
    const uint64_t places = (uint64_t)row->nodes * row->gpus_per_node;
    const bool nvlink = machine->nvlink_bytes_per_s > 0, nic = machine->nic_bytes_per_s > 0;
    assert(machine->gpus_per_node > 0);
    if (row->ep < 1 || row->ep > SIM_PREDICT_RANKS_MAX)
        find(finding, "ep", "1 to %d", (int)SIM_PREDICT_RANKS_MAX);
    else if (row->gpus_per_node < 1 || row->gpus_per_node > machine->gpus_per_node)
        find(finding, "gpus_per_node", "1 to %" PRIu32 ", which a node of %s has",
             machine->gpus_per_node, machine->name);
    else if (row->nodes < 1 || row->nodes > row->ep)
        find(finding, "nodes", "1 to ep, %" PRIu32, row->ep);
    else if (places < row->ep || (row->nodes > 1 && places != row->ep))
        find(finding, "ep", "%s%" PRIu64 ", as nodes x gpus_per_node is %" PRIu32 " x %" PRIu32,
             row->nodes > 1 ? "" : "at most ", places, row->nodes, row->gpus_per_node);
    else if (row->nodes > 1 && !nic)
        find(finding, "nodes", "1, as %s has no NIC", machine->name);
    else if (row->ep > 1 && !nvlink && !nic)
        find(finding, "ep", "1, as %s has neither NVLink nor a NIC", machine->name);
}

static void check_shape(const struct sim_measured_row *row, const struct fabric_machine *machine,
                        struct finding *finding)
{
    uint32_t sms = machine->sm_count; /* 0: unknown. */
    if (sms < 2 || sms > SMS_MAX) sms = SMS_MAX;
    assert(row->ep > 0);
    if (row->experts < row->ep || row->experts > SIM_EXPERTS_MAX || row->experts % row->ep != 0)
        find(finding, "experts", "a multiple of ep, %" PRIu32 ", up to %d", row->ep,
             (int)SIM_EXPERTS_MAX);
    else if (row->topk < 1 || row->topk > REF_TOPK_MAX || row->topk > row->experts)
        find(finding, "topk", "1 to %" PRIu32,
             row->experts < REF_TOPK_MAX ? row->experts : (uint32_t)REF_TOPK_MAX);
    else if (row->hidden < 128 || row->hidden % 128 != 0 || row->hidden > HIDDEN_MAX)
        find(finding, "hidden", "a multiple of 128 up to %d", (int)HIDDEN_MAX);
    else if (row->tokens > TOKENS_MAX)
        find(finding, "tokens_per_rank", "at most %d", (int)TOKENS_MAX);
    else if ((uint64_t)row->tokens * row->ep > ALL_TOKENS_MAX)
        find(finding, "tokens_per_rank", "at most %" PRIu32 " on each of %" PRIu32 " ranks",
             ALL_TOKENS_MAX / row->ep, row->ep);
    else if (row->mode[0] == 'n' && (row->sms < 2 || row->sms > sms))
        find(finding, "comm_sms",
             "2 to %" PRIu32 " in mode normal: the SMs that its kernels were given", sms);
}

int sim_predict_check(const struct sim_measured_row *row, const struct fabric_machine *machine,
                      char *err, size_t err_len)
{
    struct finding finding = {.column = NULL};
    assert(row != NULL && machine != NULL);
    check_words(row, &finding);
    if (!finding.column) check_ranks(row, machine, &finding);
    if (!finding.column) check_shape(row, machine, &finding);
    return finding.column ? sim_measured_refuse(row, finding.column, finding.allowed, err, err_len)
                          : 0;
}
