/* tools/sweep_plot.c - a sweep drawn by gnuplot: for every axis of numbers, time and throughput
 * against it, one line for every combination of the other axes. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tools/sweep.h"

enum { SERIES_MAX = 12 };

static const struct figure {
    const char *key, *label;
} FIGURES[] = {{"step_us", "time of a step [us], modelled"},
               {"tokens_per_s_per_gpu", "tokens/s per GPU, modelled"}};

/* Do all values of the axis read as numbers, and are there at least two? */
static bool is_numeric(const struct sim_sweep_axis *axis)
{
    for (uint32_t v = 0; v < axis->count; v++) {
        uint64_t value = 0;
        if (sim_parse_u64(axis->values[v], 0, UINT64_MAX, &value) != 0) return false;
    }
    return axis->count >= 2;
}

/* Do the axis's values, all above 0, span so much that a straight axis would crowd the small? */
static bool is_wide(const struct sim_sweep_axis *axis)
{
    double low = HUGE_VAL, high = 0;
    for (uint32_t v = 0; v < axis->count; v++) {
        low = fmin(low, strtod(axis->values[v], NULL));
        high = fmax(high, strtod(axis->values[v], NULL));
    }
    return low > 0 && high >= 4 * low;
}

/* Lines of a plot are numbered by the other axes' values; the number of a cell's line. */
static uint32_t series_of(const struct sweep_table *table, uint32_t cell, uint32_t axis)
{
    uint32_t series = 0;
    for (uint32_t a = 0; a < table->grid.axis_count; a++)
        if (a != axis)
            series = series * table->grid.axes[a].count + sim_sweep_at(&table->grid, cell, a);
    return series;
}

static void put_words(FILE *gnuplot, const struct sweep_table *table, uint32_t cell, uint32_t axis)
{
    bool any = false;
    for (uint32_t a = 0; a < table->grid.axis_count; a++) {
        if (a == axis || table->grid.axes[a].count < 2) continue;
        fputs(any ? ", " : "", gnuplot);
        fprintf(gnuplot, "%s ", table->grid.axes[a].option);
        for (const char *at = sweep_value(table, cell, a); *at != '\0'; at++)
            if (*at != '"' && *at != '\\' && *at != '\n') fputc(*at, gnuplot);
        any = true;
    }
    if (!any) fputs(table->grid.base.model, gnuplot);
}

/* Data blocks $s0, $s1, ... of the first lines, of cells that fit; returns how many have a point.
 */
static uint32_t put_series(FILE *gnuplot, const struct sweep_table *table, uint32_t axis,
                           const char *key, uint32_t first_cell[SERIES_MAX])
{
    const uint32_t lines = table->cell_count / table->grid.axes[axis].count;
    uint32_t drawn = 0;

    assert(first_cell != NULL && axis < table->grid.axis_count);
    for (uint32_t s = 0; s < lines && drawn < SERIES_MAX; s++) {
        uint32_t points = 0;
        for (uint32_t c = 0; c < table->cell_count; c++) {
            const double value = sweep_number(table, c, key);
            if (series_of(table, c, axis) != s || isnan(value) || !sweep_fits(table, c)) continue;
            if (points++ == 0) {
                first_cell[drawn] = c;
                fprintf(gnuplot, "$s%" PRIu32 " << EOD\n", drawn);
            }
            fprintf(gnuplot, "%s %.10g\n", sweep_value(table, c, axis), value);
        }
        if (points == 0) continue;
        fputs("EOD\n", gnuplot);
        drawn++;
    }
    assert(drawn <= SERIES_MAX);
    return drawn;
}

/* Data block $unfit: what does not fit into the GPUs' memory, drawn apart. False: all does. */
static bool put_unfit(FILE *gnuplot, const struct sweep_table *table, uint32_t axis,
                      const char *key)
{
    bool any = false;

    for (uint32_t c = 0; c < table->cell_count; c++) {
        const double value = sweep_number(table, c, key);
        if (isnan(value) || sweep_fits(table, c)) continue;
        if (!any) fputs("$unfit << EOD\n", gnuplot);
        fprintf(gnuplot, "%s %.10g\n", sweep_value(table, c, axis), value);
        any = true;
    }
    if (any) fputs("EOD\n", gnuplot);
    return any;
}

/* Ticks where the cells stand, and room at both ends. */
static void put_ticks(FILE *gnuplot, const struct sim_sweep_axis *axis, bool wide)
{
    double low = HUGE_VAL, high = 0;

    fputs("set xtics (", gnuplot);
    for (uint32_t v = 0; v < axis->count; v++) {
        const double at = strtod(axis->values[v], NULL);
        fprintf(gnuplot, "%s\"%s\" %.0f", v > 0 ? ", " : "", axis->values[v], at);
        low = fmin(low, at);
        high = fmax(high, at);
    }
    assert(low < high);
    if (wide)
        fprintf(gnuplot, ")\nset xrange [%g:%g]\n", low * 0.9, high * 1.1);
    else
        fprintf(gnuplot, ")\nset xrange [%g:%g]\n", low - (high - low) / 20,
                high + (high - low) / 20);
}

static void put_plot(FILE *gnuplot, const struct sweep_table *table, uint32_t axis,
                     const struct figure *figure)
{
    static const char *const terminals[][2] = {
        {"svg size 900,520 dynamic font 'sans,13' background '#ffffff'", "svg"},
        {"png size 1100,640", "png"}};
    const char *option = table->grid.axes[axis].option;
    const bool wide = is_wide(&table->grid.axes[axis]);
    uint32_t cells[SERIES_MAX];
    const uint32_t drawn = put_series(gnuplot, table, axis, figure->key, cells);
    const bool unfit = put_unfit(gnuplot, table, axis, figure->key);

    if (drawn == 0 && !unfit) return;
    put_ticks(gnuplot, &table->grid.axes[axis], wide);
    fprintf(gnuplot,
            "set xlabel \"%s\" offset 0,0.3\nset ylabel \"%s\"\nset key outside below maxcols "
            "2\nset grid\n"
            "set style data linespoints\n%s\nset yrange [0:*]\n",
            option, figure->label, wide ? "set logscale x 2" : "unset logscale x");
    for (size_t t = 0; t < 2; t++) {
        fprintf(gnuplot, "set terminal %s\nset output \"%s-%s.%s\"\nplot", terminals[t][0], option,
                figure->key, terminals[t][1]);
        for (uint32_t s = 0; s < drawn; s++) {
            fprintf(gnuplot, "%s $s%" PRIu32 " using 1:2 smooth unique title \"", s > 0 ? "," : "",
                    s);
            put_words(gnuplot, table, cells[s], axis);
            fputs("\" with linespoints noenhanced lw 2", gnuplot);
        }
        if (unfit)
            fprintf(gnuplot,
                    "%s $unfit using 1:2 with points pointtype 2 linecolor rgb '#888888' title "
                    "\"does not fit into the GPU's memory\" noenhanced",
                    drawn > 0 ? "," : "");
        fputs("\nunset output\n", gnuplot);
    }
}

static int make_folder(const char *folder, char *err, size_t err_len)
{
    if (mkdir(folder, 0777) == 0 || errno == EEXIST) return 0;
    snprintf(err, err_len, "%s: cannot make the folder: %s", folder, strerror(errno));
    return -1;
}

int sweep_write_plots(const struct sweep_table *table, const char *folder, uint32_t *count,
                      char *err, size_t err_len)
{
    char path[4096];
    FILE *gnuplot = NULL;

    *count = 0;
    snprintf(path, sizeof path, "%s/cells.csv", folder);
    if (make_folder(folder, err, err_len) != 0 || sweep_write_csv(table, path, err, err_len) != 0)
        return -1;
    if (system("command -v gnuplot >/dev/null 2>&1") != 0) {
        snprintf(err, err_len, "gnuplot: not found: install the package gnuplot-nox for plots");
        return -1;
    }
    gnuplot = popen("gnuplot", "w");
    if (gnuplot == NULL) {
        snprintf(err, err_len, "gnuplot: cannot start it: %s", strerror(errno));
        return -1;
    }
    fputs("cd \"", gnuplot);
    for (const char *at = folder; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') fputc('\\', gnuplot);
        fputc(*at, gnuplot);
    }
    fputs("\"\n", gnuplot);
    for (uint32_t a = 0; a < table->grid.axis_count; a++) {
        if (!is_numeric(&table->grid.axes[a])) continue;
        for (size_t f = 0; f < sizeof FIGURES / sizeof FIGURES[0]; f++) {
            put_plot(gnuplot, table, a, &FIGURES[f]);
            ++*count;
        }
    }
    const int status = pclose(gnuplot);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
    snprintf(err, err_len, "gnuplot: failed while drawing into %s", folder);
    return -1;
}
