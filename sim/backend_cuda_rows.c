/* sim/backend_cuda_rows.c - rows on the GPUs before and after their way, driven or direct: normal
 * mode's cast, and where low latency leaves them. */
#include "sim/backend_cuda.h"

#include "gen/config.h"

#if EPSIM_CUDA
#include <assert.h>

#include "ref/quantise.h"

int backend_cuda_cast(struct backend_cuda *state, uint32_t rank, uint32_t rank_count,
                      const struct gpu_buffer **scales, char *err, size_t err_len)
{
    const struct sim_layer_input *in = state->input;
    const enum ref_scale_kind kind = ref_recipe_scales((enum ref_recipe)in->recipe);
    struct gpu_buffer **part = state->part;

    *scales = kind == REF_SCALE_UE8M0 ? part[CUDA_CODE_PACKED] : part[CUDA_CODE_SCALES];

    if (gpu_quantise(state->gpu, in->recipe, rank, rank_count, in->hidden, part[CUDA_X],
                     part[CUDA_CODES], part[CUDA_CODE_SCALES], err, err_len) != 0)
        return -1;
    if (kind == REF_SCALE_UE8M0 &&
        gpu_scales_pack_ue8m0(state->gpu, rank, rank_count, ref_scale_groups(in->hidden),
                              part[CUDA_CODE_SCALES], part[CUDA_CODE_PACKED], err, err_len) != 0)
        return -1;
    return 0;
}

struct gpu_ll_rows backend_cuda_ll_rows(const struct backend_cuda *state)
{
    const enum ref_recipe recipe = (enum ref_recipe)state->input->recipe;
    const bool exponents = ref_recipe_scales(recipe) == REF_SCALE_UE8M0;
    struct gpu_buffer *const *part = state->part;

    assert(state->input->traffic->mode == SIM_MODE_LL);
    return (struct gpu_ll_rows){part[CUDA_PAYLOAD], exponents ? NULL : part[CUDA_SCALES],
                                exponents ? part[CUDA_SCALES] : NULL, part[CUDA_SRC_TOKEN],
                                part[CUDA_COUNTS]};
}

#endif
