/* tools/explain.c - where the time went, on a terminal. */
#include "tools/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/table.h"

static const char *const OPS[SIM_DIRECTIONS] = {"dispatch", "combine"};

/* Mean over cells, in microseconds. */
static double mean_us(int64_t sum_ps, uint64_t cells)
{
    return cells > 0 ? (double)sum_ps / (double)cells / 1e6 : 0.0;
}

static bool present(const struct sim_breakdown *breakdown, int direction)
{
    return breakdown->all[direction].cells > 0;
}

/* Headings of both operations, or of the one that is there, between first and last. */
static struct table *open_columns(const struct sim_breakdown *breakdown, const char *first,
                                  const char *each, const char *last)
{
    char columns[128];
    size_t at = (size_t)snprintf(columns, sizeof columns, "%s", first);
    for (int d = 0; d < SIM_DIRECTIONS; d++)
        if (present(breakdown, d))
            at += (size_t)snprintf(columns + at, sizeof columns - at, "|>%s us|>%s", OPS[d], each);
    snprintf(columns + at, sizeof columns - at, "%s", last);
    return table_open(columns);
}

static double percent(int64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

/* Rounding is printed only where two decimals show it. */
static bool worth_a_line(const struct sim_breakdown *breakdown, int part)
{
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        const struct sim_breakdown_sum *sum = &breakdown->all[d];
        const int64_t ps = sum->part_ps[part];
        if (part != SIM_PART_OTHER && ps != 0) return true;
        if (ps / (int64_t)(sum->cells > 0 ? sum->cells : 1) >= 5000) return true;
    }
    return false;
}

static void print_parts(const struct sim_breakdown *breakdown)
{
    struct table *table = open_columns(breakdown, "part|what", "share", "");
    for (int part = 0; part < SIM_PARTS; part++) {
        if (!worth_a_line(breakdown, part)) continue;
        table_cell(table, "%s", sim_part_name((enum sim_part)part));
        table_cell(table, "%s", sim_part_text((enum sim_part)part));
        for (int d = 0; d < SIM_DIRECTIONS; d++) {
            const struct sim_breakdown_sum *sum = &breakdown->all[d];
            if (!present(breakdown, d)) continue;
            table_cell(table, "%.2f", mean_us(sum->part_ps[part], sum->cells));
            table_cell(table, "%.1f %%", percent(sum->part_ps[part], sum->took_ps));
        }
    }
    table_cell(table, "total");
    table_cell(table, "modelled, slowest rank");
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        const struct sim_breakdown_sum *sum = &breakdown->all[d];
        if (!present(breakdown, d)) continue;
        table_cell(table, "%.2f", mean_us((int64_t)sum->took_ps, sum->cells));
        table_cell(table, "100.0 %%");
    }
    table_print(table, stdout);
    table_close(table);
}

static int64_t gain_ps(const struct sim_breakdown *breakdown, int direction, int knob)
{
    return (int64_t)breakdown->all[direction].took_ps -
           (int64_t)breakdown->after_ps[direction][knob];
}

/* Less than a twentieth of a percent either way: the table would say 0.0 %. */
static bool does_nothing(const struct sim_breakdown *breakdown, int direction, int knob)
{
    const int64_t gain = gain_ps(breakdown, direction, knob);
    const int64_t whole = (int64_t)breakdown->all[direction].took_ps;
    return gain == 0 || (gain > 0 ? gain : -gain) < whole / 2000;
}

/* NULL where the knob helps. */
static const char *why_of(const struct sim_breakdown *breakdown, int direction, int knob)
{
    const char *idle = breakdown->idle[direction][knob];
    const int64_t gain = gain_ps(breakdown, direction, knob);
    if (!does_nothing(breakdown, direction, knob)) return gain < 0 ? sim_widening_slower() : NULL;
    return idle != NULL ? idle : gain == 0 ? "hidden behind the rest" : "below 0.05 %";
}

/* One reason of both operations, or each with the operation that it is of. */
static void why_cell(struct table *table, const struct sim_breakdown *breakdown, int knob)
{
    const char *why[SIM_DIRECTIONS];
    char text[256] = "";
    size_t used = 0;
    for (int d = 0; d < SIM_DIRECTIONS; d++)
        why[d] = present(breakdown, d) ? why_of(breakdown, d, knob) : NULL;
    const bool both = why[0] != NULL && why[1] != NULL && strcmp(why[0], why[1]) == 0;
    for (int d = 0; d < SIM_DIRECTIONS && used < sizeof text; d++) {
        if (why[d] == NULL || (both && d > 0)) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s%s", used > 0 ? "; " : "",
                                 both ? "" : OPS[d], both ? "" : ": ", why[d]);
    }
    table_cell(table, "%s", text);
}

static void print_knobs(const struct sim_breakdown *breakdown)
{
    struct table *table = open_columns(breakdown, "widened", "gain", "|~why");
    for (int k = 0; k < SIM_WIDENINGS; k++) {
        table_cell(table, "%s", sim_widening_text((enum sim_widening)k));
        for (int d = 0; d < SIM_DIRECTIONS; d++) {
            const struct sim_breakdown_sum *sum = &breakdown->all[d];
            if (!present(breakdown, d)) continue;
            table_cell(table, "%.2f", mean_us((int64_t)breakdown->after_ps[d][k], sum->cells));
            if (does_nothing(breakdown, d, k))
                table_cell(table, "nothing");
            else
                table_cell(table, "%.1f %%", percent(gain_ps(breakdown, d, k), sum->took_ps));
        }
        why_cell(table, breakdown, k);
    }
    table_print(table, stdout);
    table_close(table);
}

static void print_advice(const struct sim_breakdown *breakdown)
{
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        const struct sim_breakdown_sum *sum = &breakdown->all[d];
        int best = 0;
        if (!present(breakdown, d)) continue;
        for (int k = 1; k < SIM_WIDENINGS; k++)
            if (gain_ps(breakdown, d, k) > gain_ps(breakdown, d, best)) best = k;
        if (gain_ps(breakdown, d, best) <= 0)
            printf("widen     %s: nothing that is listed helps\n", OPS[d]);
        else
            printf("widen     %s: %s, saves %.2f us of %.2f us (%.1f %%)\n", OPS[d],
                   sim_widening_text((enum sim_widening)best),
                   mean_us(gain_ps(breakdown, d, best), sum->cells),
                   mean_us((int64_t)sum->took_ps, sum->cells),
                   percent(gain_ps(breakdown, d, best), sum->took_ps));
    }
}

/* "ll.publish_us 2.596, fitted, of h100-hgx", "--skew normal:56, option of the run". */
static void print_assumptions(const struct sim_breakdown *breakdown)
{
    if (breakdown->assumption_count > 0)
        puts("the numbers of the machine file, and options of the run, that the time of the first "
             "layer hangs\non most:");
    for (int i = 0; i < breakdown->assumption_count; i++) {
        const struct sim_assumption *found = &breakdown->assumptions[i];
        const int64_t more_ps = (int64_t)(found->worse_ps - found->now_ps);
        const bool value = found->value[0] != '\0', kind = found->kind[0] != '\0',
                   origin = found->origin[0] != '\0';
        char text[320];
        snprintf(text, sizeof text, "%s%s%s%s%s%s%s: a tenth worse adds %.2f us (%.1f %%)",
                 found->key, value ? " " : "", found->value, kind ? ", " : "", found->kind,
                 origin ? ", of " : "", found->origin, (double)more_ps / 1e6,
                 percent(more_ps, found->now_ps));
        table_line("hangs on", text, stdout);
    }
}

void explain_print(const struct sim_breakdown *breakdown)
{
    const int any = present(breakdown, SIM_DISPATCH) ? SIM_DISPATCH : SIM_COMBINE;
    const uint64_t cells = breakdown->all[any].cells;
    printf("\nexplain   where the time went: mean of %" PRIu64
           " layer%s, the slowest rank of each; parts sum exactly\n\n",
           cells, cells > 1 ? "s" : "");
    print_parts(breakdown);
    puts("\nsimulated again with one thing widened:\n");
    print_knobs(breakdown);
    putchar('\n');
    print_advice(breakdown);
    print_assumptions(breakdown);
}
