/* sim/traffic_ll.c - messages of the low-latency mode: one per token and column with an expert. */
#include <assert.h>
#include <stdlib.h>

#include "ref/ll.h"
#include "ref/rows.h"
#include "sim/traffic_parts.h"

/* Home slots count (token, column with an expert) in order, and so do dispatch messages. */
static void fill_ll(const struct ref_routing *routing, struct sim_traffic *traffic,
                    const uint64_t *home_row)
{
    const uint32_t local = ref_local_experts(routing);
    struct sim_message *sent = traffic->messages[SIM_DISPATCH];
    struct sim_message *answers = traffic->messages[SIM_COMBINE];
    uint16_t owners[4096]; /* By table, as its link class: dividing would take most of the time. */
    uint8_t link_class[4096];
    uint64_t slot = 0;

    assert(routing->experts <= sizeof owners / sizeof owners[0]);
    for (uint32_t e = 0; e < routing->experts; e++) owners[e] = (uint16_t)(e / local);
    for (uint32_t home = 0; home < routing->ranks; home++) {
        for (uint32_t e = 0; e < routing->experts; e++)
            link_class[e] = (uint8_t)sim_traffic_link(traffic, home, owners[e]);
        for (uint64_t t = routing->token_start[home]; t < routing->token_start[home + 1]; t++) {
            assert(slot == traffic->home_start[t]);
            for (uint32_t k = 0; k < routing->topk; k++) {
                const int64_t expert = routing->topk_idx[t * routing->topk + k];
                if (expert < 0) continue;
                const struct sim_message message = {.src_rank = home,
                                                    .dst_rank = owners[expert],
                                                    .src_row = t,
                                                    .dst_row = home_row[slot],
                                                    .token =
                                                        (uint32_t)(t - routing->token_start[home]),
                                                    .home_rank = home,
                                                    .expert = (int32_t)expert,
                                                    .link_class = link_class[expert],
                                                    .column = (uint8_t)k};
                sent[slot] = message;
                answers[message.dst_row] = sim_traffic_answer(&message, slot);
                slot++;
            }
        }
    }
    assert(slot == traffic->received_rows);
}

int sim_traffic_count_ll(const struct ref_routing *routing, struct sim_traffic *traffic, char *err,
                         size_t err_len)
{
    const uint64_t blocks = (uint64_t)routing->experts * routing->ranks;
    const uint64_t tokens = ref_token_count(routing);
    uint64_t home = 0;

    traffic->block_start = sim_traffic_numbers(blocks, err, err_len);
    traffic->home_start = sim_traffic_numbers(tokens, err, err_len);
    if (traffic->block_start == NULL || traffic->home_start == NULL) return -1;
    traffic->received_rows = ref_ll_blocks(routing, traffic->block_start);
    const bool all = traffic->received_rows == tokens * routing->topk; /* Nearly always. */
    for (uint64_t t = 0; t < tokens; t++) {
        traffic->home_start[t] = home;
        if (all) home += routing->topk;
        for (uint32_t k = 0; k < routing->topk && !all; k++)
            home += ref_names_expert(routing, routing->topk_idx[t * routing->topk + k]);
    }
    traffic->home_start[tokens] = traffic->home_rows = home;
    assert(home == traffic->received_rows);
    for (int d = 0; d < SIM_DIRECTIONS; d++) traffic->message_count[d] = home;
    return 0;
}

int sim_traffic_list_ll(const struct ref_routing *routing, struct sim_traffic *traffic, char *err,
                        size_t err_len)
{
    uint64_t *scratch = sim_traffic_numbers(routing->experts, err, err_len);
    uint64_t *home_row = sim_traffic_numbers(traffic->home_rows, err, err_len);
    int status = -1;

    if (scratch == NULL || home_row == NULL) goto free_rows;
    ref_rows_ll(routing, traffic->block_start, scratch, traffic->home_start, home_row);
    for (int d = 0; d < SIM_DIRECTIONS; d++)
        if (sim_traffic_messages_alloc(traffic, (enum sim_direction)d, traffic->received_rows, err,
                                       err_len) != 0)
            goto free_rows;
    fill_ll(routing, traffic, home_row);
    status = 0;
free_rows:
    free(scratch);
    free(home_row);
    return status;
}
