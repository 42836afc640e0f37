/* kernels/grouped_fast.cu - grouped FP8 GEMM on tensor cores, promoted every 128 channels.
 *
 * For each 128-block b of the summed dimension the tensor cores make t = sum a_k b_k, then
 * acc = fma(t, scale_a * scale_b, acc) in fp32 as the exact kernel does; one rounding to BF16.
 *
 * How far from the exact kernel. A tensor core aligns the 32 products of a step and the sum so far
 * with the largest of them, m, and drops what lies below 2^-13 of it (it keeps at least 13 bits
 * below the leading one): less than m 2^-13 for each of 33 numbers, four steps a block. With m_b
 * the largest of a block's products and of its partial sums after each 16 products,
 *     |t - exact| <= 4 * 33 * 2^-13 * m_b < 2^-5.9 m_b        (17 numbers eight times: 136 more)
 * and the fp32 sums of either kernel, over S_b = sum |a_k b_k|, add less than 128 * 2^-23 S_b. So,
 * before the two roundings to BF16 (2^-8 of the result together),
 *     |fast - exact| <= sum over b of scale_a scale_b (136 * 2^-13 m_b + 2^-16 S_b).
 * tests/gpu_grouped.c holds it to that and prints the largest part of the bound that was used.
 *
 * Operations: 2 a product, 1979 TFLOP/s dense; bytes: rows, weights and results once.
 *
 * Launch: a block a multiprocessor, persistent; tiles of 128 rows by 128 outputs, rows fastest, so
 * that blocks at work together share weights in the L2. One thread of the third warpgroup keeps
 * six stages of 32 KiB filled by tensor copies; the other two multiply 64 rows each and promote
 * while the other multiplies. What limits it is the L2: 32 KiB for 4.2 million operations. Blocks
 * of a cluster therefore load for each other: neighbours along the outputs half of the rows each,
 * neighbours along the rows half of the weights. Clusters are 2 x 2 (16 KiB) where groups are
 * large, 1 x 2 (24 KiB) elsewhere, and 1 x 1 where outputs are no multiple of 256. Rows behind a
 * group's last are multiplied and not stored. */
#include <cuda.h>

#include "kernels/grouped.cuh"
#include "kernels/stamp.cuh"
#include "kernels/wgmma.cuh"

enum {
    FAST_TILE = 128, /* Rows, outputs and depth. */
    FAST_BYTES = FAST_TILE * FAST_TILE,
    FAST_STAGES = 6,
    FAST_CONSUMERS = 2, /* Warpgroups. */
    FAST_GROUP_THREADS = 128,
    FAST_THREADS = (FAST_CONSUMERS + 1) * FAST_GROUP_THREADS,
    FAST_SHARED = 2 * FAST_STAGES * FAST_BYTES + 1024, /* Stages begin on 1024 bytes. */
    FAST_DEPTH_STEP = 32
};

struct fast_shared {
    uint8_t *rows;    /* [stages][128][128] */
    uint8_t *weights; /* The same. */
    uint64_t *full, *empty;
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

/* Blocks of a cluster along rows and outputs, and this block's place. */
template <int ROWS, int COLUMNS> struct fast_cluster {
    enum { BLOCKS = ROWS * COLUMNS, PARTNERS = ROWS + COLUMNS - 1 };
    uint32_t row, column;

    __device__ __forceinline__ fast_cluster()
    {
        const uint32_t block = BLOCKS == 1 ? 0 : cluster_block();
        row = block / COLUMNS;
        column = block % COLUMNS;
    }

    /* Blocks that get what this one loads of the rows, and of the weights. */
    __device__ __forceinline__ uint16_t row_mask() const
    {
        return (uint16_t)(((1u << COLUMNS) - 1) << row * COLUMNS);
    }

    __device__ __forceinline__ uint16_t weight_mask() const
    {
        return (uint16_t)((1u | 1u << (ROWS - 1) * COLUMNS) << column);
    }

    /* Blocks that load for this one, itself among them: i below PARTNERS. */
    __device__ __forceinline__ uint32_t partner(uint32_t i) const
    {
        return i < COLUMNS ? row * COLUMNS + i : (row ^ 1) * COLUMNS + column;
    }
};

/* A cluster's tiles, in an order that producer and consumers walk alike. */
template <int ROWS, int COLUMNS> struct fast_tiles {
    enum { TILE_ROWS = ROWS * FAST_TILE };
    struct group_walk walk;
    uint32_t before; /* Tiles of earlier groups. */
    uint32_t index;
    uint32_t columns; /* Of tiles. */

    __device__ __forceinline__ void begin(const struct grouped &grouped)
    {
        walk.begin(grouped);
        before = 0;
        index = cluster_id();
        columns = grouped.outputs / (COLUMNS * FAST_TILE);
    }

    __device__ __forceinline__ bool find(const struct grouped &grouped)
    {
        while (walk.group < grouped.groups && index - before >= walk.tiles(TILE_ROWS) * columns) {
            before += walk.tiles(TILE_ROWS) * columns;
            walk.next(grouped);
        }
        return walk.group < grouped.groups;
    }

    __device__ __forceinline__ uint64_t row() const
    {
        return walk.first + (uint64_t)((index - before) % walk.tiles(TILE_ROWS)) * TILE_ROWS;
    }

    __device__ __forceinline__ uint32_t column() const
    {
        return (index - before) / walk.tiles(TILE_ROWS) * COLUMNS;
    }
};

/* 128 rows of a map from `row` on, into a stage: all of them, or one of two halves for both. */
static __device__ __forceinline__ void fast_load(uint8_t *to, const CUtensorMap *map, uint32_t k,
                                                 uint32_t row, uint64_t *full, bool shared,
                                                 uint32_t half, uint16_t mask)
{
    enum { HALF_ROWS = FAST_TILE / 2, HALF_BYTES = FAST_BYTES / 2 };
    if (shared) {
        tensor_load_all(to + half * HALF_BYTES, map, k, row + half * HALF_ROWS, full, mask);
    } else {
        tensor_load(to, map, k, row, full);
        tensor_load(to + HALF_BYTES, map, k, row + HALF_ROWS, full);
    }
}

/* One thread. */
template <int ROWS, int COLUMNS>
static __device__ void fast_produce(const struct grouped &grouped, const CUtensorMap *rows_map,
                                    const CUtensorMap *weights_map,
                                    const struct fast_shared &shared)
{
    const struct fast_cluster<ROWS, COLUMNS> cluster;
    struct fast_turn turn = {0, 0};
    struct fast_tiles<ROWS, COLUMNS> tiles;

    for (tiles.begin(grouped); tiles.find(grouped); tiles.index += cluster_count()) {
        const uint32_t row = (uint32_t)tiles.row() + cluster.row * FAST_TILE;
        const uint32_t output = (tiles.column() + cluster.column) * FAST_TILE;
        const uint32_t weight = tiles.walk.group * grouped.outputs + output;
        for (uint32_t k = 0; k < grouped.rows.depth; k += FAST_TILE, turn.next()) {
            uint64_t *full = &shared.full[turn.stage];
            barrier_wait(&shared.empty[turn.stage], turn.parity ^ 1);
            barrier_expect(full, 2 * FAST_BYTES);
            fast_load(shared.weights + turn.stage * FAST_BYTES, weights_map, k, weight, full,
                      ROWS > 1, cluster.row, cluster.weight_mask());
            fast_load(shared.rows + turn.stage * FAST_BYTES, rows_map, k, row, full, COLUMNS > 1,
                      cluster.column, cluster.row_mask());
        }
    }
}

/* Scales of the lane's two rows, times the block of weights'. */
struct fast_scales {
    float row[2], weights;

    __device__ __forceinline__ void load(const struct grouped &grouped, uint64_t first,
                                         const float *weight_scales, uint32_t block)
    {
        const uint64_t last = grouped.rows.rows - 1;
        row[0] = scale_of(grouped.rows, first < last ? first : last, block);
        row[1] = scale_of(grouped.rows, first + 8 < last ? first + 8 : last, block);
        weights = weight_scales[block];
    }
};

/* 64 rows by 128 outputs of one tile, by a warpgroup. */
template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void
fast_tile(const struct grouped &grouped, uint64_t first, const float *weight_scales,
          const struct fast_shared &shared, uint32_t warpgroup, struct fast_turn &turn,
          float sum[64])
{
    const struct fast_cluster<ROWS, COLUMNS> cluster;
    const uint32_t blocks = grouped.rows.depth / FAST_TILE;
    float made[64];
    struct fast_scales scales, after;

    scales.load(grouped, first, weight_scales, 0);
#pragma unroll
    for (int i = 0; i < 64; i++) sum[i] = made[i] = 0.0f;
    for (uint32_t block = 0; block < blocks; block++, turn.next()) {
        const uint64_t a = wgmma_operand(shared.rows + turn.stage * FAST_BYTES +
                                         warpgroup * (FAST_BYTES / FAST_CONSUMERS));
        const uint64_t b = wgmma_operand(shared.weights + turn.stage * FAST_BYTES);
        barrier_wait(&shared.full[turn.stage], turn.parity);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < FAST_TILE / FAST_DEPTH_STEP; step++)
            wgmma_64x128x32(made, a + step * (FAST_DEPTH_STEP >> 4),
                            b + step * (FAST_DEPTH_STEP >> 4), step != 0);
        wgmma_commit();
        after.load(grouped, first, weight_scales, block + 1 < blocks ? block + 1 : block);
        wgmma_wait();
        wgmma_settled(made);
        __syncwarp();
        if (lane_id() < cluster.PARTNERS)
            barrier_arrive_at(&shared.empty[turn.stage], cluster.partner(lane_id()));
        const float scale[2] = {__fmul_rn(scales.row[0], scales.weights),
                                __fmul_rn(scales.row[1], scales.weights)};
#pragma unroll
        for (int i = 0; i < 64; i++) sum[i] = __fmaf_rn(made[i], scale[i / 2 % 2], sum[i]);
        scales = after;
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

/* Rows first and first + 8 of the lane, as far as they lie before end, to BF16. */
static __device__ __forceinline__ void fast_store(const struct grouped &grouped, uint32_t column,
                                                  uint64_t first, uint64_t end, const float sum[64])
{
    uint16_t *out = grouped.out + first * grouped.outputs + column * FAST_TILE + lane_id() % 4 * 8;
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

template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void fast_consume(const struct grouped &grouped,
                                                    const struct fast_shared &shared)
{
    const struct fast_cluster<ROWS, COLUMNS> cluster;
    const uint32_t warpgroup = threadIdx.x / FAST_GROUP_THREADS;
    const uint32_t blocks = grouped.rows.depth / FAST_TILE;
    const uint32_t row_at = cluster.row * FAST_TILE + warpgroup * (FAST_TILE / FAST_CONSUMERS) +
                            threadIdx.x % FAST_GROUP_THREADS / WARP * 16 + lane_id() / 4;
    struct fast_turn turn = {0, 0};
    struct fast_tiles<ROWS, COLUMNS> tiles;

    for (tiles.begin(grouped); tiles.find(grouped); tiles.index += cluster_count()) {
        const uint32_t column = tiles.column() + cluster.column;
        const uint64_t first = tiles.row() + row_at, end = tiles.walk.first + tiles.walk.count;
        const uint64_t scale_row =
            (uint64_t)tiles.walk.group * (grouped.outputs / FAST_TILE) + column;
        float sum[64];
        fast_tile<ROWS, COLUMNS>(grouped, first, grouped.scales + scale_row * blocks, shared,
                                 warpgroup, turn, sum);
        fast_store(grouped, column, first, end, sum);
    }
}

template <int ROWS, int COLUMNS>
static __global__ void __cluster_dims__(ROWS *COLUMNS, 1, 1) __launch_bounds__(FAST_THREADS, 1)
    grouped_fast_kernel(struct grouped grouped, const __grid_constant__ CUtensorMap rows_map,
                        const __grid_constant__ CUtensorMap weights_map)
{
    extern __shared__ uint8_t raw[];
    __shared__ uint64_t full[FAST_STAGES], empty[FAST_STAGES];
    const kernel_stamp stamp(grouped.stamps);
    const uint32_t ahead = (1024 - shared_address(raw) % 1024) % 1024;
    const struct fast_shared shared = {raw + ahead, raw + ahead + FAST_STAGES * FAST_BYTES, full,
                                       empty};

    if (threadIdx.x == 0) {
        const uint32_t warps = FAST_CONSUMERS * FAST_GROUP_THREADS / WARP;
        for (int i = 0; i < FAST_STAGES; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], (ROWS + COLUMNS - 1) * warps);
        }
        barrier_init_done();
    }
    cluster_barrier();
    if (threadIdx.x < FAST_CONSUMERS * FAST_GROUP_THREADS)
        fast_consume<ROWS, COLUMNS>(grouped, shared);
    else if (threadIdx.x == FAST_CONSUMERS * FAST_GROUP_THREADS)
        fast_produce<ROWS, COLUMNS>(grouped, &rows_map, &weights_map, shared);
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
template <int ROWS, int COLUMNS>
static int launch(const struct gpu_device *device, const struct grouped *grouped,
                  const CUtensorMap *rows_map, const CUtensorMap *weights_map, char *err,
                  size_t err_len)
{
    const uint64_t columns = grouped->outputs / (COLUMNS * FAST_TILE);
    const uint64_t tiles = grouped_tiles_most(grouped, ROWS * FAST_TILE) * columns;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute shape;
    int resident = 0;

    assert(tiles < UINT32_MAX / 2);
    shape.id = cudaLaunchAttributeClusterDimension;
    shape.val.clusterDim.x = ROWS * COLUMNS;
    shape.val.clusterDim.y = shape.val.clusterDim.z = 1;
    config.attrs = &shape;
    config.numAttrs = 1;
    config.gridDim = dim3(device->sm_count / (ROWS * COLUMNS) * (ROWS * COLUMNS));
    config.blockDim = dim3(FAST_THREADS);
    config.dynamicSmemBytes = FAST_SHARED;
    config.stream = device->stream;
    GPU_TRY(cudaFuncSetAttribute(grouped_fast_kernel<ROWS, COLUMNS>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, FAST_SHARED));
    GPU_TRY(cudaOccupancyMaxActiveClusters(&resident, grouped_fast_kernel<ROWS, COLUMNS>, &config));
    if (resident < 1) resident = 1; /* Whatever is wrong shows in the launch. */
    const uint32_t clusters = tiles < (uint32_t)resident ? (uint32_t)tiles : (uint32_t)resident;
    GPU_LAUNCH((grouped_fast_kernel<ROWS, COLUMNS>), clusters * ROWS * COLUMNS, FAST_THREADS,
               FAST_SHARED, device->stream, *grouped, *rows_map, *weights_map);
    GPU_TRY(cudaGetLastError());
    return 0;
}

/* Two tiles of rows a cluster where few groups end in the first of them. */
static bool has_large_groups(const struct grouped *grouped)
{
    return grouped->capacity == 0 && grouped->rows.rows / grouped->groups >= 4 * FAST_TILE;
}

static int launch_shape(const struct gpu_device *device, const struct grouped *grouped,
                        const CUtensorMap *rows_map, const CUtensorMap *weights_map, char *err,
                        size_t err_len)
{
    if (grouped->outputs % (2 * FAST_TILE) != 0)
        return launch<1, 1>(device, grouped, rows_map, weights_map, err, err_len);
    if (has_large_groups(grouped))
        return launch<2, 2>(device, grouped, rows_map, weights_map, err, err_len);
    return launch<1, 2>(device, grouped, rows_map, weights_map, err, err_len);
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
        if (make_map(encode, made.rows.codes, made.rows.rows, made.rows.depth, FAST_TILE / 2,
                     &rows_map, err, err_len) != 0 ||
            make_map(encode, made.codes, (uint64_t)made.groups * made.outputs, made.rows.depth,
                     FAST_TILE / 2, &weights_map, err, err_len) != 0)
            return -1;
        if (launch_shape(device, &made, &rows_map, &weights_map, err, err_len) != 0) return -1;
    }
    return 0;
}
