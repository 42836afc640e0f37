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
 * steps of 512 channels of the launch's rows; a warp's next step is on its way while it casts the
 * last. */
#include "kernels/gpu_private.cuh"
#include "kernels/quantise.cuh"

#ifndef PACK_BLOCKS
#define PACK_BLOCKS 6
#endif
enum { HEADER_BYTES = 16 };
enum { NO_CAST = -1 }; /* Beside enum cast_form: BF16 rows as they are. */

struct ll_pack {
    struct gpu_rule rule;
    const uint4 *x;     /* Row 0, as gpu_base. */
    uint8_t *staged;    /* Payload of row 0. */
    uint64_t stride;    /* Of a message. */
    uint64_t first_row; /* Rows of the launch. */
    uint32_t steps;     /* All rows' steps of 512 channels. */
    uint32_t row_steps; /* A row's; the last may be partial. */
    uint32_t row_lanes; /* A row's sixteens of channels. */
    uint32_t inverse;   /* 2^32 / row_steps, rounded up: step * inverse >> 32 is its row. */
    uint32_t first_rank, rank_count;
    uint32_t experts, topk;
    const uint64_t *starts;  /* token_start. */
    const int64_t *topk_idx; /* [tokens][topk] */
    int32_t *sent_words;     /* [ranks][experts], row 0 */
};

extern "C" struct gpu_slot gpu_ll_message(uint32_t hidden, uint32_t recipe)
{
    const uint64_t scales = recipe == GPU_RECIPE_BF16 ? 0 : gpu_scale_groups(hidden) * 4;
    const uint64_t body = gpu_payload_bytes(hidden, recipe) + scales;
    struct gpu_slot slot;

    slot.row_bytes = gpu_whole_lines(GPU_LINE_BYTES + body);
    slot.lead = GPU_LINE_BYTES - HEADER_BYTES;
    slot.bytes = HEADER_BYTES + body;
    return slot;
}

extern "C" struct gpu_slot gpu_ll_answer(uint32_t hidden)
{
    const struct gpu_slot slot = {2 * (uint64_t)hidden, 0, 2 * (uint64_t)hidden};
    assert(slot.row_bytes % GPU_LINE_BYTES == 0);
    return slot;
}

/* One block: how many choices of the rank each expert has, as -count - 1. */
static __device__ void count_words(const struct ll_pack &pack, uint32_t rank, uint32_t *counts)
{
    const uint64_t begin = pack.starts[rank] * pack.topk, end = pack.starts[rank + 1] * pack.topk;

    for (uint32_t e = threadIdx.x; e < pack.experts; e += blockDim.x) counts[e] = 0;
    __syncthreads();
#pragma unroll 4
    for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const int64_t idx = pack.topk_idx[i];
        if (idx >= 0 && idx < (int64_t)pack.experts) atomicAdd(&counts[idx], 1u);
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < pack.experts; e += blockDim.x)
        pack.sent_words[(uint64_t)rank * pack.experts + e] = -(int32_t)counts[e] - 1;
}

/* Where a step stands: its row, and the lane's sixteen channels in the row. */
struct place {
    uint64_t row;
    uint32_t lane;
};

static __device__ __forceinline__ struct place place_of(const struct ll_pack &pack, uint32_t step)
{
    const uint32_t row = pack.row_steps == 1 ? step : __umulhi(step, pack.inverse);
    struct place place = {pack.first_row + row, (step - row * pack.row_steps) * WARP + lane_id()};
    return place;
}

static __device__ __forceinline__ void load_step(const struct ll_pack &pack, struct place place,
                                                 uint32_t step, uint4 held[2])
{
    const uint4 *from = pack.x + (place.row * pack.row_lanes + place.lane) * 2;
    held[0] = held[1] = make_uint4(0, 0, 0, 0);
    if (step >= pack.steps || place.lane >= pack.row_lanes) return;
    held[0] = load_once(from);
    held[1] = load_once(from + 1);
}

/* The warp that has a row's first step writes its header too, with the 16 bytes before it: a whole
 * sector. */
static __device__ __forceinline__ void write_header(const struct ll_pack &pack, struct place place,
                                                    uint8_t *payload)
{
    const uint64_t *starts = pack.starts + pack.first_rank;
    const uint32_t rank = warp_find(starts, pack.rank_count, place.row);
    const uint32_t token = lane_id() == 1 ? (uint32_t)(place.row - starts[rank]) : 0;
    if (lane_id() < 2)
        store_once((uint4 *)(payload - 2 * HEADER_BYTES) + lane_id(), make_uint4(token, 0, 0, 0));
}

template <int FORM>
static __device__ __forceinline__ void write_step(const struct ll_pack &pack, struct place place,
                                                  const uint4 held[2])
{
    uint8_t *payload = pack.staged + place.row * pack.stride;
    const bool inside = place.lane < pack.row_lanes;

    if (FORM == NO_CAST) {
        if (inside) {
            store_once((uint4 *)payload + 2 * place.lane, held[0]);
            store_once((uint4 *)payload + 2 * place.lane + 1, held[1]);
        }
    } else {
        uint4 codes;
        const float stored = quantise_step<(enum cast_form)FORM>(pack.rule, held, &codes);
        float *scales = (float *)(payload + pack.row_lanes * sizeof(uint4));
        if (inside) store_once((uint4 *)payload + place.lane, codes);
        if (inside && place.lane % LANES_PER_GROUP == 0)
            scales[place.lane / LANES_PER_GROUP] = stored;
    }
    if (place.lane < WARP) write_header(pack, place, payload);
}

template <int FORM>
static __global__ void __launch_bounds__(GPU_THREADS, FORM == CAST_LL ? PACK_BLOCKS : 1)
    ll_pack_kernel(struct ll_pack pack)
{
    extern __shared__ uint32_t counts[];
    if (blockIdx.x < pack.rank_count) {
        count_words(pack, pack.first_rank + blockIdx.x, counts);
        return;
    }
    const uint32_t counting = pack.rank_count * GPU_WARPS;
    const uint32_t warp = (uint32_t)grid_warp() - counting;
    const uint32_t warps = (uint32_t)grid_warps() - counting;

    struct place place = place_of(pack, warp), after;
    uint4 held[2], next[2];
    load_step(pack, place, warp, held);
    for (uint32_t step = warp; step < pack.steps; step += warps) {
        after = place_of(pack, step + warps);
        load_step(pack, after, step + warps, next);
        write_step<FORM>(pack, place, held);
        place = after;
        held[0] = next[0];
        held[1] = next[1];
    }
}

template <int FORM>
static int launch(const struct gpu_device *device, const struct ll_pack *pack, char *err,
                  size_t err_len)
{
    const uint32_t shared_bytes = pack->experts * sizeof(uint32_t);
    const uint64_t warps = pack->steps + 1;

    GPU_LAUNCH(ll_pack_kernel<FORM>,
               pack->rank_count + gpu_grid(device, warps, ll_pack_kernel<FORM>, shared_bytes),
               GPU_THREADS, shared_bytes, device->stream, *pack);
    GPU_TRY(cudaGetLastError());
    return 0;
}

static int launch_form(const struct gpu_device *device, const struct ll_pack *pack, char *err,
                       size_t err_len)
{
    if (pack->rule.kind == GPU_SCALE_NONE) return launch<NO_CAST>(device, pack, err, err_len);
    switch (cast_form_of(&pack->rule)) {
    case CAST_LL: return launch<CAST_LL>(device, pack, err, err_len);
    case CAST_MULTIPLY: return launch<CAST_MULTIPLY>(device, pack, err, err_len);
    default: return launch<CAST_DIVIDE>(device, pack, err, err_len);
    }
}

extern "C" int gpu_ll_pack(struct gpu *gpu, const struct gpu_routing *routing, uint32_t rank,
                           uint32_t rank_count, uint32_t hidden, uint32_t recipe,
                           const struct gpu_buffer *x, struct gpu_buffer *staged,
                           struct gpu_buffer *sent_words, char *err, size_t err_len)
{
    const struct gpu_slot slot = gpu_ll_message(hidden, recipe);
    struct gpu_span span = gpu_span_before(rank);

    assert(hidden % GPU_GROUP_CHANNELS == 0 && x->row_bytes == 2 * (uint64_t)hidden);
    assert(staged->row_bytes == slot.row_bytes);
    assert(sent_words->row_bytes == routing->experts * sizeof(int32_t));
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const uint64_t first = gpu_first_row(x, &span), rows = gpu_end_row(x, &span) - first;
        const uint32_t row_steps = (hidden + STEP_CHANNELS - 1) / STEP_CHANNELS;
        struct ll_pack pack;
        assert(rows * row_steps < UINT32_MAX / row_steps); /* Or the inverse would be too coarse. */
        pack.rule = gpu_recipe_of(recipe).rule;
        pack.x = (const uint4 *)gpu_base(x, &span);
        pack.staged = gpu_base(staged, &span) + GPU_LINE_BYTES;
        pack.stride = slot.row_bytes;
        pack.first_row = first;
        pack.steps = (uint32_t)(rows * row_steps);
        pack.row_steps = row_steps;
        pack.row_lanes = hidden / LANE_CHANNELS;
        pack.inverse = (uint32_t)(((UINT64_C(1) << 32) + row_steps - 1) / row_steps);
        pack.first_rank = span.first;
        pack.rank_count = span.end - span.first;
        pack.experts = routing->experts;
        pack.topk = routing->topk;
        pack.starts = (const uint64_t *)gpu_base(routing->starts, &span);
        pack.topk_idx = (const int64_t *)gpu_base(routing->topk_idx, &span);
        pack.sent_words = (int32_t *)gpu_base(sent_words, &span);
        if (launch_form(&gpu->device[span.device], &pack, err, err_len) != 0) return -1;
    }
    return 0;
}
