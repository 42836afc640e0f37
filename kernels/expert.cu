/* kernels/expert.cu - stand-in and identity experts over received rows.
 *
 * Twins of ref_expert_standin() and ref_expert_identity(): fp32(code) * scale, for the stand-in
 * times 0.37f and plus 0.11f, each rounded once and never fused, then BF16.
 *
 * Bytes that must move, a channel: 1 (FP8) or 2 in, 2 out, 4 a group for its scale.
 *
 * Launch: a thread 16 codes or 8 BF16 channels, one load; grid-stride. Eight threads share a
 * group's scale. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"

static __device__ __forceinline__ float standin(float x)
{
    return __fadd_rn(__fmul_rn(x, 0.37f), 0.11f);
}

template <bool STANDIN>
static __global__ void __launch_bounds__(GPU_THREADS)
    expert_bf16_kernel(const uint4 *__restrict__ x, uint64_t vectors, uint4 *__restrict__ out)
{
    for (uint64_t v = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; v < vectors;
         v += (uint64_t)gridDim.x * blockDim.x) {
        uint4 held = load_once(x + v);
        if (STANDIN) {
            held.x = bf16_pair(standin(bf16_low(held.x)), standin(bf16_high(held.x)));
            held.y = bf16_pair(standin(bf16_low(held.y)), standin(bf16_high(held.y)));
            held.z = bf16_pair(standin(bf16_low(held.z)), standin(bf16_high(held.z)));
            held.w = bf16_pair(standin(bf16_low(held.w)), standin(bf16_high(held.w)));
        }
        store_once(out + v, held);
    }
}

/* Two BF16 pairs of four codes. */
template <bool STANDIN>
static __device__ __forceinline__ uint2 expert_codes(uint32_t codes, float scale)
{
    const float2 low = e4m3_values(codes & 0xFFFFu), high = e4m3_values(codes >> 16);
    float x[4] = {__fmul_rn(low.x, scale), __fmul_rn(low.y, scale), __fmul_rn(high.x, scale),
                  __fmul_rn(high.y, scale)};
    if (STANDIN)
        for (int i = 0; i < 4; i++) x[i] = standin(x[i]);
    return make_uint2(bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]));
}

template <bool STANDIN>
static __global__ void __launch_bounds__(GPU_THREADS)
    expert_fp8_kernel(const uint4 *__restrict__ codes, const uint32_t *__restrict__ scales,
                      uint32_t kind, uint32_t groups, uint64_t vectors, uint4 *__restrict__ out)
{
    enum { GROUP_VECTORS = GPU_GROUP_CHANNELS / 16 };
    for (uint64_t v = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; v < vectors;
         v += (uint64_t)gridDim.x * blockDim.x) {
        const uint4 held = load_once(codes + v);
        const uint64_t group = v / GROUP_VECTORS;
        uint32_t bits;
        if (kind == GPU_SCALE_F32) {
            bits = scales[group];
        } else {
            const uint64_t row = group / groups;
            const uint32_t g = (uint32_t)(group % groups);
            bits = (scales[row * gpu_packed_words(groups) + g / 4] >> (8 * (g % 4)) & 0xFFu) << 23;
        }
        const float scale = __uint_as_float(bits);
        const uint2 a = expert_codes<STANDIN>(held.x, scale);
        const uint2 b = expert_codes<STANDIN>(held.y, scale);
        const uint2 c = expert_codes<STANDIN>(held.z, scale);
        const uint2 d = expert_codes<STANDIN>(held.w, scale);
        store_once(out + 2 * v, make_uint4(a.x, a.y, b.x, b.y));
        store_once(out + 2 * v + 1, make_uint4(c.x, c.y, d.x, d.y));
    }
}

template <bool STANDIN>
static int run(struct gpu *gpu, uint32_t recipe, uint32_t rank, uint32_t rank_count,
               uint32_t hidden, const struct gpu_buffer *payload, const struct gpu_buffer *scales,
               struct gpu_buffer *out, char *err, size_t err_len)
{
    const uint32_t kind = gpu_recipe_of(recipe).rule.kind;
    struct gpu_span span = gpu_span_before(rank);

    assert(hidden % GPU_GROUP_CHANNELS == 0 && out->row_bytes == 2 * (uint64_t)hidden);
    assert(payload->row_bytes == gpu_payload_bytes(hidden, recipe));
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        const uint64_t first = gpu_first_row(out, &span), rows = gpu_end_row(out, &span) - first;
        const uint64_t vectors = rows * payload->row_bytes / sizeof(uint4);
        const uint4 *from = (const uint4 *)(gpu_base(payload, &span) + first * payload->row_bytes);
        uint4 *to = (uint4 *)(gpu_base(out, &span) + first * out->row_bytes);
        if (rows == 0) continue;
        const uint64_t warps = vectors / WARP + 1;
        if (kind == GPU_SCALE_NONE)
            GPU_LAUNCH(expert_bf16_kernel<STANDIN>,
                       gpu_grid(device, warps, expert_bf16_kernel<STANDIN>), GPU_THREADS, 0,
                       device->stream, from, vectors, to);
        else
            GPU_LAUNCH(expert_fp8_kernel<STANDIN>,
                       gpu_grid(device, warps, expert_fp8_kernel<STANDIN>), GPU_THREADS, 0,
                       device->stream, from,
                       (const uint32_t *)(gpu_base(scales, &span) + first * scales->row_bytes),
                       kind, gpu_scale_groups(hidden), vectors, to);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}

extern "C" int gpu_expert_standin(struct gpu *gpu, uint32_t recipe, uint32_t rank,
                                  uint32_t rank_count, uint32_t hidden,
                                  const struct gpu_buffer *payload, const struct gpu_buffer *scales,
                                  struct gpu_buffer *out, char *err, size_t err_len)
{
    return run<true>(gpu, recipe, rank, rank_count, hidden, payload, scales, out, err, err_len);
}

extern "C" int gpu_expert_identity(struct gpu *gpu, uint32_t recipe, uint32_t rank,
                                   uint32_t rank_count, uint32_t hidden,
                                   const struct gpu_buffer *payload,
                                   const struct gpu_buffer *scales, struct gpu_buffer *out,
                                   char *err, size_t err_len)
{
    return run<false>(gpu, recipe, rank, rank_count, hidden, payload, scales, out, err, err_len);
}
