/* tools/origins.c - counts the numbers of each machine by the file that says them. */
#include "tools/origins.h"
#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include "fabric/machine.h"
#include "tools/table.h"

enum { TEXT_BYTES = 512 };

/* {file: count} of one section. */
static json_t *count_by_file(const struct fabric_machine *machine, const char *section)
{
    json_t *files = json_object();
    struct fabric_machine_row row;
    for (size_t i = 0; fabric_machine_row(machine, i, &row); i++) {
        if (strcmp(row.section, section) != 0 || row.origin[0] == '\0') continue;
        const json_int_t before = json_integer_value(json_object_get(files, row.origin));
        json_object_set_new(files, row.origin, json_integer(before + 1));
    }
    return files;
}

static json_t *find_machine(const json_t *origins, const char *name)
{
    for (size_t i = 0; i < json_array_size(origins); i++) {
        json_t *one = json_array_get(origins, i);
        if (strcmp(json_string_value(json_object_get(one, "machine")), name) == 0) return one;
    }
    return NULL;
}

static void add_once(json_t *strings, const char *text)
{
    for (size_t i = 0; i < json_array_size(strings); i++)
        if (strcmp(json_string_value(json_array_get(strings, i)), text) == 0) return;
    json_array_append_new(strings, json_string(text));
}

/* Has a row before this one the same machine, mode and stack? */
static bool seen(const struct sim_measured *measured, size_t row)
{
    const struct sim_measured_row *rows = measured->rows;
    assert(row < measured->count);
    for (size_t i = 0; i < row; i++)
        if (strcmp(rows[i].machine, rows[row].machine) == 0 &&
            strcmp(rows[i].mode, rows[row].mode) == 0 &&
            strcmp(rows[i].stack, rows[row].stack) == 0)
            return true;
    return false;
}

json_t *origins_json(const struct sim_measured *measured, char *err, size_t err_len)
{
    json_t *origins = json_array();
    for (size_t i = 0; i < measured->count; i++) {
        const struct sim_measured_row *row = &measured->rows[i];
        struct fabric_machine machine;
        if (seen(measured, i)) continue;
        if (fabric_machine_load(row->machine, &machine, err, err_len) != 0) {
            json_decref(origins);
            return NULL;
        }
        json_t *one = find_machine(origins, row->machine);
        if (!one) {
            one =
                json_pack("{s:s, s:{}, s:[]}", "machine", row->machine, "costs", "unknown_stacks");
            json_array_append_new(origins, one);
        }
        json_t *costs = json_object_get(one, "costs");
        assert(costs && machine.origin_count > 0);
        if (!json_object_get(costs, row->mode))
            json_object_set_new(costs, row->mode, count_by_file(&machine, row->mode));
        if (row->stack[0] != '\0' && !fabric_machine_select_stack(&machine, row->stack))
            add_once(json_object_get(one, "unknown_stacks"), row->stack);
    }
    return origins;
}

/* "ll: 13 b200-hgx, 13 h100-hgx; normal: ...". True when another's file has a part in it. */
static bool describe(const json_t *one, char text[TEXT_BYTES])
{
    const char *name = json_string_value(json_object_get(one, "machine"));
    const char *slash = strrchr(name, '/'), *section, *file;
    const size_t stem = strcspn(slash ? slash + 1 : name, ".");
    json_t *files, *count;
    bool inherits = false;
    size_t used = 0;
    text[0] = '\0';
    json_object_foreach(json_object_get(one, "costs"), section, files)
    {
        const char *before = ": ";
        used +=
            (size_t)snprintf(text + used, TEXT_BYTES - used, "%s%s", used > 0 ? "; " : "", section);
        json_object_foreach(files, file, count)
        {
            if (used >= TEXT_BYTES) return inherits;
            used +=
                (size_t)snprintf(text + used, TEXT_BYTES - used, "%s%" JSON_INTEGER_FORMAT " %s",
                                 before, json_integer_value(count), file);
            before = ", ";
            inherits = inherits || strncmp(file, slash ? slash + 1 : name, stem) != 0 ||
                       file[stem] != '\0';
        }
        if (used >= TEXT_BYTES) return inherits;
    }
    return inherits;
}

void origins_print(const json_t *origins, FILE *out)
{
    struct table *table =
        table_open("machine|~its numbers, by the file that says them|~builds that no file knows");
    bool any = false;
    for (size_t i = 0; i < json_array_size(origins); i++) {
        const json_t *one = json_array_get(origins, i);
        const json_t *unknown = json_object_get(one, "unknown_stacks");
        char text[TEXT_BYTES], builds[TEXT_BYTES] = "";
        const bool inherits = describe(one, text);
        if (!inherits && json_array_size(unknown) == 0) continue;
        for (size_t s = 0; s < json_array_size(unknown); s++) {
            const size_t used = strlen(builds);
            assert(used < sizeof builds);
            snprintf(builds + used, sizeof builds - used, "%s%s", used > 0 ? ", " : "",
                     json_string_value(json_array_get(unknown, s)));
        }
        table_cell(table, "%s", json_string_value(json_object_get(one, "machine")));
        table_cell(table, "%s", text);
        table_cell(table, "%s", builds[0] ? builds : "-");
        any = true;
    }
    if (any) table_print(table, out);
    if (any) fputc('\n', out);
    table_close(table);
}
