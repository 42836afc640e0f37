/* sim/fit.c - Levenberg-Marquardt, small and dense. */
#include "sim/fit.h"

#include <assert.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP 0.02    /* Of a difference: well above a picosecond's rounding. */
#define MOVE_MAX 0.5 /* A parameter at most halves or grows by half in a round. */
#define DAMP_START 0.01
#define DAMP_MAX 1e6
#define GAIN_MIN 2e-3 /* Of the loss, by rounds on one set of slopes: less is not worth more. */

enum { TRIES = 5 }; /* Dampings in a round: each asks every row once. */

struct work {
    double *residual, *trial, *slope; /* slope[parameter][residual] */
    double normal[SIM_FIT_PARAMETERS_MAX][SIM_FIT_PARAMETERS_MAX];
    double gradient[SIM_FIT_PARAMETERS_MAX];
    double start[SIM_FIT_PARAMETERS_MAX];
    double best[SIM_FIT_PARAMETERS_MAX]; /* Of the points where all was settled anew. */
    double best_loss;
};

static double absolute(double x)
{
    return x < 0 ? -x : x;
}

static double square_root(double x)
{
    double root = x > 1 ? x : 1;
    if (x <= 0) return 0;
    for (int i = 0; i < 200; i++) root = 0.5 * (root + x / root);
    return root;
}

/* Of all residuals, and of the pull as one more residual per parameter, in units of the knee. */
static double loss_of(const struct sim_fit *fit, const struct work *work, const double *residual,
                      const double *value)
{
    double sum = 0;
    assert(fit->knee > 0 && fit->pull > 0);
    for (size_t i = 0; i < fit->residuals; i++) {
        const double r = absolute(residual[i]) / fit->knee;
        sum += r < 1 ? 0.5 * r * r : r - 0.5;
    }
    for (size_t p = 0; p < fit->parameters; p++) {
        const double off = (value[p] / work->start[p] - 1) / fit->pull;
        sum += 0.5 * off * off;
    }
    return sum;
}

static void build_normal(const struct sim_fit *fit, struct work *work)
{
    const double unit = 1 / (fit->knee * fit->knee);
    assert(fit->parameters <= SIM_FIT_PARAMETERS_MAX);
    for (size_t p = 0; p < fit->parameters; p++) {
        const double ratio = fit->value[p] / work->start[p];
        work->gradient[p] = (ratio - 1) * ratio / (fit->pull * fit->pull);
        for (size_t q = 0; q < fit->parameters; q++) work->normal[p][q] = 0;
        work->normal[p][p] = ratio * ratio / (fit->pull * fit->pull);
    }
    for (size_t i = 0; i < fit->residuals; i++) {
        const double size = absolute(work->residual[i]);
        const double weight = unit * (size <= fit->knee ? 1 : fit->knee / size);
        for (size_t p = 0; p < fit->parameters; p++) {
            const double slope = work->slope[p * fit->residuals + i];
            if (slope == 0) continue;
            work->gradient[p] += weight * slope * work->residual[i];
            for (size_t q = 0; q <= p; q++)
                work->normal[p][q] += weight * slope * work->slope[q * fit->residuals + i];
        }
    }
    for (size_t p = 0; p < fit->parameters; p++)
        for (size_t q = p + 1; q < fit->parameters; q++) work->normal[p][q] = work->normal[q][p];
}

/* Cholesky of normal + damp x its diagonal, in place; false when it is not definite. */
static bool factor(const struct sim_fit *fit, const struct work *work, double damp,
                   double (*lower)[SIM_FIT_PARAMETERS_MAX])
{
    for (size_t p = 0; p < fit->parameters; p++) {
        for (size_t q = 0; q <= p; q++) {
            double sum = work->normal[p][q] * (p == q ? 1 + damp : 1);
            for (size_t k = 0; k < q; k++) sum -= lower[p][k] * lower[q][k];
            if (p != q)
                lower[p][q] = sum / lower[q][q];
            else if (sum <= 0)
                return false;
            else
                lower[p][p] = square_root(sum);
        }
    }
    return true;
}

static void solve(const struct sim_fit *fit, double (*lower)[SIM_FIT_PARAMETERS_MAX],
                  const double *right, double *out)
{
    for (size_t p = 0; p < fit->parameters; p++) {
        double sum = right[p];
        for (size_t k = 0; k < p; k++) sum -= lower[p][k] * out[k];
        out[p] = sum / lower[p][p];
    }
    for (size_t p = fit->parameters; p-- > 0;) {
        double sum = out[p];
        for (size_t k = p + 1; k < fit->parameters; k++) sum -= lower[k][p] * out[k];
        out[p] = sum / lower[p][p];
    }
}

static int take_slopes(struct sim_fit *fit, struct work *work, char *err, size_t err_len)
{
    double moved[SIM_FIT_PARAMETERS_MAX];
    memcpy(moved, fit->value, fit->parameters * sizeof *moved);
    for (size_t p = 0; p < fit->parameters; p++) {
        const double step = fit->value[p] * (1 + STEP) <= fit->max[p] ? STEP : -STEP;
        moved[p] = fit->value[p] * (1 + step);
        memcpy(work->trial, work->residual, fit->residuals * sizeof *work->trial);
        if (fit->evaluate(fit->context, moved, p, work->trial, err, err_len) != 0) return -1;
        moved[p] = fit->value[p];
        for (size_t i = 0; i < fit->residuals; i++)
            work->slope[p * fit->residuals + i] = (work->trial[i] - work->residual[i]) / step;
    }
    return 0;
}

/* The slopes' correction by a step: what the residuals did beyond what the slopes foretold, shared
 * out over the parameters that moved and touch the row. */
static void learn(const struct sim_fit *fit, struct work *work, const double *moved,
                  const double *trial)
{
    for (size_t i = 0; i < fit->residuals; i++) {
        double foretold = 0, size = 0;
        for (size_t p = 0; p < fit->parameters; p++) {
            const double slope = work->slope[p * fit->residuals + i];
            if (slope == 0) continue;
            foretold += slope * moved[p];
            size += moved[p] * moved[p];
        }
        if (size < 1e-12) continue;
        const double off = (trial[i] - work->residual[i] - foretold) / size;
        for (size_t p = 0; p < fit->parameters; p++)
            if (work->slope[p * fit->residuals + i] != 0)
                work->slope[p * fit->residuals + i] += off * moved[p];
    }
}

/* One round: steps with growing damping until one helps. 1: helped, 0: none did. */
static int improve(struct sim_fit *fit, struct work *work, double *damp, double *loss, char *err,
                   size_t err_len)
{
    double lower[SIM_FIT_PARAMETERS_MAX][SIM_FIT_PARAMETERS_MAX];
    double move[SIM_FIT_PARAMETERS_MAX], value[SIM_FIT_PARAMETERS_MAX];

    build_normal(fit, work);
    for (int tries = 0; tries < TRIES && *damp < DAMP_MAX; tries++, *damp *= 8) {
        if (!factor(fit, work, *damp, lower)) continue;
        solve(fit, lower, work->gradient, move);
        for (size_t p = 0; p < fit->parameters; p++) {
            double by = -move[p];
            if (by > MOVE_MAX) by = MOVE_MAX;
            if (by < -MOVE_MAX) by = -MOVE_MAX;
            value[p] = fit->value[p] * (1 + by);
            if (value[p] < fit->min[p]) value[p] = fit->min[p];
            if (value[p] > fit->max[p]) value[p] = fit->max[p];
            move[p] = value[p] / fit->value[p] - 1;
        }
        if (fit->evaluate(fit->context, value, SIM_FIT_ALL, work->trial, err, err_len) != 0)
            return -1;
        const double reached = loss_of(fit, work, work->trial, value);
        if (reached >= *loss) continue;
        assert(reached < *loss);
        *loss = reached;
        *damp /= 4;
        learn(fit, work, move, work->trial);
        memcpy(fit->value, value, fit->parameters * sizeof *value);
        memcpy(work->residual, work->trial, fit->residuals * sizeof *work->residual);
        return 1;
    }
    return 0;
}

/* Settle anew, keep the best values of all such points, and take slopes there. */
static int begin_rounds(struct sim_fit *fit, struct work *work, double *loss, char *err,
                        size_t err_len)
{
    if (fit->evaluate(fit->context, fit->value, SIM_FIT_ANEW, work->residual, err, err_len) != 0)
        return -1;
    *loss = loss_of(fit, work, work->residual, fit->value);
    if (*loss < work->best_loss) {
        work->best_loss = *loss;
        memcpy(work->best, fit->value, fit->parameters * sizeof *work->best);
    }
    return take_slopes(fit, work, err, err_len);
}

/* Rounds until they are used up, or until rounds on new slopes gain nothing any more. */
static int run_rounds(struct sim_fit *fit, struct work *work, double *loss, char *err,
                      size_t err_len)
{
    double damp = DAMP_START, begun = 0;
    unsigned since = SIM_FIT_SLOPE_ROUNDS; /* Rounds on the present slopes. */
    for (unsigned round = 0; round < fit->rounds; round++) {
        if (since == SIM_FIT_SLOPE_ROUNDS) {
            if (begin_rounds(fit, work, loss, err, err_len) != 0) return -1;
            begun = *loss;
            since = 0;
            if (damp > DAMP_MAX / 1000) damp = DAMP_START;
        }
        const int helped = improve(fit, work, &damp, loss, err, err_len);
        if (helped < 0) return -1;
        if (fit->report) fit->report(fit->context, round, *loss);
        since++;
        if (helped == 0 && since == 1) break; /* Not even on new slopes. */
        if (helped == 0 || since == SIM_FIT_SLOPE_ROUNDS) {
            if (begun - *loss < GAIN_MIN * begun) break;
            since = SIM_FIT_SLOPE_ROUNDS;
        }
    }
    return 0;
}

/* Standard errors from the inverse of the normal matrix without the pull's part. */
static void judge(struct sim_fit *fit, struct work *work)
{
    double lower[SIM_FIT_PARAMETERS_MAX][SIM_FIT_PARAMETERS_MAX];
    double unit[SIM_FIT_PARAMETERS_MAX], column[SIM_FIT_PARAMETERS_MAX];
    double sum = 0;
    for (size_t i = 0; i < fit->residuals; i++) {
        const double r = absolute(work->residual[i]) / fit->knee;
        sum += r < 1 ? r * r : 1;
    }
    const double variance = fit->residuals ? sum / (double)fit->residuals : 1;
    for (size_t p = 0; p < fit->parameters && fit->moved; p++) {
        fit->moved[p] = 0;
        for (size_t i = 0; i < fit->residuals; i++)
            fit->moved[p] += absolute(work->slope[p * fit->residuals + i]) > 0;
    }
    build_normal(fit, work);
    const bool definite = factor(fit, work, 0, lower);
    for (size_t p = 0; p < fit->parameters; p++) {
        memset(unit, 0, sizeof unit);
        unit[p] = 1;
        if (definite) solve(fit, lower, unit, column);
        fit->relative_error[p] = definite ? square_root(column[p] * variance) : 1;
        /* As wide as the pull alone would leave it: the data said nothing. */
        if (definite && column[p] > 0.5 * fit->pull * fit->pull) fit->relative_error[p] = 1;
    }
}

int sim_fit_run(struct sim_fit *fit, double *loss, char *err, size_t err_len)
{
    struct work *work = (struct work *)calloc(1, sizeof *work);
    int status = -1;

    assert(fit->parameters > 0 && fit->parameters <= SIM_FIT_PARAMETERS_MAX);
    assert(fit->knee > 0 && fit->pull > 0);
    if (!work) goto out_of_memory;
    work->residual = (double *)calloc(fit->residuals + 1, sizeof(double));
    work->trial = (double *)calloc(fit->residuals + 1, sizeof(double));
    work->slope = (double *)calloc(fit->parameters * fit->residuals + 1, sizeof(double));
    if (!work->residual || !work->trial || !work->slope) goto out_of_memory;
    memcpy(work->start, fit->value, fit->parameters * sizeof *work->start);
    memcpy(work->best, fit->value, fit->parameters * sizeof *work->best);
    work->best_loss = DBL_MAX;
    if (run_rounds(fit, work, loss, err, err_len) != 0) goto free_work;
    if (begin_rounds(fit, work, loss, err, err_len) != 0) goto free_work;
    if (*loss > work->best_loss) {
        memcpy(fit->value, work->best, fit->parameters * sizeof *work->best);
        if (begin_rounds(fit, work, loss, err, err_len) != 0) goto free_work;
    }
    judge(fit, work);
    *loss /= fit->residuals ? (double)fit->residuals : 1;
    status = 0;
    goto free_work;
out_of_memory:
    snprintf(err, err_len, "fit of %zu parameters to %zu rows: out of memory", fit->parameters,
             fit->residuals);
free_work:
    if (work) {
        free(work->residual);
        free(work->trial);
        free(work->slope);
    }
    free(work);
    return status;
}
