/* kernels/ll_pack.cu - a rank's tokens cast into messages, and its count words.
 *
 * Twin of ref_ll_pack(). Message: 16-byte header (int32 source token, 12 bytes 0) | payload |
 * fp32 scales.
 *
 * Bytes that must move, a token of H channels: 2 H in, and the message out: 16 + H + H / 32 (FP8)
 * or 16 + 2 H. H 7168 FP8: 14336 + 7408, 5.1 ns at 4.28 TB/s.
 *
 * Launch: the first block of every rank counts its choices in shared memory (4 bytes an expert)
 * while the others cast: one launch, and the counting costs no time of its own. Casting walks over
 * steps of 512 channels of the launch's rows, FLIGHT of them a warp at once. */
#include "kernels/gpu_private.cuh"
#include "kernels/quantise.cuh"

enum { FLIGHT = 2, HEADER_BYTES = 16, STEP_VECTORS = STEP_CHANNELS / LANE_CHANNELS };

struct ll_pack {
    struct gpu_rule rule;
    const uint4 *x;       /* Row 0, as gpu_base. */
    uint8_t *staged;      /* Row 0. */
    uint64_t stride;      /* Of a message. */
    uint64_t first_row;   /* Rows of the launch. */
    uint32_t steps;       /* All rows' steps of 512 channels. */
    uint32_t row_steps;   /* A row's; the last may be partial. */
    uint32_t row_vectors; /* A row's eights of channels. */
    uint32_t first_rank, rank_count;
    uint32_t experts, topk;
    const uint64_t *starts;  /* token_start. */
    const int64_t *topk_idx; /* [tokens][topk] */
    int32_t *sent_words;     /* [ranks][experts], row 0 */
};

extern "C" uint64_t gpu_ll_message_stride(uint32_t hidden, uint32_t recipe)
{
    const uint64_t scales = recipe == GPU_RECIPE_BF16 ? 0 : gpu_scale_groups(hidden) * 4;
    return (HEADER_BYTES + gpu_payload_bytes(hidden, recipe) + scales + 15) / 16 * 16;
}

/* One block: how many choices of the rank each expert has, as -count - 1. */
static __device__ void count_words(const struct ll_pack &pack, uint32_t rank, uint32_t *counts)
{
    const uint64_t begin = pack.starts[rank] * pack.topk, end = pack.starts[rank + 1] * pack.topk;

    for (uint32_t e = threadIdx.x; e < pack.experts; e += blockDim.x) counts[e] = 0;
    __syncthreads();
    for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const int64_t idx = pack.topk_idx[i];
        if (idx >= 0 && idx < (int64_t)pack.experts) atomicAdd(&counts[idx], 1u);
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < pack.experts; e += blockDim.x)
        pack.sent_words[(uint64_t)rank * pack.experts + e] = -(int32_t)counts[e] - 1;
}

/* Where a step stands: its row, and the lane's first vector in the row. */
struct place {
    uint64_t row;
    uint32_t vector;
};

static __device__ __forceinline__ struct place place_of(const struct ll_pack &pack, uint32_t step)
{
    const uint32_t row = step / pack.row_steps;
    struct place place = {pack.first_row + row,
                          (step - row * pack.row_steps) * STEP_VECTORS + lane_id()};
    return place;
}

/* The warp that has a row's first step writes its header too. */
static __device__ __forceinline__ void write_header(const struct ll_pack &pack, struct place place,
                                                    uint8_t *message)
{
    if (place.vector >= WARP) return;
    const uint64_t *starts = pack.starts + pack.first_rank;
    const uint32_t rank = warp_find(starts, pack.rank_count, place.row);
    if (lane_id() == 0)
        store_once((uint4 *)message, make_uint4((uint32_t)(place.row - starts[rank]), 0, 0, 0));
}

template <bool CAST>
static __device__ __forceinline__ void write_step(const struct ll_pack &pack, struct place place,
                                                  const uint4 held[2])
{
    uint8_t *message = pack.staged + place.row * pack.stride;
    uint8_t *payload = message + HEADER_BYTES;
    uint2 codes[2];
    float stored[2];

    write_header(pack, place, message);
    if (CAST) quantise_step(pack.rule, held, codes, stored);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t v = place.vector + half * WARP;
        if (v >= pack.row_vectors) continue;
        if (!CAST) {
            store_once((uint4 *)payload + v, held[half]);
            continue;
        }
        __stcs((uint2 *)payload + v, codes[half]);
        if (v % LANES_PER_GROUP == 0)
            ((float *)(payload + pack.row_vectors * sizeof(uint2)))[v / LANES_PER_GROUP] =
                stored[half];
    }
}

template <bool CAST>
static __global__ void __launch_bounds__(GPU_THREADS) ll_pack_kernel(struct ll_pack pack)
{
    extern __shared__ uint32_t counts[];
    if (blockIdx.x < pack.rank_count) {
        count_words(pack, pack.first_rank + blockIdx.x, counts);
        return;
    }
    const uint32_t counting = pack.rank_count * GPU_WARPS;
    const uint32_t warp = (uint32_t)grid_warp() - counting;
    const uint32_t warps = (uint32_t)grid_warps() - counting;

    for (uint32_t base = warp * FLIGHT; base < pack.steps; base += warps * FLIGHT) {
        uint4 held[FLIGHT][2];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const struct place place = place_of(pack, base + f);
                const uint32_t v = place.vector + half * WARP;
                held[f][half] = make_uint4(0, 0, 0, 0);
                if (base + f < pack.steps && v < pack.row_vectors)
                    held[f][half] = load_once(pack.x + place.row * pack.row_vectors + v);
            }
#pragma unroll
        for (int f = 0; f < FLIGHT; f++)
            if (base + f < pack.steps) write_step<CAST>(pack, place_of(pack, base + f), held[f]);
    }
}

extern "C" int gpu_ll_pack(struct gpu *gpu, const struct gpu_routing *routing, uint32_t rank,
                           uint32_t rank_count, uint32_t hidden, uint32_t recipe,
                           const struct gpu_buffer *x, struct gpu_buffer *staged,
                           struct gpu_buffer *sent_words, char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    assert(hidden % GPU_GROUP_CHANNELS == 0 && x->row_bytes == 2 * (uint64_t)hidden);
    assert(staged->row_bytes == gpu_ll_message_stride(hidden, recipe));
    assert(sent_words->row_bytes == routing->experts * sizeof(int32_t));
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        const uint64_t first = gpu_first_row(x, &span), rows = gpu_end_row(x, &span) - first;
        const uint32_t row_steps = (hidden + STEP_CHANNELS - 1) / STEP_CHANNELS;
        const uint32_t ranks = span.end - span.first;
        struct ll_pack pack;
        assert(rows * row_steps < UINT32_MAX / 2);
        pack.rule = gpu_recipe_of(recipe).rule;
        pack.x = (const uint4 *)gpu_base(x, &span);
        pack.staged = gpu_base(staged, &span);
        pack.stride = staged->row_bytes;
        pack.first_row = first;
        pack.steps = (uint32_t)(rows * row_steps);
        pack.row_steps = row_steps;
        pack.row_vectors = hidden / LANE_CHANNELS;
        pack.first_rank = span.first;
        pack.rank_count = ranks;
        pack.experts = routing->experts;
        pack.topk = routing->topk;
        pack.starts = (const uint64_t *)gpu_base(routing->starts, &span);
        pack.topk_idx = (const int64_t *)gpu_base(routing->topk_idx, &span);
        pack.sent_words = (int32_t *)gpu_base(sent_words, &span);
        const uint32_t shared_bytes = routing->experts * sizeof(uint32_t);
        const uint64_t warps = pack.steps / FLIGHT + 1;
        if (recipe == GPU_RECIPE_BF16)
            GPU_LAUNCH(ll_pack_kernel<false>,
                       ranks + gpu_grid(device, warps, ll_pack_kernel<false>, shared_bytes),
                       GPU_THREADS, shared_bytes, device->stream, pack);
        else
            GPU_LAUNCH(ll_pack_kernel<true>,
                       ranks + gpu_grid(device, warps, ll_pack_kernel<true>, shared_bytes),
                       GPU_THREADS, shared_bytes, device->stream, pack);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
