/* sim/attribute.c - Shapley values of an exchange's parts, in integers. */
#include "sim/attribute.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 i128; /* ISO C has none; -Wpedantic wants it said. */

enum { PLAYERS_MAX = SIM_PART_OTHER };

uint64_t sim_attribute_qp_need(const struct sim_exchange *exchange)
{
    const struct sim_traffic *traffic = exchange->traffic;
    uint64_t most = 0;
    if (traffic->mode != SIM_MODE_LL) return 0;
    for (uint32_t expert = 0; expert < traffic->experts; expert++) {
        const uint32_t owner = expert / (traffic->experts / traffic->ranks);
        for (uint32_t rank = 0; rank < traffic->ranks; rank++) {
            const uint64_t *block = &traffic->block_start[(uint64_t)expert * traffic->ranks + rank];
            if (sim_traffic_link(traffic, owner, rank) != SIM_LINK_NIC) continue;
            if (block[1] - block[0] + 1 > most) most = block[1] - block[0] + 1;
        }
    }
    return most;
}

static bool starts_differ(const struct sim_exchange *exchange)
{
    for (uint32_t r = 1; r < exchange->traffic->ranks; r++)
        if (exchange->start_ps[r] != exchange->start_ps[0]) return true;
    return false;
}

uint32_t sim_attribute_parts(const struct sim_exchange *exchange)
{
    const struct sim_traffic *traffic = exchange->traffic;
    const bool normal = traffic->mode == SIM_MODE_NORMAL;
    uint32_t parts = 1u << SIM_PART_LAUNCH | 1u << SIM_PART_SYNC | 1u << SIM_PART_SM;
    if (normal && traffic->nodes > 1) parts |= 1u << SIM_PART_NOTIFY;
    if (traffic->nvlink && traffic->ranks_per_node > 1) parts |= 1u << SIM_PART_NVLINK;
    if (traffic->nodes > 1 || (!traffic->nvlink && traffic->ranks > 1)) parts |= 1u << SIM_PART_NIC;
    if (exchange->qp_depth > 0 && sim_attribute_qp_need(exchange) > exchange->qp_depth)
        parts |= 1u << SIM_PART_QP;
    if (parts & 1u << SIM_PART_NIC && sim_exchange_networked(exchange))
        parts |= 1u << SIM_PART_FABRIC;
    if (starts_differ(exchange)) parts |= 1u << SIM_PART_WAIT;
    return parts;
}

/* Normal mode adds launch and count exchange around the rows, which begin together. A kernel of
 * low latency is shifted by a launch where all ranks have the same one: in dispatch, and in
 * combine as long as no rank's grid is larger than another's. */
uint32_t sim_attribute_shifts(const struct sim_exchange *exchange)
{
    const struct sim_traffic *traffic = exchange->traffic;
    const uint64_t *start = traffic->token_start;
    bool alike = !exchange->hook;
    if (traffic->mode == SIM_MODE_NORMAL)
        return (1u << SIM_PART_LAUNCH | 1u << SIM_PART_NOTIFY | 1u << SIM_PART_WAIT) &
               sim_attribute_parts(exchange);
    for (uint32_t r = 1; exchange->direction == SIM_COMBINE && r < traffic->ranks; r++)
        alike = alike && start[r + 1] - start[r] == start[1] - start[0];
    return alike ? 1u << SIM_PART_LAUNCH : 0;
}

/* The players of the game, and the times they make. */
struct game {
    uint32_t count; /* Players: parts that are no shifts. */
    enum sim_part player[PLAYERS_MAX];
    uint32_t shift_count;
    enum sim_part shift[PLAYERS_MAX];
    uint32_t coalitions; /* 1 << count: bit p set = player p costs what it costs. */
    bool fabric;         /* One question more, the last: the fabric as it is. */
    uint32_t ranks;
    size_t questions;
    uint64_t *took_ps; /* [questions][ranks]: coalitions, shifts, fabric. */
};

static uint64_t factorial(uint32_t n)
{
    uint64_t product = 1;
    for (uint32_t i = 2; i <= n; i++) product *= i;
    return product;
}

static uint64_t value_ps(const struct game *game, uint32_t coalition, uint32_t rank)
{
    return game->took_ps[(size_t)coalition * game->ranks + rank];
}

/* Player's share times factorial(count). */
static i128 weighed_share(const struct game *game, uint32_t player, uint32_t rank)
{
    i128 sum = 0;
    for (uint32_t c = 0; c < game->coalitions; c++) {
        const uint32_t size = (uint32_t)__builtin_popcount(c);
        if (c & 1u << player) continue;
        const int64_t step =
            (int64_t)(value_ps(game, c | 1u << player, rank) - value_ps(game, c, rank));
        sum += (i128)step * (int64_t)(factorial(size) * factorial(game->count - 1 - size));
    }
    return sum;
}

/* Whole picoseconds that sum to the game's, by largest remainder, the first part of equals. */
static void share_out(const struct game *game, uint32_t rank, int64_t *part_ps)
{
    const int64_t whole = (int64_t)factorial(game->count);
    int64_t rest[PLAYERS_MAX] = {0}, left = 0;
    for (uint32_t p = 0; p < game->count; p++) {
        const i128 share = weighed_share(game, p, rank);
        i128 floor_ps = share / whole;
        if (share < floor_ps * whole) floor_ps--;
        rest[p] = (int64_t)(share - floor_ps * whole);
        part_ps[game->player[p]] = (int64_t)floor_ps;
        left += rest[p];
    }
    assert(left % whole == 0);
    for (left /= whole; left > 0; left--) {
        uint32_t most = 0;
        for (uint32_t p = 1; p < game->count; p++)
            if (rest[p] > rest[most]) most = p;
        part_ps[game->player[most]]++;
        rest[most] = -1;
    }
}

static void attribute_rank(const struct game *game, uint32_t rank, struct sim_attribution *out)
{
    const uint32_t all = game->coalitions - 1;
    int64_t *part_ps = out->part_ps + (size_t)rank * SIM_PARTS;
    int64_t sum_ps = 0;
    assert(rank < game->ranks && rank < out->ranks);
    memset(part_ps, 0, SIM_PARTS * sizeof *part_ps);
    out->took_ps[rank] = value_ps(game, all, rank);
    if (game->fabric) {
        out->took_ps[rank] = value_ps(game, (uint32_t)game->questions - 1, rank);
        part_ps[SIM_PART_FABRIC] = (int64_t)out->took_ps[rank] - (int64_t)value_ps(game, all, rank);
    }
    share_out(game, rank, part_ps);
    part_ps[SIM_PART_OTHER] = (int64_t)value_ps(game, 0, rank);
    for (uint32_t s = 0; s < game->shift_count; s++) {
        const int64_t span_ps =
            (int64_t)(value_ps(game, all, rank) - value_ps(game, game->coalitions + s, rank));
        part_ps[game->shift[s]] = span_ps;
        part_ps[SIM_PART_OTHER] -= span_ps;
    }
    for (int part = 0; part < SIM_PARTS; part++) sum_ps += part_ps[part];
    assert(sum_ps == (int64_t)out->took_ps[rank]);
    if (out->took_ps[rank] > out->took_ps[out->slowest]) out->slowest = rank;
}

static int open_game(uint32_t parts, uint32_t shifts, struct game *game)
{
    for (int part = 0; part < SIM_PART_OTHER; part++) {
        if (!(parts & 1u << part) || part == SIM_PART_FABRIC) continue;
        if (shifts & 1u << part)
            game->shift[game->shift_count++] = (enum sim_part)part;
        else
            game->player[game->count++] = (enum sim_part)part;
    }
    assert(game->count <= PLAYERS_MAX && game->shift_count <= PLAYERS_MAX);
    game->coalitions = 1u << game->count;
    game->fabric = (parts & 1u << SIM_PART_FABRIC) != 0;
    game->questions = game->coalitions + game->shift_count + game->fabric;
    game->took_ps = (uint64_t *)calloc(game->questions * game->ranks, sizeof *game->took_ps);
    return game->took_ps == NULL ? -1 : 0;
}

static int open_attribution(uint32_t ranks, struct sim_attribution *out)
{
    out->slowest = 0;
    if (out->ranks == ranks) return 0;
    sim_attribution_free(out);
    out->took_ps = (uint64_t *)calloc(ranks, sizeof *out->took_ps);
    out->part_ps = (int64_t *)calloc((size_t)ranks * SIM_PARTS, sizeof *out->part_ps);
    if (out->took_ps == NULL || out->part_ps == NULL) {
        sim_attribution_free(out);
        return -1;
    }
    out->ranks = ranks;
    return 0;
}

int sim_attribute(struct sim_vary_bench *bench, const struct sim_exchange *exchange, uint32_t parts,
                  uint32_t shifts, struct sim_attribution *out, char *err, size_t err_len)
{
    struct sim_variation questions[(1 << PLAYERS_MAX) + PLAYERS_MAX];
    struct game game = {.ranks = exchange->traffic->ranks};
    int status = -1;

    assert((shifts & ~parts) == 0 && parts < 1u << SIM_PART_OTHER && shifts != parts);
    const int opened = open_game(parts, shifts, &game);
    if (opened != 0 || open_attribution(game.ranks, out) != 0) {
        snprintf(err, err_len, "attribution over %u ranks: out of memory", game.ranks);
        goto free_game;
    }
    memset(questions, 0, sizeof questions);
    for (uint32_t c = 0; c < game.coalitions; c++)
        for (uint32_t p = 0; p < game.count; p++)
            if (!(c & 1u << p)) questions[c].free_parts |= 1u << game.player[p];
    for (uint32_t s = 0; s < game.shift_count; s++)
        questions[game.coalitions + s].free_parts = 1u << game.shift[s];
    for (size_t q = 0; q < game.questions - game.fabric; q++)
        questions[q].free_parts |= 1u << SIM_PART_FABRIC;
    status = sim_vary_times(bench, exchange, questions, game.questions, game.took_ps, err, err_len);
    for (uint32_t r = 0; status == 0 && r < game.ranks; r++) attribute_rank(&game, r, out);
free_game:
    free(game.took_ps);
    return status;
}

void sim_attribution_free(struct sim_attribution *attribution)
{
    free(attribution->took_ps);
    free(attribution->part_ps);
    memset(attribution, 0, sizeof *attribution);
}
