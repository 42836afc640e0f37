/* sim/traffic.c - messages of the low-latency mode, and what both modes share. The normal mode's
 * rows are numbered in sim/traffic_normal.c. */
#include "sim/traffic.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/ll.h"
#include "ref/rows.h"
#include "sim/traffic_parts.h"

enum sim_link_class sim_traffic_link(const struct sim_traffic *traffic, uint32_t src, uint32_t dst)
{
    if (src == dst) return SIM_LINK_LOCAL;
    if (traffic->nvlink && src / traffic->ranks_per_node == dst / traffic->ranks_per_node)
        return SIM_LINK_NVLINK;
    return SIM_LINK_NIC;
}

int sim_traffic_messages_alloc(struct sim_traffic *traffic, enum sim_direction direction,
                               uint64_t count, char *err, size_t err_len)
{
    traffic->message_count[direction] = count;
    traffic->messages[direction] =
        (struct sim_message *)calloc(count + 1, sizeof(struct sim_message));
    if (traffic->messages[direction] != NULL) return 0;
    snprintf(err, err_len, "%" PRIu64 " messages of a layer: out of memory", count);
    return -1;
}

uint64_t *sim_traffic_numbers(uint64_t count, char *err, size_t err_len)
{
    uint64_t *numbers = (uint64_t *)calloc(count + 1, sizeof *numbers);
    if (numbers == NULL)
        snprintf(err, err_len, "%" PRIu64 " rows of a layer: out of memory", count);
    return numbers;
}

/* Home slots count (token, column with an expert) in order, and so do dispatch messages. */
static void fill_ll(const struct ref_routing *routing, struct sim_traffic *traffic,
                    const uint64_t *home_row)
{
    const uint32_t local = ref_local_experts(routing);
    uint64_t slot = 0;

    for (uint32_t home = 0; home < routing->ranks; home++) {
        for (uint64_t t = routing->token_start[home]; t < routing->token_start[home + 1]; t++) {
            assert(slot == traffic->home_start[t]);
            for (uint32_t k = 0; k < routing->topk; k++) {
                const int64_t expert = routing->topk_idx[t * routing->topk + k];
                if (expert < 0) continue;
                const uint32_t owner = (uint32_t)expert / local;
                const struct sim_message message = {
                    .src_rank = home,
                    .dst_rank = owner,
                    .src_row = t,
                    .dst_row = home_row[slot],
                    .token = (uint32_t)(t - routing->token_start[home]),
                    .home_rank = home,
                    .expert = (int32_t)expert,
                    .link_class = (uint8_t)sim_traffic_link(traffic, home, owner),
                    .column = (uint8_t)k};
                traffic->messages[SIM_DISPATCH][slot] = message;
                traffic->messages[SIM_COMBINE][message.dst_row] =
                    sim_traffic_answer(&message, slot);
                slot++;
            }
        }
    }
    assert(slot == traffic->received_rows);
}

struct sim_message sim_traffic_answer(const struct sim_message *message, uint64_t slot)
{
    struct sim_message answer = *message;
    answer.src_rank = message->dst_rank;
    answer.dst_rank = message->src_rank;
    answer.src_row = message->dst_row;
    answer.dst_row = slot;
    return answer;
}

static int build_ll(const struct ref_routing *routing, struct sim_traffic *traffic, char *err,
                    size_t err_len)
{
    const uint64_t blocks = (uint64_t)routing->experts * routing->ranks;
    const uint64_t rows_max = ref_token_count(routing) * routing->topk;
    uint64_t *scratch = sim_traffic_numbers(routing->experts, err, err_len);
    uint64_t *home_row = sim_traffic_numbers(rows_max, err, err_len);
    int status = -1;

    traffic->block_start = sim_traffic_numbers(blocks, err, err_len);
    traffic->home_start = sim_traffic_numbers(ref_token_count(routing), err, err_len);
    if (scratch == NULL || home_row == NULL || traffic->block_start == NULL ||
        traffic->home_start == NULL)
        goto free_rows;
    traffic->received_rows = ref_ll_blocks(routing, traffic->block_start);
    traffic->home_rows =
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

int sim_traffic_build(const struct ref_routing *routing, const struct sim_traffic_shape *shape,
                      struct sim_traffic *traffic, char *err, size_t err_len)
{
    struct sim_traffic made = {.mode = shape->mode,
                               .ranks = routing->ranks,
                               .ranks_per_node = shape->ranks_per_node,
                               .nvlink = shape->nvlink,
                               .experts = routing->experts,
                               .topk = routing->topk,
                               .token_start = routing->token_start,
                               .topk_idx = routing->topk_idx};
    int status = -1;

    assert(shape->mode == SIM_MODE_LL || shape->mode == SIM_MODE_NORMAL);
    assert(shape->ranks_per_node > 0);
    made.nodes = (routing->ranks + shape->ranks_per_node - 1) / shape->ranks_per_node;
    memcpy(made.row_bytes, shape->row_bytes, sizeof made.row_bytes);
    memcpy(made.formula_bytes, shape->formula_bytes, sizeof made.formula_bytes);
    status = shape->mode == SIM_MODE_LL ? build_ll(routing, &made, err, err_len)
                                        : sim_traffic_build_normal(routing, &made, err, err_len);
    if (status != 0) {
        sim_traffic_free(&made);
        return -1;
    }
    *traffic = made;
    return 0;
}

void sim_traffic_free(struct sim_traffic *traffic)
{
    for (int d = 0; d < SIM_DIRECTIONS; d++) free(traffic->messages[d]);
    free(traffic->block_start);
    free(traffic->home_start);
    free(traffic->rail_start);
    free(traffic->contribution_start);
    memset(traffic, 0, sizeof *traffic);
}
