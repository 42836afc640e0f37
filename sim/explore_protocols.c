/* sim/explore_protocols.c - the three protocols as states and moves.
 *
 * Sends of one expert are interchangeable, so a state holds how many are done, not which: n + 1
 * numbers in place of 2^n sets, and in a schedule they are done in the order of the tokens. */
#include <assert.h>

#include "sim/explore_walk.h"

/* --- sentinel: (A done, B done, sends done, has read) ---------------------------------------- */

struct sentinel {
    uint64_t tagged, counted, sent, read;
};

static struct sentinel sentinel_of(uint64_t sends_max, uint64_t state)
{
    const uint64_t rest = state / 2;
    return (struct sentinel){rest / (sends_max + 1) / 2, rest / (sends_max + 1) % 2,
                             rest % (sends_max + 1), state % 2};
}

/* Below zero where B comes first and n is above the tag, as in the kernel's int. */
int64_t sim_explore_counter(const struct sim_explore_ask *ask, bool tagged, bool counted,
                            uint64_t sent)
{
    assert(sent <= ask->tokens);
    return (tagged ? (int64_t)ask->tag : 0) +
           (counted ? (int64_t)ask->tag - (int64_t)ask->tokens : 0) + (int64_t)sent;
}

static bool sentinel_step(const struct sim_explore_ask *ask, uint64_t state, uint32_t move,
                          uint64_t *next)
{
    struct sentinel at = sentinel_of(ask->tokens, state);
    bool possible = false;

    if (at.read) return false;
    switch (move) {
    case SENTINEL_TAG:
        possible = !at.tagged;
        at.tagged = 1;
        break;
    case SENTINEL_COUNT:
        possible = !at.counted;
        at.counted = 1;
        break;
    case SENTINEL_SEND: possible = at.sent++ < ask->tokens; break;
    case SENTINEL_POLL: /* Any other value is read again: no change of state. */
        possible =
            (at.counted || !ask->ordered) &&
            sim_explore_counter(ask, at.tagged, at.counted, at.sent) == 2 * (int64_t)ask->tag;
        at.read = 1;
        break;
    default: assert(!"a move of the sentinel");
    }
    if (!possible) return false;
    *next = ((at.tagged * 2 + at.counted) * ((uint64_t)ask->tokens + 1) + at.sent) * 2 + at.read;
    return true;
}

static bool sentinel_broken(const struct sim_explore_ask *ask, uint64_t state)
{
    const struct sentinel at = sentinel_of(ask->tokens, state);
    return at.read && at.sent < ask->tokens;
}

struct sim_explore_model sim_explore_sentinel(const struct sim_explore_ask *ask)
{
    return (struct sim_explore_model){8 * ((uint64_t)ask->tokens + 1), 4, sentinel_step,
                                      sentinel_broken};
}

/* --- qp: (place of the next request in its kernel, requests in flight) ------------------------ */

/* M rows and the flag behind them. */
static uint64_t kernel_requests(const struct sim_explore_ask *ask)
{
    return (uint64_t)ask->tokens + 1;
}

static bool qp_step(const struct sim_explore_ask *ask, uint64_t state, uint32_t move,
                    uint64_t *next)
{
    const uint64_t requests = kernel_requests(ask), width = 2 * requests + 1;
    uint64_t place = state / width, in_flight = state % width;

    assert(move == QP_POST || move == QP_TAKE);
    if (move == QP_POST) {
        /* A kernel begins when of those before it only the last has requests left. */
        if (place == 0 && in_flight > requests) return false;
        place = (place + 1) % requests;
        in_flight++;
    } else if (in_flight-- == 0) {
        return false;
    }
    assert(in_flight < width);
    *next = place * width + in_flight;
    return true;
}

static bool qp_broken(const struct sim_explore_ask *ask, uint64_t state)
{
    return state % (2 * kernel_requests(ask) + 1) > ask->depth;
}

struct sim_explore_model sim_explore_qp(const struct sim_explore_ask *ask)
{
    const uint64_t requests = kernel_requests(ask);
    return (struct sim_explore_model){requests * (2 * requests + 1), 2, qp_step, qp_broken};
}

/* --- buffers: (results held, buffer of the next call, a spoilt one was read) -------------------
 */

static bool buffers_step(const struct sim_explore_ask *ask, uint64_t state, uint32_t move,
                         uint64_t *next)
{
    uint64_t held = state / 4, buffer = state / 2 % 2, spoilt = state % 2;

    assert(move == BUFFERS_CALL || move == BUFFERS_READ);
    if (move == BUFFERS_CALL) {
        if (held == ask->outstanding) return false;
        held++;
        buffer ^= 1;
    } else {
        /* The oldest result is spoilt once the call after the next has taken its buffer. */
        if (held == 0) return false;
        spoilt = held > 2;
        held--;
    }
    *next = held * 4 + buffer * 2 + spoilt;
    return true;
}

static bool buffers_broken(const struct sim_explore_ask *ask, uint64_t state)
{
    (void)ask;
    return state % 2 == 1;
}

struct sim_explore_model sim_explore_buffers(const struct sim_explore_ask *ask)
{
    return (struct sim_explore_model){4 * ((uint64_t)ask->outstanding + 1), 2, buffers_step,
                                      buffers_broken};
}
