/* tools/cmd_bench.c - `epsim bench`: the engine's, the reference's and the kernels' own speed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/bench_direct.h"
#include "sim/bench_engine.h"
#include "sim/bench_kernels.h"
#include "sim/bench_ref.h"
#include "sim/bench_sim.h"
#include "tools/commands.h"
#include "tools/table.h"

static const char *const OPTIONS[] = {"threads", NULL};

static const char NOTES[] =
    "keys of --json:\n"
    "  engine   holds_per_s: by pending events; all_to_all\n"
    "  sim      rows: name, ms, goal, events and so on\n"
    "  ref      bytes_per_s: by operation\n"
    "  kernels  gpu; kernels, a list of\n"
    "             kernel, mode, ep, tokens  what ran; tokens are a rank's\n"
    "             bytes, operations         that must move in memory, or be computed\n"
    "             floor_us                  those at the GPU's measured limits\n"
    "             us, event_us              median of the kernel; between events around the call\n"
    "             ratio                     floor_us / us\n"
    "  direct   gpu; operations, a list of\n"
    "             operation, mode, tokens   what ran; tokens are a rank's\n"
    "             sms                       blocks of each rank; 0 = all of its GPU\n"
    "             nvlink_bytes              that must cross, in the fuller direction\n"
    "             memory_bytes              that must move through one GPU's memory\n"
    "             floor_us                  the longer of both at 370 GB/s and 4.28 TB/s\n"
    "             us                        kernel, mean of the ranks, median\n"
    "             event_us                  the same between events around the call\n"
    "             deepep_us                 DeepEP 567632d on such a pair, or null\n"
    "all times are microseconds; random inputs in turns, L2 flushed before each round\n";

static const struct command_spec SPEC = {
    .name = "bench",
    .arguments = "engine|sim|ref|kernels|direct",
    .summary = "Measure the event queue (hold model, and packets of an all-to-all) or the "
               "reference's operations on one core, or layers, steps and sweeps of the simulation, "
               "or the kernels on one GPU, or those that reach from one GPU into another on two.",
    .example = "epsim bench engine --json",
    .options = OPTIONS,
    .notes = NOTES,
    .arguments_min = 1,
    .arguments_max = 1,
};

enum {
    KERNEL_ROUNDS = 21,
    DIRECT_ROUNDS = 41,
    REF_ROUNDS = 15,
    LAYER_ROUNDS = 31,
    STEP_ROUNDS = 5,
    ENGINE_ROUNDS = 5,
    ENGINE_ROUND_NS = 500000000
};

/* Holds per second by events pending, as a table on standard output and as JSON. */
static int bench_holds(const struct command_line *line, json_t *json, char *err, size_t err_len)
{
    static const uint64_t PENDING[] = {256, 4096, 65536, 1000000};
    static const double GOAL[] = {45e6, 30e6, 7e6, 1.5e6};
    json_t *holds = json_object();
    struct table *table = table_open(">pending|>million holds/s|>goal");
    int status = 0;

    for (size_t i = 0; i < sizeof PENDING / sizeof PENDING[0]; i++) {
        char key[24];
        const double rate =
            sim_bench_engine_hold(PENDING[i], ENGINE_ROUNDS, ENGINE_ROUND_NS, err, err_len);
        if (rate <= 0.0) {
            status = -1;
            break;
        }
        snprintf(key, sizeof key, "%" PRIu64, PENDING[i]);
        json_object_set_new(holds, key, json_real(rate));
        table_cell(table, "%s", key);
        table_cell(table, "%.2f", rate / 1e6);
        table_cell(table, "%.1f", GOAL[i] / 1e6);
    }
    json_object_set_new(json, "holds_per_s", holds);
    if (status == 0 && !line->json) table_print(table, stdout);
    table_close(table);
    return status;
}

/* Every port 400 Gb/s, packets of 4 KiB, hops of half a microsecond. */
static int bench_all_to_all(const struct command_line *line, json_t *json, char *err,
                            size_t err_len)
{
    static const struct {
        const char *name;
        uint32_t hosts, packets;
        double goal_s; /* Of one core. */
    } EXCHANGES[] = {{"1 MiB to each of 31", 32, 31 * 256, 0.25},
                     {"1 MiB to each of 63", 64, 63 * 256, 1.0},
                     {"4 KiB to each of 1023", 1024, 1023, 60.0}};
    double goal = 8e6; /* Events a second, and four fifths of what the first one reaches. */
    json_t *rows = json_array();
    struct table *table =
        table_open("all-to-all|>hosts|>packets|>by hand us|>us|>events|>s|>goal|>M events/s|>goal");
    int status = 0;

    for (size_t i = 0; status == 0 && i < sizeof EXCHANGES / sizeof EXCHANGES[0]; i++) {
        const struct sim_all_to_all shape = {.hosts = EXCHANGES[i].hosts,
                                             .packets = EXCHANGES[i].packets,
                                             .packet_bytes = 4096,
                                             .rate_bytes_per_s = UINT64_C(50000000000),
                                             .hop_ps = 500000};
        const double closed_us = (double)sim_all_to_all_closed_ps(&shape) / 1e6;
        struct sim_bench_all_to_all bench;
        status = sim_bench_all_to_all(&shape, ENGINE_ROUNDS, &bench, err, err_len);
        if (status != 0) break;
        const double rate = (double)bench.result.events / bench.best_s;
        json_array_append_new(rows, json_pack("{s:s, s:i, s:I, s:f, s:f, s:I, s:f, s:f, s:f, s:f}",
                                              "name", EXCHANGES[i].name, "hosts", (int)shape.hosts,
                                              "packets", (json_int_t)bench.result.arrived,
                                              "closed_form_us", closed_us, "us",
                                              (double)bench.result.end_ps / 1e6, "events",
                                              (json_int_t)bench.result.events, "seconds",
                                              bench.best_s, "goal_seconds", EXCHANGES[i].goal_s,
                                              "events_per_s", rate, "goal_events_per_s", goal));
        table_cell(table, "%s", EXCHANGES[i].name);
        table_cell(table, "%" PRIu32, shape.hosts);
        table_cell(table, "%" PRIu64, bench.result.arrived);
        table_cell(table, "%.3f", closed_us);
        table_cell(table, "%.3f", (double)bench.result.end_ps / 1e6);
        table_cell(table, "%" PRIu64, bench.result.events);
        table_cell(table, "%.3f", bench.best_s);
        table_cell(table, "%.2f", EXCHANGES[i].goal_s);
        table_cell(table, "%.1f", rate / 1e6);
        table_cell(table, "%.1f", goal / 1e6);
        if (i == 0) goal = 0.8 * rate;
    }
    json_object_set_new(json, "all_to_all", rows);
    if (status == 0 && !line->json) {
        puts("");
        table_print(table, stdout);
    }
    table_close(table);
    return status;
}

static int bench_engine(const struct command_line *line)
{
    json_t *json = json_object();
    char err[256] = "";
    if (bench_holds(line, json, err, sizeof err) != 0 ||
        bench_all_to_all(line, json, err, sizeof err) != 0) {
        json_decref(json);
        return command_fail(&SPEC, EXIT_ENVIRONMENT, err);
    }
    if (line->json) return command_print_json(json);
    json_decref(json);
    return EXIT_OK;
}

static void sim_row(struct table *table, json_t *list, const char *name, uint64_t ns,
                    uint64_t goal_ns, uint64_t events)
{
    json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:I}", "name", name, "ms",
                                          (double)ns / 1e6, "goal_ms", (double)goal_ns / 1e6,
                                          "events", (json_int_t)events));
    table_cell(table, "%s", name);
    table_cell(table, "%.2f", (double)ns / 1e6);
    if (goal_ns > 0)
        table_cell(table, "%.0f", (double)goal_ns / 1e6);
    else
        table_cell(table, "-");
    if (events > 0)
        table_cell(table, "%" PRIu64, events);
    else
        table_cell(table, "-");
}

static int bench_sim(const struct command_line *line)
{
    struct sim_bench_layer layer, large;
    char err[256] = "";
    uint64_t step_ns = 0, cells_ns = 0, cpu_ns = 0, events = 0;
    if (sim_bench_layer(64, LAYER_ROUNDS, &layer, err, sizeof err) == 0 &&
        sim_bench_layer(256, 1, &large, err, sizeof err) == 0)
        step_ns = sim_bench_step(32, 75, STEP_ROUNDS, err, sizeof err);
    if (step_ns > 0)
        cells_ns = sim_bench_cells(line->settings.threads, &cpu_ns, &events, err, sizeof err);
    if (cells_ns == 0) return command_fail(&SPEC, EXIT_ENVIRONMENT, err);
    json_t *json = json_object(), *list = json_array();
    struct table *table = table_open("what|>ms|>goal|>events");
    sim_row(table, list, "EP64 low-latency layer, every message", layer.spent_ns, 5000000,
            layer.events);
    sim_row(table, list, "EP256 low-latency layer, every message", large.spent_ns,
            UINT64_C(60000000000), large.events);
    sim_row(table, list, "EP32 decode step of 75 layers", step_ns, 500000000, 0);
    sim_row(table, list, "414 cells of normal mode (wall)", cells_ns, UINT64_C(60000000000),
            events);
    sim_row(table, list, "their CPU time, all threads", cpu_ns, 0, 0);
    json_object_set_new(json, "rows", list);
    if (!line->json) {
        table_print(table, stdout);
        json_decref(json);
    }
    table_close(table);
    return line->json ? command_print_json(json) : EXIT_OK;
}

static int bench_ref(const struct command_line *line)
{
    struct sim_bench_ref bench;
    char err[256] = "";
    if (sim_bench_ref_run(REF_ROUNDS, &bench, err, sizeof err) != 0)
        return command_fail(&SPEC, EXIT_ENVIRONMENT, err);
    const struct {
        const char *name, *what;
        double bytes_per_s, goal;
    } rows[] = {
        {"quantise", "BF16 bytes in", bench.quantise_bytes_per_s, 1e9},
        {"dispatch", "row bytes delivered", bench.dispatch_bytes_per_s, 1e9},
        {"combine", "row bytes delivered", bench.combine_bytes_per_s, 1e9},
        {"sequence", "row bytes of both directions, stand-in expert included",
         bench.sequence_bytes_per_s, 4e8},
    };
    json_t *json = json_object(), *rates = json_object();
    struct table *table = table_open("operation|>GB/s|>goal|of");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_object_set_new(rates, rows[i].name, json_real(rows[i].bytes_per_s));
        table_cell(table, "%s", rows[i].name);
        table_cell(table, "%.2f", rows[i].bytes_per_s / 1e9);
        table_cell(table, "%.1f", rows[i].goal / 1e9);
        table_cell(table, "%s", rows[i].what);
    }
    json_object_set_new(json, "bytes_per_s", rates);
    if (!line->json) {
        table_print(table, stdout);
        json_decref(json);
    }
    table_close(table);
    return line->json ? command_print_json(json) : EXIT_OK;
}

static double us_of(uint64_t ps)
{
    return (double)ps / 1e6;
}

static double kernel_ratio(const struct sim_bench_kernel *kernel)
{
    return kernel->kernel_ps > 0 ? (double)kernel->floor_ps / (double)kernel->kernel_ps : 0;
}

static json_t *kernel_json(const struct sim_bench_kernel *kernel)
{
    json_t *row = json_object();
    json_object_set_new(row, "kernel", json_string(kernel->name));
    json_object_set_new(row, "mode", json_string(kernel->mode));
    json_object_set_new(row, "ep", json_integer(kernel->ranks));
    json_object_set_new(row, "tokens", json_integer(kernel->tokens));
    json_object_set_new(row, "bytes", json_integer((json_int_t)kernel->bytes));
    json_object_set_new(row, "operations", json_integer((json_int_t)kernel->operations));
    json_object_set_new(row, "floor_us", json_real(us_of(kernel->floor_ps)));
    json_object_set_new(row, "us", json_real(us_of(kernel->kernel_ps)));
    json_object_set_new(row, "event_us", json_real(us_of(kernel->event_ps)));
    json_object_set_new(row, "ratio", json_real(kernel_ratio(kernel)));
    return row;
}

static int bench_kernels(const struct command_line *line)
{
    static struct sim_bench_kernels bench; /* Large. */
    char err[256] = "";
    if (sim_bench_kernels_run(KERNEL_ROUNDS, &bench, err, sizeof err) != 0)
        return command_fail(&SPEC, EXIT_ENVIRONMENT, err);
    json_t *json = json_object(), *list = json_array();
    struct table *table = table_open("kernel|mode|>EP|>tokens|>MB|>GFLOP|>floor us|>kernel us|"
                                     ">between events us|>floor / kernel");
    for (uint32_t i = 0; i < bench.count; i++) {
        const struct sim_bench_kernel *kernel = &bench.kernels[i];
        json_array_append_new(list, kernel_json(kernel));
        table_cell(table, "%s", kernel->name);
        table_cell(table, "%s", kernel->mode);
        table_cell(table, "%" PRIu32, kernel->ranks);
        table_cell(table, "%" PRIu32, kernel->tokens);
        table_cell(table, "%.1f", (double)kernel->bytes / 1e6);
        if (kernel->operations > 0)
            table_cell(table, "%.1f", (double)kernel->operations / 1e9);
        else
            table_cell(table, "-");
        table_cell(table, "%.2f", us_of(kernel->floor_ps));
        table_cell(table, "%.2f", us_of(kernel->kernel_ps));
        table_cell(table, "%.2f", us_of(kernel->event_ps));
        table_cell(table, "%.0f %%", 100 * kernel_ratio(kernel));
    }
    json_object_set_new(json, "gpu", json_string(bench.gpu));
    json_object_set_new(json, "kernels", list);
    if (!line->json) {
        table_print(table, stdout);
        json_decref(json);
    }
    table_close(table);
    return line->json ? command_print_json(json) : EXIT_OK;
}

static json_t *direct_json(const struct sim_bench_direct_row *row)
{
    json_t *json = json_object();
    json_object_set_new(json, "operation", json_string(row->name));
    json_object_set_new(json, "mode", json_string(row->mode));
    json_object_set_new(json, "tokens", json_integer(row->tokens));
    json_object_set_new(json, "sms", json_integer(row->sms));
    json_object_set_new(json, "nvlink_bytes", json_integer((json_int_t)row->nvlink_bytes));
    json_object_set_new(json, "memory_bytes", json_integer((json_int_t)row->memory_bytes));
    json_object_set_new(json, "floor_us", json_real(us_of(row->floor_ps)));
    json_object_set_new(json, "us", json_real(us_of(row->kernel_ps)));
    json_object_set_new(json, "event_us", json_real(us_of(row->event_ps)));
    json_object_set_new(json, "deepep_us",
                        row->deepep_ps > 0 ? json_real(us_of(row->deepep_ps)) : json_null());
    return json;
}

static int bench_direct(const struct command_line *line)
{
    static struct sim_bench_direct bench; /* Large. */
    char err[256] = "";
    if (sim_bench_direct_run(DIRECT_ROUNDS, &bench, err, sizeof err) != 0)
        return command_fail(&SPEC, EXIT_ENVIRONMENT, err);
    json_t *json = json_object(), *list = json_array();
    struct table *table = table_open("operation|mode|>tokens|>SMs|>NVLink MB|>memory MB|>floor us|"
                                     ">kernel us|>between events us|>DeepEP us");
    for (uint32_t i = 0; i < bench.count; i++) {
        const struct sim_bench_direct_row *row = &bench.rows[i];
        json_array_append_new(list, direct_json(row));
        table_cell(table, "%s", row->name);
        table_cell(table, "%s", row->mode);
        table_cell(table, "%" PRIu32, row->tokens);
        if (row->sms == 0)
            table_cell(table, "all");
        else
            table_cell(table, "%" PRIu32, row->sms);
        table_cell(table, "%.2f", (double)row->nvlink_bytes / 1e6);
        table_cell(table, "%.2f", (double)row->memory_bytes / 1e6);
        table_cell(table, "%.2f", us_of(row->floor_ps));
        table_cell(table, "%.2f", us_of(row->kernel_ps));
        table_cell(table, "%.2f", us_of(row->event_ps));
        if (row->deepep_ps > 0)
            table_cell(table, "%.1f", us_of(row->deepep_ps));
        else
            table_cell(table, "-");
    }
    json_object_set_new(json, "gpu", json_string(bench.gpu));
    json_object_set_new(json, "operations", list);
    if (!line->json) {
        table_print(table, stdout);
        json_decref(json);
    }
    table_close(table);
    return line->json ? command_print_json(json) : EXIT_OK;
}

int cmd_bench(int argc, char **argv)
{
    struct command_line line;
    const int status = command_line_parse(&SPEC, argc, argv, &line);
    if (status >= 0) return status;
    if (strcmp(line.arguments[0], "engine") == 0) return bench_engine(&line);
    if (strcmp(line.arguments[0], "sim") == 0) return bench_sim(&line);
    if (strcmp(line.arguments[0], "ref") == 0) return bench_ref(&line);
    if (strcmp(line.arguments[0], "kernels") == 0) return bench_kernels(&line);
    if (strcmp(line.arguments[0], "direct") == 0) return bench_direct(&line);
    return command_fail(&SPEC, EXIT_USAGE, "must be engine, sim, ref, kernels or direct");
}
