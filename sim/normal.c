/* sim/normal.c - the time of one normal-mode dispatch or combine.
 *
 * Plans the queues, hands the run to the model of one node or of several, and reports. Owns no
 * protocol step itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/link.h"
#include "sim/normal_model.h"

static const struct {
    const char *name, *kind;
} uses[] = {[NORMAL_LINK_OUT] = {"nvlink.out", "link"},
            [NORMAL_LINK_IN] = {"nvlink.in", "link"},
            [NORMAL_NIC_OUT] = {"nic.out", "nic"},
            [NORMAL_NIC_IN] = {"nic.in", "nic"},
            [NORMAL_USES] = {"sm", "sm_pool"}};

static void report_use(struct sim_timing *timing, uint32_t rank, uint32_t use,
                       const struct normal_server *server, uint64_t row_bytes)
{
    assert(timing->resource_count < timing->resource_max);
    struct sim_resource_use *to = &timing->resources[timing->resource_count++];
    *to = (struct sim_resource_use){.busy_ps = server->busy_ps,
                                    .bytes = server->rows * row_bytes,
                                    .queue_peak = server->queue_peak,
                                    .stall_ps = server->stall_ps};
    snprintf(to->name, sizeof to->name, "rank%u.%s", rank, uses[use].name);
    snprintf(to->kind, sizeof to->kind, "%s", uses[use].kind);
}

static void report_uses(const struct sim_exchange *exchange, const struct normal_run *run,
                        struct sim_timing *timing)
{
    const struct fabric_machine *machine = exchange->machine;
    const uint64_t bytes = exchange->traffic->row_bytes[exchange->direction];
    timing->resource_count = 0;
    timing->floor_ps = 0;
    for (uint32_t rank = 0; rank < run->plan->ranks; rank++) {
        struct normal_server sm = {.free_ps = 0};
        for (uint32_t use = 0; use < NORMAL_USES; use++) {
            const struct normal_server *server = &run->uses[use][rank];
            const bool nvlink = use <= NORMAL_LINK_IN;
            const uint64_t line = nvlink ? machine->nvlink_bytes_per_s : machine->nic_bytes_per_s;
            const uint64_t flight = nvlink ? machine->nvlink_flight_ps : machine->nic_flight_ps;
            report_use(timing, rank, use, server, bytes);
            if (server->rows == 0 || line == 0) continue;
            const uint64_t least_ps = flight + fabric_transfer_ps(server->rows * bytes, line);
            timing->floor_ps = normal_max(timing->floor_ps, least_ps);
        }
        for (uint32_t b = 0; b < 2 * run->plan->channels; b++) {
            const struct normal_server *block =
                &run->blocks[b % 2][rank * run->plan->channels + b / 2];
            sm.busy_ps += block->busy_ps;
            sm.rows += block->rows;
            sm.stall_ps += block->stall_ps;
            sm.queue_peak = normal_max(sm.queue_peak, block->queue_peak);
        }
        report_use(timing, rank, NORMAL_USES, &sm, bytes);
    }
}

/* The messages of a queue stand in the order of its rows: the n-th takes the n-th row's times. */
static int report_messages(const struct sim_exchange *exchange, const struct normal_run *run,
                           struct sim_timing *timing, char *err, size_t err_len)
{
    const struct sim_traffic *traffic = exchange->traffic;
    const struct normal_plan *plan = run->plan;
    const uint64_t count = traffic->message_count[exchange->direction];
    const uint64_t queues0 = (uint64_t)plan->ranks * plan->level0.destinations * plan->channels;
    const uint64_t queues1 = (uint64_t)plan->ranks * plan->ranks * plan->channels;
    uint64_t *next0 = (uint64_t *)calloc(queues0 + queues1, sizeof *next0);
    uint64_t *next1 = next0 + queues0;
    if (!next0) {
        snprintf(err, err_len, "normal mode: no memory for the times of %u ranks", plan->ranks);
        return -1;
    }
    for (uint64_t i = 0; i < count; i++) {
        const struct sim_message *message = &traffic->messages[exchange->direction][i];
        const uint32_t home = message->home_rank;
        const uint32_t far = run->combine ? message->src_rank : message->dst_rank;
        const uint32_t per = (plan->tokens[home] + plan->channels - 1) / plan->channels;
        const uint32_t channel = message->token / per;
        const bool level1 = plan->nodes > 1 && (message->hop == 0) == run->combine;
        const struct normal_queues *queues = level1 ? &plan->level1 : &plan->level0;
        const struct normal_rows *rows = level1 ? &run->rows1 : &run->rows0;
        const uint32_t end = level1 || plan->nodes == 1 ? far : far / plan->ranks_per_node;
        const uint64_t q = normal_queue_index(queues, home, end, channel);
        const uint64_t row = queues->first[q] + (level1 ? next1 : next0)[q]++;
        assert(row < queues->first[q + 1] && rows->land_ps[row] >= rows->depart_ps[row]);
        timing->depart_ps[i] = rows->depart_ps[row];
        timing->land_ps[i] = rows->land_ps[row];
    }
    free(next0);
    return 0;
}

/* Ranks wait for each other twice: in the barrier of the count exchange, for the one launched
 * last, and at the end, for whoever's rows come last. The longer wait is told. */
static void report_ranks(const struct sim_exchange *exchange, const struct normal_run *run,
                         uint32_t latest, uint64_t notify_ps, uint64_t end_ps,
                         struct sim_timing *timing)
{
    const uint64_t last_ps = exchange->start_ps[latest];
    for (uint32_t r = 0; r < run->plan->ranks; r++) {
        const struct normal_rank *rank = &run->ranks[r];
        const uint64_t start_ps = exchange->start_ps[r];
        const uint64_t own_ps = normal_max(rank->other_ps, run->begin_ps);
        timing->end_ps[r] = rank->end_ps + end_ps;
        timing->notify_ps[r] = last_ps - start_ps + notify_ps;
        timing->send_ps[r] = rank->sent_ps - run->begin_ps;
        timing->recv_ps[r] = timing->end_ps[r] - start_ps - timing->notify_ps[r];
        timing->awaited[r] = rank->awaited;
        timing->wait_ps[r] = rank->awaited == r ? 0 : rank->end_ps - own_ps;
        if (last_ps - start_ps > timing->wait_ps[r]) {
            timing->awaited[r] = latest;
            timing->wait_ps[r] = last_ps - start_ps;
        }
    }
}

/* A machine file that gives no normal-mode costs has rates of 0. */
static bool machine_is_whole(const struct sim_exchange *exchange, char *err, size_t err_len)
{
    size_t count;
    const struct fabric_cost_field *fields = fabric_cost_fields(&count);
    struct fabric_costs costs = exchange->machine->costs;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].section, "normal") != 0 || fields[i].min == 0) continue;
        if (*fabric_cost_at(&costs, &fields[i]) > 0) continue;
        snprintf(err, err_len, "machine %s: normal.%s: not given, and normal mode needs it",
                 exchange->machine->name, fields[i].name);
        return false;
    }
    if (exchange->traffic->nvlink && exchange->machine->nvlink_goodput_bytes_per_s < 1000000) {
        snprintf(err, err_len,
                 "machine %s: nvlink_goodput_bytes_per_s: at least 1000000 in normal mode",
                 exchange->machine->name);
        return false;
    }
    return true;
}

int sim_normal_time(struct sim_engine *engine, const struct sim_exchange *exchange,
                    struct sim_timing *timing, char *err, size_t err_len)
{
    const struct sim_traffic *traffic = exchange->traffic;
    const bool rows = timing->message_max > 0;
    struct normal_plan plan;
    struct normal_run run = {.plan = &plan, .engine = engine};
    struct fabric_network network = {.ranks = 0};
    uint32_t latest = 0;
    int status = -1;

    if (!machine_is_whole(exchange, err, err_len)) return -1;
    assert(exchange->sms >= 2 && timing->ranks >= traffic->ranks);
    assert(!rows || timing->message_max >= traffic->message_count[exchange->direction]);
    if (normal_plan_open(traffic, exchange->sms / 2, 0, &plan, err, err_len) != 0) return -1;
    run.combine = exchange->direction == SIM_COMBINE;
    normal_costs_init(&run.costs, exchange);
    for (uint32_t r = 1; r < plan.ranks; r++)
        if (exchange->start_ps[r] > exchange->start_ps[latest]) latest = r;
    const uint64_t notify_ps = normal_exchange_ps(exchange, &plan);
    run.begin_ps = exchange->start_ps[latest] + notify_ps;
    if (sim_exchange_networked(exchange)) {
        if (fabric_network_open(&network, exchange->network, exchange->machine, plan.ranks,
                                plan.ranks_per_node, err, err_len) != 0)
            goto close_plan;
        run.network = &network;
    }
    if (normal_choose_chunks(exchange, &run, err, err_len) != 0) goto close_plan;
    if (normal_run_open(&run, rows, err, err_len) != 0) goto close_run;
    if (normal_run_kernel(&run, err, err_len) != 0) goto close_run;
    if (rows && report_messages(exchange, &run, timing, err, err_len) != 0) goto close_run;
    report_ranks(exchange, &run, latest, notify_ps, normal_kernel_ps(exchange, plan.nodes), timing);
    report_uses(exchange, &run, timing);
    sim_timing_add_leaves(timing, &network);
    timing->nvl_chunk = run.nvl_chunk;
    timing->rdma_chunk = run.rdma_chunk;
    timing->events = sim_engine_event_count(engine);
    timing->digest = sim_engine_digest(engine);
    status = 0;
close_run:
    normal_run_close(&run);
close_plan:
    fabric_network_close(&network);
    normal_plan_close(&plan);
    return status;
}
