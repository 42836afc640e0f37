/* tools/sweep.h - the parts of `epsim sweep`: what it holds, and how it is shown. */
#ifndef TOOLS_SWEEP_H
#define TOOLS_SWEEP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/advise.h"
#include "sim/sweep.h"

struct sweep_cell {
    bool known; /* Evaluated now, or found in the database. */
    bool reused;
    enum sim_sweep_state state;
    json_t *summary; /* Owned; NULL until known. */
};

struct sweep_table { /* A whole sweep. */
    struct sim_sweep grid;
    uint32_t cell_count;
    struct sweep_cell *cells; /* Owned, [cell_count]. */
};

/* A number of a cell's summary; NaN where it has none. */
double sweep_number(const struct sweep_table *table, uint32_t cell, const char *key);

/* Do the cell's weights and buffers fit into a GPU, and beside them its requests' KV cache? */
bool sweep_fits(const struct sweep_table *table, uint32_t cell);
/* What does not fit: "weights too big", "KV too big", or "" where all does. */
const char *sweep_unfit(const struct sweep_table *table, uint32_t cell);

/* How many cells have each state. */
void sweep_count(const struct sweep_table *table, uint32_t counts[SIM_SWEEP_STATES]);

/* Why a cell was refused or failed; "" when it was neither. */
const char *sweep_why(const struct sweep_table *table, uint32_t cell);

/* The cell's value on an axis, as given. */
const char *sweep_value(const struct sweep_table *table, uint32_t cell, uint32_t axis);

/* "ep 16, mode ll": the cell's values on the axes that vary; conditions or choices alone, or
 * both. Returns text. */
const char *sweep_words(const struct sweep_table *table, uint32_t cell, bool conditions,
                        bool choices, char *text, size_t text_len);

/* The cells as a table, with what was refused and why; then the advice for every condition. */
void sweep_print(const struct sweep_table *table);
void sweep_print_advice(const struct sweep_table *table, const struct sim_goal *goal);
/* A goal's value for people, with its unit: "39.47 ms a step", "1706.6 tokens/s per GPU". Returns
 * text. */
const char *sweep_goal_text(const struct sim_goal *goal, double value, char text[64]);
/* Decimals of a figure for people: four digits that count, so that shares worked out from what is
 * printed agree with what was worked out before. */
int sweep_decimals(double value);
/* The same as objects for --json. New references. */
json_t *sweep_json(const struct sweep_table *table);
json_t *sweep_advice_json(const struct sweep_table *table, const struct sim_goal *goal);

/* Where LL stops being the faster of two modes as tokens grow: one entry for every combination of
 * the other axes, {"where", "tokens": interpolated | null, "faster": what is faster throughout,
 * "unfit": token counts at which a mode does not fit into the memory}.
 * Empty where the sweep has not both modes and several token counts. A new reference. */
json_t *sweep_crossovers_json(const struct sweep_table *table);
void sweep_print_crossovers(const struct sweep_table *table);

/* Comma-separated values (RFC 4180): axes, state, and every number. 0, or -1 with err. */
int sweep_write_csv(const struct sweep_table *table, const char *path, char *err, size_t err_len);

/* A folder of plots (SVG and PNG, through gnuplot), one for every axis with numbers, of time and
 * of throughput; *count gets the plots. 0, or -1 with err. */
int sweep_write_plots(const struct sweep_table *table, const char *folder, uint32_t *count,
                      char *err, size_t err_len);

/* One page with tables, advice and the folder's plots inside. 0, or -1 with err. */
int sweep_write_page(const struct sweep_table *table, const char *folder, const char *title,
                     char *err, size_t err_len);

#endif
