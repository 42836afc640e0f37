/* sim/measured.c - CSV into rows: one table of columns says what each kind of file needs. */
#include "sim/measured.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/units.h"

enum { COLUMNS_MAX = 64, CELL_MAX = 512 };
enum { CALIBRATE = 1 << SIM_MEASURED_CALIBRATE, EXPERT = 1 << SIM_MEASURED_EXPERT_COMPUTE };
enum { ATTENTION = 1 << SIM_MEASURED_ATTENTION, ALL = CALIBRATE | EXPERT | ATTENTION };

enum cell_type { CELL_TEXT, CELL_NUMBER, CELL_US };

struct column {
    const char *name;
    enum cell_type type;
    size_t offset, bytes;
    unsigned required; /* Kinds that cannot do without it. */
    unsigned empty;    /* Kinds in which a cell may be empty. */
};
/* A macro, since the place of a member is not a value that a function could take. */
#define COLUMN(name, member, type, required, empty)                                                \
    {                                                                                              \
        name, type, offsetof(struct sim_measured_row, member),                                     \
            sizeof((struct sim_measured_row *)0)->member, required, empty                          \
    }

static const struct column columns[] = {
    COLUMN("id", id, CELL_TEXT, 0, ALL),
    COLUMN("machine", machine, CELL_TEXT, ALL, 0),
    COLUMN("stack", stack, CELL_TEXT, 0, ALL),
    COLUMN("grade", grade, CELL_TEXT, 0, ALL),
    COLUMN("mode", mode, CELL_TEXT, CALIBRATE, 0),
    COLUMN("op", op, CELL_TEXT, CALIBRATE, 0),
    COLUMN("dispatch_dtype", dtype, CELL_TEXT, CALIBRATE, 0),
    COLUMN("nodes", nodes, CELL_NUMBER, CALIBRATE, 0),
    COLUMN("gpus_per_node", gpus_per_node, CELL_NUMBER, CALIBRATE, 0),
    COLUMN("ep", ep, CELL_NUMBER, CALIBRATE | EXPERT, 0),
    COLUMN("tokens_per_rank", tokens, CELL_NUMBER, CALIBRATE | EXPERT, 0),
    COLUMN("hidden", hidden, CELL_NUMBER, CALIBRATE | EXPERT, 0),
    COLUMN("topk", topk, CELL_NUMBER, CALIBRATE | EXPERT, 0),
    COLUMN("experts", experts, CELL_NUMBER, CALIBRATE | EXPERT, 0),
    COLUMN("comm_sms", sms, CELL_NUMBER, 0, CALIBRATE),
    COLUMN("capacity", capacity, CELL_NUMBER, 0, ALL),
    COLUMN("kernel", kernel, CELL_TEXT, EXPERT | ATTENTION, 0),
    COLUMN("layout", layout, CELL_TEXT, EXPERT, 0),
    COLUMN("routing", routing, CELL_TEXT, EXPERT, 0),
    COLUMN("moe_inter", moe_inter, CELL_NUMBER, EXPERT, 0),
    COLUMN("heads", heads, CELL_NUMBER, ATTENTION, 0),
    COLUMN("batch_per_rank", batch, CELL_NUMBER, ATTENTION, 0),
    COLUMN("kv_tokens", kv_tokens, CELL_NUMBER, ATTENTION, 0),
    COLUMN("us", measured_ps, CELL_US, ALL, 0),
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

struct reader {
    const char *path;
    FILE *file;
    uint32_t line;
    uint32_t cells;
    char cell[COLUMNS_MAX][CELL_MAX];
    const struct column *meaning[COLUMNS_MAX]; /* NULL: unknown, ignored. */
    char *err;
    size_t err_len;
};

static int refuse_cell(const char *path, uint32_t line, const char *column, const char *value,
                       const char *allowed, char *err, size_t err_len)
{
    char shown[48];
    size_t i = 0;
    for (; value[i] != '\0' && i + 1 < sizeof shown; i++)
        shown[i] = isprint((unsigned char)value[i]) ? value[i] : '?';
    shown[i] = '\0';
    snprintf(err, err_len, "%.256s:%" PRIu32 ": %s: '%s': %s", path, line, column, shown, allowed);
    return -1;
}

static int refuse(const struct reader *reader, const char *column, const char *value,
                  const char *allowed)
{
    return refuse_cell(reader->path, reader->line, column, value, allowed, reader->err,
                       reader->err_len);
}

/* The next line in cells: 1, 0 at the end of the file, -1 with err. Quotes as in RFC 4180,
 * except that a quoted cell ends with its line. */
static int read_line(struct reader *reader)
{
    bool quoted = false, any = false;
    size_t used = 0;
    int c;

    reader->line++;
    reader->cells = 0;
    while ((c = getc(reader->file)) != EOF && (c != '\n' || quoted)) {
        any = true;
        if (c == '\0' || c == '\n') return refuse(reader, "cell", "", "a line ends inside quotes");
        if (c == '"' && quoted) {
            const int next = getc(reader->file);
            if (next != '"') {
                quoted = false;
                if (next != EOF) ungetc(next, reader->file);
                continue;
            }
        } else if (c == '"' && used == 0) {
            quoted = true;
            continue;
        } else if (c == '\r') {
            continue;
        } else if (c == ',' && !quoted) {
            reader->cell[reader->cells++][used] = '\0';
            used = 0;
            if (reader->cells == COLUMNS_MAX)
                return refuse(reader, "line", "", "at most 64 columns");
            continue;
        }
        if (used + 1 == CELL_MAX) return refuse(reader, "cell", "", "at most 511 bytes");
        reader->cell[reader->cells][used++] = (char)c;
    }
    assert(reader->cells < COLUMNS_MAX && used < CELL_MAX);
    if (quoted) return refuse(reader, "cell", "", "the file ends inside quotes");
    if (c == EOF && !any) return 0;
    reader->cell[reader->cells++][used] = '\0';
    return 1;
}

static bool has(const struct reader *reader, const char *name)
{
    for (uint32_t i = 0; i < reader->cells; i++)
        if (strcmp(reader->cell[i], name) == 0) return true;
    return false;
}

static int read_header(struct reader *reader, enum sim_measured_kind *kind)
{
    const int status = read_line(reader);
    if (status < 0) return -1;
    if (status == 0 && ferror(reader->file))
        return refuse(reader, "header", "", "cannot be read: a folder?");
    if (status == 0) return refuse(reader, "header", "", "the file is empty");
    if (has(reader, "kv_tokens") || has(reader, "batch_per_rank"))
        *kind = SIM_MEASURED_ATTENTION;
    else if (has(reader, "moe_inter") || has(reader, "rows_per_local_expert"))
        *kind = SIM_MEASURED_EXPERT_COMPUTE;
    else if (has(reader, "mode") || has(reader, "op"))
        *kind = SIM_MEASURED_CALIBRATE;
    else
        return refuse(reader, "header", reader->cell[0],
                      "neither mode and op, nor moe_inter, nor kv_tokens is a column");
    assert(*kind < SIM_MEASURED_KINDS);
    for (size_t i = 0; i < COLUMNS; i++)
        if ((columns[i].required & 1u << *kind) && !has(reader, columns[i].name))
            return refuse(reader, "header", columns[i].name, "column missing");
    for (uint32_t i = 0; i < reader->cells; i++) {
        reader->meaning[i] = NULL;
        for (size_t j = 0; j < COLUMNS; j++)
            if (strcmp(reader->cell[i], columns[j].name) == 0) reader->meaning[i] = &columns[j];
        for (uint32_t j = 0; j < i && reader->meaning[i]; j++)
            if (reader->meaning[j] == reader->meaning[i])
                return refuse(reader, "header", reader->cell[i], "column stands twice");
    }
    return 0;
}

static int store(const struct reader *reader, const struct column *column, const char *text,
                 enum sim_measured_kind kind, struct sim_measured_row *row)
{
    char *at = (char *)row + column->offset;
    const struct fabric_unit unit = {column->type == CELL_US ? 1000000 : 1, 1};
    uint64_t value = 0;

    assert(column->offset + column->bytes <= sizeof *row);
    if (text[0] == '\0' && (column->empty & 1u << kind)) return 0;
    if (column->type == CELL_TEXT) {
        if (text[0] == '\0' || strlen(text) >= column->bytes)
            return refuse(reader, column->name, text, "empty or too long");
        memcpy(at, text, strlen(text) + 1);
        return 0;
    }
    /* Finer than a picosecond is no measurement: cut the digits behind it. */
    char cut[CELL_MAX];
    snprintf(cut, sizeof cut, "%s", text);
    char *point = strchr(cut, '.');
    if (column->type == CELL_US && point && strlen(point) > 7) point[7] = '\0';
    if (fabric_decimal_parse(cut, unit, &value) != FABRIC_DECIMAL_OK || value > INT64_MAX)
        return refuse(reader, column->name, text,
                      column->type == CELL_US ? "a number of microseconds above 0"
                                              : "a whole number from 0 on");
    if (column->type == CELL_US) {
        if (value == 0) return refuse(reader, column->name, text, "must be above 0");
        assert(column->bytes == sizeof value);
        memcpy(at, &value, sizeof value);
        return 0;
    }
    const uint32_t small = (uint32_t)value;
    if (value > UINT32_MAX) return refuse(reader, column->name, text, "too large");
    assert(column->bytes == sizeof small);
    memcpy(at, &small, sizeof small);
    return 0;
}

/* Rows without mode and op get them, so that all kinds are grouped alike. Contiguous kernels of
 * few rows stand at the launch path of their host: noise to a model of the GPU, grade C. */
static void name_kernel(enum sim_measured_kind kind, struct sim_measured_row *row)
{
    enum { FLOOR_ROWS = 128 };
    if (kind == SIM_MEASURED_CALIBRATE) return;
    snprintf(row->mode, sizeof row->mode, "compute");
    snprintf(row->op, sizeof row->op, "%s",
             kind == SIM_MEASURED_ATTENTION ? "attention" : row->layout);
    if (kind == SIM_MEASURED_ATTENTION) row->tokens = row->kv_tokens;
    if (row->grade[0] == '\0')
        snprintf(row->grade, sizeof row->grade, "%s",
                 strcmp(row->op, "contiguous") == 0 && row->experts > 0 &&
                         (uint64_t)row->tokens * row->ep * row->topk / row->experts < FLOOR_ROWS
                     ? "C"
                     : "A");
}

static int read_rows(struct reader *reader, struct sim_measured *measured)
{
    const uint32_t width = reader->cells;
    size_t capacity = 0;
    int status;

    while ((status = read_line(reader)) > 0) {
        if (reader->cells == 1 && reader->cell[0][0] == '\0') continue;
        if (reader->cells != width)
            return refuse(reader, "line", reader->cell[0],
                          "another number of cells than the header");
        if (measured->count == capacity) {
            capacity = capacity ? 2 * capacity : 256;
            struct sim_measured_row *grown = (struct sim_measured_row *)realloc(
                measured->rows, capacity * sizeof *measured->rows);
            if (!grown) return refuse(reader, "line", "", "out of memory");
            measured->rows = grown;
        }
        assert(measured->count < capacity);
        struct sim_measured_row *row = &measured->rows[measured->count];
        memset(row, 0, sizeof *row);
        row->line = reader->line;
        row->path = reader->path;
        for (uint32_t i = 0; i < width; i++)
            if (reader->meaning[i] &&
                store(reader, reader->meaning[i], reader->cell[i], measured->kind, row) != 0)
                return -1;
        name_kernel(measured->kind, row);
        if (row->id[0] == '\0')
            snprintf(row->id, sizeof row->id, "%.80s:%" PRIu32, reader->path, row->line);
        measured->count++;
    }
    return status;
}

int sim_measured_read(const char *path, struct sim_measured *measured, char *err, size_t err_len)
{
    struct sim_measured made = {.kind = SIM_MEASURED_KINDS};
    struct reader *reader = (struct reader *)calloc(1, sizeof *reader);
    int status = -1;

    assert(path != NULL && measured != NULL);
    if (!reader) {
        snprintf(err, err_len, "%.256s: out of memory", path);
        return -1;
    }
    reader->path = path;
    reader->err = err;
    reader->err_len = err_len;
    reader->file = fopen(path, "r");
    if (!reader->file) {
        snprintf(err, err_len, "%.256s: cannot be opened", path);
        goto free_reader;
    }
    if (read_header(reader, &made.kind) == 0) status = read_rows(reader, &made);
    if (status == 0 && ferror(reader->file))
        status = refuse(reader, "file", "", "cannot be read to its end");
    fclose(reader->file);
    if (status == 0)
        *measured = made;
    else
        sim_measured_free(&made);
free_reader:
    free(reader);
    return status;
}

void sim_measured_free(struct sim_measured *measured)
{
    free(measured->rows);
    memset(measured, 0, sizeof *measured);
}

int sim_measured_refuse(const struct sim_measured_row *row, const char *column, const char *allowed,
                        char *err, size_t err_len)
{
    char number[16] = "";
    const char *value = number;
    size_t c = 0;
    uint32_t small;

    while (c < COLUMNS && strcmp(columns[c].name, column) != 0) c++;
    assert(c < COLUMNS && columns[c].type != CELL_US);
    const char *at = (const char *)row + columns[c].offset;
    if (columns[c].type == CELL_TEXT) {
        value = at;
    } else {
        memcpy(&small, at, sizeof small);
        if (small > 0 || columns[c].empty == 0) snprintf(number, sizeof number, "%" PRIu32, small);
    }
    return refuse_cell(row->path ? row->path : row->id, row->line, column, value, allowed, err,
                       err_len);
}

const char *sim_measured_kind_name(enum sim_measured_kind kind)
{
    static const char *const names[] = {"calibrate", "expert_compute", "attention"};
    assert(kind < SIM_MEASURED_KINDS);
    return names[kind];
}
