/* sim/accuracy.c - errors by group, and the two yardsticks. */
#include "sim/accuracy.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double absolute(double x)
{
    return x < 0 ? -x : x;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(const double *sorted, size_t count)
{
    assert(count > 0 && sorted[0] <= sorted[count - 1]);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* scratch has room for count. */
static struct sim_accuracy_errors judge(const double *error, size_t count, double *scratch)
{
    struct sim_accuracy_errors out = {0, 0, 0};
    if (count == 0) return out;
    memcpy(scratch, error, count * sizeof *scratch);
    qsort(scratch, count, sizeof *scratch, by_value);
    out.bias = middle(scratch, count);
    for (size_t i = 0; i < count; i++) scratch[i] = absolute(error[i]);
    qsort(scratch, count, sizeof *scratch, by_value);
    out.median = middle(scratch, count);
    out.p90 = scratch[(9 * count + 9) / 10 - 1];
    return out;
}

static bool same_curve(const struct sim_measured_row *a, const struct sim_measured_row *b)
{
    return strcmp(a->machine, b->machine) == 0 && strcmp(a->stack, b->stack) == 0 &&
           strcmp(a->mode, b->mode) == 0 && strcmp(a->op, b->op) == 0 &&
           strcmp(a->dtype, b->dtype) == 0 && a->ep == b->ep && a->nodes == b->nodes &&
           a->hidden == b->hidden && a->topk == b->topk && a->experts == b->experts &&
           a->sms == b->sms && a->batch == b->batch && a->heads == b->heads &&
           strcmp(a->routing, b->routing) == 0;
}

/* The line through row's curve that is best in relative terms, at row's tokens. One point, or
 * all at the same tokens: their mean. */
static double line_at(const struct sim_measured *measured, const struct sim_measured_row *row)
{
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    for (size_t i = 0; i < measured->count; i++) {
        const struct sim_measured_row *other = &measured->rows[i];
        if (!same_curve(row, other)) continue;
        const double x = other->tokens, y = (double)other->measured_ps, weight = 1 / (y * y);
        w += weight;
        wx += weight * x;
        wy += weight * y;
        wxx += weight * x * x;
        wxy += weight * x * y;
    }
    assert(w > 0);
    const double spread = w * wxx - wx * wx;
    if (spread <= 1e-9 * w * wxx) return wy / w;
    const double slope = (w * wxy - wx * wy) / spread;
    return (wy - slope * wx) / w + slope * row->tokens;
}

enum total {
    TOTAL_LL,
    TOTAL_NORMAL,
    TOTAL_NOTIFY,
    TOTAL_MASKED,
    TOTAL_CONTIGUOUS,
    TOTAL_ATTENTION,
    TOTALS
};

static enum total total_of(const struct sim_measured_row *row)
{
    if (strcmp(row->mode, "ll") == 0) return TOTAL_LL;
    if (strcmp(row->mode, "compute") == 0)
        return strcmp(row->op, "masked") == 0      ? TOTAL_MASKED
               : strcmp(row->op, "attention") == 0 ? TOTAL_ATTENTION
                                                   : TOTAL_CONTIGUOUS;
    return strstr(row->op, "_notify") ? TOTAL_NOTIFY : TOTAL_NORMAL;
}

static bool in_group(const struct sim_accuracy_group *group, const struct sim_measured_row *row)
{
    return strcmp(group->machine, row->machine) == 0 && strcmp(group->mode, row->mode) == 0 &&
           strcmp(group->op, row->op) == 0 && strcmp(group->grade, row->grade) == 0 &&
           group->ep == row->ep;
}

/* Goals exclude grade C, except that notify has no other. */
static bool in_total(enum total total, const struct sim_measured_row *row)
{
    return total_of(row) == total && (total == TOTAL_NOTIFY || strcmp(row->grade, "C") != 0);
}

struct errors { /* Of every row, and room to gather a group's. */
    double *model, *rule, *line, *gathered, *scratch;
};

static void fill_group(const struct sim_measured *measured, const struct errors *errors,
                       const bool *member, struct sim_accuracy_group *group)
{
    const double *const from[3] = {errors->model, errors->rule, errors->line};
    struct sim_accuracy_errors *const to[3] = {&group->model, &group->rule, &group->line};
    for (int e = 0; e < 3; e++) {
        size_t count = 0;
        for (size_t i = 0; i < measured->count; i++)
            if (member[i]) errors->gathered[count++] = from[e][i];
        *to[e] = judge(errors->gathered, count, errors->scratch);
        group->rows = count;
    }
    for (size_t i = 0; i < measured->count; i++)
        group->within += member[i] && errors->model[i] <= 0.5 && errors->model[i] >= -1.0 / 3;
}

static void group_rows(const struct sim_measured *measured, const struct errors *errors,
                       bool *member, struct sim_accuracy *accuracy)
{
    static const char *const modes[TOTALS] = {"ll",      "normal",  "normal",
                                              "compute", "compute", "compute"};
    static const char *const ops[TOTALS] = {"all",    "transmit",   "notify",
                                            "masked", "contiguous", "attention"};
    assert(accuracy->count <= measured->count + TOTALS);
    for (size_t i = 0; i < measured->count; i++) {
        const struct sim_measured_row *row = &measured->rows[i];
        size_t g = 0;
        while (g < accuracy->count && !in_group(&accuracy->groups[g], row)) g++;
        if (g < accuracy->count) continue;
        struct sim_accuracy_group *group = &accuracy->groups[accuracy->count++];
        memcpy(group->machine, row->machine, sizeof group->machine);
        memcpy(group->mode, row->mode, sizeof group->mode);
        memcpy(group->op, row->op, sizeof group->op);
        memcpy(group->grade, row->grade, sizeof group->grade);
        group->ep = row->ep;
        for (size_t j = 0; j < measured->count; j++)
            member[j] = in_group(group, &measured->rows[j]);
        fill_group(measured, errors, member, group);
    }
    for (int t = 0; t < TOTALS; t++) {
        struct sim_accuracy_group *group = &accuracy->groups[accuracy->count];
        size_t count = 0;
        for (size_t j = 0; j < measured->count; j++)
            count += member[j] = in_total((enum total)t, &measured->rows[j]);
        if (count == 0) continue;
        snprintf(group->machine, sizeof group->machine, "all");
        snprintf(group->mode, sizeof group->mode, "%s", modes[t]);
        snprintf(group->op, sizeof group->op, "%s", ops[t]);
        snprintf(group->grade, sizeof group->grade, t == TOTAL_NOTIFY ? "*" : "A,B");
        fill_group(measured, errors, member, group);
        accuracy->count++;
    }
}

int sim_accuracy_compute(const struct sim_measured *measured, const uint64_t *predicted_ps,
                         const uint64_t *floor_ps, struct sim_accuracy *accuracy, char *err,
                         size_t err_len)
{
    const size_t rows = measured->count;
    double *numbers = (double *)calloc(5 * rows + 1, sizeof *numbers);
    bool *member = (bool *)calloc(rows + 1, sizeof *member);
    struct sim_accuracy made = {
        .groups = (struct sim_accuracy_group *)calloc(rows + TOTALS, sizeof *made.groups)};
    int status = -1;

    if (!numbers || !member || !made.groups) {
        snprintf(err, err_len, "errors of %zu rows: out of memory", rows);
        goto free_scratch;
    }
    const struct errors errors = {numbers, numbers + rows, numbers + 2 * rows, numbers + 3 * rows,
                                  numbers + 4 * rows};
    for (size_t i = 0; i < rows; i++) {
        const double measured_ps = (double)measured->rows[i].measured_ps;
        assert(measured_ps > 0);
        errors.model[i] = (double)predicted_ps[i] / measured_ps - 1;
        errors.rule[i] = (double)floor_ps[i] / measured_ps - 1;
        errors.line[i] = line_at(measured, &measured->rows[i]) / measured_ps - 1;
    }
    group_rows(measured, &errors, member, &made);
    *accuracy = made;
    made.groups = NULL;
    status = 0;
free_scratch:
    free(made.groups);
    free(member);
    free(numbers);
    return status;
}

void sim_accuracy_free(struct sim_accuracy *accuracy)
{
    free(accuracy->groups);
    memset(accuracy, 0, sizeof *accuracy);
}
