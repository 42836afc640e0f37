/* sim/compute.c - experts, dense layers, router, quantisation, collectives. */
#include "sim/compute.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

enum { TILE = 128, SMALL_TILE = 64, PPM = 1000000, BF16 = 2, SCALE_GROUP = 128, SCALE_BYTES = 4 };
#define PS_PER_S UINT64_C(1000000000000)

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

int sim_compute_check(const struct fabric_machine *machine, const struct sim_model *model,
                      char *err, size_t err_len)
{
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {
        {"attention_params", model->attention_params},
        {"attention_weight_bytes", model->attention_weight_bytes},
        {"attention_flop", model->attention_flop},
        {"prefill_flop", model->prefill_flop},
        {"kv_bytes", model->kv_bytes},
        {"dense_inter", model->dense_layers > 0 ? model->dense_inter : 1},
    };
    if (!fabric_machine_computes(machine, err, err_len)) return -1;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        if (figures[i].value > 0) continue;
        snprintf(err, err_len, "model %s: %s: unknown, and without it a step has no time",
                 model->name, figures[i].name);
        return -1;
    }
    return 0;
}

static uint64_t up(uint64_t value, uint64_t step)
{
    assert(step > 0);
    return (value + step - 1) / step;
}

/* Bytes of that many expert weights. */
static uint64_t weight_bytes(const struct sim_model *model, uint64_t weights)
{
    return weights / 32 * model->expert_32_bytes;
}

/* Tensor rate of an SM at the width the experts compute in. */
static uint64_t expert_rate(const struct fabric_machine *machine, const struct sim_model *model)
{
    assert(model->math_bytes == 1 || model->math_bytes == 2);
    return machine->costs.compute.sm_flop_per_s / model->math_bytes;
}

/* Activations live in L2 from one kernel to the next; what does not fit goes through HBM. */
static uint64_t beyond_cache(const struct fabric_machine *machine, uint64_t bytes)
{
    const uint64_t cache = machine->costs.normal.cache_bytes;
    return bytes > cache ? bytes - cache : 0;
}

/* A grouped GEMM [rows, k] x [k, n] per expert: weights of experts with rows are read once. */
static struct sim_work grouped_gemm(const struct fabric_machine *machine,
                                    const struct sim_model *model, const uint64_t *rows,
                                    uint32_t experts, uint32_t block_m, uint64_t n, uint64_t k)
{
    uint64_t active = 0, all_rows = 0, tiles = 0;
    for (uint32_t e = 0; e < experts; e++) {
        if (rows[e] == 0) continue;
        active++;
        all_rows += rows[e];
        tiles += up(rows[e], block_m) * up(n, TILE);
    }
    const uint64_t moved = all_rows * (k * model->math_bytes + n * BF16);
    return (struct sim_work){.bytes =
                                 active * weight_bytes(model, n * k) + beyond_cache(machine, moved),
                             .tiles = tiles,
                             .tile_flop = 2 * (uint64_t)block_m * TILE * k,
                             .sm_flop_per_s = expert_rate(machine, model)};
}

struct sim_experts sim_compute_experts(const struct fabric_machine *machine,
                                       const struct sim_model *model, enum sim_layout layout,
                                       const uint64_t *rows, uint32_t experts, uint64_t expected,
                                       uint64_t tokens)
{
    const struct fabric_compute_costs *costs = &machine->costs.compute;
    const uint64_t hidden = model->hidden, inter = model->moe_inter;
    const bool masked = layout == SIM_LAYOUT_MASKED;
    struct sim_experts work = {.block_m = masked && expected <= SMALL_TILE ? SMALL_TILE : TILE};
    uint64_t all_rows = 0;

    assert(experts > 0);
    for (uint32_t e = 0; e < experts; e++) all_rows += rows[e];
    work.gate_up = grouped_gemm(machine, model, rows, experts, work.block_m, 2 * inter, hidden);
    work.down = grouped_gemm(machine, model, rows, experts, work.block_m, hidden, inter);
    /* Read both halves in BF16, write one in the GEMM's width. */
    work.activation.bytes = all_rows * (2 * BF16 + model->math_bytes) * inter;
    work.gate_up.exposed_ppm = work.down.exposed_ppm =
        masked ? costs->masked_ppm : costs->contiguous_ppm;
    if (masked) {
        work.gate_up.fixed_ps = (costs->expert_launch_ps + experts * costs->expert_ps) / 3;
        work.activation.fixed_ps = work.down.fixed_ps = work.gate_up.fixed_ps;
        return work;
    }
    const uint64_t row = hidden * model->math_bytes + hidden / SCALE_GROUP * SCALE_BYTES;
    work.permute =
        (struct sim_work){.bytes = (tokens + all_rows) * row, .bytes_ppm = costs->permute_ppm};
    work.unpermute = (struct sim_work){.bytes = (tokens + all_rows) * hidden * BF16,
                                       .bytes_ppm = costs->permute_ppm};
    return work;
}

struct sim_work sim_compute_ffn(const struct fabric_machine *machine, const struct sim_model *model,
                                uint64_t inter, uint64_t rows)
{
    const struct fabric_compute_costs *costs = &machine->costs.compute;
    const uint64_t hidden = model->hidden;
    const uint64_t block_m = rows <= SMALL_TILE ? SMALL_TILE : TILE;
    const uint64_t weights = 3 * hidden * inter;
    if (rows == 0 || inter == 0) return (struct sim_work){.fixed_ps = 0};
    /* Two GEMMs in one: tiles of the first, and the second's flop spread over as many. */
    const uint64_t tiles = up(rows, block_m) * (up(2 * inter, TILE) + up(hidden, TILE));
    const uint64_t flop = 2 * up(rows, block_m) * block_m * weights;
    const uint64_t moved = rows * (hidden * 3 + inter * (2 * BF16 + 2));
    return (struct sim_work){.fixed_ps = 3 * costs->kernel_ps,
                             .bytes = weight_bytes(model, weights) + beyond_cache(machine, moved),
                             .tiles = tiles,
                             .tile_flop = up(flop, tiles),
                             .sm_flop_per_s = expert_rate(machine, model),
                             .exposed_ppm = costs->masked_ppm};
}

struct sim_work sim_compute_router(const struct fabric_machine *machine,
                                   const struct sim_model *model, uint64_t rows)
{
    const struct fabric_compute_costs *costs = &machine->costs.compute;
    const uint64_t hidden = model->hidden, weights = hidden * model->experts;
    if (rows == 0) return (struct sim_work){.fixed_ps = 0};
    /* Rows are read and written by the norm and read by the gate; the gate computes in BF16. */
    return (struct sim_work){.fixed_ps = 3 * costs->kernel_ps,
                             .bytes = weights * BF16 + rows * hidden * 3 * BF16,
                             .flop = 2 * rows * weights,
                             .sm_flop_per_s = costs->sm_projection_flop_per_s / 2,
                             .exposed_ppm = PPM};
}

struct sim_work sim_compute_norm(const struct fabric_machine *machine,
                                 const struct sim_model *model, uint64_t rows)
{
    if (rows == 0) return (struct sim_work){.fixed_ps = 0};
    return (struct sim_work){.fixed_ps = machine->costs.compute.kernel_ps,
                             .bytes = rows * model->hidden * 4 * BF16};
}

struct sim_work sim_compute_quantise(const struct fabric_machine *machine,
                                     const struct sim_model *model, uint64_t rows)
{
    if (rows == 0) return (struct sim_work){.fixed_ps = 0};
    return (struct sim_work){.fixed_ps = machine->costs.compute.kernel_ps,
                             .bytes = rows * model->hidden * (BF16 + 1)};
}

static uint64_t wire_ps(u128 bytes, uint64_t bytes_per_s)
{
    assert(bytes_per_s > 0);
    return (uint64_t)((bytes * PS_PER_S + bytes_per_s - 1) / bytes_per_s);
}

/* Inside a node every port carries (R - 1) / R of the array; between nodes the P NICs of a node
 * together carry (N - 1) / N of it. The slower of the two; flights add up along the ring. */
uint64_t sim_compute_collective(const struct fabric_machine *machine, enum sim_collective kind,
                                uint32_t ranks, uint32_t ranks_per_node, uint64_t bytes)
{
    assert(ranks > 0 && ranks_per_node > 0);
    const uint64_t times = kind == SIM_ALL_REDUCE ? 2 : 1;
    const uint32_t inside = ranks < ranks_per_node ? ranks : ranks_per_node;
    const uint32_t nodes = (ranks + ranks_per_node - 1) / ranks_per_node;
    uint64_t took_ps = 0, flights_ps = 0;
    if (ranks == 1) return 0;
    if (inside > 1 && machine->nvlink_goodput_bytes_per_s > 0) {
        took_ps = wire_ps((u128)bytes * (ranks - 1) / ranks, machine->nvlink_goodput_bytes_per_s);
        flights_ps = (inside - 1) * machine->nvlink_flight_ps;
    } else if (inside > 1) {
        took_ps = wire_ps((u128)bytes * (ranks - 1) / ranks, machine->nic_goodput_bytes_per_s);
        flights_ps = (inside - 1) * machine->nic_flight_ps;
    }
    if (nodes > 1) {
        const uint64_t node_ps =
            wire_ps((u128)bytes * (nodes - 1) / nodes, machine->nic_goodput_bytes_per_s * inside);
        if (node_ps > took_ps) took_ps = node_ps;
        flights_ps += (nodes - 1) * machine->nic_flight_ps;
    }
    return machine->costs.compute.collective_ps + times * (took_ps + flights_ps);
}

enum sim_padding sim_compute_padding(enum sim_padding wanted, const uint64_t *rows, uint32_t ranks,
                                     bool prefill)
{
    uint64_t sum = 0, max = 0;
    if (wanted != SIM_PADDING_AUTO) return wanted;
    for (uint32_t r = 0; r < ranks; r++) {
        sum += rows[r];
        if (rows[r] > max) max = rows[r];
    }
    if (prefill && ranks > 1) return SIM_PADDING_SUM;
    return 2 * sum > max * ranks ? SIM_PADDING_MAX : SIM_PADDING_SUM;
}
