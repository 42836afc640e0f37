/* tools/table.c - collects cells and prints them as aligned columns. */
#include "tools/table.h"
#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { FLEXIBLE_WIDTH_MIN = 16 };

struct table {
    size_t column_count;
    char mark[TABLE_COLUMNS_MAX];
    size_t gap;   /* Blanks between columns. */
    char **cells; /* Headings first, then rows; owned. */
    size_t count, capacity;
};

static void add(struct table *table, char *text)
{
    assert(text != NULL);
    if (table->count == table->capacity) {
        table->capacity = table->capacity == 0 ? 64 : 2 * table->capacity;
        table->cells = (char **)realloc(table->cells, table->capacity * sizeof(*table->cells));
        assert(table->cells != NULL);
    }
    table->cells[table->count++] = text;
}

struct table *table_open(const char *columns)
{
    struct table *table = (struct table *)calloc(1, sizeof(*table));

    assert(table != NULL);
    for (const char *at = columns;; at++) {
        const size_t length = strcspn(at, "|");
        const bool marked = *at == '>' || *at == '~';

        assert(table->column_count < TABLE_COLUMNS_MAX);
        table->mark[table->column_count++] = marked ? *at : '<';
        add(table, strndup(at + marked, length - marked));
        at += length;
        if (*at == '\0') break;
    }
    return table;
}

void table_close(struct table *table)
{
    if (table == NULL) return;
    for (size_t i = 0; i < table->count; i++) free(table->cells[i]);
    free(table->cells);
    free(table);
}

void table_cell(struct table *table, const char *format, ...)
{
    va_list args;
    char *text = NULL;

    va_start(args, format);
    const int length = vasprintf(&text, format, args);
    va_end(args);
    assert(length >= 0);
    (void)length;
    add(table, text);
}

static size_t total_width(const struct table *table, const size_t *width)
{
    size_t total = table->gap * (table->column_count - 1);

    for (size_t c = 0; c < table->column_count; c++) total += width[c];
    return total;
}

/* How much of text goes on a line of width characters: to the last blank that fits, or a cut. */
static size_t line_length(const char *text, size_t width)
{
    const size_t length = strlen(text);
    size_t at = width;

    if (length <= width) return length;
    while (at > 0 && text[at] != ' ') at--;
    return at > 0 ? at : width;
}

static void print_row(const struct table *table, const size_t *width, char *const *cells, FILE *out)
{
    const char *rest[TABLE_COLUMNS_MAX];
    bool more = true;

    for (size_t c = 0; c < table->column_count; c++) rest[c] = cells[c];
    while (more) {
        size_t pending = 0; /* Blanks owed: never printed at a line's end. */

        more = false;
        for (size_t c = 0; c < table->column_count; c++) {
            const size_t length = line_length(rest[c], width[c]), pad = width[c] - length;

            if (table->mark[c] == '>') pending += pad;
            if (length > 0) {
                fprintf(out, "%*s%.*s", (int)pending, "", (int)length, rest[c]);
                pending = 0;
            }
            if (table->mark[c] != '>') pending += pad;
            pending += table->gap;
            rest[c] += length;
            while (*rest[c] == ' ') rest[c]++;
            if (*rest[c] != '\0') more = true;
        }
        fputc('\n', out);
    }
}

/* The narrowest that column c may be when its heading breaks at blanks. */
static size_t width_of_body(const struct table *table, size_t c)
{
    size_t width = 0;

    for (const char *at = table->cells[c]; *at != '\0'; at += strspn(at, " ")) {
        const size_t word = strcspn(at, " ");

        if (word > width) width = word;
        at += word;
    }
    for (size_t i = c + table->column_count; i < table->count; i += table->column_count)
        if (strlen(table->cells[i]) > width) width = strlen(table->cells[i]);
    return width;
}

/* Make a table that is too wide narrower: flexible columns give way first, the last one before the
 * others; then headings break, from the right; then a blank between columns must do. */
static void narrow(struct table *table, size_t *width)
{
    for (int breaks = 0; breaks < 2; breaks++)
        for (size_t c = table->column_count; c-- > 0;) {
            const size_t total = total_width(table, width);
            const size_t least = breaks ? width_of_body(table, c) : FLEXIBLE_WIDTH_MIN;
            if ((!breaks && table->mark[c] != '~') || total <= TABLE_WIDTH_MAX) continue;
            const size_t excess = total - TABLE_WIDTH_MAX;
            if (width[c] <= least) continue;
            width[c] = width[c] > excess + least ? width[c] - excess : least;
        }
    if (total_width(table, width) > TABLE_WIDTH_MAX) table->gap = 1;
}

void table_print(struct table *table, FILE *out)
{
    const size_t columns = table->column_count;
    size_t width[TABLE_COLUMNS_MAX] = {0};

    assert(columns > 0 && table->count % columns == 0);
    for (size_t i = 0; i < table->count; i++) {
        const size_t length = strlen(table->cells[i]);

        if (length > width[i % columns]) width[i % columns] = length;
    }
    table->gap = 2;
    narrow(table, width);
    for (size_t row = 0; row < table->count; row += columns)
        print_row(table, width, &table->cells[row], out);
}

void table_line(const char *label, const char *text, FILE *out)
{
    enum { LABEL_WIDTH = 10 };

    assert(strlen(label) < LABEL_WIDTH);
    do {
        const size_t length = line_length(text, TABLE_WIDTH_MAX - LABEL_WIDTH);

        fprintf(out, "%-*s%.*s\n", LABEL_WIDTH, label, (int)length, text);
        text += length;
        while (*text == ' ') text++;
        label = "";
    } while (*text != '\0');
}

const char *table_bytes(uint64_t bytes, char text[16])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    uint64_t divisor = 1;
    size_t unit = 0;

    while (bytes / divisor >= 1000 && unit < 6) divisor *= 1000, unit++;
    if (unit == 0) {
        snprintf(text, 16, "%" PRIu64 " B", bytes);
        return text;
    }
    /* Three digits: 2.36, 23.6, 236. Rounded to nearest in integers. */
    const uint64_t whole = bytes / divisor;
    const uint64_t scale = whole >= 100 ? 1 : whole >= 10 ? 10 : 100;
    const uint64_t shown =
        bytes / (divisor / scale) + (bytes % (divisor / scale) * 2 >= divisor / scale);
    assert(shown <= 1000);
    const int digits = scale == 1 ? 0 : scale == 10 ? 1 : 2;

    if (digits == 0)
        snprintf(text, 16, "%" PRIu64 " %s", shown, units[unit]);
    else
        snprintf(text, 16, "%" PRIu64 ".%0*" PRIu64 " %s", shown / scale, digits, shown % scale,
                 units[unit]);
    return text;
}
