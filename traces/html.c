/* traces/html.c - writes an HTML page: escaping, quantities, tables, heat maps. */
#include "traces/html.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PUT_BYTES = 1000, SHADES = 8, TICKS = 8 };

static void write_bytes(struct trace_html *html, const char *text, size_t bytes)
{
    if (html->failed || bytes == 0) return;
    if (trace_output_write(html->output, text, bytes, html->err, html->err_len) != 0)
        html->failed = true;
}

void trace_html_put(struct trace_html *html, const char *format, ...)
{
    char text[PUT_BYTES + 1];
    va_list arguments;
    va_start(arguments, format);
    const int bytes = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    assert(bytes >= 0 && bytes <= PUT_BYTES);
    write_bytes(html, text, (size_t)bytes);
}

void trace_html_text(struct trace_html *html, const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        const unsigned char byte = (unsigned char)*text;
        switch (byte) {
        case '<': write_bytes(html, "&lt;", 4); break;
        case '>': write_bytes(html, "&gt;", 4); break;
        case '&': write_bytes(html, "&amp;", 5); break;
        case '"': write_bytes(html, "&quot;", 6); break;
        case '\'': write_bytes(html, "&#39;", 5); break;
        default: write_bytes(html, byte < 32 || byte > 126 ? "?" : text, 1); break;
        }
    }
}

void trace_html_begin(struct trace_html *html, struct trace_output *output, const char *title,
                      const char *style, char *err, size_t err_len)
{
    assert(output != NULL && style != NULL);
    *html = (struct trace_html){.output = output, .failed = false, .err = err, .err_len = err_len};
    trace_html_put(html, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                         "<meta name=\"viewport\" content=\"width=device-width, "
                         "initial-scale=1\">\n<title>");
    trace_html_text(html, title);
    trace_html_put(html, "</title>\n<style>\n");
    write_bytes(html, style, strlen(style));
    trace_html_put(html, "</style>\n</head>\n<body>\n<main>\n");
}

int trace_html_end(struct trace_html *html)
{
    trace_html_put(html, "</main>\n</body>\n</html>\n");
    return html->failed ? -1 : 0;
}

void trace_html_section(struct trace_html *html, const char *heading, const char *explanation)
{
    trace_html_put(html, "<section>\n<h2>%s</h2>\n<p>%s</p>\n", heading, explanation);
}

/* --- quantities ---------------------------------------------------------------------------- */

void trace_html_table(struct trace_html *html, const char *columns)
{
    assert(columns[0] != '\0');
    trace_html_put(html, "<div class=\"wide\"><table>\n<tr>");
    for (const char *at = columns; *at != '\0';) {
        const bool numbers = *at == '>';
        const char *name = at + numbers;
        const size_t length = strcspn(name, "|");
        trace_html_put(html, "<th%s>%.*s</th>", numbers ? " class=\"n\"" : "", (int)length, name);
        at = name + length + (name[length] == '|');
    }
    trace_html_put(html, "</tr>\n");
}

void trace_html_table_end(struct trace_html *html)
{
    trace_html_put(html, "</table></div>\n");
}

void trace_html_time_cell(struct trace_html *html, uint64_t time_ps)
{
    if (time_ps < UINT64_C(10000000000))
        trace_html_put(html, "<td class=\"n\">%.2f us</td>", (double)time_ps / 1e6);
    else
        trace_html_put(html, "<td class=\"n\">%.3f ms</td>", (double)time_ps / 1e9);
}

void trace_html_bytes_cell(struct trace_html *html, uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 999.5 && unit < 6; unit++) value /= 1000;
    trace_html_put(html, "<td class=\"n\">%.*f %s</td>",
                   unit == 0 || value >= 99.95 ? 0
                   : value >= 9.995            ? 1
                                               : 2,
                   value, units[unit]);
}

void trace_html_count_cell(struct trace_html *html, uint64_t count)
{
    trace_html_put(html, "<td class=\"n\">%" PRIu64 "</td>", count);
}

void trace_html_text_cell(struct trace_html *html, const char *text)
{
    trace_html_put(html, "<td>");
    trace_html_text(html, text);
    trace_html_put(html, "</td>");
}

/* --- a heat map ---------------------------------------------------------------------------- */

/* 0: blank; 1 to SHADES: equal steps up to the largest value. */
static uint32_t find_shade(uint64_t value, uint64_t largest)
{
    assert(value <= largest);
    if (value == 0) return 0;
    const uint32_t shade = (uint32_t)((double)value / (double)largest * SHADES + 0.999999);
    return shade < 1 ? 1 : shade > SHADES ? SHADES : shade;
}

/* Neighbours of one shade in a row are one rectangle. */
static void put_shade(struct trace_html *html, const struct trace_heat *heat, uint64_t largest,
                      uint32_t shade)
{
    trace_html_put(html, "<path class=\"s%" PRIu32 "\" d=\"", shade);
    for (uint32_t y = 0; y < heat->rows; y++) {
        const uint64_t *row = heat->values + (size_t)y * heat->columns;
        for (uint32_t x = 0; x < heat->columns; x++) {
            if (find_shade(row[x], largest) != shade) continue;
            uint32_t end = x + 1;
            while (end < heat->columns && find_shade(row[end], largest) == shade) end++;
            trace_html_put(html, "M%" PRIu32 " %" PRIu32 "h%" PRIu32 "v1H%" PRIu32 "z", x, y,
                           end - x, x);
            x = end;
        }
    }
    trace_html_put(html, "\"/>\n");
}

/* Numbers along one side of the map: at most TICKS, the first and every so many. */
static void put_ticks(struct trace_html *html, uint32_t count, bool vertical, double scale)
{
    const uint32_t stride = count <= TICKS ? 1 : (count + TICKS - 1) / TICKS;
    for (uint32_t i = 0; i < count; i += stride) {
        const double at = (i + 0.5) * scale;
        if (vertical)
            trace_html_put(html,
                           "<text x=\"44\" y=\"%.1f\" text-anchor=\"end\">%" PRIu32 "</text>\n",
                           at + 4, i);
        else
            trace_html_put(html,
                           "<text x=\"%.1f\" y=\"-6\" text-anchor=\"middle\">%" PRIu32 "</text>\n",
                           50 + at, i);
    }
}

void trace_html_heat(struct trace_html *html, const struct trace_heat *heat)
{
    const size_t squares = (size_t)heat->rows * heat->columns;
    uint64_t largest = 0;

    assert(heat->rows > 0 && heat->columns > 0 && heat->divisor > 0);
    for (size_t i = 0; i < squares; i++)
        if (heat->values[i] > largest) largest = heat->values[i];
    const double width = 900, cell = width / heat->columns;
    double row_height = cell < 6 ? 6 : cell > 22 ? 22 : cell;
    if (row_height * heat->rows > 900) row_height = 900.0 / heat->rows;
    const double height = row_height * heat->rows;
    trace_html_put(html,
                   "<figure class=\"wide\"><svg viewBox=\"0 -24 960 %.1f\" role=\"img\" "
                   "aria-label=\"%s by %s\">\n",
                   height + 30, heat->row_name, heat->column_name);
    put_ticks(html, heat->columns, false, cell);
    put_ticks(html, heat->rows, true, row_height);
    trace_html_put(html,
                   "<g transform=\"translate(50 0) scale(%.6f %.6f)\">\n<rect class=\"s0\" "
                   "width=\"%" PRIu32 "\" height=\"%" PRIu32 "\"/>\n",
                   cell, row_height, heat->columns, heat->rows);
    for (uint32_t shade = 1; shade <= SHADES && largest > 0; shade++)
        put_shade(html, heat, largest, shade);
    trace_html_put(html,
                   "</g></svg>\n<figcaption>down: %s; across: %s; darkest: %.4g %s; blank: "
                   "0</figcaption></figure>\n",
                   heat->row_name, heat->column_name, (double)largest / (double)heat->divisor,
                   heat->unit);
}
