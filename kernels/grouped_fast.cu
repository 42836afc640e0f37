/* kernels/grouped_fast.cu - grouped FP8 GEMM on tensor cores, promoted every 128 channels.
 *
 * For each 128-block b of the summed dimension the tensor cores make t = sum a_k b_k, then
 * acc = fma(t, scale_a * scale_b, acc) in fp32 as the exact kernel does; one rounding to BF16.
 *
 * How far from the exact kernel. Products of two codes are exact. A tensor core aligns the 32 of a
 * step and the sum so far with the largest of them, m, and drops what lies below 2^-13 of it (it
 * keeps at least 13 bits below the leading one): less than 2^-13 m for each of 33 numbers in each
 * of a block's four steps, or for 17 in each of eight, should it take them by halves. With m_b the
 * largest of a block's products and of its partial sums after every 16 of them,
 *     |t - sum a_k b_k| <= 8 * 17 * 2^-13 m_b = 136 * 2^-13 m_b.
 * Over S_b = sum |a_k b_k|, the exact kernel rounds 128 times a block, and both once a promotion,
 * by 2^-24 each: less than 2^-16 S_b together for depths up to 8192. So, before the two roundings
 * to BF16 (2^-8 of the result together),
 *     |fast - exact| <= sum over b of scale_a scale_b (136 * 2^-13 m_b + 2^-16 S_b).
 * tests/gpu_grouped.c holds it to that; a fifth of the bound is the most that it has used.
 *
 * Operations: 2 a product, 1979 TFLOP/s dense; bytes: rows, weights and results once.
 *
 * Launch: a block a multiprocessor, persistent; tiles of 128 rows by 256 outputs, rows fastest, so
 * that blocks at work together share weights in the L2. One thread of the third warpgroup keeps
 * four stages of 48 KiB filled by tensor copies; each of the other two multiplies 64 rows, one half
 * of the outputs after the other, and promotes a half while the other warpgroup multiplies. A
 * multiprocessor takes in 48 KiB for 8.4 million operations; tiles half as wide, for which it takes
 * in a third more, were a tenth slower. Two blocks of a cluster make neighbouring outputs of the
 * same rows and load half of the rows each for both. Rows behind a group's last, and outputs behind
 * the last, are multiplied and not stored. */
#include <cuda.h>

#include "kernels/grouped.cuh"
#include "kernels/stamp.cuh"
#include "kernels/wgmma.cuh"

enum {
    FAST_TILE = 128, /* Rows; depth; and outputs of a half. */
    FAST_HALVES = 2, /* Of a tile. */
    FAST_OUTPUTS = FAST_HALVES * FAST_TILE,
    FAST_BYTES = FAST_TILE * FAST_TILE,
    FAST_STAGES = 4,
    FAST_STAGE_BYTES = (1 + FAST_HALVES) * FAST_BYTES,
    FAST_CLUSTER = 2,
    FAST_CONSUMERS = 2, /* Warpgroups. */
    FAST_GROUP_THREADS = 128,
    FAST_THREADS = (FAST_CONSUMERS + 1) * FAST_GROUP_THREADS,
    FAST_SHARED = FAST_STAGES * FAST_STAGE_BYTES + 1024, /* Stages begin on 1024 bytes. */
    FAST_DEPTH_STEP = 32,
    FAST_SCALES = 4, /* Blocks whose scales are loaded together. */
    FAST_CONSUMER_REGISTERS = 232,
    FAST_PRODUCER_REGISTERS = 40
};

struct fast_shared {
    uint8_t *stages; /* Each: rows [128][128], then weights [256][128]. */
    uint64_t *full, *empty;

    __device__ __forceinline__ uint8_t *rows(uint32_t stage) const
    {
        return stages + stage * FAST_STAGE_BYTES;
    }

    __device__ __forceinline__ uint8_t *weights(uint32_t stage) const
    {
        return rows(stage) + FAST_BYTES;
    }
};

/* Where in the rotation of stages a warp is. */
struct fast_turn {
    uint32_t stage, parity;

    __device__ __forceinline__ void next()
    {
        stage = stage + 1 == FAST_STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

/* A cluster's tiles, in an order that producer and consumers walk alike. */
struct fast_tiles {
    struct group_walk walk;
    uint32_t before; /* Tiles of earlier groups. */
    uint32_t index;
    uint32_t columns; /* Of tiles; the last may reach beyond the outputs. */

    __device__ __forceinline__ void begin(const struct grouped &grouped)
    {
        walk.begin(grouped);
        before = 0;
        index = cluster_id();
        columns = fast_columns(grouped.outputs);
    }

    static __host__ __device__ __forceinline__ uint32_t fast_columns(uint32_t outputs)
    {
        return (outputs + FAST_CLUSTER * FAST_OUTPUTS - 1) / (FAST_CLUSTER * FAST_OUTPUTS);
    }

    __device__ __forceinline__ bool find(const struct grouped &grouped)
    {
        while (walk.group < grouped.groups && index - before >= walk.tiles(FAST_TILE) * columns) {
            before += walk.tiles(FAST_TILE) * columns;
            walk.next(grouped);
        }
        return walk.group < grouped.groups;
    }

    __device__ __forceinline__ uint64_t row() const
    {
        return walk.first + (uint64_t)((index - before) % walk.tiles(FAST_TILE)) * FAST_TILE;
    }

    /* First output of this block. */
    __device__ __forceinline__ uint32_t output() const
    {
        const uint32_t column = (index - before) / walk.tiles(FAST_TILE);
        return (column * FAST_CLUSTER + cluster_block()) * FAST_OUTPUTS;
    }
};

/* One thread. Both blocks get both halves of the rows, whatever becomes of their outputs. */
static __device__ void fast_produce(const struct grouped &grouped, const CUtensorMap *rows_map,
                                    const CUtensorMap *weights_map,
                                    const struct fast_shared &shared)
{
    enum { HALF_ROWS = FAST_TILE / FAST_CLUSTER, ALL = (1 << FAST_CLUSTER) - 1 };
    const uint32_t mine = cluster_block();
    struct fast_turn turn = {0, 0};
    struct fast_tiles tiles;

    for (tiles.begin(grouped); tiles.find(grouped); tiles.index += cluster_count()) {
        const uint32_t row = (uint32_t)tiles.row() + mine * HALF_ROWS;
        const uint32_t weight = tiles.walk.group * grouped.outputs + tiles.output();
        for (uint32_t k = 0; k < grouped.rows.depth; k += FAST_TILE, turn.next()) {
            uint64_t *full = &shared.full[turn.stage];
            barrier_wait(&shared.empty[turn.stage], turn.parity ^ 1);
            barrier_expect(full, FAST_STAGE_BYTES);
            tensor_load(shared.weights(turn.stage), weights_map, k, weight, full);
            tensor_load_all(shared.rows(turn.stage) + mine * (FAST_BYTES / FAST_CLUSTER), rows_map,
                            k, row, full, ALL);
        }
    }
}

/* Scales of four blocks at a time, the next four under way: of the lane's two rows and of each half
 * of the weights. Lane q of four loads block q's. */
struct fast_scales {
    const struct grouped &grouped;
    uint64_t row[2];
    const float *weights[FAST_HALVES];
    float held[2 + FAST_HALVES], after[2 + FAST_HALVES];

    __device__ __forceinline__ fast_scales(const struct grouped &all, uint64_t first,
                                           uint64_t group_outputs, uint32_t output)
        : grouped(all)
    {
        const uint64_t last = grouped.rows.rows - 1;
        const uint32_t blocks = grouped.rows.depth / FAST_TILE;
        row[0] = first < last ? first : last;
        row[1] = first + 8 < last ? first + 8 : last;
#pragma unroll
        for (int h = 0; h < FAST_HALVES; h++) {
            const uint32_t at = output + h * FAST_TILE;
            const uint32_t named = at < grouped.outputs ? at : grouped.outputs - FAST_TILE;
            weights[h] = grouped.scales + (group_outputs + named) / FAST_TILE * blocks;
        }
        load(0);
    }

    /* Blocks [block, block + 4) into after. */
    __device__ __forceinline__ void load(uint32_t block)
    {
        const uint32_t mine = block + lane_id() % FAST_SCALES;
        const bool there = mine < grouped.rows.depth / FAST_TILE;
#pragma unroll
        for (int i = 0; i < 2; i++) after[i] = there ? scale_of(grouped.rows, row[i], mine) : 0;
#pragma unroll
        for (int h = 0; h < FAST_HALVES; h++) after[2 + h] = there ? weights[h][mine] : 0;
    }

    __device__ __forceinline__ void step(uint32_t block)
    {
        if (block % FAST_SCALES != 0) return;
#pragma unroll
        for (int i = 0; i < 2 + FAST_HALVES; i++) held[i] = after[i];
        load(block + FAST_SCALES);
    }

    __device__ __forceinline__ float of(uint32_t block, int index) const
    {
        return __shfl_sync(FULL_WARP, held[index], block % FAST_SCALES, FAST_SCALES);
    }
};

/* 64 rows by 128 outputs of one block of depth, promoted into sum. */
static __device__ __forceinline__ void fast_multiply(float made[64], const uint8_t *rows,
                                                     const uint8_t *weights)
{
    const uint64_t a = wgmma_operand(rows), b = wgmma_operand(weights);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < FAST_TILE / FAST_DEPTH_STEP; step++)
        wgmma_64x128x32(made, a + step * (FAST_DEPTH_STEP >> 4), b + step * (FAST_DEPTH_STEP >> 4),
                        step != 0);
    wgmma_commit();
}

/* 64 rows by all outputs of one tile, by a warpgroup. */
static __device__ __forceinline__ void fast_tile(const struct grouped &grouped,
                                                 struct fast_scales &scales,
                                                 const struct fast_shared &shared,
                                                 uint32_t warpgroup, struct fast_turn &turn,
                                                 float sum[FAST_HALVES][64])
{
    const uint32_t blocks = grouped.rows.depth / FAST_TILE;
    float made[64];

#pragma unroll
    for (int i = 0; i < 64; i++) made[i] = 0.0f;
#pragma unroll
    for (int h = 0; h < FAST_HALVES; h++)
#pragma unroll
        for (int i = 0; i < 64; i++) sum[h][i] = 0.0f;
#pragma unroll 1
    for (uint32_t block = 0; block < blocks; block++, turn.next()) {
        const uint8_t *rows = shared.rows(turn.stage) + warpgroup * (FAST_BYTES / FAST_CONSUMERS);
        scales.step(block);
        const float row_scale[2] = {scales.of(block, 0), scales.of(block, 1)};
        barrier_wait(&shared.full[turn.stage], turn.parity);
#pragma unroll
        for (int h = 0; h < FAST_HALVES; h++) {
            fast_multiply(made, rows, shared.weights(turn.stage) + h * FAST_BYTES);
            const float weight_scale = scales.of(block, 2 + h);
            const float scale[2] = {__fmul_rn(row_scale[0], weight_scale),
                                    __fmul_rn(row_scale[1], weight_scale)};
            wgmma_wait();
            wgmma_settled(made);
            if (h == FAST_HALVES - 1) { /* The stage may be filled again, in both blocks. */
                __syncwarp();
                if (lane_id() < FAST_CLUSTER)
                    barrier_arrive_at(&shared.empty[turn.stage], lane_id());
            }
#pragma unroll
            for (int i = 0; i < 64; i++)
                sum[h][i] = __fmaf_rn(made[i], scale[i / 2 % 2], sum[h][i]);
        }
    }
}

/* Four words of each lane of four become one lane's: lane q has word q of all, lanes ascending. */
static __device__ __forceinline__ uint4 transpose_words(uint32_t w[4])
{
    const bool odd = (lane_id() & 1) != 0, high = (lane_id() & 2) != 0;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t taken = __shfl_xor_sync(FULL_WARP, odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? taken : w[i];
        w[i + 1] = odd ? w[i + 1] : taken;
    }
    const uint32_t first = __shfl_xor_sync(FULL_WARP, high ? w[0] : w[2], 2);
    const uint32_t second = __shfl_xor_sync(FULL_WARP, high ? w[1] : w[3], 2);
    return high ? make_uint4(first, second, w[2], w[3]) : make_uint4(w[0], w[1], first, second);
}

/* Rows first and first + 8 of the lane, as far as they lie before end, to BF16: 128 outputs. */
static __device__ __forceinline__ void fast_store(const struct grouped &grouped, uint32_t output,
                                                  uint64_t first, uint64_t end, const float sum[64])
{
    uint16_t *out = grouped.out + first * grouped.outputs + output + lane_id() % 4 * 8;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t words[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                words[j] =
                    bf16_pair(sum[16 * i + 4 * j + 2 * half], sum[16 * i + 4 * j + 2 * half + 1]);
            const uint4 eight = transpose_words(words);
            if (first + 8 * half < end)
                *(uint4 *)(out + (uint64_t)(8 * half) * grouped.outputs + 32 * i) = eight;
        }
}

static __device__ __forceinline__ void fast_consume(const struct grouped &grouped,
                                                    const struct fast_shared &shared)
{
    const uint32_t warpgroup = threadIdx.x / FAST_GROUP_THREADS;
    const uint32_t row_at = warpgroup * (FAST_TILE / FAST_CONSUMERS) +
                            threadIdx.x % FAST_GROUP_THREADS / WARP * 16 + lane_id() / 4;
    struct fast_turn turn = {0, 0};
    struct fast_tiles tiles;

    for (tiles.begin(grouped); tiles.find(grouped); tiles.index += cluster_count()) {
        const uint64_t first = tiles.row() + row_at, end = tiles.walk.first + tiles.walk.count;
        const uint32_t output = tiles.output();
        float sum[FAST_HALVES][64];
        struct fast_scales scales(grouped, first, (uint64_t)tiles.walk.group * grouped.outputs,
                                  output);
        fast_tile(grouped, scales, shared, warpgroup, turn, sum);
#pragma unroll
        for (int h = 0; h < FAST_HALVES; h++)
            if (output + h * FAST_TILE < grouped.outputs)
                fast_store(grouped, output + h * FAST_TILE, first, end, sum[h]);
    }
}

static __global__ void __cluster_dims__(FAST_CLUSTER, 1, 1) __launch_bounds__(FAST_THREADS, 1)
    grouped_fast_kernel(struct grouped grouped, const __grid_constant__ CUtensorMap rows_map,
                        const __grid_constant__ CUtensorMap weights_map)
{
    extern __shared__ uint8_t raw[];
    __shared__ uint64_t full[FAST_STAGES], empty[FAST_STAGES];
    const kernel_stamp stamp(grouped.stamps);
    const uint32_t ahead = (1024 - shared_address(raw) % 1024) % 1024;
    const struct fast_shared shared = {raw + ahead, full, empty};

    if (threadIdx.x == 0) {
        const uint32_t warps = FAST_CONSUMERS * FAST_GROUP_THREADS / WARP;
        for (int i = 0; i < FAST_STAGES; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], FAST_CLUSTER * warps);
        }
        barrier_init_done();
    }
    cluster_barrier();
    if (threadIdx.x < FAST_CONSUMERS * FAST_GROUP_THREADS) {
        registers_grow<FAST_CONSUMER_REGISTERS>();
        fast_consume(grouped, shared);
    } else {
        registers_shrink<FAST_PRODUCER_REGISTERS>();
        if (threadIdx.x == FAST_CONSUMERS * FAST_GROUP_THREADS)
            fast_produce(grouped, &rows_map, &weights_map, shared);
    }
    __syncwarp();
    cluster_barrier(); /* A block that others store into must not be gone. */
}

/* --- launching ------------------------------------------------------------------------------- */

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function, found at run time: nothing links with the driver. */
static int find_encode(encode_fn *encode, char *err, size_t err_len)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult result;
    GPU_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                             cudaEnableDefault, &result));
    if (found == NULL || result != cudaDriverEntryPointSuccess) {
        snprintf(err, err_len, "cuda: the driver has no cuTensorMapEncodeTiled");
        return -1;
    }
    *encode = (encode_fn)found;
    return 0;
}

/* [rows][depth] bytes in boxes of box_rows by 128. */
static int make_map(encode_fn encode, const uint8_t *at, uint64_t rows, uint32_t depth,
                    uint32_t box_rows, CUtensorMap *map, char *err, size_t err_len)
{
    const cuuint64_t sizes[2] = {depth, rows}, strides[1] = {depth};
    const cuuint32_t box[2] = {FAST_TILE, box_rows}, steps[2] = {1, 1};
    const CUresult status =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, (void *)(uintptr_t)at, sizes, strides, box,
               steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status == CUDA_SUCCESS) return 0;
    snprintf(err, err_len, "cuda: cuTensorMapEncodeTiled: error %d", (int)status);
    return -1;
}

/* As many clusters as are resident together: one more would run behind the others. */
static int launch(const struct gpu_device *device, const struct grouped *grouped,
                  const CUtensorMap *rows_map, const CUtensorMap *weights_map, char *err,
                  size_t err_len)
{
    const uint64_t tiles =
        grouped_tiles_most(grouped, FAST_TILE) * fast_tiles::fast_columns(grouped->outputs);
    const uint32_t resident = device->sm_count / FAST_CLUSTER;
    const uint32_t clusters = tiles < resident ? (uint32_t)tiles : resident;

    assert(tiles < UINT32_MAX / 2);
    GPU_TRY(cudaFuncSetAttribute(grouped_fast_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 FAST_SHARED));
    GPU_LAUNCH(grouped_fast_kernel, clusters * FAST_CLUSTER, FAST_THREADS, FAST_SHARED,
               device->stream, *grouped, *rows_map, *weights_map);
    GPU_TRY(cudaGetLastError());
    return 0;
}

extern "C" int gpu_grouped_fast(struct gpu *gpu, const struct gpu_grouped *grouped, uint32_t rank,
                                uint32_t rank_count, const struct gpu_buffer *rows,
                                const struct gpu_buffer *row_scales, struct gpu_buffer *out,
                                char *err, size_t err_len)
{
    encode_fn encode = NULL;

    if (find_encode(&encode, err, err_len) != 0) return -1;
    for (uint32_t r = rank; r < rank + rank_count; r++) {
        struct gpu_span span = gpu_span_before(r);
        CUtensorMap rows_map, weights_map;
        (void)gpu_next_span(gpu, r + 1, &span);
        const struct gpu_device *device = &gpu->device[span.device];
        const struct grouped made = gpu_grouped_of(gpu, grouped, &span, rows, row_scales, out);
        if (made.rows.rows == 0 || made.groups == 0) continue;
        assert(made.rows.rows <= INT32_MAX && (uint64_t)made.groups * made.outputs <= INT32_MAX);
        if (make_map(encode, made.rows.codes, made.rows.rows, made.rows.depth,
                     FAST_TILE / FAST_CLUSTER, &rows_map, err, err_len) != 0 ||
            make_map(encode, made.codes, (uint64_t)made.groups * made.outputs, made.rows.depth,
                     FAST_OUTPUTS, &weights_map, err, err_len) != 0)
            return -1;
        if (launch(device, &made, &rows_map, &weights_map, err, err_len) != 0) return -1;
    }
    return 0;
}
