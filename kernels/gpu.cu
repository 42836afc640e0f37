/* kernels/gpu.cu - opening GPUs, waiting, timing. No kernel but the one that flushes a cache. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"
#include "kernels/stamp.cuh"

int gpu_failed(cudaError_t status, const char *call, char *err, size_t err_len)
{
    const int name = (int)strcspn(call, "(");
    snprintf(err, err_len, "cuda: %.*s: %s", name, call, cudaGetErrorString(status));
    (void)cudaGetLastError(); /* Not every failure is the last one's. */
    return -1;
}

extern "C" int gpu_device_count(uint32_t *count, char *err, size_t err_len)
{
    int found = 0, usable = 0;
    const cudaError_t status = cudaGetDeviceCount(&found);

    if (status != cudaSuccess) {
        snprintf(err, err_len, "cuda: no GPU to run on: %s", cudaGetErrorString(status));
        (void)cudaGetLastError();
        return -1;
    }
    for (int d = 0; d < found; d++) {
        int major = 0, minor = 0;
        GPU_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d));
        GPU_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d));
        if (major == 9 && minor == 0 && usable == d) usable++;
    }
    if (usable == 0) {
        snprintf(err, err_len,
                 "cuda: none of %d GPUs has compute capability 9.0, which these kernels need",
                 found);
        return -1;
    }
    *count = (uint32_t)usable;
    return 0;
}

static int open_device(struct gpu_device *device, int ordinal, char *err, size_t err_len)
{
    int sm_count = 0, l2_bytes = 0;

    GPU_TRY(cudaSetDevice(ordinal));
    GPU_TRY(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, ordinal));
    GPU_TRY(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, ordinal));
    GPU_TRY(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking));
    GPU_TRY(cudaEventCreateWithFlags(&device->reached, cudaEventDisableTiming));
    GPU_TRY(cudaEventCreate(&device->start));
    GPU_TRY(cudaEventCreate(&device->stop));
    device->ordinal = ordinal;
    device->sm_count = (uint32_t)sm_count;
    device->l2_bytes = (uint64_t)l2_bytes;
    return 0;
}

/* Every GPU must be able to store into every other: deliveries do. */
static int open_paths(struct gpu *gpu, char *err, size_t err_len)
{
    for (uint32_t from = 0; from < gpu->devices; from++) {
        GPU_TRY(cudaSetDevice(gpu->device[from].ordinal));
        for (uint32_t to = 0; to < gpu->devices; to++) {
            int reaches = 0;
            if (to == from) continue;
            GPU_TRY(cudaDeviceCanAccessPeer(&reaches, gpu->device[from].ordinal,
                                            gpu->device[to].ordinal));
            if (!reaches) {
                snprintf(err, err_len, "cuda: GPU %" PRIu32 " cannot store into GPU %" PRIu32, from,
                         to);
                return -1;
            }
            const cudaError_t status = cudaDeviceEnablePeerAccess(gpu->device[to].ordinal, 0);
            if (status == cudaErrorPeerAccessAlreadyEnabled)
                (void)cudaGetLastError(); /* Another struct gpu of this process did. */
            else
                GPU_TRY(status);
        }
    }
    return 0;
}

extern "C" int gpu_open(const struct gpu_options *options, struct gpu **out, char *err,
                        size_t err_len)
{
    uint32_t found = 0;

    if (gpu_device_count(&found, err, err_len) != 0) return -1;
    if (options->devices < 1 || options->devices > found || options->devices > GPU_DEVICES_MAX) {
        snprintf(err, err_len, "cuda: %" PRIu32 " GPUs asked for: 1 to %" PRIu32 " are here",
                 options->devices, found);
        return -1;
    }
    struct gpu *gpu = (struct gpu *)calloc(1, sizeof *gpu);
    if (gpu == NULL) {
        snprintf(err, err_len, "cuda: out of host memory");
        return -1;
    }
    gpu->mapping = options->mapping;
    gpu->memory_bytes = options->memory_bytes;
    for (; gpu->devices < options->devices; gpu->devices++)
        if (open_device(&gpu->device[gpu->devices], (int)gpu->devices, err, err_len) != 0) break;
    if (gpu->devices < options->devices || open_paths(gpu, err, err_len) != 0) {
        gpu_close(gpu);
        return -1;
    }
    *out = gpu;
    return 0;
}

extern "C" void gpu_close(struct gpu *gpu)
{
    if (gpu == NULL) return;
    for (uint32_t d = 0; d < gpu->devices; d++) {
        struct gpu_device *device = &gpu->device[d];
        (void)cudaSetDevice(device->ordinal);
        (void)cudaStreamSynchronize(device->stream);
        (void)cudaFree(device->slab);
        (void)cudaFree(device->flush);
        (void)cudaFree(device->staging);
        (void)cudaFree(device->stamp_room);
        (void)cudaEventDestroy(device->reached);
        (void)cudaEventDestroy(device->start);
        (void)cudaEventDestroy(device->stop);
        (void)cudaStreamDestroy(device->stream);
    }
    for (uint32_t b = 0; b < GPU_BUFFERS_MAX; b++) {
        free(gpu->buffer[b].rank_start);
        free(gpu->buffer[b].first_at);
    }
    free(gpu->stamps);
    free(gpu->places);
    free(gpu->moves);
    free(gpu);
}

extern "C" int gpu_describe(const struct gpu *gpu, struct gpu_info *info, char *err, size_t err_len)
{
    struct cudaDeviceProp properties;
    int driver = 0, runtime = 0;

    GPU_TRY(cudaGetDeviceProperties(&properties, gpu->device[0].ordinal));
    GPU_TRY(cudaDriverGetVersion(&driver));
    GPU_TRY(cudaRuntimeGetVersion(&runtime));
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%s", properties.name);
    snprintf(info->driver, sizeof info->driver, "%d.%d", driver / 1000, driver % 1000 / 10);
    snprintf(info->cuda, sizeof info->cuda, "%d.%d", runtime / 1000, runtime % 1000 / 10);
    info->devices = gpu->devices;
    info->sm_count = gpu->device[0].sm_count;
    info->memory_bytes = properties.totalGlobalMem;
    info->l2_bytes = gpu->device[0].l2_bytes;
    return 0;
}

extern "C" int gpu_wait(struct gpu *gpu, char *err, size_t err_len)
{
    for (uint32_t d = 0; d < gpu->devices; d++) {
        GPU_TRY(cudaSetDevice(gpu->device[d].ordinal));
        GPU_TRY(cudaStreamSynchronize(gpu->device[d].stream));
    }
    return 0;
}

int gpu_fence(struct gpu *gpu, char *err, size_t err_len)
{
    if (gpu->devices == 1) return 0;
    for (uint32_t d = 0; d < gpu->devices; d++) {
        GPU_TRY(cudaSetDevice(gpu->device[d].ordinal));
        GPU_TRY(cudaEventRecord(gpu->device[d].reached, gpu->device[d].stream));
    }
    for (uint32_t d = 0; d < gpu->devices; d++) {
        GPU_TRY(cudaSetDevice(gpu->device[d].ordinal));
        for (uint32_t other = 0; other < gpu->devices; other++)
            if (other != d)
                GPU_TRY(cudaStreamWaitEvent(gpu->device[d].stream, gpu->device[other].reached, 0));
    }
    return 0;
}

extern "C" int gpu_timer_start(struct gpu *gpu, char *err, size_t err_len)
{
    if (gpu_fence(gpu, err, err_len) != 0) return -1;
    GPU_TRY(cudaSetDevice(gpu->device[0].ordinal));
    GPU_TRY(cudaEventRecord(gpu->device[0].start, gpu->device[0].stream));
    return 0;
}

extern "C" int gpu_timer_stop(struct gpu *gpu, uint64_t *elapsed_ns, char *err, size_t err_len)
{
    float elapsed_ms = 0;

    if (gpu_fence(gpu, err, err_len) != 0) return -1;
    GPU_TRY(cudaSetDevice(gpu->device[0].ordinal));
    GPU_TRY(cudaEventRecord(gpu->device[0].stop, gpu->device[0].stream));
    if (gpu_wait(gpu, err, err_len) != 0) return -1;
    GPU_TRY(cudaSetDevice(gpu->device[0].ordinal));
    GPU_TRY(cudaEventElapsedTime(&elapsed_ms, gpu->device[0].start, gpu->device[0].stop));
    *elapsed_ns = (uint64_t)((double)elapsed_ms * 1e6);
    return 0;
}

extern "C" int gpu_stamps_start(struct gpu *gpu, char *err, size_t err_len)
{
    for (uint32_t d = 0; d < gpu->devices; d++) {
        struct gpu_device *device = &gpu->device[d];
        const size_t bytes = 2 * sizeof(uint64_t) * STAMP_WARPS;
        GPU_TRY(cudaSetDevice(device->ordinal));
        if (device->stamp_room == NULL) GPU_TRY(cudaMalloc((void **)&device->stamp_room, bytes));
        GPU_TRY(cudaMemsetAsync(device->stamp_room, 0, bytes, device->stream));
        device->stamps = device->stamp_room;
    }
    return 0;
}

extern "C" int gpu_stamps_stop(struct gpu *gpu, uint64_t *elapsed_ns, char *err, size_t err_len)
{
    const size_t bytes = 2 * sizeof(uint64_t) * STAMP_WARPS;
    uint64_t *stamps = (uint64_t *)malloc(bytes), first = UINT64_MAX, last = 0;

    for (uint32_t d = 0; d < gpu->devices; d++) gpu->device[d].stamps = NULL;
    if (stamps == NULL) {
        snprintf(err, err_len, "cuda: out of host memory");
        return -1;
    }
    const struct gpu_device *device = &gpu->device[0];
    cudaError_t status = cudaSetDevice(device->ordinal);
    if (status == cudaSuccess)
        status = cudaMemcpyAsync(stamps, device->stamp_room, bytes, cudaMemcpyDeviceToHost,
                                 device->stream);
    if (status == cudaSuccess) status = cudaStreamSynchronize(device->stream);
    for (uint32_t w = 0; status == cudaSuccess && w < STAMP_WARPS; w++) {
        if (stamps[2 * w] == 0) continue;
        if (stamps[2 * w] < first) first = stamps[2 * w];
        if (stamps[2 * w + 1] > last) last = stamps[2 * w + 1];
    }
    free(stamps);
    *elapsed_ns = last > first ? last - first : 0;
    return status == cudaSuccess ? 0 : gpu_failed(status, "cudaMemcpyAsync", err, err_len);
}

/* Reads, so that no line is left to be written back inside somebody's interval. The one store can
 * never happen; without it there would be nothing to read for. */
static __global__ void flush_kernel(const uint4 *from, uint64_t count, uint32_t never,
                                    uint32_t *out)
{
    uint32_t sum = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x)
        sum |= from[i].x;
    if (sum == never) *out = sum;
}

extern "C" int gpu_flush(struct gpu *gpu, char *err, size_t err_len)
{
    for (uint32_t d = 0; d < gpu->devices; d++) {
        struct gpu_device *device = &gpu->device[d];
        const uint64_t bytes = 4 * device->l2_bytes;
        GPU_TRY(cudaSetDevice(device->ordinal));
        if (device->flush == NULL) {
            GPU_TRY(cudaMalloc((void **)&device->flush, bytes));
            GPU_TRY(cudaMemsetAsync(device->flush, 0, bytes, device->stream));
        }
        GPU_LAUNCH(flush_kernel, gpu_grid(device, UINT64_MAX / 2, flush_kernel), GPU_THREADS, 0,
                   device->stream, (const uint4 *)device->flush, bytes / sizeof(uint4), 1u,
                   (uint32_t *)device->flush);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
