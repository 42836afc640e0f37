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
 * flights of 1024 channels of the launch's rows as quantise.cu does. */
#include "kernels/gpu_private.cuh"
#include "kernels/quantise.cuh"
#include "kernels/stamp.cuh"

enum { HEADER_BYTES = 16, PACK_THREADS = 128, COUNT_LOADS = 16 };
enum { NO_CAST = -1 }; /* Beside enum cast_form: BF16 rows as they are. */

struct ll_pack {
    struct gpu_rule rule;
    const uint4 *x;       /* Row 0, as gpu_base. */
    uint8_t *staged;      /* Payload of row 0. */
    uint64_t stride;      /* Of a message. */
    uint64_t first_row;   /* Rows of the launch. */
    uint32_t flights;     /* All rows' flights of 1024 channels. */
    uint32_t row_flights; /* A row's; the last may be partial. */
    uint32_t row_vectors; /* Of x. */
    uint32_t inverse;     /* 2^32 / row_flights, rounded up: flight * inverse >> 32 is its row. */
    uint32_t first_rank, rank_count;
    uint32_t experts, topk;
    const uint64_t *starts;  /* token_start. */
    const int64_t *topk_idx; /* [tokens][topk] */
    int32_t *sent_words;     /* [ranks][experts], row 0 */
    uint64_t *stamps;
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
    for (uint64_t at = begin + threadIdx.x; at < end; at += COUNT_LOADS * blockDim.x) {
        int64_t idx[COUNT_LOADS]; /* All under way before the first is counted. */
#pragma unroll
        for (uint32_t i = 0; i < COUNT_LOADS; i++)
            idx[i] = at + i * blockDim.x < end ? pack.topk_idx[at + i * blockDim.x] : -1;
#pragma unroll
        for (uint32_t i = 0; i < COUNT_LOADS; i++)
            if (idx[i] >= 0 && idx[i] < (int64_t)pack.experts) atomicAdd(&counts[idx[i]], 1u);
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < pack.experts; e += blockDim.x)
        pack.sent_words[(uint64_t)rank * pack.experts + e] = -(int32_t)counts[e] - 1;
}

/* The warp that has a row's first flight writes its header too, with the 16 bytes before it: a
 * whole sector. */
static __device__ __forceinline__ void write_header(const struct ll_pack &pack, uint64_t row,
                                                    uint8_t *payload)
{
    const uint64_t *starts = pack.starts + pack.first_rank;
    const uint32_t rank = warp_find(starts, pack.rank_count, row);
    const uint32_t token = lane_id() == 1 ? (uint32_t)(row - starts[rank]) : 0;
    if (lane_id() < 2)
        store_once((uint4 *)(payload - 2 * HEADER_BYTES) + lane_id(), make_uint4(token, 0, 0, 0));
}

template <int FORM>
static __device__ __forceinline__ void pack_flight(const struct ll_pack &pack, uint32_t index)
{
    const uint32_t row_index = pack.row_flights == 1 ? index : __umulhi(index, pack.inverse);
    const uint32_t begin = (index - row_index * pack.row_flights) * FLIGHT_VECTORS;
    const uint64_t row = pack.first_row + row_index;
    const uint32_t at = begin + lane_id();
    const int32_t left = (int32_t)pack.row_vectors - (int32_t)at;
    uint8_t *payload = pack.staged + row * pack.stride;
    struct cast_flight flight;

    flight.load(pack.x + row * pack.row_vectors + at, left);
    if (begin == 0) write_header(pack, row, payload);
    if (FORM == NO_CAST) {
        flight.copy((uint4 *)payload + at, left);
    } else {
        float *scales = (float *)(payload + pack.row_vectors * sizeof(uint2));
        flight.cast<(enum cast_form)FORM>(pack.rule, (uint2 *)payload + at,
                                          scales + begin / HALF_LANES, left);
    }
}

template <int FORM>
static __global__ void __launch_bounds__(PACK_THREADS, FORM == CAST_LL ? 8 : 4)
    ll_pack_kernel(struct ll_pack pack)
{
    extern __shared__ uint32_t counts[];
    const kernel_stamp stamp(pack.stamps);
    if (blockIdx.x < pack.rank_count) {
        count_words(pack, pack.first_rank + blockIdx.x, counts);
        return;
    }
    const uint32_t counting = pack.rank_count * (PACK_THREADS / WARP);
    const uint32_t warps = (uint32_t)grid_warps() - counting;

    for (uint32_t i = (uint32_t)grid_warp() - counting; i < pack.flights; i += warps)
        pack_flight<FORM>(pack, i);
}

template <int FORM>
static int launch(const struct gpu_device *device, const struct ll_pack *pack, char *err,
                  size_t err_len)
{
    const uint32_t shared_bytes = pack->experts * sizeof(uint32_t);
    const uint32_t casting =
        gpu_grid(device, pack->flights, ll_pack_kernel<FORM>, shared_bytes, PACK_THREADS);

    GPU_LAUNCH(ll_pack_kernel<FORM>, pack->rank_count + casting, PACK_THREADS, shared_bytes,
               device->stream, *pack);
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
        struct ll_pack pack;
        pack.rule = gpu_recipe_of(recipe).rule;
        pack.x = (const uint4 *)gpu_base(x, &span);
        pack.staged = gpu_base(staged, &span) + GPU_LINE_BYTES;
        pack.stride = slot.row_bytes;
        pack.first_row = first;
        pack.row_vectors = hidden / VECTOR_CHANNELS;
        pack.row_flights = (pack.row_vectors + FLIGHT_VECTORS - 1) / FLIGHT_VECTORS;
        /* Or the inverse would be too coarse. */
        assert(rows * pack.row_flights < UINT32_MAX / pack.row_flights);
        pack.flights = (uint32_t)rows * pack.row_flights;
        pack.inverse = (uint32_t)(((UINT64_C(1) << 32) + pack.row_flights - 1) / pack.row_flights);
        pack.stamps = gpu->device[span.device].stamps;
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
