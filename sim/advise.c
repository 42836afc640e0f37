/* sim/advise.c - cells of a sweep grouped by conditions, the best choice of each group and by how
 * much. */
#include "sim/advise.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const struct sim_goal GOALS[] = {
    {"latency", "step_us", "us a step", false},
    {"throughput", "tokens_per_s_per_gpu", "tokens/s per GPU", true},
    {"memory", "rank_bytes", "bytes a rank", false},
    {"cost", "usd_per_million_tokens", "USD per million tokens", false},
};

const struct sim_goal *sim_goal_find(const char *name)
{
    assert(name != NULL);
    for (size_t g = 0; g < sizeof GOALS / sizeof GOALS[0]; g++)
        if (strcmp(GOALS[g].name, name) == 0) return &GOALS[g];
    return NULL;
}

bool sim_advise_is_condition(const struct sim_sweep *sweep, uint32_t axis)
{
    assert(axis < sweep->axis_count);
    const char *option = sweep->axes[axis].option;
    return strcmp(option, "tokens") == 0 || strcmp(option, "routing") == 0 ||
           strcmp(option, "context") == 0;
}

uint32_t sim_advise_conditions(const struct sim_sweep *sweep)
{
    uint32_t conditions = 1;
    for (uint32_t a = 0; a < sweep->axis_count; a++)
        if (sim_advise_is_condition(sweep, a)) conditions *= sweep->axes[a].count;
    return conditions;
}

uint32_t sim_advise_condition_of(const struct sim_sweep *sweep, uint32_t cell)
{
    uint32_t condition = 0;
    for (uint32_t a = 0; a < sweep->axis_count; a++)
        if (sim_advise_is_condition(sweep, a))
            condition = condition * sweep->axes[a].count + sim_sweep_at(sweep, cell, a);
    return condition;
}

bool sim_advise_same_choice(const struct sim_sweep *sweep, uint32_t a, uint32_t b)
{
    for (uint32_t axis = 0; axis < sweep->axis_count; axis++)
        if (!sim_advise_is_condition(sweep, axis) &&
            sim_sweep_at(sweep, a, axis) != sim_sweep_at(sweep, b, axis))
            return false;
    return true;
}

static bool better(const struct sim_goal *goal, double a, double b)
{
    return goal->more_is_better ? a > b : a < b;
}

/* Keep the cell if it beats the rival so far. */
static void compete(struct sim_rival *rival, const struct sim_goal *goal, uint32_t cell,
                    double value)
{
    if (rival->cell != SIM_NO_CELL && !better(goal, value, rival->value)) return;
    rival->cell = cell;
    rival->value = value;
}

static void judge(struct sim_rival *rival, const struct sim_goal *goal, double best)
{
    if (rival->cell == SIM_NO_CELL || best == 0) return;
    rival->worse = (goal->more_is_better ? best - rival->value : rival->value - best) / fabs(best);
    assert(!(rival->worse < 0));
}

void sim_advise(const struct sim_sweep *sweep, const double *values, const struct sim_goal *goal,
                uint32_t condition, struct sim_advice *out)
{
    const uint32_t cells = sim_sweep_cells(sweep);
    const struct sim_rival none = {SIM_NO_CELL, 0, 0};

    assert(values != NULL && goal != NULL && condition < sim_advise_conditions(sweep));
    *out = (struct sim_advice){.best = SIM_NO_CELL, .second = none};
    for (uint32_t a = 0; a < sweep->axis_count; a++) out->other[a] = none;
    for (uint32_t c = 0; c < cells; c++) {
        if (isnan(values[c]) || sim_advise_condition_of(sweep, c) != condition) continue;
        if (out->best != SIM_NO_CELL && !better(goal, values[c], out->value)) continue;
        out->best = c;
        out->value = values[c];
    }
    if (out->best == SIM_NO_CELL) return;
    for (uint32_t c = 0; c < cells; c++) {
        if (isnan(values[c]) || sim_advise_condition_of(sweep, c) != condition || c == out->best)
            continue;
        compete(&out->second, goal, c, values[c]);
        for (uint32_t a = 0; a < sweep->axis_count; a++)
            if (sim_sweep_at(sweep, c, a) != sim_sweep_at(sweep, out->best, a))
                compete(&out->other[a], goal, c, values[c]);
    }
    judge(&out->second, goal, out->value);
    for (uint32_t a = 0; a < sweep->axis_count; a++) judge(&out->other[a], goal, out->value);
}
