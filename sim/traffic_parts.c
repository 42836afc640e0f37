/* sim/traffic_parts.c - what building messages takes in either mode. */
#include "sim/traffic_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

struct sim_message sim_traffic_answer(const struct sim_message *message, uint64_t slot)
{
    struct sim_message answer = *message;
    answer.src_rank = message->dst_rank;
    answer.dst_rank = message->src_rank;
    answer.src_row = message->dst_row;
    answer.dst_row = slot;
    return answer;
}
