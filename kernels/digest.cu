/* kernels/digest.cu - ref_digest() of what stands in a buffer, without moving it to the host.
 *
 * Bytes that must move: the buffer, once.
 *
 * Launch: a warp a block of 2 KiB, 64 bytes a lane in four loads. A lane's eight keys depend only
 * on its place, so they are made once. Sums commute: one 64-bit atomic a warp, at its end. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"

enum { BLOCK_BYTES = 2048, BLOCK_VECTORS = BLOCK_BYTES / 16, LANE_VECTORS = BLOCK_VECTORS / WARP };

static const uint64_t STEP = UINT64_C(0x9E3779B97F4A7C15);

static __host__ __device__ uint64_t scramble(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static __device__ uint64_t word_product(uint32_t low, uint32_t high, uint64_t key)
{
    return (uint64_t)(low + (uint32_t)key) * (high + (uint32_t)(key >> 32));
}

/* Vector v of the data, zeros behind its end; *words says how many of its two words exist. */
static __device__ uint4 load_tail(const uint8_t *bytes, uint64_t n, uint64_t v, uint32_t *words)
{
    uint32_t parts[4] = {0, 0, 0, 0};
    const uint64_t at = v * 16, left = at < n ? n - at : 0;

    for (uint32_t b = 0; b < 16 && b < left; b++)
        parts[b / 4] |= (uint32_t)bytes[at + b] << (8 * (b % 4));
    *words = left > 8 ? 2 : left > 0 ? 1 : 0;
    return make_uint4(parts[0], parts[1], parts[2], parts[3]);
}

static __global__ void digest_kernel(const uint8_t *__restrict__ bytes, uint64_t n,
                                     unsigned long long *__restrict__ out)
{
    const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);
    const uint64_t blocks = (n + BLOCK_BYTES - 1) / BLOCK_BYTES;
    uint64_t keys[LANE_VECTORS][2], total = 0;

    for (int i = 0; i < LANE_VECTORS; i++)
        for (int w = 0; w < 2; w++)
            keys[i][w] = scramble((2 * (i * WARP + lane_id()) + w + 1) * step);
    for (uint64_t block = grid_warp(); block < blocks; block += grid_warps()) {
        const bool whole = (block + 1) * BLOCK_BYTES <= n;
        uint64_t sum = 0;
#pragma unroll
        for (int i = 0; i < LANE_VECTORS; i++) {
            const uint64_t v = block * BLOCK_VECTORS + i * WARP + lane_id();
            uint32_t words = 2;
            const uint4 x =
                whole ? load_once((const uint4 *)bytes + v) : load_tail(bytes, n, v, &words);
            if (words > 0) sum += word_product(x.x, x.y, keys[i][0]);
            if (words > 1) sum += word_product(x.z, x.w, keys[i][1]);
        }
#pragma unroll
        for (int apart = WARP / 2; apart > 0; apart /= 2)
            sum += __shfl_xor_sync(FULL_WARP, (unsigned long long)sum, apart);
        total += scramble(sum + block * step);
    }
    if (lane_id() == 0 && total != 0) atomicAdd(out, (unsigned long long)total);
}

extern "C" int gpu_digest(struct gpu *gpu, uint32_t rank, uint32_t rank_count,
                          const struct gpu_buffer *buffer, uint64_t *digests, char *err,
                          size_t err_len)
{
    assert(buffer->rank_start != NULL);
    for (uint32_t r = rank; r < rank + rank_count; r++) {
        struct gpu_span span = gpu_span_before(r);
        (void)gpu_next_span(gpu, r + 1, &span);
        struct gpu_device *device = &gpu->device[span.device];
        const uint64_t first = gpu_first_row(buffer, &span);
        const uint64_t bytes = (gpu_end_row(buffer, &span) - first) * buffer->row_bytes;
        const uint8_t *at = gpu_base(buffer, &span) + first * buffer->row_bytes;
        assert((uintptr_t)at % sizeof(uint4) == 0);
        if (gpu_stage(device, sizeof(uint64_t), err, err_len) != 0) return -1;
        GPU_TRY(cudaMemsetAsync(device->staging, 0, sizeof(uint64_t), device->stream));
        GPU_LAUNCH(digest_kernel, gpu_grid(device, bytes / BLOCK_BYTES + 1, digest_kernel),
                   GPU_THREADS, 0, device->stream, at, bytes,
                   (unsigned long long *)device->staging);
        GPU_TRY(cudaGetLastError());
        uint64_t sum = 0;
        GPU_TRY(cudaMemcpyAsync(&sum, device->staging, sizeof sum, cudaMemcpyDeviceToHost,
                                device->stream));
        GPU_TRY(cudaStreamSynchronize(device->stream));
        digests[r - rank] = scramble(scramble(bytes + STEP) + sum);
    }
    return 0;
}
