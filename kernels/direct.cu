/* kernels/direct.cu - spaces, launches and time of the direct transport; no exchange in it. */
#include "kernels/direct_private.cuh"

enum { LINE = 128, CYCLES_PER_US = 2000 };

static uint64_t place(uint64_t *at, uint64_t bytes)
{
    const uint64_t here = *at;
    *at += (bytes + LINE - 1) / LINE * LINE;
    return here;
}

/* Payload, scales and one word a column; two BF16 bytes a channel hold any recipe's payload. */
static uint64_t record_bytes(const struct gpu_direct_shape *shape)
{
    const uint64_t scales = gpu_scale_groups(shape->hidden) * sizeof(float);
    uint64_t at = 0;
    place(&at, 2 * (uint64_t)shape->hidden);
    place(&at, scales + LINE + shape->topk * sizeof(uint32_t));
    return at;
}

static void lay_out(struct gpu_direct *direct)
{
    struct direct_space_layout *layout = &direct->layout;
    const struct gpu_direct_shape *shape = &direct->shape;
    const uint64_t ranks = shape->ranks, experts = shape->experts;
    const uint64_t records = shape->ll ? ranks * shape->tokens_max : 0;
    uint64_t at = 0;

    direct->record_stride = record_bytes(shape);
    for (int turn = 0; turn < 2; turn++) {
        layout->ll_counts[turn] = place(&at, experts * sizeof(uint64_t));
        layout->ll_tokens[turn] = place(&at, ranks * sizeof(uint64_t));
        layout->ll_flags[turn] = place(&at, records * sizeof(uint32_t));
        layout->layout_counts[turn] = place(&at, ranks * ranks * sizeof(uint64_t));
    }
    layout->ll_ready = place(&at, experts * sizeof(uint64_t));
    for (int op = 0; op < DIRECT_OPERATIONS; op++) {
        layout->ready[op] = place(&at, ranks * sizeof(uint32_t));
        layout->arrived[op] = place(&at, ranks * sizeof(uint32_t));
    }
    layout->ll_slots = place(&at, (uint64_t)shape->tokens_max * shape->topk * sizeof(int32_t));
    layout->ll_starts = place(&at, (experts + 1) * sizeof(uint32_t));
    layout->normal_rows = place(&at, shape->tokens_max * ranks * sizeof(int32_t));
    layout->stamps = place(&at, 2 * DIRECT_STAMP_BLOCKS * sizeof(uint64_t));
    for (int turn = 0; turn < 2; turn++)
        layout->ll_records[turn] = place(&at, records * direct->record_stride);
    layout->bytes = at;
}

static int check_shape(const struct gpu *gpu, const struct gpu_direct_shape *shape, char *err,
                       size_t err_len)
{
    if (shape->ranks < 1 || shape->ranks > GPU_DIRECT_RANKS_MAX) {
        snprintf(err, err_len, "cuda: %" PRIu32 " ranks: the direct transport takes 1 to %d",
                 shape->ranks, GPU_DIRECT_RANKS_MAX);
        return -1;
    }
    if (shape->ranks < gpu->devices) {
        snprintf(err, err_len,
                 "cuda: %" PRIu32 " ranks on %" PRIu32
                 " GPUs: the direct transport needs a rank for each",
                 shape->ranks, gpu->devices);
        return -1;
    }
    if ((uint64_t)shape->tokens_max * shape->topk >= GPU_DIRECT_SELECTIONS_END) {
        snprintf(err, err_len,
                 "cuda: %" PRIu32 " tokens by %" PRIu32
                 " columns: the direct transport takes fewer than 2^20 selections a rank",
                 shape->tokens_max, shape->topk);
        return -1;
    }
    assert(shape->experts > 0 && shape->experts % shape->ranks == 0 &&
           shape->experts < GPU_DIRECT_EXPERTS_END);
    assert(shape->topk >= 1 && shape->topk <= GPU_TOPK_MAX);
    assert(shape->hidden > 0 && shape->hidden % GPU_GROUP_CHANNELS == 0);
    assert(shape->ranks == gpu->ranks);
    return 0;
}

static int check_memory(const struct gpu_direct *direct, char *err, size_t err_len)
{
    const struct gpu *gpu = direct->gpu;

    for (uint32_t d = 0; d < gpu->devices; d++) {
        size_t free_bytes = 0, all_bytes = 0;
        uint64_t wanted = 0;
        for (uint32_t r = 0; r < gpu->ranks; r++)
            if (gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, r) == d)
                wanted += direct->layout.bytes;
        GPU_TRY(cudaSetDevice(gpu->device[d].ordinal));
        GPU_TRY(cudaMemGetInfo(&free_bytes, &all_bytes));
        const uint64_t taken = gpu->device[d].slab_bytes;
        const uint64_t allowed = gpu->memory_bytes > taken ? gpu->memory_bytes - taken : 1;
        if (gpu_plan_fits(gpu->device[d].ordinal, "the direct transport", wanted, free_bytes,
                          gpu->memory_bytes == 0 ? 0 : allowed, err, err_len) != 0)
            return -1;
    }
    return 0;
}

static int take_spaces(struct gpu_direct *direct, char *err, size_t err_len)
{
    for (uint32_t r = 0; r < direct->shape.ranks; r++) {
        struct gpu_device *device = direct_device(direct, r);
        GPU_TRY(cudaSetDevice(device->ordinal));
        GPU_TRY(cudaMalloc((void **)&direct->peers.space[r], direct->layout.bytes));
        GPU_TRY(cudaMemsetAsync(direct->peers.space[r], 0, direct->layout.bytes, device->stream));
    }
    GPU_TRY(cudaHostAlloc((void **)&direct->fault, 2 * LINE,
                          cudaHostAllocPortable | cudaHostAllocMapped));
    memset(direct->fault, 0, 2 * LINE);
    direct->go = (volatile uint32_t *)((uint8_t *)direct->fault + LINE);
    return 0;
}

extern "C" int gpu_direct_open(struct gpu *gpu, const struct gpu_direct_shape *shape,
                               struct gpu_direct **out, char *err, size_t err_len)
{
    if (check_shape(gpu, shape, err, err_len) != 0) return -1;
    struct gpu_direct *direct = (struct gpu_direct *)calloc(1, sizeof *direct);
    if (direct == NULL) {
        snprintf(err, err_len, "cuda: out of host memory");
        return -1;
    }
    direct->gpu = gpu;
    direct->shape = *shape;
    direct->alone = shape->ranks == gpu->devices && !shape->shared;
    lay_out(direct);
    const uint64_t wait_ns = shape->wait_ns != 0 ? shape->wait_ns : UINT64_C(10000000000);
    for (uint32_t d = 0; d < gpu->devices; d++) direct->cycles[d] = wait_ns / 1000 * CYCLES_PER_US;
    if (check_memory(direct, err, err_len) != 0 || take_spaces(direct, err, err_len) != 0 ||
        gpu_wait(gpu, err, err_len) != 0) {
        gpu_direct_close(direct);
        return -1;
    }
    *out = direct;
    return 0;
}

extern "C" void gpu_direct_close(struct gpu_direct *direct)
{
    char ignored[8];
    if (direct == NULL) return;
    (void)gpu_wait(direct->gpu, ignored, sizeof ignored);
    for (uint32_t r = 0; r < direct->shape.ranks; r++) {
        (void)cudaSetDevice(direct_device(direct, r)->ordinal);
        (void)cudaFree(direct->peers.space[r]);
    }
    (void)cudaFreeHost(direct->fault);
    free(direct);
}

extern "C" void gpu_direct_set_sms(struct gpu_direct *direct, uint32_t sm_count)
{
    direct->shape.sm_count = sm_count;
}

extern "C" int gpu_direct_wait(struct gpu_direct *direct, char *err, size_t err_len)
{
    static const char *const names[] = {"nothing",     "the word to go",   "the peers' hold",
                                        "the counts",  "a token's record", "a peer's start",
                                        "the readers", "the writers",      "the own block"};
    const int status = gpu_wait(direct->gpu, err, err_len);
    const struct direct_fault *fault = direct->fault;

    if (fault->what == 0 || fault->what >= sizeof names / sizeof *names) return status;
    snprintf(err, err_len,
             "cuda: rank %" PRIu32 " block %" PRIu32 " waited too long for %s %" PRIu32 ": %" PRIu32
             " seen, %" PRIu32 " wanted",
             fault->rank, fault->block, names[fault->what], fault->item, fault->seen,
             fault->wanted);
    return -1;
}

uint32_t direct_blocks(struct gpu_direct *direct, uint32_t rank, uint32_t most)
{
    const uint32_t all = direct_device(direct, rank)->sm_count;
    const uint32_t asked = direct->shape.sm_count;
    const uint32_t blocks = asked == 0 || asked > all ? all : asked;
    assert(all <= DIRECT_STAMP_BLOCKS && all == direct_device(direct, 0)->sm_count);
    direct->blocks[rank] = blocks < most ? blocks : most;
    return direct->blocks[rank];
}

int direct_prepare(struct gpu_direct *direct, const void *kernel, uint32_t shared_bytes, char *err,
                   size_t err_len)
{
    enum { SHARED_MAX = 227 * 1024 };
    const struct gpu *gpu = direct->gpu;

    if (shared_bytes > SHARED_MAX) {
        snprintf(err, err_len,
                 "cuda: %" PRIu32 " bytes of shared memory a block, %d are there: this many tokens "
                 "need more multiprocessors",
                 shared_bytes, SHARED_MAX);
        return -1;
    }
    for (uint32_t d = 0; d < gpu->devices; d++) {
        GPU_TRY(cudaSetDevice(gpu->device[d].ordinal));
        GPU_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)shared_bytes));
    }
    return 0;
}

int direct_launch(struct gpu_direct *direct, uint32_t rank, const void *kernel, uint32_t blocks,
                  uint32_t threads, uint32_t shared_bytes, void *args, char *err, size_t err_len)
{
    struct gpu_device *device = direct_device(direct, rank);
    cudaLaunchAttribute attribute;
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    void *kernel_args[1] = {args};

    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = device->stream;
    config.attrs = &attribute;
    config.numAttrs = direct->alone ? 1 : 0;
    GPU_TRY(cudaSetDevice(device->ordinal));
    GPU_TRY(cudaLaunchKernelExC(&config, kernel, kernel_args));
    return 0;
}

struct hold_args {
    struct direct_peers peers;
    struct direct_watch watch;
    const uint32_t *go;
    uint64_t ready_at;
    uint32_t device, devices; /* One block a GPU: its peers are the GPUs' first spaces. */
    uint32_t number;
};

/* Until the host's word, then until every GPU has seen it. */
static __global__ void hold_kernel(const __grid_constant__ struct hold_args args)
{
    if (threadIdx.x == 0) await_flag(args.watch, args.go, args.number, DIRECT_AWAIT_GO, 0);
    __syncthreads();
    if (threadIdx.x >= args.devices) return;
    store_flag((uint32_t *)(args.peers.space[threadIdx.x] + args.ready_at) + args.device,
               args.number);
    await_flag(args.watch,
               (const uint32_t *)(args.peers.space[args.device] + args.ready_at) + threadIdx.x,
               args.number, DIRECT_AWAIT_PEERS, threadIdx.x);
}

extern "C" int gpu_direct_hold(struct gpu_direct *direct, char *err, size_t err_len)
{
    struct gpu *gpu = direct->gpu;
    struct hold_args args;

    memset(&args, 0, sizeof args);
    args.ready_at = direct->layout.ready[DIRECT_HOLD];
    args.devices = gpu->devices;
    args.number = ++direct->number[DIRECT_HOLD];
    for (uint32_t r = gpu->ranks; r-- > 0;)
        args.peers.space[gpu_rank_device(gpu->mapping, gpu->devices, gpu->ranks, r)] =
            direct->peers.space[r];
    for (uint32_t d = 0; d < gpu->devices; d++) {
        GPU_TRY(cudaSetDevice(gpu->device[d].ordinal));
        GPU_TRY(cudaHostGetDevicePointer((void **)&args.go, (void *)(uintptr_t)direct->go, 0));
        args.watch.fault = direct->fault;
        args.watch.cycles = direct->cycles[d];
        args.watch.rank = d;
        args.device = d;
        GPU_LAUNCH(hold_kernel, 1, 64, 0, gpu->device[d].stream, args);
        GPU_TRY(cudaGetLastError());
        GPU_TRY(cudaEventRecord(gpu->device[d].start, gpu->device[d].stream));
    }
    return 0;
}

extern "C" int gpu_direct_go(struct gpu_direct *direct, char *err, size_t err_len)
{
    const struct gpu *gpu = direct->gpu;

    for (uint32_t d = 0; d < gpu->devices; d++) {
        GPU_TRY(cudaSetDevice(gpu->device[d].ordinal));
        GPU_TRY(cudaEventRecord(gpu->device[d].stop, gpu->device[d].stream));
    }
    *direct->go = direct->number[DIRECT_HOLD];
    return 0;
}

extern "C" int gpu_direct_times(struct gpu_direct *direct, uint64_t *kernel_ns, uint64_t *event_ns,
                                char *err, size_t err_len)
{
    uint64_t stamps[2 * DIRECT_STAMP_BLOCKS];

    if (gpu_direct_wait(direct, err, err_len) != 0) return -1;
    for (uint32_t r = 0; r < direct->shape.ranks; r++) {
        const struct gpu_device *device = direct_device(direct, r);
        uint64_t first = UINT64_MAX, last = 0;
        float elapsed_ms = 0;
        GPU_TRY(cudaSetDevice(device->ordinal));
        GPU_TRY(cudaMemcpy(stamps, direct->peers.space[r] + direct->layout.stamps,
                           2 * direct->blocks[r] * sizeof *stamps, cudaMemcpyDeviceToHost));
        for (uint32_t b = 0; b < direct->blocks[r]; b++) {
            if (stamps[2 * b] < first) first = stamps[2 * b];
            if (stamps[2 * b + 1] > last) last = stamps[2 * b + 1];
        }
        GPU_TRY(cudaEventElapsedTime(&elapsed_ms, device->start, device->stop));
        kernel_ns[r] = last - first;
        event_ns[r] = (uint64_t)((double)elapsed_ms * 1e6);
    }
    return 0;
}
