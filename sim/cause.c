/* sim/cause.c - from the place of a difference to what was computed there.
 *
 * Finds the reference's own row for that place, decides which of the two sides departs from it,
 * and hands that side's row to whoever knows the operation. */
#include "sim/cause.h"
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ref/bf16.h"
#include "ref/expert.h"
#include "ref/layout.h"
#include "ref/quantise.h"
#include "sim/expect.h"

struct scene {
    const struct sim_inputs *inputs;
    const struct sim_capture *results, *expected, *actual;
    struct sim_mismatch *first;
};

static const uint16_t *token_row(const struct sim_inputs *inputs, int64_t rank, int64_t token)
{
    if (rank < 0 || rank >= (int64_t)inputs->routing.ranks || token < 0) return NULL;
    const uint64_t at = inputs->token_start[rank] + (uint64_t)token;
    if (at >= inputs->token_start[rank + 1]) return NULL;
    return &inputs->x[at * inputs->hidden];
}

static bool says_token(char cause[SIM_CAUSE_MAX], uint64_t rank, uint64_t token)
{
    snprintf(cause, SIM_CAUSE_MAX,
             "the row holds the payload of token %" PRIu64 " of rank %" PRIu64, token, rank);
    return true;
}

/* Is a BF16 row some other token's? */
static bool find_moved_bf16(const struct sim_inputs *inputs, const uint8_t *row,
                            char cause[SIM_CAUSE_MAX])
{
    const uint64_t row_bytes = 2ull * inputs->hidden;

    for (uint32_t r = 0; r < inputs->routing.ranks; r++)
        for (uint64_t t = inputs->token_start[r]; t < inputs->token_start[r + 1]; t++)
            if (memcmp(&inputs->x[t * inputs->hidden], row, row_bytes) == 0)
                return says_token(cause, r, t - inputs->token_start[r]);
    return false;
}

/* The same for FP8 rows, quantised here by the recipe that all rows should have. */
static bool find_moved_fp8(const struct sim_inputs *inputs, enum ref_recipe recipe,
                           const uint8_t *row, char cause[SIM_CAUSE_MAX])
{
    const uint32_t hidden = inputs->hidden;
    uint8_t *codes = (uint8_t *)malloc(hidden);
    float *scales = (float *)malloc(hidden / REF_GROUP_CHANNELS * sizeof(float));
    bool found = false;

    assert(hidden % REF_GROUP_CHANNELS == 0);
    for (uint32_t r = 0; codes != NULL && scales != NULL && r < inputs->routing.ranks; r++)
        for (uint64_t t = inputs->token_start[r]; t < inputs->token_start[r + 1] && !found; t++) {
            ref_quantise(recipe, &inputs->x[t * hidden], 1, hidden, codes, scales);
            if (memcmp(codes, row, hidden) != 0) continue;
            found = says_token(cause, r, t - inputs->token_start[r]);
        }
    free(codes);
    free(scales);
    return found;
}

/* An FP8 row: by formula, as another token's, or as bytes. scales are words as stored. */
static void explain_fp8(const struct scene *scene, enum ref_recipe recipe, const uint16_t *x,
                        const uint8_t *right, const uint8_t *codes, const uint8_t *scales)
{
    const uint32_t hidden = scene->inputs->hidden, groups = hidden / REF_GROUP_CHANNELS;
    char *cause = scene->first->cause;
    float *floats = (float *)malloc(groups * sizeof(float));

    assert(ref_recipe_payload_bytes(recipe) == 1 && hidden % REF_GROUP_CHANNELS == 0);
    if (floats == NULL) return;
    if (ref_recipe_scales(recipe) == REF_SCALE_UE8M0)
        ref_scales_unpack_ue8m0((const uint32_t *)(const void *)scales, 1, groups, floats);
    else
        memcpy(floats, scales, groups * sizeof(float));
    if (!sim_cause_quantise(recipe, x, hidden, codes, floats, cause) &&
        !find_moved_fp8(scene->inputs, recipe, codes, cause))
        (void)sim_cause_bytes(right, codes, hidden, 1, cause);
    free(floats);
}

/* The reference's row of (source rank, source token) in one expert's block; -1 if none. */
static int64_t block_row(const struct scene *scene, const char *prefix)
{
    const struct sim_mismatch *first = scene->first;
    char name[SIM_TENSOR_NAME_MAX];

    snprintf(name, sizeof(name), "%.36s.src", prefix);
    const struct sim_tensor *src = sim_capture_find(scene->results, first->rank, name);
    snprintf(name, sizeof(name), "%.36s.layout", prefix);
    const struct sim_tensor *layout = sim_capture_find(scene->results, first->rank, name);
    if (src == NULL || layout == NULL || first->src_rank < 0) return -1;
    const uint64_t word =
        (uint64_t)trace_integer_at(TRACE_I64, layout->data, (uint64_t)first->src_rank);
    const uint64_t begin = word >> 32, count = word & UINT32_MAX;
    for (uint64_t i = begin; i < begin + count; i++)
        if (trace_integer_at(TRACE_I32, src->data, i) == first->src_token) return (int64_t)i;
    return -1;
}

/* "fp8.e3.x": a row that low latency delivered. */
static void explain_ll_row(const struct scene *scene)
{
    struct sim_mismatch *first = scene->first;
    const struct sim_ll_tag *tag = NULL;
    char prefix[SIM_TENSOR_NAME_MAX], name[SIM_TENSOR_NAME_MAX];

    snprintf(prefix, sizeof(prefix), "%s", first->tensor);
    char *last_dot = strrchr(prefix, '.');
    if (last_dot == NULL) return;
    *last_dot = '\0'; /* "fp8.e3" */
    for (uint32_t i = 0; i < SIM_LL_TAGS; i++) {
        const size_t length = strlen(sim_ll_tag(i)->name);

        if (strncmp(prefix, sim_ll_tag(i)->name, length) == 0 && prefix[length] == '.')
            tag = sim_ll_tag(i);
    }
    const int64_t row = tag != NULL ? block_row(scene, prefix) : -1;
    const uint16_t *x = token_row(scene->inputs, first->src_rank, first->src_token);
    snprintf(name, sizeof(name), "%.40s.x", prefix);
    const struct sim_tensor *payload = sim_capture_find(scene->results, first->rank, name);
    if (row < 0 || x == NULL || payload == NULL) return;
    const uint64_t row_bytes = (uint64_t)scene->inputs->hidden * tag->payload_bytes;
    const uint8_t *right = payload->data + (uint64_t)row * row_bytes;
    bool other_is_expected = memcmp(first->expected_row, right, row_bytes) != 0;

    if (tag->scale_channels == 0) {
        const uint8_t *wrong = other_is_expected ? first->expected_row : first->actual_row;

        if (!find_moved_bf16(scene->inputs, wrong, first->cause))
            (void)sim_cause_bytes(right, wrong, row_bytes, 2, first->cause);
        return;
    }
    snprintf(name, sizeof(name), "%.36s.scales", prefix);
    const struct sim_tensor *scales = sim_capture_find(scene->results, first->rank, name);
    if (scales == NULL || first->expected_scales == NULL) return;
    const uint64_t scale_bytes = scales->shape[1] * 4;
    if (memcmp(first->expected_scales, scales->data + (uint64_t)row * scale_bytes, scale_bytes) !=
        0)
        other_is_expected = true;
    explain_fp8(scene, (enum ref_recipe)tag->recipe, x, right,
                other_is_expected ? first->expected_row : first->actual_row,
                other_is_expected ? first->expected_scales : first->actual_scales);
}

/* What the expert may have done instead of two rounded operations. */
static bool find_expert(const uint16_t *x, const uint16_t *y, uint32_t hidden,
                        char cause[SIM_CAUSE_MAX])
{
    static const char *const texts[3] = {"expert rows match a fused x * 0.37 + 0.11",
                                         "expert rows match x * 0.37 rounded to bf16, then + 0.11",
                                         "expert rows match their inputs: no expert ran"};

    for (uint32_t form = 0; form < 3; form++) {
        uint32_t c = 0;

        for (; c < hidden; c++) {
            const float in = ref_bf16_to_f32(x[c]), product = in * 0.37f;
            const float rounded = ref_bf16_to_f32(ref_bf16_from_f32(product));
            const float out = form == 0 ? fmaf(in, 0.37f, 0.11f) : rounded + 0.11f;

            if ((form == 2 ? x[c] : ref_bf16_from_f32(out)) != y[c]) break;
        }
        if (c < hidden) continue;
        snprintf(cause, SIM_CAUSE_MAX, "%s", texts[form]);
        return true;
    }
    return false;
}

/* Rows of the parts of one token's sum. made is [hidden] storage for the case's own expert. */
static void collect_terms(const struct scene *scene, uint32_t home, uint64_t token, uint16_t *made,
                          struct sim_cause_terms *terms)
{
    const struct sim_inputs *inputs = scene->inputs;
    const struct ref_routing *routing = &inputs->routing;
    const uint32_t topk = routing->topk, local = ref_local_experts(routing);

    assert(home < routing->ranks && token < inputs->tokens && topk <= REF_TOPK_MAX);
    for (uint32_t k = 0; k < topk; k++) {
        const int64_t expert = routing->topk_idx[token * topk + k];
        uint32_t at = 0;

        if (expert < 0) continue;
        const uint32_t rank = (uint32_t)((uint64_t)expert / local);
        while (!terms->ll && at < terms->count && terms->rank[at] != rank) at++;
        if (terms->ll || at == terms->count) at = terms->count++;
        uint64_t row =
            inputs->block_start[(terms->ll ? (uint64_t)expert : rank) * routing->ranks + home];
        for (uint64_t t = inputs->token_start[home]; t <= token; t++) {
            bool sent = false;

            for (uint32_t c = 0; c < topk && (t < token || (terms->ll && c < k)); c++) {
                const int64_t id = routing->topk_idx[t * topk + c];
                if (terms->ll)
                    row += id == expert;
                else
                    sent |= id >= 0 && (uint64_t)id / local == rank;
            }
            row += sent;
        }
        assert(row < inputs->rows);
        terms->row[at] =
            inputs->expert_out != NULL ? &inputs->expert_out[row * inputs->hidden] : made;
        terms->weight[at] = routing->topk_weights[token * topk + k];
        terms->rank[at] = rank;
        terms->expert[at] = expert;
        terms->column[at] = k;
    }
}

/* Normal mode adds ranks in ascending order. */
static void sort_by_rank(struct sim_cause_terms *terms)
{
    assert(terms->count <= REF_TOPK_MAX);
    for (uint32_t i = 1; i < terms->count; i++)
        for (uint32_t j = i; j > 0 && terms->rank[j - 1] > terms->rank[j]; j--) {
            const struct sim_cause_terms old = *terms;

            terms->row[j] = old.row[j - 1], terms->row[j - 1] = old.row[j];
            terms->weight[j] = old.weight[j - 1], terms->weight[j - 1] = old.weight[j];
            terms->rank[j] = old.rank[j - 1], terms->rank[j - 1] = old.rank[j];
            terms->expert[j] = old.expert[j - 1], terms->expert[j - 1] = old.expert[j];
            terms->column[j] = old.column[j - 1], terms->column[j - 1] = old.column[j];
        }
}

static void explain_combined(const struct scene *scene, const uint8_t *right, const uint8_t *wrong)
{
    const struct sim_inputs *inputs = scene->inputs;
    struct sim_mismatch *first = scene->first;
    const uint32_t hidden = inputs->hidden, home = first->rank;
    const uint16_t *x = token_row(inputs, home, first->src_token);
    const bool biased = strcmp(first->tensor, "combined_x_bias") == 0;
    uint16_t *made = (uint16_t *)malloc(2ull * hidden);

    if (x == NULL || made == NULL) goto free_made;
    if (scene->results->settings.expert == SIM_EXPERT_IDENTITY)
        ref_expert_identity(REF_RECIPE_BF16, x, NULL, 1, hidden, made);
    else
        ref_expert_standin(REF_RECIPE_BF16, x, NULL, 1, hidden, made);
    const uint64_t token = inputs->token_start[home] + (uint64_t)first->src_token;
    assert(token < inputs->tokens);
    struct sim_cause_terms terms;
    memset(&terms, 0, sizeof(terms));
    terms.hidden = hidden;
    terms.ll = scene->results->settings.mode == SIM_MODE_LL;
    terms.ranks_per_node = terms.ll ? 8 : inputs->ranks_per_node;
    terms.several_nodes = !terms.ll && inputs->routing.ranks > inputs->ranks_per_node;
    terms.bias[0] = biased && inputs->bias0 != NULL ? &inputs->bias0[token * hidden] : NULL;
    terms.bias[1] = biased && inputs->bias1 != NULL ? &inputs->bias1[token * hidden] : NULL;
    collect_terms(scene, home, token, made, &terms);
    if (!terms.ll) sort_by_rank(&terms);
    if (!sim_cause_combine(&terms, (const uint16_t *)(const void *)wrong, first->cause))
        (void)sim_cause_bytes(right, wrong, 2ull * hidden, 2, first->cause);
free_made:
    free(made);
}

/* A row of a tensor that both sides hold in the same order. */
static void explain_plain(const struct scene *scene)
{
    struct sim_mismatch *first = scene->first;
    const char *name = first->tensor;
    const struct sim_tensor *mine = sim_capture_find(scene->results, first->rank, name);
    const struct sim_tensor *theirs = sim_capture_find(scene->expected, first->rank, name);

    if (mine == NULL || theirs == NULL || mine->axes != 2 || mine->shape[0] == 0 ||
        mine->bytes != theirs->bytes)
        return;
    const uint64_t row_bytes = mine->bytes / mine->shape[0];
    const uint64_t row = (uint64_t)(first->expected_row - theirs->data) / row_bytes;
    const uint8_t *right = mine->data + row * row_bytes;
    const bool other_is_expected = memcmp(first->expected_row, right, row_bytes) != 0;
    const uint8_t *wrong = other_is_expected ? first->expected_row : first->actual_row;
    const struct sim_capture *other = other_is_expected ? scene->expected : scene->actual;
    const uint16_t *x = token_row(scene->inputs, first->src_rank, first->src_token);
    const uint32_t hidden = scene->inputs->hidden;

    if (strncmp(name, "combined_x", strlen("combined_x")) == 0) {
        explain_combined(scene, right, wrong);
    } else if (strcmp(name, "x_fp8") == 0 || strcmp(name, "x_scales") == 0) {
        const struct sim_tensor *codes = sim_capture_find(other, first->rank, "x_fp8");
        const struct sim_tensor *scales = sim_capture_find(other, first->rank, "x_scales");

        if (codes == NULL || scales == NULL || x == NULL) return;
        const uint64_t token = (uint64_t)first->src_token;
        explain_fp8(scene, REF_RECIPE_PY_CUDA, x, codes->data + token * hidden,
                    codes->data + token * hidden, scales->data + token * (hidden / 128) * 4);
    } else if (strcmp(name, "recv_x") == 0) {
        if (!find_moved_bf16(scene->inputs, wrong, first->cause))
            (void)sim_cause_bytes(right, wrong, row_bytes, 2, first->cause);
    } else if (strcmp(name, "expert_out") == 0 && x != NULL) {
        if (!find_expert(x, (const uint16_t *)(const void *)wrong, hidden, first->cause))
            (void)sim_cause_bytes(right, wrong, row_bytes, 2, first->cause);
    } else {
        (void)sim_cause_bytes(right, wrong, row_bytes, trace_dtype_bytes(mine->dtype),
                              first->cause);
    }
}

void sim_cause_explain(const struct sim_inputs *inputs, const struct sim_capture *results,
                       const struct sim_capture *expected, const struct sim_capture *actual,
                       struct sim_mismatch *first)
{
    const struct scene scene = {inputs, results, expected, actual, first};
    const bool ll_row =
        strchr(first->tensor, '.') != NULL && strncmp(first->tensor, "expert_out", 10) != 0;

    if (first->cause[0] != '\0' || first->expected_row == NULL || first->actual_row == NULL) return;
    assert(first->rank < results->ranks);
    if (ll_row)
        explain_ll_row(&scene);
    else
        explain_plain(&scene);
}
