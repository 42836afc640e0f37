/* sim/traffic_parts.h - shared by the sim/traffic*.c files, and nobody else. */
#ifndef SIM_TRAFFIC_PARTS_H
#define SIM_TRAFFIC_PARTS_H

#include "sim/traffic.h"

int sim_traffic_messages_alloc(struct sim_traffic *traffic, enum sim_direction direction,
                               uint64_t count, char *err, size_t err_len);
/* count numbers, all 0; NULL with err. The caller frees. */
uint64_t *sim_traffic_numbers(uint64_t count, char *err, size_t err_len);

/* The message that carries message's row back, into home slot (or contribution) `slot`. */
static inline struct sim_message sim_traffic_answer(const struct sim_message *message,
                                                    uint64_t slot)
{
    struct sim_message answer = *message;
    answer.src_rank = message->dst_rank;
    answer.dst_rank = message->src_rank;
    answer.src_row = message->dst_row;
    answer.dst_row = slot;
    return answer;
}

int sim_traffic_count_ll(const struct ref_routing *routing, struct sim_traffic *traffic, char *err,
                         size_t err_len);
int sim_traffic_list_ll(const struct ref_routing *routing, struct sim_traffic *traffic, char *err,
                        size_t err_len);
int sim_traffic_build_normal(const struct ref_routing *routing, struct sim_traffic *traffic,
                             char *err, size_t err_len);

#endif
