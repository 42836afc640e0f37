/* kernels/quantise.cu - BF16 rows to FP8 codes and scales, and scales to packed exponents.
 *
 * Twins of ref_quantise() and ref_scales_pack_ue8m0(), every recipe.
 *
 * Bytes that must move, a channel: 2 in, 1 out, and 4 a group for its scale: 3.03. At 4.28 TB/s a
 * rank's 1024 tokens of 7168 channels take 5.2 us.
 *
 * Launch: a warp a flight of 1024 channels: four loads of 16 bytes a lane before the first cast, 64
 * KiB under way on each multiprocessor; as many blocks of 128 threads as are resident, grid-stride
 * over the rest. Rows follow each other without gaps, so only the groups count. */
#include "kernels/gpu_private.cuh"
#include "kernels/quantise.cuh"
#include "kernels/stamp.cuh"

enum { CAST_THREADS = 128 };

template <enum cast_form FORM>
static __global__ void __launch_bounds__(CAST_THREADS, FORM == CAST_LL ? 8 : 4)
    quantise_kernel(struct gpu_rule rule, const uint4 *__restrict__ x, uint64_t vectors,
                    uint2 *__restrict__ codes, float *__restrict__ scales, uint64_t *stamps)
{
    const kernel_stamp stamp(stamps);
    for (uint64_t base = grid_warp() * FLIGHT_VECTORS; base < vectors;
         base += grid_warps() * FLIGHT_VECTORS) {
        const uint64_t rest = vectors - base, at = base + lane_id();
        const int32_t left = (int32_t)(rest < FLIGHT_VECTORS ? rest : FLIGHT_VECTORS);
        struct cast_flight flight;
        flight.load(x + at, left - (int32_t)lane_id());
        flight.cast<FORM>(rule, codes + at, scales + base / HALF_LANES, left - (int32_t)lane_id());
    }
}

template <enum cast_form FORM>
static int launch(const struct gpu_device *device, const struct gpu_rule *rule, const uint8_t *x,
                  uint64_t vectors, uint8_t *codes, float *scales, char *err, size_t err_len)
{
    const uint64_t warps = (vectors + FLIGHT_VECTORS - 1) / FLIGHT_VECTORS;

    GPU_LAUNCH(quantise_kernel<FORM>,
               gpu_grid(device, warps, quantise_kernel<FORM>, 0, CAST_THREADS), CAST_THREADS, 0,
               device->stream, *rule, (const uint4 *)x, vectors, (uint2 *)codes, scales,
               device->stamps);
    GPU_TRY(cudaGetLastError());
    return 0;
}

static int launch_form(const struct gpu_device *device, const struct gpu_rule *rule,
                       const uint8_t *x, uint64_t vectors, uint8_t *codes, float *scales, char *err,
                       size_t err_len)
{
    switch (cast_form_of(rule)) {
    case CAST_LL: return launch<CAST_LL>(device, rule, x, vectors, codes, scales, err, err_len);
    case CAST_MULTIPLY:
        return launch<CAST_MULTIPLY>(device, rule, x, vectors, codes, scales, err, err_len);
    default: return launch<CAST_DIVIDE>(device, rule, x, vectors, codes, scales, err, err_len);
    }
}

extern "C" int gpu_quantise(struct gpu *gpu, uint32_t recipe, uint32_t rank, uint32_t rank_count,
                            uint32_t hidden, const struct gpu_buffer *x, struct gpu_buffer *codes,
                            struct gpu_buffer *scales, char *err, size_t err_len)
{
    const struct gpu_rule rule = gpu_recipe_of(recipe).rule;
    struct gpu_span span = gpu_span_before(rank);

    assert(hidden % GPU_GROUP_CHANNELS == 0 && x->row_bytes == 2 * (uint64_t)hidden);
    assert(codes->row_bytes == gpu_payload_bytes(hidden, recipe));
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        const uint64_t first = gpu_first_row(x, &span), rows = gpu_end_row(x, &span) - first;
        const uint8_t *from = gpu_base(x, &span) + first * x->row_bytes;
        uint8_t *to = gpu_base(codes, &span) + first * codes->row_bytes;
        if (rows == 0) continue;
        if (rule.kind == GPU_SCALE_NONE) {
            GPU_TRY(cudaMemcpyAsync(to, from, rows * x->row_bytes, cudaMemcpyDeviceToDevice,
                                    device->stream));
            continue;
        }
        assert(scales->row_bytes == gpu_scale_groups(hidden) * sizeof(float));
        float *to_scales = (float *)(gpu_base(scales, &span) + first * scales->row_bytes);
        if (launch_form(device, &rule, from, rows * hidden / VECTOR_CHANNELS, to, to_scales, err,
                        err_len) != 0)
            return -1;
    }
    return 0;
}

/* One thread a word: up to four scales' exponents, lowest group lowest. */
static __global__ void pack_ue8m0_kernel(const uint32_t *__restrict__ scales, uint64_t rows,
                                         uint32_t groups, uint32_t *__restrict__ packed)
{
    const uint32_t words = gpu_packed_words(groups);
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * words;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint64_t row = i / words;
        uint32_t word = 0;
        for (uint32_t g = i % words * 4, b = 0; b < 4 && g + b < groups; b++)
            word |= (scales[row * groups + g + b] >> 23 & 0xFFu) << (8 * b);
        packed[i] = word;
    }
}

extern "C" int gpu_scales_pack_ue8m0(struct gpu *gpu, uint32_t rank, uint32_t rank_count,
                                     uint32_t groups, const struct gpu_buffer *scales,
                                     struct gpu_buffer *packed, char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    assert(scales->row_bytes == groups * sizeof(float));
    assert(packed->row_bytes == gpu_packed_words(groups) * sizeof(uint32_t));
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        const uint64_t first = gpu_first_row(scales, &span);
        const uint64_t rows = gpu_end_row(scales, &span) - first;
        if (rows == 0) continue;
        GPU_LAUNCH(pack_ue8m0_kernel,
                   gpu_grid(device, rows * gpu_packed_words(groups) / WARP + 1, pack_ue8m0_kernel),
                   GPU_THREADS, 0, device->stream,
                   (const uint32_t *)(gpu_base(scales, &span) + first * scales->row_bytes), rows,
                   groups, (uint32_t *)(gpu_base(packed, &span) + first * packed->row_bytes));
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
