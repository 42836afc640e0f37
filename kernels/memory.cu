/* kernels/memory.cu - one slab a GPU, planned for all buffers before any is taken. */
#include "kernels/gpu_private.cuh"

/* Copies the rows of each rank and numbers them among their GPU's. */
static int place_ranks(const struct gpu *gpu, const struct gpu_part *part,
                       struct gpu_buffer *buffer, char *err, size_t err_len)
{
    const uint64_t ranks = gpu->ranks;

    if (buffer->rank_room < ranks + 1) {
        free(buffer->rank_start);
        free(buffer->first_at);
        buffer->rank_start = (uint64_t *)malloc((ranks + 1) * sizeof(uint64_t));
        buffer->first_at = (uint64_t *)malloc((ranks + 1) * sizeof(uint64_t));
        buffer->rank_room = 0;
        if (buffer->rank_start == NULL || buffer->first_at == NULL) {
            snprintf(err, err_len, "cuda: out of host memory");
            return -1;
        }
        buffer->rank_room = ranks + 1;
    }
    memcpy(buffer->rank_start, part->rank_start, (ranks + 1) * sizeof(uint64_t));
    for (uint32_t r = 0; r < ranks; r++) {
        const uint32_t d = gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, r);
        assert(part->rank_start[r] <= part->rank_start[r + 1]);
        buffer->first_at[r] = buffer->rows_at[d];
        buffer->rows_at[d] += part->rank_start[r + 1] - part->rank_start[r];
    }
    buffer->rows = part->rank_start[ranks];
    assert(part->rank_start[0] == 0);
    return 0;
}

static int place_buffer(const struct gpu *gpu, const struct gpu_part *part,
                        struct gpu_buffer *buffer, char *err, size_t err_len)
{
    memset(buffer->rows_at, 0, sizeof buffer->rows_at);
    memset(buffer->at, 0, sizeof buffer->at);
    buffer->row_bytes = part->row_bytes;
    if (part->rank_start != NULL) return place_ranks(gpu, part, buffer, err, err_len);
    free(buffer->rank_start);
    free(buffer->first_at);
    buffer->rank_start = NULL;
    buffer->first_at = NULL;
    buffer->rank_room = 0;
    buffer->rows = part->rows;
    for (uint32_t d = 0; d < gpu->devices; d++) buffer->rows_at[d] = part->rows;
    return 0;
}

/* Is there room for the slab? What the old slab holds comes back first. */
static int check_room(const struct gpu *gpu, uint32_t d, uint64_t bytes, char *err, size_t err_len)
{
    const struct gpu_device *device = &gpu->device[d];
    size_t free_bytes = 0, all_bytes = 0;

    GPU_TRY(cudaSetDevice(device->ordinal));
    GPU_TRY(cudaMemGetInfo(&free_bytes, &all_bytes));
    return gpu_plan_fits(device->ordinal, "this layer", bytes, free_bytes + device->slab_bytes,
                         gpu->memory_bytes, err, err_len);
}

static int grow_slab(struct gpu_device *device, uint64_t bytes, char *err, size_t err_len)
{
    if (bytes <= device->slab_bytes) return 0;
    GPU_TRY(cudaSetDevice(device->ordinal));
    GPU_TRY(cudaStreamSynchronize(device->stream));
    GPU_TRY(cudaFree(device->slab));
    device->slab = NULL;
    device->slab_bytes = 0;
    GPU_TRY(cudaMalloc((void **)&device->slab, bytes));
    device->slab_bytes = bytes;
    return 0;
}

extern "C" int gpu_plan(struct gpu *gpu, uint32_t ranks, const struct gpu_part *parts,
                        uint32_t count, char *err, size_t err_len)
{
    uint64_t bytes[GPU_DEVICES_MAX];

    assert(ranks >= 1 && count <= GPU_BUFFERS_MAX);
    gpu->ranks = ranks;
    gpu->buffers = count;
    for (uint32_t b = 0; b < count; b++)
        if (place_buffer(gpu, &parts[b], &gpu->buffer[b], err, err_len) != 0) return -1;
    for (uint32_t d = 0; d < gpu->devices; d++) {
        bytes[d] = gpu_plan_bytes(gpu->mapping, gpu->devices, ranks, parts, count, d);
        if (check_room(gpu, d, bytes[d], err, err_len) != 0) return -1;
    }
    for (uint32_t d = 0; d < gpu->devices; d++) {
        uint64_t at = 0;
        if (grow_slab(&gpu->device[d], bytes[d], err, err_len) != 0) return -1;
        for (uint32_t b = 0; b < count; b++) {
            struct gpu_buffer *buffer = &gpu->buffer[b];
            buffer->at[d] = gpu->device[d].slab + at;
            at += gpu_plan_align(buffer->rows_at[d] * buffer->row_bytes);
        }
        assert(at == bytes[d]);
    }
    return 0;
}

extern "C" int gpu_room(uint32_t device, uint64_t *bytes, char *err, size_t err_len)
{
    size_t free_bytes = 0, all_bytes = 0;

    GPU_TRY(cudaSetDevice((int)device));
    GPU_TRY(cudaMemGetInfo(&free_bytes, &all_bytes));
    *bytes = free_bytes;
    return 0;
}

extern "C" struct gpu_buffer *gpu_plan_buffer(struct gpu *gpu, uint32_t index)
{
    assert(index < GPU_BUFFERS_MAX);
    return &gpu->buffer[index];
}

int gpu_stage(struct gpu_device *device, uint64_t bytes, char *err, size_t err_len)
{
    if (bytes <= device->staging_bytes) return 0;
    const uint64_t room = bytes + bytes / 4;
    GPU_TRY(cudaSetDevice(device->ordinal));
    GPU_TRY(cudaStreamSynchronize(device->stream));
    GPU_TRY(cudaFree(device->staging));
    device->staging = NULL;
    device->staging_bytes = 0;
    GPU_TRY(cudaMalloc((void **)&device->staging, room));
    device->staging_bytes = room;
    return 0;
}

/* Host memory may be pageable: the copy has left it when the call returns. */
extern "C" int gpu_write(struct gpu *gpu, struct gpu_buffer *to, const void *rows, char *err,
                         size_t err_len)
{
    const uint8_t *from = (const uint8_t *)rows;
    struct gpu_span span = gpu_span_before(0);

    for (uint32_t d = 0; to->rank_start == NULL && to->rows > 0 && d < gpu->devices; d++) {
        GPU_TRY(cudaSetDevice(gpu->device[d].ordinal));
        GPU_TRY(cudaMemcpyAsync(to->at[d], from, to->rows * to->row_bytes, cudaMemcpyHostToDevice,
                                gpu->device[d].stream));
    }
    while (to->rank_start != NULL && gpu_next_span(gpu, gpu->ranks, &span)) {
        const uint64_t first = gpu_first_row(to, &span), count = gpu_end_row(to, &span) - first;
        if (count == 0) continue;
        GPU_TRY(cudaMemcpyAsync(gpu_base(to, &span) + first * to->row_bytes,
                                from + first * to->row_bytes, count * to->row_bytes,
                                cudaMemcpyHostToDevice, gpu->device[span.device].stream));
    }
    return 0;
}

extern "C" int gpu_read(struct gpu *gpu, const struct gpu_buffer *from, void *rows, char *err,
                        size_t err_len)
{
    uint8_t *to = (uint8_t *)rows;
    struct gpu_span span = gpu_span_before(0);

    if (from->rank_start == NULL && from->rows > 0) {
        GPU_TRY(cudaSetDevice(gpu->device[0].ordinal));
        GPU_TRY(cudaMemcpyAsync(to, from->at[0], from->rows * from->row_bytes,
                                cudaMemcpyDeviceToHost, gpu->device[0].stream));
    }
    while (from->rank_start != NULL && gpu_next_span(gpu, gpu->ranks, &span)) {
        const uint64_t first = gpu_first_row(from, &span), count = gpu_end_row(from, &span) - first;
        if (count == 0) continue;
        GPU_TRY(cudaMemcpyAsync(
            to + first * from->row_bytes, gpu_base(from, &span) + first * from->row_bytes,
            count * from->row_bytes, cudaMemcpyDeviceToHost, gpu->device[span.device].stream));
    }
    return gpu_wait(gpu, err, err_len);
}

extern "C" int gpu_fill(struct gpu *gpu, struct gpu_buffer *buffer, uint8_t byte, char *err,
                        size_t err_len)
{
    for (uint32_t d = 0; d < gpu->devices; d++) {
        const uint64_t bytes = buffer->rows_at[d] * buffer->row_bytes;
        if (bytes == 0) continue;
        GPU_TRY(cudaSetDevice(gpu->device[d].ordinal));
        GPU_TRY(cudaMemsetAsync(buffer->at[d], byte, bytes, gpu->device[d].stream));
    }
    return 0;
}
