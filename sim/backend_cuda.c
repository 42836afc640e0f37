/* sim/backend_cuda.c - the kernels behind the backend table: opening, and group operations.
 *
 * Group operations are the phases of all ranks with the messages in the order in which they are
 * sent (sim/backend_cuda_phase.c), or on the direct transport one operation of kernels/direct.h
 * (sim/backend_cuda_direct.c). */
#include "sim/backend_cuda.h"

#include "gen/config.h"

#if EPSIM_CUDA
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/backends.h"

static int cuda_open_at(const struct sim_backend_ops *self, const struct sim_backend_place *place,
                        void **state_out, char *err, size_t err_len)
{
    const struct gpu_options options = {
        place->gpus, place->interleave ? GPU_MAP_ROUND_ROBIN : GPU_MAP_BLOCKS, place->gpu_bytes};
    struct gpu *gpu = NULL;

    (void)self;
    if (gpu_open(&options, &gpu, err, err_len) != 0) return -1;
    struct backend_cuda *state = (struct backend_cuda *)calloc(1, sizeof *state);
    if (state == NULL) {
        gpu_close(gpu);
        snprintf(err, err_len, "backend cuda: out of memory");
        return -1;
    }
    state->gpu = gpu;
    state->place = *place;
    *state_out = state;
    return 0;
}

static int cuda_open(const struct sim_backend_ops *self, void **state_out, char *err,
                     size_t err_len)
{
    const struct sim_backend_place place = sim_backend_place_default();
    return cuda_open_at(self, &place, state_out, err, err_len);
}

static void cuda_close(void *opaque)
{
    struct backend_cuda *state = (struct backend_cuda *)opaque;
    if (state == NULL) return;
    gpu_direct_close(state->direct);
    gpu_close(state->gpu);
    sim_arena_free(&state->rank_rows);
    sim_arena_free(&state->moves);
    backend_cuda_answers_free(&state->answers);
    sim_results_free(&state->results);
    free(state);
}

/* Run one direction, or the experts, between two readings of the GPUs' clocks. */
static int timed(struct backend_cuda *state, int (*work)(struct backend_cuda *, char *, size_t),
                 char *err, size_t err_len)
{
    uint64_t elapsed_ns = 0;
    if (gpu_timer_start(state->gpu, err, err_len) != 0 || work(state, err, err_len) != 0 ||
        gpu_timer_stop(state->gpu, &elapsed_ns, err, err_len) != 0) {
        if (state->direct != NULL) (void)gpu_direct_wait(state->direct, err, err_len);
        return -1; /* With the name of the wait that was given up, where there was one. */
    }
    state->kernel_ns += elapsed_ns;
    return 0;
}

static int dispatch_all(struct backend_cuda *state, char *err, size_t err_len)
{
    if (state->place.transport == SIM_TRANSPORT_DIRECT)
        return backend_cuda_direct_dispatch(state, err, err_len);
    return backend_cuda_direction(state, SIM_DISPATCH, err, err_len);
}

static int experts_all(struct backend_cuda *state, char *err, size_t err_len)
{
    return backend_cuda_experts(state, 0, state->input->routing->ranks, err, err_len);
}

static int combine_all(struct backend_cuda *state, char *err, size_t err_len)
{
    if (state->place.transport == SIM_TRANSPORT_DIRECT)
        return backend_cuda_direct_combine(state, err, err_len);
    return backend_cuda_direction(state, SIM_COMBINE, err, err_len);
}

static int cuda_dispatch(void *opaque, const struct sim_layer_input *in, struct sim_received *out,
                         char *err, size_t err_len)
{
    struct backend_cuda *state = (struct backend_cuda *)opaque;
    int status = backend_cuda_layer(state, in, err, err_len);
    if (status == 0) status = backend_cuda_direct_open(state, err, err_len);
    if (status != 0) return status;
    if (timed(state, dispatch_all, err, err_len) != 0) return -1;
    return backend_cuda_take_received(state, out, err, err_len);
}

static int cuda_expert(void *opaque, const struct sim_layer_input *in,
                       const struct sim_received *rows, uint16_t *expert_out, char *err,
                       size_t err_len)
{
    struct backend_cuda *state = (struct backend_cuda *)opaque;
    const void *scales = sim_received_scales(rows);
    if (backend_cuda_layer(state, in, err, err_len) != 0) return -1;
    if (gpu_write(state->gpu, state->part[CUDA_PAYLOAD], rows->payload, err, err_len) != 0)
        return -1;
    if (state->part[CUDA_SCALES] != NULL &&
        gpu_write(state->gpu, state->part[CUDA_SCALES], scales, err, err_len) != 0)
        return -1;
    if (state->part[CUDA_ANSWER_START] != NULL &&
        (gpu_write(state->gpu, state->part[CUDA_ROW_IDX], rows->topk_idx, err, err_len) != 0 ||
         gpu_write(state->gpu, state->part[CUDA_ROW_WEIGHTS], rows->topk_weights, err, err_len) !=
             0))
        return -1;
    if (timed(state, experts_all, err, err_len) != 0) return -1;
    return backend_cuda_take(state, CUDA_EXPERT_OUT, expert_out, err, err_len);
}

static int cuda_combine(void *opaque, const struct sim_layer_input *in, const uint16_t *expert_out,
                        const float *row_weights, struct sim_combined *out, char *err,
                        size_t err_len)
{
    struct backend_cuda *state = (struct backend_cuda *)opaque;
    struct sim_combined wanted = *out;
    int status = backend_cuda_layer(state, in, err, err_len);
    if (status == 0) status = backend_cuda_direct_open(state, err, err_len);
    if (status == 0) status = backend_cuda_direct_handle(state, err, err_len);
    if (status != 0) return status;
    if (gpu_write(state->gpu, state->part[CUDA_EXPERT_OUT], expert_out, err, err_len) != 0)
        return -1;
    if (row_weights == NULL) {
        wanted.topk_weights = NULL;
        state->part[CUDA_ROW_WEIGHTS] = NULL; /* 0 is staged. */
    } else if (state->part[CUDA_ROW_WEIGHTS] != NULL &&
               gpu_write(state->gpu, state->part[CUDA_ROW_WEIGHTS], row_weights, err, err_len) !=
                   0) {
        return -1;
    }
    if (timed(state, combine_all, err, err_len) != 0) return -1;
    return backend_cuda_take_combined(state, &wanted, err, err_len);
}

uint64_t sim_backend_cuda_kernel_ns(void *opaque)
{
    struct backend_cuda *state = (struct backend_cuda *)opaque;
    const uint64_t elapsed_ns = state->kernel_ns;
    state->kernel_ns = 0;
    return elapsed_ns;
}

int sim_backend_cuda_describe(const void *opaque, struct gpu_info *info, char *err, size_t err_len)
{
    const struct backend_cuda *state = (const struct backend_cuda *)opaque;
    return gpu_describe(state->gpu, info, err, err_len);
}

int sim_backend_cuda_room(const struct sim_settings *settings, uint64_t *bytes, char *err,
                          size_t err_len)
{
    const uint64_t allowed = (uint64_t)settings->gpu_mib << 20;
    uint32_t found = 0;

    *bytes = 0;
    if (gpu_device_count(&found, err, err_len) != 0) return -1;
    if (settings->gpus > found) {
        snprintf(err, err_len, "--gpus: %" PRIu32 ": 1 to %" PRIu32 " are here", settings->gpus,
                 found);
        return -1;
    }
    for (uint32_t device = 0; device < settings->gpus; device++) {
        uint64_t room = 0;
        if (gpu_room(device, &room, err, err_len) != 0) return -1;
        *bytes += allowed != 0 && allowed < room ? allowed : room;
    }
    return 0;
}

static const struct sim_backend_ops CUDA_OPS = {
    .abi = SIM_BACKEND_ABI,
    .table_bytes = sizeof(struct sim_backend_ops),
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .dispatch = cuda_dispatch,
    .expert = cuda_expert,
    .combine = cuda_combine,
    .begin = backend_cuda_begin,
    .pack = backend_cuda_pack,
    .deliver = backend_cuda_deliver,
    .forward = backend_cuda_forward,
    .unpack = backend_cuda_unpack,
    .run_expert = backend_cuda_run_expert,
    .read = backend_cuda_read,
    .open_at = cuda_open_at,
};

const struct sim_backend_ops *sim_backend_cuda(void)
{
    return &CUDA_OPS;
}
#endif
