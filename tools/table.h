/* tools/table.h - tables for people: aligned columns, never wider than 100 characters.
 *
 * Cells are collected row by row and printed at the end, when their widths are known. Columns
 * are two spaces apart. A column marked '>' stands right; one marked '~' gives way when the
 * table grows too wide (the last first), and breaks its text at blanks. If that is not enough,
 * headings break at their blanks too, and then columns stand one space apart. */
#ifndef TOOLS_TABLE_H
#define TOOLS_TABLE_H

#include <stdint.h>
#include <stdio.h>

enum { TABLE_COLUMNS_MAX = 16, TABLE_WIDTH_MAX = 100 };

struct table;

/* columns: headings separated by '|', each with an optional mark: "name|>bytes|~note". The
 * process ends through assert when memory is gone: a table is small. */
struct table *table_open(const char *columns);
void table_close(struct table *table); /* NULL is fine. */

/* Add the next cell; rows fill themselves, left to right. */
__attribute__((format(printf, 2, 3))) void table_cell(struct table *table, const char *format, ...);

/* Print headings and rows; the last row must be full. */
void table_print(struct table *table, FILE *out);

/* "label     text", the text from column 10 on, broken at blanks before column 100. */
void table_line(const char *label, const char *text, FILE *out);

/* Bytes for people: "2.36 MB", "944 B" (powers of 1000). Returns text. */
const char *table_bytes(uint64_t bytes, char text[16]);

#endif
