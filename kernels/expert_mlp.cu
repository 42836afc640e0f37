/* kernels/expert_mlp.cu - an expert's FP8 MLP, every sum in the reference's order.
 *
 * Twin of ref_expert_mlp() and ref_expert_fill(). kernels/exact_gemm.cuh has the sums.
 *
 * Operations: 2 a product; 67 TFLOP/s of fp32 is the floor. Launch: a block a tile. */
#include "kernels/exact_gemm.cuh"
#include "kernels/gpu_private.cuh"

static __global__ void __launch_bounds__(GPU_THREADS)
    gemm_kernel(struct operand a, struct weights b, uint16_t *__restrict__ out)
{
    exact_tile(a, b, (uint64_t)blockIdx.y * TILE, blockIdx.x * TILE, out);
}

static int gemm(const struct gpu_device *device, const struct operand *a, const struct weights *b,
                uint8_t *out, char *err, size_t err_len)
{
    const dim3 grid(b->outputs / TILE, (uint32_t)((a->rows + TILE - 1) / TILE));

    assert(a->depth % GROUP == 0 && b->outputs % GROUP == 0 && a->rows < 65535 * (uint64_t)TILE);
    GPU_LAUNCH(gemm_kernel, grid, GPU_THREADS, 0, device->stream, *a, *b, (uint16_t *)out);
    GPU_TRY(cudaGetLastError());
    return 0;
}

int gpu_launch_activate(const struct gpu_device *device, uint32_t recipe, uint32_t inter,
                        const uint8_t *gate, const uint8_t *up, uint64_t rows,
                        const int32_t *masked, uint64_t capacity, uint8_t *codes, uint8_t *scales,
                        char *err, size_t err_len);

/* Row r of a buffer on the span's GPU. */
static uint8_t *row_of(const struct gpu_buffer *buffer, const struct gpu_span *span, uint64_t row)
{
    return gpu_base(buffer, span) + row * buffer->row_bytes;
}

extern "C" int gpu_expert_mlp(struct gpu *gpu, const struct gpu_mlp *mlp, uint32_t rank,
                              uint64_t first, uint64_t rows, const struct gpu_buffer *payload,
                              const struct gpu_buffer *row_scales, struct gpu_buffer *out,
                              char *err, size_t err_len)
{
    const uint32_t hidden = mlp->hidden, inter = mlp->inter;
    const uint64_t codes = (uint64_t)hidden * inter;
    const uint64_t scales = (uint64_t)(hidden / GROUP) * (inter / GROUP);
    struct gpu_span span = gpu_span_before(rank);

    assert(mlp->recipe != GPU_RECIPE_BF16 && mlp->activation != GPU_RECIPE_BF16);
    if (rows == 0) return 0;
    (void)gpu_next_span(gpu, rank + 1, &span);
    const struct gpu_device *device = &gpu->device[span.device];
    const uint8_t *code_at = row_of(mlp->codes, &span, rank);
    const float *scale_at = (const float *)row_of(mlp->scales, &span, rank);
    const struct operand x = {row_of(payload, &span, first),
                              (const uint32_t *)row_of(row_scales, &span, first),
                              gpu_recipe_of(mlp->recipe).rule.kind, rows, hidden};
    const struct weights gate = {code_at, scale_at, inter};
    const struct weights up = {code_at + codes, scale_at + scales, inter};
    const struct weights down = {code_at + 2 * codes, scale_at + 2 * scales, hidden};
    uint8_t *gate_out = row_of(mlp->gate, &span, first), *up_out = row_of(mlp->up, &span, first);
    uint8_t *act = row_of(mlp->act, &span, first),
            *act_scales = row_of(mlp->act_scales, &span, first);
    const struct operand h = {act, (const uint32_t *)act_scales, GPU_SCALE_F32, rows, inter};

    if (gemm(device, &x, &gate, gate_out, err, err_len) != 0 ||
        gemm(device, &x, &up, up_out, err, err_len) != 0 ||
        gpu_launch_activate(device, mlp->activation, inter, gate_out, up_out, rows, NULL, 0, act,
                            act_scales, err, err_len) != 0)
        return -1;
    return gemm(device, &h, &down, row_of(out, &span, first), err, err_len);
}

static const uint64_t STEP = UINT64_C(0x9E3779B97F4A7C15);

static __host__ __device__ uint64_t scramble(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t mix(uint64_t digest, uint64_t value)
{
    const uint64_t turned = (digest << 23) | (digest >> 41);
    return scramble(turned + STEP + scramble(value));
}

/* Eight codes a thread; the first threads make a scale too. No NaN codes: bit 40 flipped. */
static __global__ void fill_kernel(uint64_t key, uint64_t words, uint64_t scale_count,
                                   uint64_t *__restrict__ codes, uint32_t *__restrict__ scales)
{
    const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint64_t word = scramble(key + i * step);
        for (int b = 0; b < 64; b += 8)
            if ((word >> b & 0x7Fu) == 0x7Fu) word ^= UINT64_C(0x40) << b;
        codes[i] = word;
        if (i < scale_count) scales[i] = 0x39000000u | (uint32_t)(scramble(~key + i * step) >> 41);
    }
}

extern "C" int gpu_expert_fill(struct gpu *gpu, uint32_t rank, uint64_t seed, uint32_t expert,
                               uint32_t hidden, uint32_t inter, struct gpu_buffer *codes,
                               struct gpu_buffer *scales, char *err, size_t err_len)
{
    const uint64_t code_count = (uint64_t)hidden * inter;
    const uint64_t scale_count = (uint64_t)(hidden / GROUP) * (inter / GROUP);
    struct gpu_span span = gpu_span_before(rank);

    assert(codes->row_bytes == 3 * code_count);
    assert(scales->row_bytes == 3 * scale_count * sizeof(float));
    (void)gpu_next_span(gpu, rank + 1, &span);
    const struct gpu_device *device = &gpu->device[span.device];
    for (uint32_t m = 0; m < 3; m++) {
        GPU_LAUNCH(fill_kernel, gpu_grid(device, code_count / 8 / WARP + 1, fill_kernel),
                   GPU_THREADS, 0, device->stream, mix(mix(seed, expert), m), code_count / 8,
                   scale_count, (uint64_t *)(row_of(codes, &span, rank) + m * code_count),
                   (uint32_t *)(row_of(scales, &span, rank) + m * scale_count * sizeof(float)));
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
