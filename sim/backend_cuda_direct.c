/* sim/backend_cuda_direct.c - group operations on the direct transport, one launch a rank.
 *
 * The table's operations are pure functions, the transport's are not: a combine fetches from where
 * the dispatch before it left rows. So a combine begins with the dispatch of the same layer, whose
 * rows are then overwritten by the caller's. */
#include "sim/backend_cuda.h"

#include "gen/config.h"

#if EPSIM_CUDA
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ref/quantise.h"
#include "sim/transport.h"

static bool is_direct(const struct backend_cuda *state)
{
    return state->place.transport == SIM_TRANSPORT_DIRECT;
}

static struct gpu_direct_shape shape_of(const struct backend_cuda *state,
                                        const struct sim_layer_input *in)
{
    const struct sim_transport_shape shape = sim_transport_shape(in);
    return (struct gpu_direct_shape){.ranks = shape.ranks,
                                     .experts = shape.experts,
                                     .topk = shape.topk,
                                     .hidden = shape.hidden,
                                     .tokens_max = (uint32_t)shape.tokens_max,
                                     .sm_count = state->place.sms,
                                     .ll = shape.mode == SIM_MODE_LL,
                                     .shared = state->place.in_flight > 1};
}

void backend_cuda_direct_release(struct backend_cuda *state, const struct sim_layer_input *in)
{
    const struct gpu_direct_shape *have = &state->direct_shape;

    if (state->direct == NULL) return;
    const struct gpu_direct_shape want = shape_of(state, in);
    if (have->ranks == want.ranks && have->experts == want.experts && have->topk == want.topk &&
        have->hidden == want.hidden && have->ll == want.ll && have->tokens_max >= want.tokens_max)
        return;
    gpu_direct_close(state->direct);
    state->direct = NULL;
}

int backend_cuda_direct_open(struct backend_cuda *state, char *err, size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    const struct sim_transport_shape shape = sim_transport_shape(in);

    if (!is_direct(state) || state->direct != NULL) return 0;
    if (sim_transport_takes(&shape, state->place.gpus, err, err_len) != 0)
        return SIM_BACKEND_UNSUPPORTED;
    state->direct_shape = shape_of(state, in);
    return gpu_direct_open(state->gpu, &state->direct_shape, &state->direct, err, err_len);
}

static int dispatch_ll(struct backend_cuda *state, char *err, size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    const struct gpu_ll_rows rows = backend_cuda_ll_rows(state);
    return gpu_direct_ll_dispatch(state->direct, GPU_DIRECT_BOTH, &state->routing, in->recipe,
                                  state->part[CUDA_X], &rows, err, err_len);
}

/* Normal mode carries what is cast beforehand. */
static int dispatch_normal(struct backend_cuda *state, char *err, size_t err_len)
{
    struct gpu_buffer **part = state->part;
    const struct gpu_normal_rows rows = {.payload = part[CUDA_PAYLOAD],
                                         .scales = part[CUDA_SCALES],
                                         .topk_idx = part[CUDA_ROW_IDX],
                                         .topk_weights = part[CUDA_ROW_WEIGHTS],
                                         .src_token = part[CUDA_SRC_TOKEN]};
    const struct gpu_buffer *scales = NULL;

    if (backend_cuda_cast(state, 0, state->routing.ranks, &scales, err, err_len) != 0 ||
        gpu_direct_normal_layout(state->direct, &state->routing, part[CUDA_COUNTS], err, err_len) !=
            0)
        return -1;
    return gpu_direct_normal_dispatch(state->direct, &state->routing, part[CUDA_CODES], scales,
                                      &rows, err, err_len);
}

int backend_cuda_direct_dispatch(struct backend_cuda *state, char *err, size_t err_len)
{
    const bool ll = state->input->traffic->mode == SIM_MODE_LL;

    assert(is_direct(state) && state->direct != NULL);
    return (ll ? dispatch_ll : dispatch_normal)(state, err, err_len);
}

int backend_cuda_direct_handle(struct backend_cuda *state, char *err, size_t err_len)
{
    if (!is_direct(state)) return 0;
    if (state->input->traffic->mode == SIM_MODE_LL)
        return backend_cuda_direct_dispatch(state, err, err_len);
    return gpu_direct_normal_layout(state->direct, &state->routing, NULL, err, err_len);
}

int backend_cuda_direct_combine(struct backend_cuda *state, char *err, size_t err_len)
{
    const bool ll = state->input->traffic->mode == SIM_MODE_LL;
    struct gpu_buffer **part = state->part;

    assert(is_direct(state) && state->direct != NULL);
    if (ll)
        return gpu_direct_ll_combine(state->direct, GPU_DIRECT_BOTH, &state->routing,
                                     part[CUDA_EXPERT_OUT], part[CUDA_COMBINED], err, err_len);
    return gpu_direct_normal_combine(state->direct, &state->routing, part[CUDA_EXPERT_OUT],
                                     part[CUDA_ROW_WEIGHTS], part[CUDA_BIAS0], part[CUDA_BIAS1],
                                     part[CUDA_COMBINED], part[CUDA_COMBINED_WEIGHTS], err,
                                     err_len);
}
#endif
