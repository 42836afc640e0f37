/* sim/calibrate_fit.c - the fit over all rows that numbers touch, and what it leaves alone. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/calibrate_parts.h"
#include "sim/fit.h"
#include "sim/predict.h"

#define PULL 2.0 /* Weak: a factor of 3 away from the start costs as much as a row off by KNEE. */
enum { PASSES_MAX = 8 }; /* Fits after which half of what is not determined is held; then all. */

/* In every machine that takes it, also of rows that do not count. */
static void set_knob(struct sim_calibrate_work *fit, size_t k, uint64_t value)
{
    assert(k < fit->knob_count);
    for (size_t i = 0; i < fit->measured->count; i++) {
        struct fabric_machine *machine = &fit->pool[fit->machines[i] - fit->pool];
        if (i > 0 && fit->machines[i] == fit->machines[i - 1]) continue;
        if (sim_calibrate_takes(fit, machine, &fit->knobs[k]))
            *fabric_cost_at(&machine->costs, fit->knobs[k].field) = value;
    }
}

double sim_calibrate_residual(uint64_t predicted_ps, uint64_t measured_ps)
{
    const double p = (double)predicted_ps, m = (double)measured_ps;
    assert(p > 0 || m > 0);
    return 2 * (p - m) / (p + m);
}

static int evaluate(void *context, const double *value, size_t parameter, double *residual,
                    char *err, size_t err_len)
{
    struct sim_calibrate_work *fit = (struct sim_calibrate_work *)context;
    const size_t all = fit->measured->count;
    bool *asked = fit->wanted + all;
    struct sim_predict_options options = {.threads = fit->options->threads,
                                          .roofline = true,
                                          .machines = fit->machines,
                                          .wanted = asked,
                                          .chunks = fit->chunks};
    size_t n = 0;
    const bool every = parameter >= fit->active_count;
    const size_t moved = every ? 0 : fit->active[parameter];
    if (parameter == SIM_FIT_ANEW) memset(fit->chunks, 0, all * sizeof *fit->chunks);
    for (size_t a = 0; a < fit->active_count; a++)
        set_knob(fit, fit->active[a], (uint64_t)(value[a] + 0.5));
    for (size_t i = 0; i < all; i++)
        asked[i] = fit->wanted[i] && (every || fit->touched[moved * all + i]);
    if (sim_predict(fit->measured, &options, fit->predicted_ps, NULL, err, err_len) != 0) return -1;
    for (size_t i = 0; i < all; i++) {
        if (!fit->wanted[i]) continue;
        if (asked[i])
            residual[n] =
                sim_calibrate_residual(fit->predicted_ps[i], fit->measured->rows[i].measured_ps);
        n++;
    }
    assert(n == fit->rows);
    return 0;
}

static void report(void *context, unsigned round, double loss)
{
    const struct sim_calibrate_work *fit = (const struct sim_calibrate_work *)context;
    if (fit->options->report)
        fit->options->report(fit->options->context, round, loss / (double)fit->rows);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* residual is sorted by size and lost. */
static void judge(double *residual, size_t count, double *median, double *p90)
{
    for (size_t i = 0; i < count; i++)
        if (residual[i] < 0) residual[i] = -residual[i];
    qsort(residual, count, sizeof *residual, by_value);
    *median = count ? residual[count / 2] : 0;
    *p90 = count ? residual[(9 * count + 9) / 10 - 1] : 0;
}

/* Four digits: what the data can tell, and what people can read. */
static uint64_t rounded(double value)
{
    const uint64_t whole = (uint64_t)(value + 0.5);
    uint64_t step = 1;
    while (whole / step >= 10000) step *= 10;
    return (whole + step / 2) / step * step;
}

/* One fit of the active knobs. */
static int run_fit(struct sim_calibrate_work *fit, double *residual, char *err, size_t err_len)
{
    double value[SIM_KNOBS_MAX], min[SIM_KNOBS_MAX], max[SIM_KNOBS_MAX], error[SIM_KNOBS_MAX];
    size_t moved[SIM_KNOBS_MAX];
    double loss;

    assert(fit->active_count > 0 && fit->rows > 0);
    _Static_assert((int)SIM_KNOBS_MAX <= (int)SIM_FIT_PARAMETERS_MAX, "the fit holds every knob");
    for (size_t a = 0; a < fit->active_count; a++) {
        const struct sim_knob *knob = &fit->knobs[fit->active[a]];
        value[a] = (double)knob->start;
        min[a] = knob->field->min > 0 ? (double)knob->field->min : 1;
        max[a] = (double)knob->field->max;
    }
    struct sim_fit problem = {.parameters = fit->active_count,
                              .residuals = fit->rows,
                              .value = value,
                              .min = min,
                              .max = max,
                              .relative_error = error,
                              .moved = moved,
                              .knee = SIM_CALIBRATE_KNEE,
                              .pull = PULL,
                              .rounds = fit->options->rounds,
                              .context = fit,
                              .evaluate = evaluate,
                              .report = report};
    if (sim_fit_run(&problem, &loss, err, err_len) != 0) return -1;
    for (size_t a = 0; a < fit->active_count; a++) {
        struct sim_knob *knob = &fit->knobs[fit->active[a]];
        knob->after = rounded(value[a]);
        knob->relative_error = error[a];
        knob->rows = moved[a];
        value[a] = (double)knob->after;
    }
    return evaluate(fit, value, SIM_FIT_ANEW, residual, err, err_len);
}

static bool determined(const struct sim_knob *knob)
{
    return knob->relative_error < SIM_CALIBRATE_UNDETERMINED;
}

/* Hold at what stands the knobs that the last fit did not determine: those that no row shows, and
 * half of the others, since numbers that do the same to all rows leave one of them clear when the
 * rest is held; all when last. Those of the fewest rows go first, then those further down the file,
 * where launches stand above. How many went. */
static size_t hold(struct sim_calibrate_work *fit, bool last)
{
    size_t unseen = 0, unclear = 0;
    for (size_t a = 0; a < fit->active_count; a++) {
        const struct sim_knob *knob = &fit->knobs[fit->active[a]];
        unseen += knob->rows == 0;
        unclear += knob->rows > 0 && !determined(knob);
    }
    const size_t count = unseen + (last ? unclear : (unclear + 1) / 2);
    for (size_t n = 0; n < count; n++) {
        size_t worst = fit->active_count;
        for (size_t a = 0; a < fit->active_count; a++) {
            const struct sim_knob *knob = &fit->knobs[fit->active[a]];
            if (knob->rows > 0 && determined(knob)) continue;
            if (worst == fit->active_count || knob->rows <= fit->knobs[fit->active[worst]].rows)
                worst = a;
        }
        assert(worst < fit->active_count);
        struct sim_knob *knob = &fit->knobs[fit->active[worst]];
        knob->held = true;
        knob->after = knob->before;
        set_knob(fit, fit->active[worst], knob->before);
        fit->active_count--;
        memmove(&fit->active[worst], &fit->active[worst + 1],
                (fit->active_count - worst) * sizeof *fit->active);
    }
    return count;
}

static int fit_and_hold(struct sim_calibrate_work *fit, double *residual, char *err, size_t err_len)
{
    for (unsigned pass = 0; fit->active_count > 0; pass++) {
        if (run_fit(fit, residual, err, err_len) != 0) return -1;
        if (!fit->options->hold || hold(fit, pass + 2 >= PASSES_MAX) == 0) return 0;
    }
    return evaluate(fit, NULL, SIM_FIT_ANEW, residual, err, err_len); /* Nothing moved. */
}

int sim_calibrate_fit(struct sim_calibrate_work *fit, struct sim_calibration *made, char *err,
                      size_t err_len)
{
    double value[SIM_KNOBS_MAX];
    double *residual = (double *)calloc(fit->rows + 1, sizeof *residual);
    int status = -1;

    assert(fit->knob_count > 0 && fit->knob_count <= SIM_KNOBS_MAX);
    if (!residual) {
        snprintf(err, err_len, "%zu rows: out of memory", fit->rows);
        return -1;
    }
    fit->active_count = fit->knob_count;
    for (size_t k = 0; k < fit->knob_count; k++) {
        fit->active[k] = k;
        value[k] = (double)fit->knobs[k].before;
    }
    if (evaluate(fit, value, SIM_FIT_ANEW, residual, err, err_len) != 0) goto free_residual;
    judge(residual, fit->rows, &made->median_before, &made->p90_before);
    if (fit_and_hold(fit, residual, err, err_len) != 0) goto free_residual;
    judge(residual, fit->rows, &made->median_after, &made->p90_after);
    made->rows = fit->rows;
    made->knob_count = fit->knob_count;
    status = 0;
free_residual:
    free(residual);
    return status;
}
