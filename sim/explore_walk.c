/* sim/explore_walk.c - the walk itself.
 *
 * Per state it keeps from which state it was first reached, and the order of visiting; the move
 * between two states is found again by trying, which costs nothing on the one path that is
 * wanted and saves a byte on all others. */
#include "sim/explore_walk.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define UNSEEN UINT32_MAX

/* The move that leads from one state to the other. */
static uint8_t move_between(const struct sim_explore_model *model,
                            const struct sim_explore_ask *ask, uint64_t from, uint64_t to)
{
    for (uint32_t move = 0; move < model->moves; move++) {
        uint64_t next = 0;
        if (model->step(ask, from, move, &next) && next == to) return (uint8_t)move;
    }
    assert(!"two states of a path have a move between them");
    return 0;
}

/* The moves from the start to the broken state. */
static int load_steps(const struct sim_explore_model *model, const uint32_t *parents,
                      uint32_t broken, struct sim_exploration *out, char *err, size_t err_len)
{
    uint64_t count = 0;
    for (uint32_t at = broken; at != 0; at = parents[at]) count++;
    assert(count > 0 && count < model->state_max);
    out->steps = (uint8_t *)malloc(count);
    if (out->steps == NULL) {
        snprintf(err, err_len, "explore: schedule of %" PRIu64 " steps: out of memory", count);
        return -1;
    }
    out->step_count = count;
    for (uint32_t at = broken; at != 0; at = parents[at])
        out->steps[--count] = move_between(model, &out->ask, parents[at], at);
    assert(count == 0);
    return 0;
}

/* Room for the parent of every state and for the order of visiting. */
static int open_states(uint64_t state_max, uint32_t **parents, uint32_t **queue, char *err,
                       size_t err_len)
{
    *parents = (uint32_t *)malloc(state_max * sizeof **parents);
    *queue = (uint32_t *)malloc(state_max * sizeof **queue);
    if (*parents != NULL && *queue != NULL) return 0;
    snprintf(err, err_len, "explore: %" PRIu64 " states: out of memory", state_max);
    return -1;
}

int sim_explore_walk(const struct sim_explore_model *model, struct sim_exploration *out, char *err,
                     size_t err_len)
{
    uint32_t *parents = NULL, *queue = NULL; /* The queue never forgets: [states visited]. */
    uint32_t broken = UNSEEN;
    uint64_t visited = 1;
    int status = -1;

    assert(model->state_max > 1 && model->state_max < UNSEEN && model->moves <= UINT8_MAX);
    if (open_states(model->state_max, &parents, &queue, err, err_len) != 0) goto free_states;
    for (uint64_t s = 0; s < model->state_max; s++) parents[s] = UNSEEN;
    parents[0] = 0;
    queue[0] = 0;
    for (uint64_t at = 0; at < visited; at++) {
        if (model->broken(&out->ask, queue[at])) {
            if (broken == UNSEEN) broken = queue[at];
            continue;
        }
        for (uint32_t move = 0; move < model->moves; move++) {
            uint64_t next = 0;
            if (!model->step(&out->ask, queue[at], move, &next)) continue;
            assert(next < model->state_max);
            if (parents[next] != UNSEEN) continue;
            parents[next] = queue[at];
            queue[visited++] = (uint32_t)next;
        }
    }
    out->states = visited;
    out->safe = broken == UNSEEN;
    status = out->safe ? 0 : load_steps(model, parents, broken, out, err, err_len);
free_states:
    free(parents);
    free(queue);
    return status;
}
