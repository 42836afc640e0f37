/* kernels/activate.cu - SiLU(gate) * up, quantised, in one pass.
 *
 * Twin of ref_expert_activate() followed by ref_quantise(): the product is rounded to BF16 between
 * them, as it would be when it was stored, but it never leaves the registers.
 *
 * Bytes that must move, a channel: 4 in, 1 out, 4 a group for its scale.
 *
 * Launch: a warp a step of 512 channels, grid-stride; with masks, rows past their group's count are
 * neither read nor written.
 */
#include "kernels/gpu_private.cuh"
#include "kernels/quantise.cuh"
#include "ref/mathfn.h"

struct activate {
    struct gpu_rule rule;
    const uint4 *gate, *up;
    uint2 *codes;
    float *scales;
    const int32_t *masked; /* Rows of each run of capacity rows, or NULL: all. */
    uint64_t capacity;
    uint64_t vectors;     /* Of 8 channels: all of the launch's... */
    uint32_t row_vectors; /* ...and a row's. */
};

static __device__ __forceinline__ uint32_t product(uint32_t gate, uint32_t up)
{
    return bf16_pair(__fmul_rn(ref_silu(bf16_low(gate)), bf16_low(up)),
                     __fmul_rn(ref_silu(bf16_high(gate)), bf16_high(up)));
}

static __device__ __forceinline__ uint4 products(uint4 gate, uint4 up)
{
    return make_uint4(product(gate.x, up.x), product(gate.y, up.y), product(gate.z, up.z),
                      product(gate.w, up.w));
}

static __device__ __forceinline__ bool is_valid(const struct activate &activate, uint64_t at)
{
    if (at >= activate.vectors) return false;
    if (activate.masked == NULL) return true;
    const uint64_t row = at / activate.row_vectors;
    return (int64_t)(row % activate.capacity) < activate.masked[row / activate.capacity];
}

template <enum cast_form FORM>
static __global__ void __launch_bounds__(GPU_THREADS) activate_kernel(struct activate activate)
{
    for (uint64_t base = grid_warp() * STEP_VECTORS; base < activate.vectors;
         base += grid_warps() * STEP_VECTORS) {
        const uint64_t at[2] = {base + lane_id(), base + WARP + lane_id()};
        const bool valid[2] = {is_valid(activate, at[0]), is_valid(activate, at[1])};
        uint4 x[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
        uint2 codes[2];
        float stored[2];
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (valid[i])
                x[i] = products(load_once(activate.gate + at[i]), load_once(activate.up + at[i]));
        cast_step<FORM>(activate.rule, x, codes, stored);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (!valid[i]) continue;
            store_once(activate.codes + at[i], codes[i]);
            if (at[i] % HALF_LANES == 0) activate.scales[at[i] / HALF_LANES] = stored[i];
        }
    }
}

template <enum cast_form FORM>
static int launch(const struct gpu_device *device, const struct activate *activate, char *err,
                  size_t err_len)
{
    GPU_LAUNCH(activate_kernel<FORM>,
               gpu_grid(device, activate->vectors / STEP_VECTORS + 1, activate_kernel<FORM>),
               GPU_THREADS, 0, device->stream, *activate);
    GPU_TRY(cudaGetLastError());
    return 0;
}

int gpu_launch_activate(const struct gpu_device *device, uint32_t recipe, uint32_t inter,
                        const uint8_t *gate, const uint8_t *up, uint64_t rows,
                        const int32_t *masked, uint64_t capacity, uint8_t *codes, uint8_t *scales,
                        char *err, size_t err_len)
{
    struct activate activate;

    assert(recipe != GPU_RECIPE_BF16 && inter % GPU_GROUP_CHANNELS == 0);
    if (rows == 0) return 0;
    activate.rule = gpu_recipe_of(recipe).rule;
    activate.gate = (const uint4 *)gate;
    activate.up = (const uint4 *)up;
    activate.codes = (uint2 *)codes;
    activate.scales = (float *)scales;
    activate.masked = masked;
    activate.capacity = capacity;
    activate.row_vectors = inter / VECTOR_CHANNELS;
    activate.vectors = rows * activate.row_vectors;
    switch (cast_form_of(&activate.rule)) {
    case CAST_LL: return launch<CAST_LL>(device, &activate, err, err_len);
    case CAST_MULTIPLY: return launch<CAST_MULTIPLY>(device, &activate, err, err_len);
    default: return launch<CAST_DIVIDE>(device, &activate, err, err_len);
    }
}

extern "C" int gpu_expert_activate(struct gpu *gpu, uint32_t recipe, uint32_t rank,
                                   uint32_t rank_count, uint32_t inter,
                                   const struct gpu_buffer *gate, const struct gpu_buffer *up,
                                   const struct gpu_buffer *masked, uint64_t capacity,
                                   struct gpu_buffer *codes, struct gpu_buffer *scales, char *err,
                                   size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    assert(gate->row_bytes == 2 * (uint64_t)inter && up->row_bytes == gate->row_bytes);
    assert(codes->row_bytes == inter);
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const uint64_t first = gpu_first_row(gate, &span);
        const uint64_t rows = gpu_end_row(gate, &span) - first;
        const uint8_t *mask = gpu_base(masked, &span);
        if (mask != NULL) mask += span.first * masked->row_bytes;
        if (gpu_launch_activate(
                &gpu->device[span.device], recipe, inter,
                gpu_base(gate, &span) + first * gate->row_bytes,
                gpu_base(up, &span) + first * up->row_bytes, rows, (const int32_t *)mask, capacity,
                gpu_base(codes, &span) + first * codes->row_bytes,
                gpu_base(scales, &span) + first * scales->row_bytes, err, err_len) != 0)
            return -1;
    }
    return 0;
}
