/* sim/backend_ref_cast.c - normal mode's cast of tokens before they are sent, on the reference. */
#include <assert.h>

#include "ref/quantise.h"
#include "sim/backend_ref.h"

int backend_ref_cast(struct backend_ref *state, const struct sim_layer_input *in, uint64_t first,
                     uint64_t count, struct ref_normal_tokens *tokens, char *err, size_t err_len)
{
    const enum ref_recipe recipe = (enum ref_recipe)in->recipe;
    const struct sim_row_shape shape = sim_row_shape(in);
    const uint32_t groups = ref_scale_groups(in->hidden);
    const uint64_t all = ref_token_count(in->routing);

    assert(in->traffic->mode == SIM_MODE_NORMAL && first + count <= all);
    if (sim_arena_reserve(&state->codes, all, shape.payload_bytes, err, err_len) != 0 ||
        sim_arena_reserve(&state->scales, all, groups * sizeof(float), err, err_len) != 0 ||
        sim_arena_reserve(&state->packed, all, shape.scale_bytes, err, err_len) != 0)
        return -1;
    float *scales = (float *)(void *)state->scales.bytes + first * groups;
    ref_quantise(recipe, in->x + first * in->hidden, count, in->hidden,
                 state->codes.bytes + first * shape.payload_bytes, scales);
    *tokens = (struct ref_normal_tokens){state->codes.bytes, state->scales.bytes,
                                         shape.payload_bytes, shape.scale_bytes};
    if (ref_recipe_scales(recipe) == REF_SCALE_UE8M0) {
        uint8_t *packed = state->packed.bytes + first * shape.scale_bytes;
        tokens->scales = state->packed.bytes;
        return ref_scales_pack_ue8m0(scales, count, groups, (uint32_t *)(void *)packed, err,
                                     err_len);
    }
    return 0;
}
