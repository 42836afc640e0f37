/* kernels/dp.cu - the data-parallel collectives around an MoE layer.
 *
 * Twins of ref_dp_gatherv() and ref_dp_reduce_scatter(): fp32 from +0, ranks ascending, one
 * rounding to BF16. A GPU reads the other ranks' inputs where they are.
 *
 * Bytes that must move: gather, every part to every GPU; reduce-scatter, 2 bytes in a rank and 2
 * out for every channel of the share.
 *
 * Launch: a thread eight channels, one load a rank, grid-stride. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"

extern "C" int gpu_dp_gather(struct gpu *gpu, const struct gpu_buffer *parts,
                             struct gpu_buffer *out, char *err, size_t err_len)
{
    assert(out->rank_start == NULL && parts->rank_start != NULL);
    assert(out->rows * out->row_bytes >= parts->rows * parts->row_bytes);
    if (gpu_fence(gpu, err, err_len) != 0) return -1;
    for (uint32_t d = 0; d < gpu->devices; d++) {
        struct gpu_span span = gpu_span_before(0);
        while (gpu_next_span(gpu, gpu->ranks, &span)) {
            const uint64_t first = gpu_first_row(parts, &span) * parts->row_bytes;
            const uint64_t bytes = gpu_end_row(parts, &span) * parts->row_bytes - first;
            if (bytes == 0) continue;
            GPU_TRY(cudaSetDevice(gpu->device[d].ordinal));
            GPU_TRY(cudaMemcpyAsync(out->at[d] + first, gpu_base(parts, &span) + first, bytes,
                                    cudaMemcpyDefault, gpu->device[d].stream));
        }
    }
    return gpu_fence(gpu, err, err_len);
}

static __global__ void __launch_bounds__(GPU_THREADS)
    reduce_kernel(const uint4 *const *__restrict__ inputs, uint32_t ranks, uint64_t first,
                  uint64_t vectors, uint4 *__restrict__ out)
{
    for (uint64_t v = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; v < vectors;
         v += (uint64_t)gridDim.x * blockDim.x) {
        float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (uint32_t r = 0; r < ranks; r++) {
            const uint4 held = load_once(inputs[r] + first + v);
            const uint32_t pairs[4] = {held.x, held.y, held.z, held.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                acc[2 * i] = __fadd_rn(acc[2 * i], bf16_low(pairs[i]));
                acc[2 * i + 1] = __fadd_rn(acc[2 * i + 1], bf16_high(pairs[i]));
            }
        }
        store_once(out + first + v,
                   make_uint4(bf16_pair(acc[0], acc[1]), bf16_pair(acc[2], acc[3]),
                              bf16_pair(acc[4], acc[5]), bf16_pair(acc[6], acc[7])));
    }
}

/* Where every rank's input begins, in the GPU's staging. */
static int stage_inputs(struct gpu *gpu, struct gpu_device *device, const struct gpu_buffer *inputs,
                        char *err, size_t err_len)
{
    const uint8_t *table[1024];

    assert(gpu->ranks <= sizeof table / sizeof table[0]);
    for (uint32_t r = 0; r < gpu->ranks; r++) {
        const struct gpu_span span = {r, r + 1,
                                      gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, r)};
        table[r] = gpu_base(inputs, &span) + r * inputs->row_bytes;
    }
    if (gpu_stage(device, sizeof table, err, err_len) != 0) return -1;
    GPU_TRY(cudaMemcpyAsync(device->staging, table, gpu->ranks * sizeof table[0],
                            cudaMemcpyHostToDevice, device->stream));
    return 0;
}

extern "C" int gpu_dp_reduce_scatter(struct gpu *gpu, uint32_t rank, uint32_t rank_count,
                                     uint32_t hidden, const struct gpu_buffer *inputs,
                                     struct gpu_buffer *out, char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    assert(hidden % 8 == 0 && out->row_bytes == 2 * (uint64_t)hidden);
    assert(inputs->row_bytes == out->rows * out->row_bytes);
    if (gpu_fence(gpu, err, err_len) != 0) return -1;
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        struct gpu_device *device = &gpu->device[span.device];
        const uint64_t first = gpu_first_row(out, &span) * hidden / 8;
        const uint64_t vectors = gpu_end_row(out, &span) * hidden / 8 - first;
        if (vectors == 0) continue;
        if (stage_inputs(gpu, device, inputs, err, err_len) != 0) return -1;
        GPU_LAUNCH(reduce_kernel, gpu_grid(device, vectors / WARP + 1, reduce_kernel), GPU_THREADS,
                   0, device->stream, (const uint4 *const *)device->staging, gpu->ranks, first,
                   vectors, (uint4 *)gpu_base(out, &span));
        GPU_TRY(cudaGetLastError());
    }
    return gpu_fence(gpu, err, err_len);
}
