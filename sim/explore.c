/* sim/explore.c - asks, walks, replays. */
#include "sim/explore.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/explore_walk.h"

static const struct {
    const char *name;
    struct sim_explore_model (*model)(const struct sim_explore_ask *ask);
} PROTOCOLS[] = {
    {"sentinel", sim_explore_sentinel}, {"qp", sim_explore_qp}, {"buffers", sim_explore_buffers}};

const char *sim_explore_name(enum sim_explore_protocol protocol)
{
    assert((size_t)protocol < sizeof PROTOCOLS / sizeof PROTOCOLS[0]);
    return PROTOCOLS[protocol].name;
}

int sim_explore(const struct sim_explore_ask *ask, struct sim_exploration *out, char *err,
                size_t err_len)
{
    struct sim_exploration made = {.ask = *ask};

    assert((size_t)ask->protocol < sizeof PROTOCOLS / sizeof PROTOCOLS[0]);
    assert(ask->tokens >= 1 && ask->tokens <= SIM_EXPLORE_TOKENS_MAX);
    const struct sim_explore_model model = PROTOCOLS[ask->protocol].model(ask);
    if (sim_explore_walk(&model, &made, err, err_len) != 0 ||
        (!made.safe && sim_explore_replay(&made, err, err_len) != 0)) {
        sim_explore_free(&made);
        return -1;
    }
    assert(made.safe == (made.step_count == 0) && made.safe == (made.row_count == 0));
    *out = made;
    return 0;
}

void sim_explore_free(struct sim_exploration *exploration)
{
    free(exploration->steps);
    free(exploration->rows);
    memset(exploration, 0, sizeof *exploration);
}
