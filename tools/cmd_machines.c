/* tools/cmd_machines.c - machine files: the presets, and every number of one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "fabric/machine.h"
#include "sim/model.h"
#include "tools/commands.h"
#include "tools/table.h"

static const struct command_spec spec = {
    .name = "machines",
    .arguments = "[NAME|FILE]",
    .summary = "List the machine presets, or show every number of one and who says it.",
    .example = "epsim machines h200-hgx",
    .arguments_max = 1,
};

static json_t *rate(uint64_t bytes_per_s)
{
    return json_integer((json_int_t)bytes_per_s);
}

static json_t *attention_json(const struct fabric_attention *attention)
{
    json_t *points = json_array();
    for (uint32_t r = 0; r < attention->rows; r++)
        for (uint32_t c = 0; c < attention->columns; c++)
            if (attention->ps[r][c] > 0)
                json_array_append_new(points, json_pack("{s:I, s:I, s:f}", "requests",
                                                        (json_int_t)attention->requests[r],
                                                        "tokens", (json_int_t)attention->tokens[c],
                                                        "us", (double)attention->ps[r][c] / 1e6));
    return json_pack("{s:s, s:s, s:o}", "model", attention->model, "source", attention->source,
                     "points", points);
}

static json_t *machine_json(const struct fabric_machine *machine)
{
    json_t *json = json_object(), *numbers = json_array(), *stacks = json_array();
    struct fabric_machine_row row;

    json_object_set_new(json, "name", json_string(machine->name));
    json_object_set_new(json, "inherits", json_string(machine->inherits));
    json_object_set_new(json, "source", json_string(machine->source));
    json_object_set_new(json, "costs_source", json_string(machine->costs_source));
    json_object_set_new(json, "sm_count", json_integer(machine->sm_count));
    json_object_set_new(json, "gpus_per_node", json_integer(machine->gpus_per_node));
    json_object_set_new(json, "hbm_bytes", rate(machine->hbm_bytes));
    json_object_set_new(json, "hbm_bytes_per_s", rate(machine->hbm_bytes_per_s));
    json_object_set_new(json, "nvlink_bytes_per_s", rate(machine->nvlink_bytes_per_s));
    json_object_set_new(json, "nic_bytes_per_s", rate(machine->nic_bytes_per_s));
    for (size_t i = 0; fabric_machine_row(machine, i, &row); i++) {
        json_t *number = json_object();

        json_object_set_new(number, "section", json_string(row.section));
        json_object_set_new(number, "key", json_string(row.key));
        json_object_set_new(number, "value", json_string(row.value));
        json_object_set_new(number, "origin", json_string(row.origin));
        json_object_set_new(number, "kind", json_string(row.kind));
        json_object_set_new(number, "scaled_to", json_string(row.scaled));
        json_array_append_new(numbers, number);
    }
    for (uint32_t i = 0; i < machine->stack_count; i++)
        json_array_append_new(stacks, json_string(machine->stacks[i].name));
    json_object_set_new(json, "numbers", numbers);
    if (machine->attention.rows > 0)
        json_object_set_new(json, "attention", attention_json(&machine->attention));
    json_object_set_new(json, "stacks", stacks);
    return json;
}

static int list(bool as_json, char *err, size_t err_len)
{
    json_t *json = json_array();
    struct table *table =
        table_open("machine|>SMs|>HBM|>HBM rate|>NVLink|>NIC|>GPUs a node|inherits");

    for (size_t i = 0; fabric_machine_preset(i) != NULL; i++) {
        struct fabric_machine machine;
        char hbm[16], hbm_rate[16], nvlink[16], nic[16];

        if (fabric_machine_load(fabric_machine_preset(i), &machine, err, err_len) != 0) {
            json_decref(json);
            table_close(table);
            return -1;
        }
        json_array_append_new(json, machine_json(&machine));
        table_cell(table, "%s", machine.name);
        table_cell(table, "%" PRIu32, machine.sm_count);
        table_cell(table, "%s", table_bytes(machine.hbm_bytes, hbm));
        table_cell(table, "%s/s", table_bytes(machine.hbm_bytes_per_s, hbm_rate));
        table_cell(table, "%s/s", table_bytes(machine.nvlink_bytes_per_s, nvlink));
        table_cell(table, "%s/s", table_bytes(machine.nic_bytes_per_s, nic));
        table_cell(table, "%" PRIu32, machine.gpus_per_node);
        table_cell(table, "%s", machine.inherits);
    }
    int status = EXIT_OK;
    if (as_json) {
        status = command_print_json(json_pack("{s:o}", "machines", json));
    } else {
        table_print(table, stdout);
        puts("\nNVLink and NIC: per GPU and direction. `epsim machines NAME` shows one.");
        json_decref(json);
    }
    table_close(table);
    return status;
}

/* Measured attention: a row per number of requests, a column per context. */
static void show_attention(const struct fabric_attention *attention)
{
    char columns[512];
    size_t used = (size_t)snprintf(columns, sizeof columns, ">requests");
    if (attention->rows == 0) return;
    printf("\nattention of a layer of %s%s, measured: us by tokens read\nsource  %s\n",
           attention->model,
           sim_model_is_preset(attention->model) ? "" : " (no preset has that name)",
           attention->source);
    for (uint32_t c = 0; c < attention->columns; c++)
        used += (size_t)snprintf(columns + used, sizeof columns - used, "|>%" PRIu64,
                                 attention->tokens[c]);
    struct table *table = table_open(columns);
    for (uint32_t r = 0; r < attention->rows; r++) {
        table_cell(table, "%" PRIu64, attention->requests[r]);
        for (uint32_t c = 0; c < attention->columns; c++) {
            if (attention->ps[r][c] > 0)
                table_cell(table, "%.1f", (double)attention->ps[r][c] / 1e6);
            else
                table_cell(table, "-");
        }
    }
    table_print(table, stdout);
    table_close(table);
}

static void show(const struct fabric_machine *machine)
{
    struct table *table = table_open("section|number|>value|kind|said by");
    struct fabric_machine_row row;

    printf("%s%s%s\nsource  %s\ncosts   %s\n", machine->name,
           machine->inherits[0] != '\0' ? ", from " : "", machine->inherits, machine->source,
           machine->costs_source);
    for (uint32_t i = 0; i < machine->stack_count; i++)
        printf("%s%s", i == 0 ? "stacks  " : ", ", machine->stacks[i].name);
    puts(machine->stack_count > 0 ? "\n" : "");
    for (size_t i = 0; fabric_machine_row(machine, i, &row); i++) {
        table_cell(table, "%s", row.section);
        table_cell(table, "%s", row.key);
        table_cell(table, "%s", row.value);
        table_cell(table, "%s", row.kind);
        if (row.scaled[0] != '\0')
            table_cell(table, "%s, scaled to the line rate of %s", row.origin, row.scaled);
        else
            table_cell(table, "%s", row.origin[0] != '\0' ? row.origin : "nobody");
    }
    table_print(table, stdout);
    table_close(table);
    show_attention(&machine->attention);
}

int cmd_machines(int argc, char **argv)
{
    struct command_line line;
    struct fabric_machine machine;
    char err[1024] = "";
    int status = command_line_parse(&spec, argc, argv, &line);

    if (status >= 0) return status;
    if (line.argument_count == 0) {
        status = list(line.json, err, sizeof(err));
        return status >= 0 ? status : command_fail(&spec, EXIT_ENVIRONMENT, err);
    }
    if (fabric_machine_load(line.arguments[0], &machine, err, sizeof(err)) != 0)
        return command_fail(&spec, EXIT_USAGE, err);
    if (line.json) return command_print_json(machine_json(&machine));
    show(&machine);
    return EXIT_OK;
}
