/* kernels/normal_combine.cu - records of expert output staged, reduced on their way, added up.
 *
 * Twins of ref_normal_combine_pack(), ref_normal_forward() and ref_normal_combine_unpack(). Sums
 * are fp32 in the order of the records, from bias0 + bias1 (+0 each where there is none), rounded
 * to BF16 once; weights are summed in fp32 and never rounded. A rail row's contributions, and a
 * token's home slots, stand side by side.
 *
 * Bytes that must move: pack, 4 H a row and its few words; forward and unpack, 2 H in for every
 * record (and bias) and 2 H out.
 *
 * Launch: pack, a warp a record; sums, a warp one or more pieces of 256 channels, eight loads in
 * flight a lane: of eight records at home, of up to three records of a rail row, two pieces each.
 * The warp with a row's first piece also sums the weights, a column a lane. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"
#include "kernels/stamp.cuh"

struct stage {
    struct gpu_record record;
    const uint8_t *expert_out; /* Row 0, as all below. */
    const uint32_t *weights;   /* May be NULL, as the next two. */
    const uint32_t *src_meta;
    const uint32_t *src_token;
    uint8_t *staged;
    uint64_t stride;
    uint64_t first_row, end_row;
    uint64_t *stamps;
};

static __device__ __forceinline__ uint32_t stage_word(const struct stage &stage, uint64_t row,
                                                      uint32_t w)
{
    const struct gpu_record &record = stage.record;
    const uint64_t at = record.meta_at + w * 4;

    if (at < record.weights_at && record.internode)
        return stage.src_meta == NULL ? 0 : stage.src_meta[2 * row + w];
    if (at < record.weights_at) return stage.src_token == NULL ? 0 : stage.src_token[row];
    const uint32_t k = (uint32_t)(at - record.weights_at) / 4;
    return k >= record.topk || stage.weights == NULL ? 0 : stage.weights[row * record.topk + k];
}

static __global__ void __launch_bounds__(GPU_THREADS, 4) stage_kernel(struct stage stage)
{
    const kernel_stamp stamp(stage.stamps);
    const struct gpu_record &record = stage.record;
    const int32_t left = (int32_t)(record.payload_bytes / sizeof(uint4)) - (int32_t)lane_id();
    for (uint64_t row = stage.first_row + grid_warp(); row < stage.end_row; row += grid_warps()) {
        uint8_t *bytes = stage.staged + row * stage.stride;
        uint32_t *tail = (uint32_t *)(bytes + record.meta_at);
        const uint32_t tail_words = (uint32_t)(record.bytes - record.meta_at) / 4;
        const uint4 *from =
            (const uint4 *)(stage.expert_out + row * record.payload_bytes) + lane_id();
        struct flight flight;
        flight.load(from, left);
#pragma unroll 1
        for (uint32_t w = lane_id(); w < tail_words; w += WARP) tail[w] = stage_word(stage, row, w);
        flight.store((uint4 *)bytes + lane_id(), left);
        warp_copy_rest(flight, (uint4 *)bytes + lane_id(), from, left);
    }
}

struct sum {
    struct gpu_record record;
    const uint64_t *start; /* Records of out row r: start[r] up to start[r + 1]. */
    const uint8_t *records;
    uint64_t stride;      /* Of a record's row. */
    const uint4 *bias[2]; /* Out row 0, or NULL. */
    uint8_t *out;         /* Out row 0. */
    uint64_t out_stride;
    uint8_t *weights; /* Out row 0; NULL: not wanted. */
    uint64_t weights_stride;
    bool is_record; /* Out rows are records: meta and padding too. */
    uint64_t first_row;
    uint32_t items, pieces, row_vectors;
    uint64_t *stamps;
};

static __device__ __forceinline__ void add_plain(float acc[8], uint4 x)
{
    const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        acc[2 * i] = __fadd_rn(acc[2 * i], bf16_low(pairs[i]));
        acc[2 * i + 1] = __fadd_rn(acc[2 * i + 1], bf16_high(pairs[i]));
    }
}

static __device__ __forceinline__ void take(float acc[8], uint4 x)
{
    const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        acc[2 * i] = bf16_low(pairs[i]);
        acc[2 * i + 1] = bf16_high(pairs[i]);
    }
}

/* fp32 from +0, records ascending; NaNs as the reference has them, since they leave as fp32. */
static __device__ __forceinline__ void sum_weights(const struct sum &sum, uint64_t row,
                                                   const uint8_t *first, uint64_t count)
{
    const uint32_t k = lane_id();
    float total = 0.0f;

    if (k >= sum.record.topk) return;
    for (uint64_t i = 0; i < count; i++)
        total = add_keeping_nan(
            total, ((const float *)(first + i * sum.stride + sum.record.weights_at))[k]);
    ((float *)(sum.weights + row * sum.weights_stride))[k] = total;
}

/* Meta of the first record, and zeros behind the weights. */
static __device__ __forceinline__ void finish_record(const struct sum &sum, uint8_t *bytes,
                                                     const uint8_t *first)
{
    const struct gpu_record &record = sum.record;
    const uint64_t used = record.weights_at + record.topk * 4;

    if (lane_id() < 2)
        ((uint32_t *)(bytes + record.meta_at))[lane_id()] =
            ((const uint32_t *)(first + record.meta_at))[lane_id()];
    for (uint64_t at = used + lane_id() * 4; at < record.bytes; at += WARP * 4)
        *(uint32_t *)(bytes + at) = 0;
}

/* PIECES times eight channels a lane of all records of a row, ROWS records at a time. */
template <int PIECES, int ROWS>
static __device__ __forceinline__ void sum_vectors(const struct sum &sum, uint64_t row, uint32_t v,
                                                   const uint8_t *first, uint64_t count)
{
    const uint4 none = make_uint4(0, 0, 0, 0);
    float acc[PIECES][8];

#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        const uint64_t at = row * sum.row_vectors + v + p * WARP;
        const bool inside = v + p * WARP < sum.row_vectors;
        /* The first bias is taken as it is, the second added, +0 where there is none: only two
         * biases of -0 leave a -0. */
        take(acc[p], inside && sum.bias[0] != NULL ? sum.bias[0][at] : none);
        add_plain(acc[p], inside && sum.bias[1] != NULL ? sum.bias[1][at] : none);
    }
    for (uint64_t done = 0; done < count; done += ROWS) {
        uint4 held[ROWS][PIECES];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int p = 0; p < PIECES; p++)
                if (done + i < count && v + p * WARP < sum.row_vectors)
                    held[i][p] =
                        load_once((const uint4 *)(first + (done + i) * sum.stride) + v + p * WARP);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int p = 0; p < PIECES; p++)
                if (done + i < count) add_plain(acc[p], held[i][p]);
    }
#pragma unroll
    for (int p = 0; p < PIECES; p++)
        if (v + p * WARP < sum.row_vectors)
            store_once((uint4 *)(sum.out + row * sum.out_stride) + v + p * WARP,
                       make_uint4(bf16_pair(acc[p][0], acc[p][1]), bf16_pair(acc[p][2], acc[p][3]),
                                  bf16_pair(acc[p][4], acc[p][5]),
                                  bf16_pair(acc[p][6], acc[p][7])));
}

template <int PIECES, int ROWS>
static __global__ void __launch_bounds__(GPU_THREADS) sum_kernel(struct sum sum)
{
    const kernel_stamp stamp(sum.stamps);
    for (uint32_t item = (uint32_t)grid_warp(); item < sum.items; item += (uint32_t)grid_warps()) {
        const uint64_t row = sum.first_row + item / sum.pieces;
        const uint32_t piece = item % sum.pieces;
        const uint64_t count = sum.start[row + 1] - sum.start[row];
        const uint8_t *first = sum.records + sum.start[row] * sum.stride;
        sum_vectors<PIECES, ROWS>(sum, row, piece * PIECES * WARP + lane_id(), first, count);
        if (piece == 0 && sum.weights != NULL) sum_weights(sum, row, first, count);
        if (piece == 0 && sum.is_record) finish_record(sum, sum.out + row * sum.out_stride, first);
    }
}

template <int PIECES, int ROWS>
static int launch_sum(const struct gpu_device *device, struct sum *sum, uint64_t rows, char *err,
                      size_t err_len)
{
    sum->row_vectors = (uint32_t)(sum->record.payload_bytes / sizeof(uint4));
    sum->pieces = (sum->row_vectors + PIECES * WARP - 1) / (PIECES * WARP);
    assert(rows * sum->pieces < UINT32_MAX / 2);
    sum->items = (uint32_t)(rows * sum->pieces);
    if (sum->items == 0) return 0;
    sum->stamps = device->stamps;
    GPU_LAUNCH((sum_kernel<PIECES, ROWS>), gpu_grid(device, sum->items, sum_kernel<PIECES, ROWS>),
               GPU_THREADS, 0, device->stream, *sum);
    GPU_TRY(cudaGetLastError());
    return 0;
}

extern "C" int gpu_normal_combine_pack(struct gpu *gpu, uint32_t rank, uint32_t rank_count,
                                       const struct gpu_record *record,
                                       const struct gpu_buffer *expert_out,
                                       const struct gpu_buffer *weights,
                                       const struct gpu_buffer *src_meta,
                                       const struct gpu_buffer *src_token,
                                       struct gpu_buffer *staged, char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    assert(staged->row_bytes == gpu_normal_record(record).row_bytes);
    assert(expert_out->row_bytes == record->payload_bytes);
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        struct stage stage;
        stage.record = *record;
        stage.expert_out = gpu_base(expert_out, &span);
        stage.weights = (const uint32_t *)gpu_base(weights, &span);
        stage.src_meta = (const uint32_t *)gpu_base(src_meta, &span);
        stage.src_token = (const uint32_t *)gpu_base(src_token, &span);
        stage.staged = gpu_base(staged, &span);
        stage.stride = staged->row_bytes;
        stage.stamps = device->stamps;
        stage.first_row = gpu_first_row(staged, &span);
        stage.end_row = gpu_end_row(staged, &span);
        if (stage.first_row == stage.end_row) continue;
        GPU_LAUNCH(stage_kernel, gpu_grid(device, stage.end_row - stage.first_row, stage_kernel),
                   GPU_THREADS, 0, device->stream, stage);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}

extern "C" int gpu_normal_forward(struct gpu *gpu, uint32_t rank, uint32_t rank_count,
                                  const struct gpu_record *record,
                                  const struct gpu_buffer *contribution_start,
                                  const struct gpu_buffer *contributions, struct gpu_buffer *rails,
                                  char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    assert(record->internode && rails->row_bytes == gpu_normal_record(record).row_bytes);
    assert(contributions->row_bytes == rails->row_bytes);
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        struct sum sum;
        memset(&sum, 0, sizeof sum);
        sum.record = *record;
        sum.start = (const uint64_t *)gpu_base(contribution_start, &span);
        sum.records = gpu_base(contributions, &span);
        sum.out = gpu_base(rails, &span);
        sum.stride = contributions->row_bytes;
        sum.out_stride = rails->row_bytes;
        sum.weights = sum.out + record->weights_at;
        sum.weights_stride = rails->row_bytes;
        sum.is_record = true;
        sum.first_row = gpu_first_row(rails, &span);
        if (launch_sum<2, 3>(&gpu->device[span.device], &sum,
                             gpu_end_row(rails, &span) - sum.first_row, err, err_len) != 0)
            return -1;
    }
    return 0;
}

extern "C" int
gpu_normal_combine_unpack(struct gpu *gpu, uint32_t rank, uint32_t rank_count,
                          const struct gpu_record *record, const struct gpu_buffer *home_start,
                          const struct gpu_buffer *home, const struct gpu_buffer *bias0,
                          const struct gpu_buffer *bias1, struct gpu_buffer *combined,
                          struct gpu_buffer *combined_weights, char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);

    assert(home->row_bytes == gpu_normal_record(record).row_bytes);
    assert(combined->row_bytes == record->payload_bytes);
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        struct sum sum;
        memset(&sum, 0, sizeof sum);
        sum.record = *record;
        sum.start = (const uint64_t *)gpu_base(home_start, &span);
        sum.records = gpu_base(home, &span);
        sum.bias[0] = (const uint4 *)gpu_base(bias0, &span);
        sum.bias[1] = (const uint4 *)gpu_base(bias1, &span);
        sum.out = gpu_base(combined, &span);
        sum.stride = home->row_bytes;
        sum.out_stride = record->payload_bytes;
        sum.weights = gpu_base(combined_weights, &span);
        sum.weights_stride = record->topk * sizeof(float);
        sum.first_row = gpu_first_row(combined, &span);
        if (launch_sum<1, 8>(&gpu->device[span.device], &sum,
                             gpu_end_row(combined, &span) - sum.first_row, err, err_len) != 0)
            return -1;
    }
    return 0;
}
