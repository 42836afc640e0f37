/* sim/traffic_normal.c - messages of normal mode: a token goes once to every rank that owns one of
 * its experts, on several nodes by way of one forwarder per node. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ref/layout.h"
#include "ref/normal.h"
#include "ref/rows.h"
#include "sim/traffic_parts.h"

/* Destination ranks of a token, or the forwarders on its destination nodes; ascending. */
static uint32_t destinations(const struct ref_routing *routing, const struct sim_traffic *traffic,
                             uint32_t home, uint64_t token, uint32_t *ranks)
{
    const uint32_t count = ref_token_ranks(routing, token, ranks);
    const uint32_t per_node = traffic->ranks_per_node;
    uint32_t kept = 0;
    if (traffic->nodes == 1) return count;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t forwarder = ranks[i] / per_node * per_node + home % per_node;
        if (kept == 0 || ranks[kept - 1] != forwarder) ranks[kept++] = forwarder;
    }
    return kept;
}

/* One message per home slot: token -> received row, or on several nodes token -> rail row; and
 * its answer, which is the last hop of combine. row[slot] is the far row. */
static void fill_home_hop(const struct ref_routing *routing, struct sim_traffic *traffic,
                          const uint64_t *row, uint64_t answers_first, uint8_t answer_hop)
{
    uint64_t slot = 0;
    for (uint32_t home = 0; home < routing->ranks; home++) {
        for (uint64_t t = routing->token_start[home]; t < routing->token_start[home + 1]; t++) {
            uint32_t ranks[REF_TOPK_MAX];
            const uint32_t count = destinations(routing, traffic, home, t, ranks);
            assert(slot == traffic->home_start[t]);
            for (uint32_t i = 0; i < count; i++, slot++) {
                const struct sim_message message = {
                    .src_rank = home,
                    .dst_rank = ranks[i],
                    .src_row = t,
                    .dst_row = row[slot],
                    .token = (uint32_t)(t - routing->token_start[home]),
                    .home_rank = home,
                    .expert = -1,
                    .link_class = (uint8_t)sim_traffic_link(traffic, home, ranks[i])};
                struct sim_message *answer =
                    &traffic->messages[SIM_COMBINE][answers_first + row[slot]];
                traffic->messages[SIM_DISPATCH][slot] = message;
                *answer = sim_traffic_answer(&message, slot);
                answer->hop = answer_hop;
            }
        }
    }
    assert(slot == traffic->home_rows);
}

/* rail row -> received row, and received row -> contribution. home_message[rail row] is the
 * first-hop message that fills the rail row. */
static void fill_rail_hop(struct sim_traffic *traffic, const uint64_t *contribution_row,
                          const uint64_t *rail_of, const uint64_t *block_of,
                          const uint64_t *home_message)
{
    struct sim_message *second = traffic->messages[SIM_DISPATCH] + traffic->home_rows;
    for (uint64_t c = 0; c < traffic->contribution_rows; c++) {
        const struct sim_message *first =
            &traffic->messages[SIM_DISPATCH][home_message[rail_of[c]]];
        struct sim_message message = *first;
        message.src_rank = first->dst_rank;
        message.dst_rank = (uint32_t)(block_of[contribution_row[c]] / traffic->ranks);
        message.src_row = rail_of[c];
        message.dst_row = contribution_row[c];
        message.hop = 1;
        message.link_class = (uint8_t)sim_traffic_link(traffic, message.src_rank, message.dst_rank);
        assert(first->dst_row == rail_of[c]);
        second[c] = message;
        message = sim_traffic_answer(&message, c);
        message.hop = 0;
        traffic->messages[SIM_COMBINE][contribution_row[c]] = message;
    }
}

/* Arrays that only building needs. */
struct work {
    uint64_t *scratch, *home_row, *contribution_row, *rail_of, *block_of, *home_message;
};

static int build_one_node(const struct ref_routing *routing, struct sim_traffic *traffic,
                          struct work *work, char *err, size_t err_len)
{
    traffic->home_rows = ref_rows_normal(routing, traffic->block_start, work->scratch,
                                         traffic->home_start, work->home_row);
    assert(traffic->home_rows == traffic->received_rows);
    for (int d = 0; d < SIM_DIRECTIONS; d++)
        if (sim_traffic_messages_alloc(traffic, (enum sim_direction)d, traffic->received_rows, err,
                                       err_len) != 0)
            return -1;
    fill_home_hop(routing, traffic, work->home_row, 0, 0);
    return 0;
}

static int build_nodes(const struct ref_routing *routing, struct sim_traffic *traffic,
                       struct work *work, char *err, size_t err_len)
{
    const uint64_t pairs = (uint64_t)routing->ranks * routing->ranks;
    const uint32_t per_node = traffic->ranks_per_node;

    traffic->rail_start = sim_traffic_numbers(pairs, err, err_len);
    if (traffic->rail_start == NULL) return -1;
    traffic->rail_rows = ref_rows_rails(routing, per_node, traffic->rail_start);
    traffic->contribution_start = sim_traffic_numbers(traffic->rail_rows, err, err_len);
    work->contribution_row = sim_traffic_numbers(traffic->received_rows, err, err_len);
    work->rail_of = sim_traffic_numbers(traffic->received_rows, err, err_len);
    work->block_of = sim_traffic_numbers(traffic->received_rows, err, err_len);
    work->home_message = sim_traffic_numbers(traffic->rail_rows, err, err_len);
    if (traffic->contribution_start == NULL || work->contribution_row == NULL ||
        work->rail_of == NULL || work->block_of == NULL || work->home_message == NULL)
        return -1;
    traffic->home_rows = ref_rows_rail_home(routing, per_node, traffic->rail_start, work->scratch,
                                            traffic->home_start, work->home_row);
    traffic->contribution_rows =
        ref_rows_contributions(routing, per_node, traffic->block_start, traffic->rail_start,
                               work->scratch, traffic->contribution_start, work->contribution_row);
    assert(traffic->home_rows == traffic->rail_rows);
    assert(traffic->contribution_rows == traffic->received_rows);
    for (int d = 0; d < SIM_DIRECTIONS; d++)
        if (sim_traffic_messages_alloc(traffic, (enum sim_direction)d,
                                       traffic->received_rows + traffic->rail_rows, err,
                                       err_len) != 0)
            return -1;
    ref_rows_invert(traffic->rail_rows, work->home_row, work->home_message);
    ref_rows_owner(traffic->rail_rows, traffic->contribution_start, work->rail_of);
    ref_rows_owner(pairs, traffic->block_start, work->block_of);
    fill_home_hop(routing, traffic, work->home_row, traffic->received_rows, 1);
    fill_rail_hop(traffic, work->contribution_row, work->rail_of, work->block_of,
                  work->home_message);
    return 0;
}

int sim_traffic_build_normal(const struct ref_routing *routing, struct sim_traffic *traffic,
                             char *err, size_t err_len)
{
    const uint64_t pairs = (uint64_t)routing->ranks * routing->ranks;
    struct work work = {0};
    int status = -1;

    traffic->block_start = sim_traffic_numbers(pairs, err, err_len);
    traffic->home_start = sim_traffic_numbers(ref_token_count(routing), err, err_len);
    work.scratch = sim_traffic_numbers(2 * (uint64_t)routing->ranks, err, err_len);
    work.home_row = sim_traffic_numbers(ref_token_count(routing) * routing->topk, err, err_len);
    if (traffic->block_start == NULL || traffic->home_start == NULL || work.scratch == NULL ||
        work.home_row == NULL)
        goto free_work;
    traffic->received_rows = ref_normal_blocks(routing, traffic->block_start);
    status = traffic->nodes == 1 ? build_one_node(routing, traffic, &work, err, err_len)
                                 : build_nodes(routing, traffic, &work, err, err_len);
free_work:
    free(work.scratch);
    free(work.home_row);
    free(work.contribution_row);
    free(work.rail_of);
    free(work.block_of);
    free(work.home_message);
    return status;
}
