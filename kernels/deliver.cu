/* kernels/deliver.cu - messages land: rows copied from the senders' arenas into the receivers'.
 *
 * Twin of ref_deliver() and ref_deliver_counts(). The host turns rows into addresses and leaves out
 * every move whose row a later one of the call writes again; what is left writes disjoint rows, so
 * any order gives the bytes that landing order gives.
 *
 * Bytes that must move: every landed row once, every source row once: moves of one source row are
 * put together, so that a row is loaded once however many experts it goes to.
 *
 * Launch: a warp a part of 4 KiB of a source row, eight 16-byte loads in flight a lane, stored to
 * each target in turn. Not persistent: with a block for every eight parts, rows are written in
 * order, and that is worth a few percent. Whole sectors of 32 bytes are moved: a part of one would
 * cost the memory a read of the rest. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"
#include "kernels/stamp.cuh"

enum { SECTOR_VECTORS = 2, PART_LOADS = 8, PART_VECTORS = PART_LOADS * WARP };

struct gpu_target { /* A move's end. */
    uint4 *row;
    uint32_t corrupt_byte; /* Of the row. */
    uint32_t corrupt_xor;
};

struct gpu_source { /* Moves that begin at one row: targets first .. first + count - 1. */
    const uint4 *row;
    uint32_t first;
    uint32_t count;
};

/* Fault injection, by the warp that has just stored the byte. */
static __device__ __noinline__ void corrupt(struct gpu_target target, uint32_t begin)
{
    __syncwarp(); /* Another lane stored it. */
    if (lane_id() == 0 && target.corrupt_byte / 16 >= begin &&
        target.corrupt_byte / 16 < begin + PART_VECTORS)
        ((uint8_t *)target.row)[target.corrupt_byte] ^= (uint8_t)target.corrupt_xor;
}

/* Vectors [first, end) of every row; `parts` of a row begin at the line that first stands in. */
static __global__ void __launch_bounds__(GPU_THREADS)
    deliver_kernel(const struct gpu_source *__restrict__ sources,
                   const struct gpu_target *__restrict__ targets, uint32_t items, uint32_t parts,
                   uint32_t first, uint32_t end, uint64_t *stamps)
{
    const kernel_stamp stamp(stamps);
    const uint32_t line = first / (GPU_LINE_BYTES / 16) * (GPU_LINE_BYTES / 16);
    const uint32_t item = (uint32_t)grid_warp();
    if (item >= items) return;

    const struct gpu_source source = sources[item / parts];
    const uint32_t begin = line + item % parts * PART_VECTORS, mine = begin + lane_id();
    bool wanted[PART_LOADS];
    uint4 held[PART_LOADS];
#pragma unroll
    for (int i = 0; i < PART_LOADS; i++) {
        wanted[i] = mine + i * WARP >= first && mine + i * WARP < end;
        if (wanted[i]) held[i] = load_once(source.row + mine + i * WARP);
    }
    for (uint32_t t = source.first; t < source.first + source.count; t++) {
        const struct gpu_target target = targets[t];
#pragma unroll
        for (int i = 0; i < PART_LOADS; i++)
            if (wanted[i]) store_once(target.row + mine + i * WARP, held[i]);
        if (target.corrupt_xor != 0) corrupt(target, begin);
    }
}

static int reserve_host(struct gpu *gpu, uint64_t moves, uint64_t src_rows, uint64_t dst_rows,
                        char *err, size_t err_len)
{
    const uint64_t bytes = moves * (sizeof(struct gpu_source) + sizeof(struct gpu_target));
    if (gpu->move_bytes < bytes) {
        free(gpu->moves);
        gpu->moves = (uint8_t *)malloc(bytes);
        gpu->move_bytes = gpu->moves != NULL ? bytes : 0;
    }
    if (gpu->stamp_rows < dst_rows) {
        free(gpu->stamps);
        gpu->stamps = (uint64_t *)calloc(dst_rows, sizeof *gpu->stamps);
        gpu->stamp_rows = gpu->stamps != NULL ? dst_rows : 0;
    }
    if (gpu->place_rows < src_rows + 1) {
        free(gpu->places);
        gpu->places = (uint32_t *)malloc((src_rows + 1) * sizeof *gpu->places);
        gpu->place_rows = gpu->places != NULL ? src_rows + 1 : 0;
    }
    if (gpu->move_bytes >= bytes && gpu->stamp_rows >= dst_rows && gpu->place_rows > src_rows)
        return 0;
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

/* Does move i leave this GPU, and is it not lost to a later one? */
static bool is_kept(const struct gpu *gpu, uint32_t device, const struct gpu_move *moves,
                    uint64_t i)
{
    return gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, moves[i].src_rank) == device &&
           gpu->stamps[moves[i].dst_row] == gpu->stamp + i + 1;
}

/* Count the targets of every source row, and make sources of those that have any. places[row]
 * becomes where the row's next target goes. Returns how many sources. */
static uint64_t list_sources(struct gpu *gpu, uint32_t device, const struct gpu_move *moves,
                             uint64_t count, const struct gpu_buffer *src)
{
    struct gpu_source *sources = (struct gpu_source *)gpu->moves;
    struct gpu_span from = {0, 0, device};
    uint64_t made = 0;
    uint32_t next = 0;

    memset(gpu->places, 0, src->rows * sizeof *gpu->places);
    for (uint64_t i = 0; i < count; i++)
        if (is_kept(gpu, device, moves, i)) gpu->places[moves[i].src_row]++;
    for (uint32_t r = 0; r < gpu->ranks; r++) {
        from.first = r;
        for (uint64_t row = src->rank_start[r]; row < src->rank_start[r + 1]; row++) {
            const uint32_t targets = gpu->places[row];
            gpu->places[row] = next;
            if (targets == 0) continue;
            sources[made].row = (const uint4 *)(gpu_base(src, &from) + row * src->row_bytes);
            sources[made].first = next;
            sources[made++].count = targets;
            next += targets;
        }
    }
    return made;
}

/* Put every kept move's end where list_sources() left room for it. Returns how many. */
static uint64_t list_targets(struct gpu *gpu, uint32_t device, const struct gpu_move *moves,
                             uint64_t count, uint64_t lead, const struct gpu_buffer *src,
                             const struct gpu_buffer *dst, struct gpu_target *targets)
{
    struct gpu_span to = {0, 0, 0};
    uint64_t made = 0;

    for (uint64_t i = 0; i < count; i++) {
        const struct gpu_move *move = &moves[i];
        if (!is_kept(gpu, device, moves, i)) continue;
        assert(move->src_row >= src->rank_start[move->src_rank] &&
               move->src_row < src->rank_start[move->src_rank + 1]);
        assert(move->dst_row >= dst->rank_start[move->dst_rank] &&
               move->dst_row < dst->rank_start[move->dst_rank + 1]);
        to.first = move->dst_rank;
        to.device = gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, to.first);
        struct gpu_target *target = &targets[gpu->places[move->src_row]++];
        target->row = (uint4 *)(gpu_base(dst, &to) + move->dst_row * dst->row_bytes);
        target->corrupt_byte = (uint32_t)lead + move->corrupt_byte;
        target->corrupt_xor = move->corrupt_xor;
        made++;
    }
    return made;
}

/* Copy what the GPU's staging says. */
static int copy_rows(const struct gpu_device *device, char *err, size_t err_len)
{
    const struct gpu_source *sources = (const struct gpu_source *)device->staging;
    const uint32_t line = device->move_first / (GPU_LINE_BYTES / 16) * (GPU_LINE_BYTES / 16);
    const uint32_t parts = (device->move_end - line + PART_VECTORS - 1) / PART_VECTORS;
    const uint64_t items = device->move_sources * parts;

    if (items == 0) return 0;
    assert(items < UINT32_MAX / 2);
    GPU_TRY(cudaSetDevice(device->ordinal));
    GPU_LAUNCH(deliver_kernel, (uint32_t)((items + GPU_WARPS - 1) / GPU_WARPS), GPU_THREADS, 0,
               device->stream, sources, (const struct gpu_target *)(sources + device->move_sources),
               (uint32_t)items, parts, device->move_first, device->move_end, device->stamps);
    GPU_TRY(cudaGetLastError());
    return 0;
}

/* Everything that leaves one GPU. */
static int launch(struct gpu *gpu, uint32_t device_index, const struct gpu_move *moves,
                  uint64_t count, const struct gpu_slot *slot, const struct gpu_buffer *src,
                  const struct gpu_buffer *dst, char *err, size_t err_len)
{
    struct gpu_device *device = &gpu->device[device_index];
    const uint64_t sources = list_sources(gpu, device_index, moves, count, src);
    struct gpu_target *targets =
        (struct gpu_target *)(gpu->moves + sources * sizeof(struct gpu_source));
    const uint64_t kept =
        list_targets(gpu, device_index, moves, count, slot->lead, src, dst, targets);
    const uint64_t bytes = sources * sizeof(struct gpu_source) + kept * sizeof(struct gpu_target);

    device->move_sources = sources;
    device->move_first = (uint32_t)(slot->lead / sizeof(uint4)) / SECTOR_VECTORS * SECTOR_VECTORS;
    device->move_end = (uint32_t)((slot->lead + slot->bytes + 31) / 32) * SECTOR_VECTORS;
    if (sources == 0) return 0;
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
    assert(count < UINT32_MAX && sizeof(struct gpu_source) == sizeof(struct gpu_target));
    if (reserve_host(gpu, count, src->rows, dst->rows, err, err_len) != 0) return -1;
    stamp_rows(gpu, moves, count, dst);
    if (gpu_fence(gpu, err, err_len) != 0) return -1;
    for (uint32_t d = 0; d < gpu->devices; d++)
        if (launch(gpu, d, moves, count, slot, src, dst, err, err_len) != 0) return -1;
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
    /* What a GPU still has to do to its words, to clean them say, comes before what others store.
     */
    if (gpu_fence(gpu, err, err_len) != 0) return -1;
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
