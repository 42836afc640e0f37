/* sim/bench_kernels.c - times each kernel of the driven transport. */
#include "sim/bench_kernels.h"

#include "gen/config.h"

#if EPSIM_CUDA
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/quantise.h"
#include "sim/backend_cuda.h"
#include "sim/bench_grouped.h"
#include "sim/generator.h"
#include "sim/rng.h"

enum { EXPERTS = 256, TOPK = 8, HIDDEN = 7168, NODE_RANKS = 8 };

struct bench {
    struct backend_cuda *state;
    struct sim_layer_input input;
    struct ref_routing routing;
    struct sim_traffic traffic;
    struct sim_arena starts, idx, weights, x;
    struct sim_bench_kernels *out;
};

typedef int (*bench_fn)(struct bench *bench, char *err, size_t err_len);

static int pack(struct bench *bench, char *err, size_t err_len)
{
    struct gpu_buffer **part = bench->state->part;
    return gpu_ll_pack(bench->state->gpu, &bench->state->routing, 0, bench->routing.ranks, HIDDEN,
                       REF_RECIPE_LL, part[CUDA_X], part[CUDA_STAGED], part[CUDA_SENT_WORDS], err,
                       err_len);
}

static int quantise(struct bench *bench, char *err, size_t err_len)
{
    struct gpu_buffer **part = bench->state->part;
    return gpu_quantise(bench->state->gpu, REF_RECIPE_LL, 0, bench->routing.ranks, HIDDEN,
                        part[CUDA_X], part[CUDA_CODES], part[CUDA_CODE_SCALES], err, err_len);
}

static int normal_pack(struct bench *bench, char *err, size_t err_len)
{
    struct gpu_buffer **part = bench->state->part;
    return gpu_normal_pack(bench->state->gpu, &bench->state->routing, NODE_RANKS, 0,
                           bench->routing.ranks, &bench->state->dispatch_record, part[CUDA_CODES],
                           part[CUDA_CODE_SCALES], part[CUDA_STAGED], part[CUDA_SENT_WORDS], err,
                           err_len);
}

static int deliver(struct bench *bench, char *err, size_t err_len)
{
    return gpu_deliver_again(bench->state->gpu, err, err_len);
}

/* One rank range: all. The phases know what the mode does. */
static int unpack(struct bench *bench, char *err, size_t err_len)
{
    return backend_cuda_unpack_ranks(bench->state, SIM_DISPATCH, 0, bench->routing.ranks, err,
                                     err_len);
}

static int combine_pack(struct bench *bench, char *err, size_t err_len)
{
    return backend_cuda_pack_ranks(bench->state, SIM_COMBINE, 0, bench->routing.ranks, err,
                                   err_len);
}

static int forward(struct bench *bench, char *err, size_t err_len)
{
    return backend_cuda_forward_ranks(bench->state, SIM_COMBINE, 0, bench->routing.ranks, err,
                                      err_len);
}

static int combine(struct bench *bench, char *err, size_t err_len)
{
    return backend_cuda_unpack_ranks(bench->state, SIM_COMBINE, 0, bench->routing.ranks, err,
                                     err_len);
}

struct launch {
    struct bench *bench;
    bench_fn work;
};

static int run_launch(void *context, char *err, size_t err_len)
{
    const struct launch *launch = (const struct launch *)context;
    return launch->work(launch->bench, err, err_len);
}

static int measure(struct bench *bench, const char *name, bench_fn work, uint64_t bytes,
                   uint32_t rounds, char *err, size_t err_len)
{
    struct launch launch = {bench, work};
    struct sim_bench_kernel kernel = {.ranks = bench->routing.ranks, .bytes = bytes};

    kernel.tokens = (uint32_t)(bench->routing.token_start[kernel.ranks] / kernel.ranks);
    snprintf(kernel.name, sizeof kernel.name, "%s", name);
    snprintf(kernel.mode, sizeof kernel.mode, "%s",
             bench->traffic.mode == SIM_MODE_LL ? "ll" : "normal");
    return sim_bench_kernel_time(bench->state->gpu, run_launch, &launch, &kernel, rounds,
                                 bench->out, err, err_len);
}

/* Put the moves of one hop on the GPU by delivering once. */
static int land(struct bench *bench, enum sim_direction direction, uint8_t hop, char *err,
                size_t err_len)
{
    const struct sim_message *messages = bench->traffic.messages[direction];
    uint64_t first = 0, count = 0;

    while (first < bench->traffic.message_count[direction] && messages[first].hop != hop) first++;
    while (first + count < bench->traffic.message_count[direction] &&
           messages[first + count].hop == hop)
        count++;
    return backend_cuda_deliver(bench->state, direction, messages + first, count, err, err_len);
}

static int measure_ll(struct bench *bench, uint32_t rounds, char *err, size_t err_len)
{
    const uint64_t tokens = ref_token_count(&bench->routing), rows = bench->traffic.received_rows;
    const uint64_t message = gpu_ll_message(HIDDEN, REF_RECIPE_LL).bytes;
    const uint64_t bf16 = 2 * HIDDEN, row = HIDDEN + HIDDEN / 32 + 4;

    if (measure(bench, "pack", pack, tokens * (bf16 + message), rounds, err, err_len) != 0 ||
        land(bench, SIM_DISPATCH, 0, err, err_len) != 0 ||
        measure(bench, "deliver", deliver, (tokens + rows) * message, rounds, err, err_len) != 0 ||
        gpu_deliver_counts(bench->state->gpu, EXPERTS, 0, bench->routing.ranks,
                           bench->state->part[CUDA_SENT_WORDS],
                           bench->state->part[CUDA_LANDED_WORDS], err, err_len) != 0 ||
        measure(bench, "unpack", unpack, rows * (message + row), rounds, err, err_len) != 0 ||
        backend_cuda_experts(bench->state, 0, bench->routing.ranks, err, err_len) != 0 ||
        measure(bench, "combine pack", combine_pack, rows * 2 * bf16, rounds, err, err_len) != 0 ||
        land(bench, SIM_COMBINE, 0, err, err_len) != 0 ||
        measure(bench, "combine deliver", deliver, rows * 2 * bf16, rounds, err, err_len) != 0)
        return -1;
    return measure(bench, "combine", combine, (rows + tokens) * bf16, rounds, err, err_len);
}

static int measure_normal(struct bench *bench, uint32_t rounds, char *err, size_t err_len)
{
    const uint64_t tokens = ref_token_count(&bench->routing), rows = bench->traffic.received_rows;
    const uint64_t rails = bench->traffic.rail_rows, homes = bench->traffic.home_rows;
    const uint64_t record = bench->state->dispatch_record.bytes;
    const uint64_t answer = bench->state->combine_record.bytes;
    const uint64_t bf16 = 2 * HIDDEN, cast = HIDDEN + HIDDEN / 32, columns = 12 * TOPK;
    const uint8_t last_hop = rails > 0 ? 1 : 0;

    if (measure(bench, "quantise", quantise, tokens * (bf16 + cast), rounds, err, err_len) != 0 ||
        measure(bench, "pack", normal_pack, tokens * (cast + columns + record), rounds, err,
                err_len) != 0 ||
        land(bench, SIM_DISPATCH, 0, err, err_len) != 0 ||
        measure(bench, "deliver", deliver, (tokens + (rails > 0 ? rails : rows)) * record, rounds,
                err, err_len) != 0)
        return -1;
    if (rails > 0 && (land(bench, SIM_DISPATCH, 1, err, err_len) != 0 ||
                      measure(bench, "deliver hop 2", deliver, (rails + rows) * record, rounds, err,
                              err_len) != 0))
        return -1;
    if (gpu_deliver_counts(bench->state->gpu, bench->routing.ranks, 0, bench->routing.ranks,
                           bench->state->part[CUDA_SENT_WORDS],
                           bench->state->part[CUDA_LANDED_WORDS], err, err_len) != 0 ||
        measure(bench, "unpack", unpack, rows * (record + cast + columns + 4), rounds, err,
                err_len) != 0 ||
        backend_cuda_experts(bench->state, 0, bench->routing.ranks, err, err_len) != 0 ||
        measure(bench, "combine pack", combine_pack, rows * (bf16 + 4 * TOPK + answer), rounds, err,
                err_len) != 0 ||
        land(bench, SIM_COMBINE, 0, err, err_len) != 0)
        return -1;
    if (rails > 0 &&
        (measure(bench, "forward", forward, (rows + rails) * answer, rounds, err, err_len) != 0 ||
         land(bench, SIM_COMBINE, last_hop, err, err_len) != 0))
        return -1;
    return measure(bench, "combine", combine, homes * answer + tokens * (bf16 + 4 * TOPK), rounds,
                   err, err_len);
}

/* Routing and rows of one shape, drawn anew. */
static int draw(struct bench *bench, uint32_t ranks, uint32_t tokens, char *err, size_t err_len)
{
    const struct sim_generator generator = {SIM_GENERATOR_UNIFORM, 0, EXPERTS, TOPK, 1, ranks};
    const uint64_t all = (uint64_t)ranks * tokens;

    if (sim_arena_reserve(&bench->starts, ranks + 1, sizeof(uint64_t), err, err_len) != 0 ||
        sim_arena_reserve(&bench->idx, all, TOPK * sizeof(int64_t), err, err_len) != 0 ||
        sim_arena_reserve(&bench->weights, all, TOPK * sizeof(float), err, err_len) != 0 ||
        sim_arena_reserve(&bench->x, all, 2 * HIDDEN, err, err_len) != 0)
        return -1;
    uint64_t *starts = (uint64_t *)(void *)bench->starts.bytes;
    int64_t *idx = (int64_t *)(void *)bench->idx.bytes;
    float *weights = (float *)(void *)bench->weights.bytes;
    uint64_t *x = (uint64_t *)(void *)bench->x.bytes;
    struct sim_rng rng = sim_rng_stream(ranks, tokens, 0, 0, 0);
    for (uint32_t r = 0; r <= ranks; r++) starts[r] = (uint64_t)r * tokens;
    for (uint32_t r = 0; r < ranks; r++)
        sim_generator_draw(&generator, 0, 0, r, tokens, idx + (uint64_t)r * tokens * TOPK);
    for (uint64_t i = 0; i < all * TOPK; i++)
        weights[i] = (float)(1 + sim_rng_below(&rng, 255)) / 256.0f;
    for (uint64_t i = 0; i < all * HIDDEN / 4; i++) /* Four of +-[0.5, 4). */
        x[i] = UINT64_C(0x3F003F003F003F00) + (sim_rng_next(&rng) & UINT64_C(0x80FF80FF80FF80FF));
    bench->routing = (struct ref_routing){ranks, EXPERTS, TOPK, starts, idx, weights};
    return 0;
}

static int run_shape(struct bench *bench, enum sim_mode mode, uint32_t rounds, char *err,
                     size_t err_len)
{
    const struct sim_traffic_shape shape = {
        .mode = mode, .ranks_per_node = NODE_RANKS, .nvlink = true};
    int status = -1;

    if (sim_traffic_build(&bench->routing, &shape, &bench->traffic, err, err_len) != 0) return -1;
    bench->input = (struct sim_layer_input){.routing = &bench->routing,
                                            .traffic = &bench->traffic,
                                            .hidden = HIDDEN,
                                            .recipe = REF_RECIPE_LL,
                                            .expert = SIM_EXPERT_STANDIN,
                                            .x = (const uint16_t *)(const void *)bench->x.bytes};
    if (backend_cuda_layer(bench->state, &bench->input, err, err_len) != 0) goto free_traffic;
    status = mode == SIM_MODE_LL ? measure_ll(bench, rounds, err, err_len)
                                 : measure_normal(bench, rounds, err, err_len);
free_traffic:
    sim_traffic_free(&bench->traffic);
    return status;
}

int sim_bench_kernels_run(uint32_t rounds, struct sim_bench_kernels *out, char *err, size_t err_len)
{
    static const uint32_t SHAPES[][2] = {{8, 128}, {8, 1024}, {32, 128}, {32, 1024}};
    const struct sim_backend_ops *ops = sim_backend_cuda();
    struct bench bench;
    struct gpu_info info;
    void *state = NULL;
    int status = -1;

    memset(&bench, 0, sizeof bench);
    memset(out, 0, sizeof *out);
    if (ops->open(ops, &state, err, err_len) != 0) return -1;
    bench.state = (struct backend_cuda *)state;
    bench.out = out;
    if (sim_backend_cuda_describe(state, &info, err, err_len) != 0) goto close_state;
    snprintf(out->gpu, sizeof out->gpu, "%s", info.name);
    status = 0;
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0] && status == 0; i++) {
        if (draw(&bench, SHAPES[i][0], SHAPES[i][1], err, err_len) != 0 ||
            run_shape(&bench, SIM_MODE_LL, rounds, err, err_len) != 0 ||
            run_shape(&bench, SIM_MODE_NORMAL, rounds, err, err_len) != 0 ||
            sim_bench_grouped(bench.state->gpu, SHAPES[i][0], SHAPES[i][1], rounds, out, err,
                              err_len) != 0)
            status = -1;
    }
    sim_arena_free(&bench.starts);
    sim_arena_free(&bench.idx);
    sim_arena_free(&bench.weights);
    sim_arena_free(&bench.x);
close_state:
    ops->close(state);
    return status;
}
#else
#include <stdio.h>

int sim_bench_kernels_run(uint32_t rounds, struct sim_bench_kernels *bench, char *err,
                          size_t err_len)
{
    (void)rounds;
    (void)bench;
    snprintf(err, err_len, "kernels: not in this build; `make CUDA=1` with nvcc has them");
    return -1;
}
#endif
