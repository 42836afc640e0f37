/* kernels/deliver.cu - messages land: rows copied from the senders' arenas into the receivers'.
 *
 * Twin of ref_deliver() and ref_deliver_counts(). The host turns rows into addresses and leaves out
 * every move whose row a later one of the call writes again; what is left writes disjoint rows, so
 * any order gives the bytes that landing order gives.
 *
 * Bytes that must move: every landed row once, every source row once (a token that goes to several
 * experts is read again, from the L2: senders issue its messages one after the other).
 *
 * Launch: a warp a row, eight 16-byte loads in flight a lane, grid-stride over the moves. Whole
 * sectors of 32 bytes are moved: a part of one would cost the memory a read of the rest. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"

enum { SECTOR_VECTORS = 2 };

struct gpu_address_move {
    const uint4 *src; /* Rows, not messages. */
    uint4 *dst;
    uint32_t corrupt_byte; /* Of the row. */
    uint32_t corrupt_xor;
};

static __global__ void __launch_bounds__(GPU_THREADS)
    deliver_kernel(const struct gpu_address_move *__restrict__ moves, uint64_t count,
                   uint32_t first, uint32_t end)
{
    enum { UNROLL = 8 };
    /* The lane's first vector, on a line; where it stands before the message it is left out. */
    const uint32_t begin = first / (GPU_LINE_BYTES / 16) * (GPU_LINE_BYTES / 16) + lane_id();
    const int32_t skipped = (int32_t)first - (int32_t)begin;

    for (uint64_t m = grid_warp(); m < count; m += grid_warps()) {
        const struct gpu_address_move move = moves[m];
        const uint4 *from = move.src + begin;
        uint4 *to = move.dst + begin;
        int32_t left = (int32_t)end - (int32_t)begin;
        /* Not load_once: another move may read the row again. */
#pragma unroll 1
        for (bool skip = skipped > 0; __any_sync(FULL_WARP, left > 0); skip = false) {
            uint4 held[UNROLL];
#pragma unroll
            for (int i = 0; i < UNROLL; i++)
                if (left > i * WARP && !(i == 0 && skip)) held[i] = from[i * WARP];
#pragma unroll
            for (int i = 0; i < UNROLL; i++)
                if (left > i * WARP && !(i == 0 && skip)) store_once(to + i * WARP, held[i]);
            from += UNROLL * WARP;
            to += UNROLL * WARP;
            left -= UNROLL * WARP;
        }
        if (move.corrupt_xor == 0) continue;
        __syncwarp(); /* The byte below was stored by another lane. */
        if (lane_id() == 0) ((uint8_t *)move.dst)[move.corrupt_byte] ^= (uint8_t)move.corrupt_xor;
    }
}

static int reserve_host(struct gpu *gpu, uint64_t moves, uint64_t dst_rows, char *err,
                        size_t err_len)
{
    if (gpu->move_room < moves) {
        free(gpu->moves);
        gpu->moves = (struct gpu_address_move *)malloc(moves * sizeof *gpu->moves);
        gpu->move_room = gpu->moves != NULL ? moves : 0;
    }
    if (gpu->stamp_rows < dst_rows) {
        free(gpu->stamps);
        gpu->stamps = (uint64_t *)calloc(dst_rows, sizeof *gpu->stamps);
        gpu->stamp_rows = gpu->stamps != NULL ? dst_rows : 0;
    }
    if (gpu->move_room >= moves && gpu->stamp_rows >= dst_rows) return 0;
    snprintf(err, err_len, "cuda: %" PRIu64 " messages: out of host memory", moves);
    return -1;
}

/* The last move of the call to write each row gets the row's stamp. */
static void stamp_rows(struct gpu *gpu, const struct gpu_move *moves, uint64_t count,
                       const struct gpu_buffer *dst)
{
    for (uint64_t i = 0; i < count; i++) {
        assert(moves[i].dst_row < dst->rows);
        gpu->stamps[moves[i].dst_row] = gpu->stamp + i + 1;
    }
}

/* The moves that leave one GPU and are not lost to a later one, as addresses. Returns how many. */
static uint64_t resolve(struct gpu *gpu, uint32_t device, const struct gpu_move *moves,
                        uint64_t count, uint64_t lead, const struct gpu_buffer *src,
                        const struct gpu_buffer *dst)
{
    struct gpu_span from = {0, 0, device}, to = {0, 0, 0};
    uint64_t kept = 0;

    for (uint64_t i = 0; i < count; i++) {
        const struct gpu_move *move = &moves[i];
        from.first = move->src_rank;
        to.first = move->dst_rank;
        if (gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, from.first) != device) continue;
        if (gpu->stamps[move->dst_row] != gpu->stamp + i + 1) continue;
        to.device = gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, to.first);
        assert(move->src_row >= src->rank_start[from.first] &&
               move->src_row < src->rank_start[from.first + 1]);
        assert(move->dst_row >= dst->rank_start[to.first] &&
               move->dst_row < dst->rank_start[to.first + 1]);
        struct gpu_address_move *made = &gpu->moves[kept++];
        made->src = (const uint4 *)(gpu_base(src, &from) + move->src_row * src->row_bytes);
        made->dst = (uint4 *)(gpu_base(dst, &to) + move->dst_row * dst->row_bytes);
        made->corrupt_byte = (uint32_t)lead + move->corrupt_byte;
        made->corrupt_xor = move->corrupt_xor;
    }
    return kept;
}

/* Copy the moves that the GPU's staging holds. */
static int copy_rows(const struct gpu_device *device, char *err, size_t err_len)
{
    if (device->moves_staged == 0) return 0;
    GPU_TRY(cudaSetDevice(device->ordinal));
    GPU_LAUNCH(deliver_kernel, gpu_grid(device, device->moves_staged, deliver_kernel), GPU_THREADS,
               0, device->stream, (const struct gpu_address_move *)device->staging,
               device->moves_staged, device->move_first, device->move_end);
    GPU_TRY(cudaGetLastError());
    return 0;
}

static int launch(struct gpu *gpu, uint32_t device_index, uint64_t count,
                  const struct gpu_slot *slot, char *err, size_t err_len)
{
    struct gpu_device *device = &gpu->device[device_index];
    const uint64_t bytes = count * sizeof *gpu->moves;

    device->moves_staged = count;
    device->move_first = (uint32_t)(slot->lead / sizeof(uint4)) / SECTOR_VECTORS * SECTOR_VECTORS;
    device->move_end = (uint32_t)((slot->lead + slot->bytes + 31) / 32) * SECTOR_VECTORS;
    if (count == 0) return 0;
    if (gpu_stage(device, bytes, err, err_len) != 0) return -1;
    GPU_TRY(cudaSetDevice(device->ordinal));
    GPU_TRY(cudaMemcpyAsync(device->staging, gpu->moves, bytes, cudaMemcpyHostToDevice,
                            device->stream));
    return copy_rows(device, err, err_len);
}

extern "C" int gpu_deliver_again(struct gpu *gpu, char *err, size_t err_len)
{
    for (uint32_t d = 0; d < gpu->devices; d++)
        if (copy_rows(&gpu->device[d], err, err_len) != 0) return -1;
    return gpu_fence(gpu, err, err_len);
}

extern "C" int gpu_deliver(struct gpu *gpu, const struct gpu_move *moves, uint64_t count,
                           const struct gpu_slot *slot, const struct gpu_buffer *src,
                           struct gpu_buffer *dst, char *err, size_t err_len)
{
    assert(src->row_bytes == slot->row_bytes && dst->row_bytes == slot->row_bytes);
    assert(slot->row_bytes % GPU_LINE_BYTES == 0 && slot->lead + slot->bytes <= slot->row_bytes);
    if (count == 0) return 0;
    if (reserve_host(gpu, count, dst->rows, err, err_len) != 0) return -1;
    stamp_rows(gpu, moves, count, dst);
    if (gpu_fence(gpu, err, err_len) != 0) return -1;
    for (uint32_t d = 0; d < gpu->devices; d++) {
        const uint64_t kept = resolve(gpu, d, moves, count, slot->lead, src, dst);
        if (launch(gpu, d, kept, slot, err, err_len) != 0) return -1;
    }
    gpu->stamp += count;
    return gpu_fence(gpu, err, err_len);
}

/* One thread a word of the ranks [first, end) that send and [dst_first, dst_end) that receive. */
static __global__ void counts_kernel(const int32_t *__restrict__ sent,
                                     int32_t *__restrict__ received, uint32_t ranks,
                                     uint32_t columns, uint32_t first, uint32_t end,
                                     uint32_t dst_first, uint32_t dst_end)
{
    const uint32_t each = columns / ranks; /* Columns of one receiving rank. */
    const uint32_t begin = dst_first * each, width = (dst_end - dst_first) * each;
    const uint64_t words = (uint64_t)(end - first) * width;

    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint32_t source = first + (uint32_t)(i / width);
        const uint32_t column = begin + (uint32_t)(i % width);
        received[(uint64_t)column * ranks + source] = sent[(uint64_t)source * columns + column];
    }
}

extern "C" int gpu_deliver_counts(struct gpu *gpu, uint32_t columns, uint32_t rank,
                                  uint32_t rank_count, const struct gpu_buffer *sent,
                                  struct gpu_buffer *received, char *err, size_t err_len)
{
    struct gpu_span from = gpu_span_before(rank);

    assert(columns % gpu->ranks == 0);
    assert(sent->row_bytes == columns * sizeof(int32_t) && received->row_bytes == sent->row_bytes);
    while (gpu_next_span(gpu, rank + rank_count, &from)) {
        const struct gpu_device *device = &gpu->device[from.device];
        struct gpu_span to = gpu_span_before(0);
        while (gpu_next_span(gpu, gpu->ranks, &to)) {
            const uint64_t words =
                (uint64_t)(from.end - from.first) * (to.end - to.first) * (columns / gpu->ranks);
            GPU_TRY(cudaSetDevice(device->ordinal));
            GPU_LAUNCH(counts_kernel, gpu_grid(device, words / WARP + 1, counts_kernel),
                       GPU_THREADS, 0, device->stream, (const int32_t *)gpu_base(sent, &from),
                       (int32_t *)gpu_base(received, &to), gpu->ranks, columns, from.first,
                       from.end, to.first, to.end);
            GPU_TRY(cudaGetLastError());
        }
    }
    return gpu_fence(gpu, err, err_len);
}
