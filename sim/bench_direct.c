/* sim/bench_direct.c - times each operation of the direct transport. */
#include "sim/bench_direct.h"

#include "gen/config.h"

#if EPSIM_CUDA
#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/direct.h"
#include "ref/layout.h"
#include "ref/ll.h"
#include "ref/normal.h"
#include "ref/quantise.h"
#include "sim/arena.h"
#include "sim/bench_launch.h"
#include "sim/generator.h"
#include "sim/rng.h"
#include "sim/sorted.h"

enum { SETS = 3, RANKS = 2, EXPERTS = 64, TOPK = 8, HIDDEN = 7168, ROUNDS_MAX = 200, WARM_UP = 3 };
enum { BF16_BYTES = 2 * HIDDEN, SCALE_BYTES = HIDDEN / 32, WORD_BYTES = 4 * TOPK };

enum part {
    X, /* SETS of them, and of the next. */
    IDX = X + SETS,
    STARTS = IDX + SETS,
    WEIGHTS,
    PAYLOAD,
    SCALES,
    SRC_TOKEN,
    COUNTS,
    EXPERT_OUT,
    COMBINED,
    TOKEN_SCALES,
    PARTS
};

enum operation { DISPATCH, DISPATCH_SEND, DISPATCH_RECEIVE, COMBINE, LAYOUT };

struct bench {
    struct gpu *gpu;
    struct gpu_direct *direct;
    struct ref_routing host[SETS];
    struct gpu_routing routing[SETS];
    struct sim_arena idx[SETS], rows;
    uint64_t starts[RANKS + 1];
    uint64_t received_start[RANKS + 1]; /* Room for any of the sets. */
    uint64_t blocks[EXPERTS * RANKS + 1];
    uint32_t tokens;
    uint64_t payload_bytes; /* Of a received row. */
    bool normal;
    struct sim_bench_direct *out;
};

/* One row of the table. */
struct item {
    const char *name;
    enum operation operation;
    uint32_t recipe;
    uint32_t sms;
    uint64_t deepep_ns;
};

static int upload_random(struct bench *bench, enum part part, uint64_t bytes, char *err,
                         size_t err_len)
{
    struct sim_rng rng = sim_rng_stream(bench->tokens, part, bytes, 0, 0);

    if (sim_arena_reserve(&bench->rows, bytes, 1, err, err_len) != 0) return -1;
    uint64_t *words = (uint64_t *)(void *)bench->rows.bytes;
    for (uint64_t i = 0; i < bytes / sizeof *words; i++) /* Four of +-[0.5, 4). */
        words[i] =
            UINT64_C(0x3F003F003F003F00) + (sim_rng_next(&rng) & UINT64_C(0x80FF80FF80FF80FF));
    if (gpu_write(bench->gpu, gpu_plan_buffer(bench->gpu, part), words, err, err_len) != 0)
        return -1;
    return gpu_wait(bench->gpu, err, err_len);
}

static int draw(struct bench *bench, char *err, size_t err_len)
{
    uint64_t most[RANKS] = {0, 0};

    for (uint32_t r = 0; r <= RANKS; r++) bench->starts[r] = (uint64_t)r * bench->tokens;
    for (uint32_t s = 0; s < SETS; s++) {
        const struct sim_generator generator = {SIM_GENERATOR_UNIFORM, 0, EXPERTS, TOPK, 1, s + 1};
        const uint64_t step = bench->normal ? RANKS : EXPERTS;
        if (sim_arena_reserve(&bench->idx[s], bench->starts[RANKS], TOPK * sizeof(int64_t), err,
                              err_len) != 0)
            return -1;
        int64_t *idx = (int64_t *)(void *)bench->idx[s].bytes;
        for (uint32_t r = 0; r < RANKS; r++)
            sim_generator_draw(&generator, 0, 0, r, bench->tokens, idx + bench->starts[r] * TOPK);
        bench->host[s] = (struct ref_routing){RANKS, EXPERTS, TOPK, bench->starts, idx, NULL};
        (void)(bench->normal ? ref_normal_blocks : ref_ll_blocks)(&bench->host[s], bench->blocks);
        for (uint32_t r = 0; r < RANKS; r++) {
            const uint64_t rows = bench->blocks[(r + 1) * step] - bench->blocks[r * step];
            if (rows > most[r]) most[r] = rows;
        }
    }
    for (uint32_t r = 0; r < RANKS; r++)
        bench->received_start[r + 1] = bench->received_start[r] + most[r];
    return 0;
}

static int plan(struct bench *bench, char *err, size_t err_len)
{
    static const uint64_t each[RANKS + 1] = {0, 1, 2};
    const uint64_t *tokens = bench->starts, *rows = bench->received_start;
    const uint64_t token_bytes = bench->normal ? bench->payload_bytes : BF16_BYTES;
    struct gpu_part parts[PARTS] = {
        [STARTS] = {NULL, RANKS + 1, sizeof(uint64_t)},
        [WEIGHTS] = {NULL, tokens[RANKS], TOPK * sizeof(float)},
        [PAYLOAD] = {rows, 0, bench->payload_bytes},
        [SCALES] = {rows, 0, SCALE_BYTES},
        [SRC_TOKEN] = {rows, 0, sizeof(int32_t)},
        [COUNTS] = {each, 0, EXPERTS * sizeof(int32_t)},
        [EXPERT_OUT] = {rows, 0, BF16_BYTES},
        [COMBINED] = {tokens, 0, BF16_BYTES},
        [TOKEN_SCALES] = {tokens, 0, SCALE_BYTES},
    };

    for (uint32_t s = 0; s < SETS; s++) {
        parts[X + s] = (struct gpu_part){tokens, 0, token_bytes};
        parts[IDX + s] = (struct gpu_part){NULL, tokens[RANKS], TOPK * sizeof(int64_t)};
    }
    if (gpu_plan(bench->gpu, RANKS, parts, PARTS, err, err_len) != 0) return -1;
    for (uint32_t s = 0; s < SETS; s++) {
        struct gpu_buffer *idx = gpu_plan_buffer(bench->gpu, IDX + s);
        bench->routing[s] =
            (struct gpu_routing){.ranks = RANKS,
                                 .experts = EXPERTS,
                                 .topk = TOPK,
                                 .token_start = tokens,
                                 .starts = gpu_plan_buffer(bench->gpu, STARTS),
                                 .topk_idx = idx,
                                 .topk_weights = gpu_plan_buffer(bench->gpu, WEIGHTS)};
        if (gpu_write(bench->gpu, idx, bench->idx[s].bytes, err, err_len) != 0 ||
            upload_random(bench, (enum part)(X + s), tokens[RANKS] * token_bytes, err, err_len) !=
                0)
            return -1;
    }
    if (upload_random(bench, WEIGHTS, tokens[RANKS] * TOPK * sizeof(float), err, err_len) != 0)
        return -1;
    return upload_random(bench, EXPERT_OUT, rows[RANKS] * BF16_BYTES, err, err_len);
}

static int prepare(struct bench *bench, bool normal, uint32_t tokens, uint64_t payload_bytes,
                   char *err, size_t err_len)
{
    const struct gpu_direct_shape shape = {.ranks = RANKS,
                                           .experts = EXPERTS,
                                           .topk = TOPK,
                                           .hidden = HIDDEN,
                                           .tokens_max = tokens,
                                           .wait_ns = 2000000000,
                                           .ll = !normal};
    gpu_direct_close(bench->direct);
    bench->direct = NULL;
    bench->normal = normal;
    bench->tokens = tokens;
    bench->payload_bytes = payload_bytes;
    if (draw(bench, err, err_len) != 0 || plan(bench, err, err_len) != 0) return -1;
    return gpu_direct_open(bench->gpu, &shape, &bench->direct, err, err_len);
}

static int run_ll(struct bench *bench, enum operation operation, uint32_t recipe, uint32_t set,
                  char *err, size_t err_len)
{
    struct gpu *gpu = bench->gpu;
    const struct gpu_ll_rows rows = {.payload = gpu_plan_buffer(gpu, PAYLOAD),
                                     .scales = gpu_plan_buffer(gpu, SCALES),
                                     .src_token = gpu_plan_buffer(gpu, SRC_TOKEN),
                                     .counts = gpu_plan_buffer(gpu, COUNTS)};
    const enum gpu_direct_phase phase = operation == DISPATCH_SEND      ? GPU_DIRECT_SEND
                                        : operation == DISPATCH_RECEIVE ? GPU_DIRECT_RECEIVE
                                                                        : GPU_DIRECT_BOTH;
    if (operation == COMBINE)
        return gpu_direct_ll_combine(bench->direct, GPU_DIRECT_BOTH, &bench->routing[set],
                                     gpu_plan_buffer(gpu, EXPERT_OUT),
                                     gpu_plan_buffer(gpu, COMBINED), err, err_len);
    return gpu_direct_ll_dispatch(bench->direct, phase, &bench->routing[set], recipe,
                                  gpu_plan_buffer(gpu, X + set), &rows, err, err_len);
}

static int run_normal(struct bench *bench, enum operation operation, uint32_t recipe, uint32_t set,
                      char *err, size_t err_len)
{
    struct gpu *gpu = bench->gpu;
    const bool scaled = recipe != REF_RECIPE_BF16;
    const struct gpu_normal_rows rows = {.payload = gpu_plan_buffer(gpu, PAYLOAD),
                                         .scales = scaled ? gpu_plan_buffer(gpu, SCALES) : NULL};

    if (operation == LAYOUT)
        return gpu_direct_normal_layout(bench->direct, &bench->routing[set], NULL, err, err_len);
    if (operation == COMBINE)
        return gpu_direct_normal_combine(bench->direct, &bench->routing[set],
                                         gpu_plan_buffer(gpu, EXPERT_OUT), NULL, NULL, NULL,
                                         gpu_plan_buffer(gpu, COMBINED), NULL, err, err_len);
    return gpu_direct_normal_dispatch(
        bench->direct, &bench->routing[set], gpu_plan_buffer(gpu, X + set),
        scaled ? gpu_plan_buffer(gpu, TOKEN_SCALES) : NULL, &rows, err, err_len);
}

static int run(struct bench *bench, enum operation operation, uint32_t recipe, uint32_t set,
               char *err, size_t err_len)
{
    return (bench->normal ? run_normal : run_ll)(bench, operation, recipe, set, err, err_len);
}

/* What the operation needs to have happened, or to happen after it. */
static int run_before(struct bench *bench, const struct item *item, uint32_t set, char *err,
                      size_t err_len)
{
    if (bench->normal)
        return item->operation == LAYOUT ? 0 : run(bench, LAYOUT, item->recipe, set, err, err_len);
    if (item->operation == COMBINE) return run(bench, DISPATCH, item->recipe, set, err, err_len);
    if (item->operation != DISPATCH_RECEIVE) return 0;
    return run(bench, DISPATCH_SEND, item->recipe, set, err, err_len);
}

static int run_after(struct bench *bench, const struct item *item, uint32_t set, char *err,
                     size_t err_len)
{
    if (item->operation != DISPATCH_SEND) return 0;
    return run(bench, DISPATCH_RECEIVE, item->recipe, set, err, err_len);
}

static int time_once(struct bench *bench, const struct item *item, uint32_t set,
                     uint64_t *kernel_ns, uint64_t *event_ns, char *err, size_t err_len)
{
    uint64_t kernel[RANKS], event[RANKS];

    if (run_before(bench, item, set, err, err_len) != 0 ||
        gpu_flush(bench->gpu, err, err_len) != 0 ||
        gpu_direct_wait(bench->direct, err, err_len) != 0 ||
        gpu_direct_hold(bench->direct, err, err_len) != 0 ||
        run(bench, item->operation, item->recipe, set, err, err_len) != 0 ||
        gpu_direct_go(bench->direct, err, err_len) != 0 ||
        gpu_direct_times(bench->direct, kernel, event, err, err_len) != 0)
        return -1;
    *kernel_ns = (kernel[0] + kernel[1]) / RANKS;
    *event_ns = (event[0] + event[1]) / RANKS;
    return run_after(bench, item, set, err, err_len);
}

/* The last set's bytes; sets differ by less than a percent. */
static void count_bytes(struct bench *bench, const struct item *item,
                        struct sim_bench_direct_row *row)
{
    const struct ref_routing *routing = &bench->host[SETS - 1];
    const uint64_t cast = item->recipe == REF_RECIPE_BF16 ? BF16_BYTES : HIDDEN + SCALE_BYTES;
    uint64_t travelling[RANKS] = {0, 0}, away[RANKS] = {0, 0}, rows[RANKS] = {0, 0};

    for (uint64_t t = 0; t < bench->starts[RANKS]; t++) {
        const uint32_t home = t >= bench->starts[1];
        uint32_t ranks[REF_TOPK_MAX];
        const uint32_t count = ref_token_ranks(routing, t, ranks);
        for (uint32_t i = 0; i < count; i++) travelling[home] += ranks[i] != home;
        if (bench->normal)
            for (uint32_t i = 0; i < count; i++) rows[ranks[i]]++;
        for (uint32_t k = 0; k < TOPK && !bench->normal; k++) {
            const uint32_t owner = ref_expert_rank(routing, routing->topk_idx[t * TOPK + k]);
            rows[owner]++;
            away[home] += owner != home;
        }
    }
    const uint64_t *crossing = bench->normal || item->operation != COMBINE ? travelling : away;
    const uint64_t each = item->operation == COMBINE ? BF16_BYTES
                          : bench->normal            ? cast
                                                     : cast + WORD_BYTES;
    const uint64_t tokens = bench->tokens, most = rows[0] > rows[1] ? rows[0] : rows[1];
    if (item->operation == LAYOUT) return;
    row->nvlink_bytes = (crossing[0] > crossing[1] ? crossing[0] : crossing[1]) * each;
    row->memory_bytes = item->operation == COMBINE ? (most + tokens) * BF16_BYTES
                        : bench->normal            ? (tokens + most) * cast
                                                   : tokens * BF16_BYTES + most * cast;
    const uint64_t nvlink_ps = sim_bench_ps(row->nvlink_bytes, SIM_BENCH_NVLINK_BYTES_PER_S);
    const uint64_t memory_ps = sim_bench_ps(row->memory_bytes, SIM_BENCH_MEMORY_BYTES_PER_S);
    row->floor_ps = nvlink_ps > memory_ps ? nvlink_ps : memory_ps;
}

static int measure(struct bench *bench, const struct item *items, uint32_t count, uint32_t rounds,
                   char *err, size_t err_len)
{
    uint64_t kernel_ns[ROUNDS_MAX], event_ns[ROUNDS_MAX];

    assert(rounds >= 1 && rounds <= ROUNDS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        struct sim_bench_direct_row *row = &bench->out->rows[bench->out->count++];
        assert(bench->out->count <= SIM_BENCH_DIRECT_MAX);
        gpu_direct_set_sms(bench->direct, items[i].sms);
        /* Once without a hold: kernels are loaded then, which waits for what runs. */
        if (run_before(bench, &items[i], 0, err, err_len) != 0 ||
            run(bench, items[i].operation, items[i].recipe, 0, err, err_len) != 0 ||
            run_after(bench, &items[i], 0, err, err_len) != 0)
            return -1;
        for (uint32_t r = 0; r < WARM_UP + rounds; r++) {
            const uint32_t at = r < WARM_UP ? 0 : r - WARM_UP;
            if (time_once(bench, &items[i], r % SETS, &kernel_ns[at], &event_ns[at], err,
                          err_len) != 0)
                return -1;
        }
        memset(row, 0, sizeof *row);
        snprintf(row->name, sizeof row->name, "%s", items[i].name);
        snprintf(row->mode, sizeof row->mode, "%s", bench->normal ? "normal" : "ll");
        row->tokens = bench->tokens;
        row->sms = items[i].sms;
        row->kernel_ps = sim_median(kernel_ns, rounds) * 1000;
        row->event_ps = sim_median(event_ns, rounds) * 1000;
        row->deepep_ps = items[i].deepep_ns * 1000;
        count_bytes(bench, &items[i], row);
    }
    return 0;
}

static int run_ll_shapes(struct bench *bench, uint32_t rounds, char *err, size_t err_len)
{
    static const uint32_t tokens[] = {8, 128, 1024};
    static const uint64_t dispatch_ns[] = {10800, 27000, 163000};
    static const uint64_t combine_ns[] = {13000, 41400, 257000};

    for (uint32_t i = 0; i < 3; i++) {
        const struct item items[] = {
            {"dispatch fp8", DISPATCH, REF_RECIPE_LL, 0, dispatch_ns[i]},
            {"combine", COMBINE, REF_RECIPE_LL, 0, combine_ns[i]},
            {"dispatch bf16", DISPATCH, REF_RECIPE_BF16, 0, 0},
            {"dispatch fp8, send", DISPATCH_SEND, REF_RECIPE_LL, 0, 0},
            {"dispatch fp8, receive", DISPATCH_RECEIVE, REF_RECIPE_LL, 0, 0},
        };
        if (prepare(bench, false, tokens[i], BF16_BYTES, err, err_len) != 0 ||
            measure(bench, items, sizeof items / sizeof items[0], rounds, err, err_len) != 0)
            return -1;
    }
    return 0;
}

static int run_normal_shapes(struct bench *bench, uint32_t rounds, char *err, size_t err_len)
{
    static const uint32_t tokens[] = {1024, 4096}, sms[] = {20, 24};
    static const uint64_t deepep_ns[][3] = {{138000, 136000, 90000}, {361000, 396000, 274000}};

    for (uint32_t i = 0; i < 2; i++) {
        const struct item items[] = {
            {"layout", LAYOUT, REF_RECIPE_BF16, sms[i], 0},
            {"dispatch bf16", DISPATCH, REF_RECIPE_BF16, sms[i], deepep_ns[i][0]},
            {"combine", COMBINE, REF_RECIPE_BF16, sms[i], deepep_ns[i][1]},
        };
        const struct item cast = {"dispatch fp8", DISPATCH, REF_RECIPE_LL, sms[i], deepep_ns[i][2]};
        if (prepare(bench, true, tokens[i], BF16_BYTES, err, err_len) != 0 ||
            measure(bench, items, sizeof items / sizeof items[0], rounds, err, err_len) != 0 ||
            prepare(bench, true, tokens[i], HIDDEN, err, err_len) != 0 ||
            measure(bench, &cast, 1, rounds, err, err_len) != 0)
            return -1;
    }
    return 0;
}

int sim_bench_direct_run(uint32_t rounds, struct sim_bench_direct *out, char *err, size_t err_len)
{
    const struct gpu_options options = {.devices = RANKS, .mapping = GPU_MAP_BLOCKS};
    struct gpu_info info;
    struct bench bench;
    int status = -1;

    memset(&bench, 0, sizeof bench);
    memset(out, 0, sizeof *out);
    bench.out = out;
    if (gpu_open(&options, &bench.gpu, err, err_len) != 0) return -1;
    if (gpu_describe(bench.gpu, &info, err, err_len) == 0 &&
        run_ll_shapes(&bench, rounds, err, err_len) == 0)
        status = run_normal_shapes(&bench, rounds, err, err_len);
    if (status == 0) snprintf(out->gpu, sizeof out->gpu, "%s", info.name);
    gpu_direct_close(bench.direct);
    gpu_close(bench.gpu);
    for (uint32_t s = 0; s < SETS; s++) sim_arena_free(&bench.idx[s]);
    sim_arena_free(&bench.rows);
    return status;
}
#else
#include <stdio.h>

int sim_bench_direct_run(uint32_t rounds, struct sim_bench_direct *bench, char *err, size_t err_len)
{
    (void)rounds;
    (void)bench;
    snprintf(err, err_len, "kernels: not in this build; `make CUDA=1` with nvcc has them");
    return -1;
}
#endif
