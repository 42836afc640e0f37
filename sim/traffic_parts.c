/* sim/traffic_parts.c - what building messages takes in either mode. */
#include "sim/traffic_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int sim_traffic_messages_alloc(struct sim_traffic *traffic, enum sim_direction direction,
                               uint64_t count, char *err, size_t err_len)
{
    traffic->message_count[direction] = count;
    traffic->messages[direction] =
        (struct sim_message *)malloc((count + 1) * sizeof(struct sim_message));
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
