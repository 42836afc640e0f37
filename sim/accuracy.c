/* sim/accuracy.c - statistics of predictions. */
#include "sim/accuracy.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double relative(const struct sim_measured *measured, const uint64_t *predicted_ps, size_t i)
{
    assert(measured->rows[i].measured_ps > 0);
    return (double)predicted_ps[i] / (double)measured->rows[i].measured_ps - 1.0;
}

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* Fill median, p90 and bias from count signed errors, which are overwritten. */
static void sum_up(double *errors, size_t count, struct sim_accuracy_group *group)
{
    double sum = 0.0;
    group->count = count;
    if (count == 0) return;
    for (size_t i = 0; i < count; i++) {
        sum += errors[i];
        if (errors[i] < 0.0) errors[i] = -errors[i];
    }
    qsort(errors, count, sizeof *errors, compare_doubles);
    group->bias = sum / (double)count;
    group->median =
        count % 2 == 1 ? errors[count / 2] : (errors[count / 2 - 1] + errors[count / 2]) / 2.0;
    group->p90 = errors[(9 * count + 9) / 10 - 1];
}

static bool graded(const struct sim_measured_row *row, const char *grades)
{
    return grades[0] == '\0' || (row->grade[0] != '\0' && strchr(grades, row->grade[0]) != NULL);
}

struct sim_accuracy_group sim_accuracy_over(const struct sim_measured *measured,
                                            const uint64_t *predicted_ps, const char *mode,
                                            const char *grades)
{
    struct sim_accuracy_group group = {.count = 0};
    double *errors = (double *)malloc((measured->count + 1) * sizeof *errors);
    size_t count = 0;

    snprintf(group.mode, sizeof group.mode, "%s", mode);
    for (size_t i = 0; errors != NULL && i < measured->count; i++)
        if ((mode[0] == '\0' || strcmp(measured->rows[i].mode, mode) == 0) &&
            graded(&measured->rows[i], grades))
            errors[count++] = relative(measured, predicted_ps, i);
    if (errors != NULL) sum_up(errors, count, &group);
    free(errors);
    return group;
}

double sim_accuracy_within(const struct sim_measured *measured, const uint64_t *predicted_ps,
                           const char *grades)
{
    size_t count = 0, within = 0;
    for (size_t i = 0; i < measured->count; i++) {
        const double ratio = relative(measured, predicted_ps, i) + 1.0;
        if (!graded(&measured->rows[i], grades)) continue;
        count++;
        within += ratio <= 1.5 && ratio >= 1.0 / 1.5;
    }
    return count > 0 ? (double)within / (double)count : 0.0;
}

static bool same_group(const struct sim_measured_row *a, const struct sim_measured_row *b)
{
    return strcmp(a->machine, b->machine) == 0 && strcmp(a->mode, b->mode) == 0 &&
           strcmp(a->op, b->op) == 0 && a->ep == b->ep;
}

int64_t sim_accuracy_groups(const struct sim_measured *measured, const uint64_t *predicted_ps,
                            struct sim_accuracy_group *groups, char *err, size_t err_len)
{
    double *errors = (double *)malloc((measured->count + 1) * sizeof *errors);
    int64_t found = 0;

    if (errors == NULL) {
        snprintf(err, err_len, "%zu rows: out of memory", measured->count);
        return -1;
    }
    for (size_t i = 0; i < measured->count; i++) {
        const struct sim_measured_row *row = &measured->rows[i];
        size_t count = 0, first = 0;
        while (!same_group(&measured->rows[first], row)) first++;
        if (first < i) continue; /* Summed up where it first appeared. */
        for (size_t j = i; j < measured->count; j++)
            if (same_group(&measured->rows[j], row))
                errors[count++] = relative(measured, predicted_ps, j);
        struct sim_accuracy_group group = {.ep = row->ep};
        snprintf(group.machine, sizeof group.machine, "%s", row->machine);
        snprintf(group.mode, sizeof group.mode, "%s", row->mode);
        snprintf(group.op, sizeof group.op, "%s", row->op);
        sum_up(errors, count, &group);
        groups[found++] = group;
    }
    free(errors);
    return found;
}
