/* traces/html.h - one HTML page, written from top to bottom.
 *
 * Knows how to escape, how to print quantities with their units, and how to draw a heat map;
 * nothing of a run. A failure to write is kept: later calls do nothing, trace_html_end tells. */
#ifndef TRACES_HTML_H
#define TRACES_HTML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "traces/file.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trace_html {
    struct trace_output *output; /* Borrowed. */
    bool failed;
    char *err; /* Borrowed: says how it failed. */
    size_t err_len;
};

/* Start a page with a title (foreign text) and a style sheet (ours); end it: 0 or -1. */
void trace_html_begin(struct trace_html *html, struct trace_output *output, const char *title,
                      const char *style, char *err, size_t err_len);
int trace_html_end(struct trace_html *html);

/* Markup of ours. At most 1,000 bytes a call. */
void trace_html_put(struct trace_html *html, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Text from anywhere, NULL allowed: escaped, control characters shown as '?'. */
void trace_html_text(struct trace_html *html, const char *text);

/* A table cell each. Times in microseconds or milliseconds, bytes in B to TB (powers of 1000). */
void trace_html_time_cell(struct trace_html *html, uint64_t time_ps);
void trace_html_bytes_cell(struct trace_html *html, uint64_t bytes);
void trace_html_count_cell(struct trace_html *html, uint64_t count);
void trace_html_text_cell(struct trace_html *html, const char *text);

/* A table's head, from the names of its columns: "a|>b", where '>' is one of numbers. Rows follow,
 * from "<tr>" to "</tr>", and the end. */
void trace_html_table(struct trace_html *html, const char *columns);
void trace_html_table_end(struct trace_html *html);

/* "<section>" with a heading and a sentence on what is seen; close it with "</section>". */
void trace_html_section(struct trace_html *html, const char *heading, const char *explanation);

/* A heat map: rows x columns squares, darker for more, in eight steps up to the largest value;
 * zeros stay blank. One path a shade, so a map of 15,000 squares stays small. */
struct trace_heat {
    const uint64_t *values; /* [rows][columns] */
    uint32_t rows, columns;
    const char *row_name; /* "layer", "rank": labels the axis. */
    const char *column_name;
    const char *unit; /* Of the values, in the legend: "rows", "us". */
    uint64_t divisor; /* Values are printed divided by it; at least 1. */
};
void trace_html_heat(struct trace_html *html, const struct trace_heat *heat);

#ifdef __cplusplus
}
#endif

#endif
