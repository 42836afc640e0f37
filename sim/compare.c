/* sim/compare.c - the tensors of two captures, stage by stage. */
#include "sim/compare.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim/capture.h"

enum kind {
    BY_TOKEN,   /* A row per token of the rank. */
    BY_ROW,     /* Normal: a row per received row. */
    TABLE,      /* Counts and prefixes. */
    OWN_COLUMN, /* Only the rank's own column has a meaning. */
};

struct rule {
    const char *name;
    const char *stage;
    enum kind kind;
};

/* In the order in which the data path makes them. */
static const struct rule rules[] = {
    {"x", "input", BY_TOKEN},
    {"topk_idx", "input", BY_TOKEN},
    {"topk_weights", "input", BY_TOKEN},
    {"bias0", "input", BY_TOKEN},
    {"bias1", "input", BY_TOKEN},
    {"num_tokens_per_rank", "layout", TABLE},
    {"num_tokens_per_rdma_rank", "layout", TABLE},
    {"num_tokens_per_expert", "layout", TABLE},
    {"is_token_in_rank", "layout", BY_TOKEN},
    {"is_token_in_rank_h", "layout", BY_TOKEN},
    {"rank_prefix_matrix", "layout", OWN_COLUMN},
    {"channel_prefix_matrix", "layout", TABLE},
    {"recv_channel_prefix_matrix", "layout", TABLE},
    {"num_recv_tokens_per_expert", "layout", TABLE},
    {"x_fp8", "quantise", BY_TOKEN},
    {"x_scales", "quantise", BY_TOKEN},
    {"recv_src_idx", "dispatch", BY_ROW},
    {"recv_x", "dispatch", BY_ROW},
    {"recv_x_fp8", "dispatch", BY_ROW},
    {"recv_x_scales", "dispatch", BY_ROW},
    {"recv_topk_idx", "dispatch", BY_ROW},
    {"recv_topk_weights", "dispatch", BY_ROW},
    {"expert_out", "expert", BY_ROW},
    {"send_head", "combine", BY_TOKEN},
    {"combined_x", "combine", BY_TOKEN},
    {"combined_topk_weights", "combine", BY_TOKEN},
    {"combined_x_bias", "combine", BY_TOKEN},
    {"combined_x_logfmt", "combine", BY_TOKEN},
};
enum { RULES = sizeof(rules) / sizeof(rules[0]) };

struct job {
    const struct sim_capture *expected, *actual;
    const struct sim_compare_options *options;
    struct sim_comparison *comparison;
    char *err;
    size_t err_len;
};

static void note(const struct job *job, const struct sim_mismatch *found)
{
    assert(found->stage != NULL && found->rank < job->expected->ranks);
    if (job->comparison->mismatches == 0) job->comparison->first = *found;
    job->comparison->mismatches++;
}

static struct sim_mismatch place(const char *stage, const char *tensor, uint32_t rank)
{
    struct sim_mismatch found;

    memset(&found, 0, sizeof(found));
    found.stage = stage;
    snprintf(found.tensor, sizeof(found.tensor), "%s", tensor);
    found.rank = rank;
    found.expert = found.src_rank = found.src_token = found.channel = -1;
    return found;
}

static void shape_text(const struct sim_tensor *tensor, char text[32])
{
    if (tensor == NULL)
        snprintf(text, 32, "missing");
    else if (tensor->axes == 1)
        snprintf(text, 32, "%s[%" PRIu64 "]", trace_dtype_name(tensor->dtype), tensor->shape[0]);
    else
        snprintf(text, 32, "%s[%" PRIu64 ",%" PRIu64 "]", trace_dtype_name(tensor->dtype),
                 tensor->shape[0], tensor->axes > 1 ? tensor->shape[1] : 0);
}

/* One element as people read it: floats as hex digits of their bits, integers in decimal. */
static void element_text(const struct sim_tensor *tensor, uint64_t index, char text[32])
{
    const uint32_t bytes = trace_dtype_bytes(tensor->dtype);

    assert((index + 1) * bytes <= tensor->bytes && bytes <= 8);
    if (trace_dtype_is_integer(tensor->dtype)) {
        snprintf(text, 32, "%" PRId64, trace_integer_at(tensor->dtype, tensor->data, index));
        return;
    }
    if (tensor->dtype == TRACE_BOOL) {
        snprintf(text, 32, "%u", tensor->data[index]);
        return;
    }
    for (uint32_t b = 0; b < bytes; b++)
        snprintf(text + 2 * b, 3, "%02X", tensor->data[index * bytes + bytes - 1 - b]);
}

static bool same_shape(const struct sim_tensor *a, const struct sim_tensor *b)
{
    if (a == NULL || b == NULL || a->dtype != b->dtype || a->axes != b->axes) return false;
    for (uint32_t i = 0; i < a->axes; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}

/* Home of a received row of normal mode, from the expected side's own tables. */
static void find_source(const struct sim_capture *capture, uint32_t rank, uint64_t row,
                        struct sim_mismatch *found)
{
    const struct sim_tensor *prefix = sim_capture_find(capture, rank, "rank_prefix_matrix");
    const struct sim_tensor *src = sim_capture_find(capture, rank, "recv_src_idx");

    assert(rank < capture->ranks);
    if (src != NULL && src->dtype == TRACE_I32 && src->axes == 1 && row < src->shape[0])
        found->src_token = trace_integer_at(TRACE_I32, src->data, row);
    if (prefix == NULL || prefix->dtype != TRACE_I32 || prefix->axes != 2 ||
        prefix->shape[0] != capture->ranks || prefix->shape[1] != capture->ranks)
        return;
    for (uint32_t s = 0; s < capture->ranks && found->src_rank < 0; s++)
        if ((int64_t)row < trace_integer_at(TRACE_I32, prefix->data, s * capture->ranks + rank))
            found->src_rank = s;
}

static bool is_scales(const char *name)
{
    const size_t length = strlen(name);

    return length > 6 && strcmp(name + length - 6, "scales") == 0;
}

static void compare_elements(const struct job *job, const struct rule *rule, uint32_t rank,
                             const struct sim_tensor *a, const struct sim_tensor *b)
{
    const uint64_t columns = a->axes > 1 ? a->shape[1] : 1, rows = a->axes > 0 ? a->shape[0] : 1;
    const uint32_t bytes = trace_dtype_bytes(a->dtype);
    const uint64_t row_bytes = columns * bytes;

    assert(a->bytes == b->bytes && rows * row_bytes <= a->bytes);
    for (uint64_t row = 0; row < rows; row++) {
        const uint8_t *left = a->data + row * row_bytes, *right = b->data + row * row_bytes;
        const bool own = rule->kind == OWN_COLUMN;
        uint64_t column = own ? rank : 0;

        if (own && rank >= columns) return;
        if (!own && memcmp(left, right, row_bytes) == 0) continue;
        while (column < columns &&
               memcmp(left + column * bytes, right + column * bytes, bytes) == 0)
            column = own ? columns : column + 1;
        if (column == columns) continue;

        struct sim_mismatch found = place(rule->stage, a->name, rank);
        if (a->axes > 1) found.channel = (int64_t)(column * (is_scales(a->name) ? 128 : 1));
        if (rule->kind == BY_TOKEN) {
            found.src_rank = rank;
            found.src_token = (int64_t)row;
        } else if (rule->kind == BY_ROW) {
            find_source(job->expected, rank, row, &found);
        } else if (a->axes == 1) {
            found.channel = (int64_t)row;
        }
        element_text(a, row * columns + column, found.expected);
        element_text(b, row * columns + column, found.actual);
        found.expected_row = left;
        found.actual_row = right;
        note(job, &found);
    }
}

static void compare_tensor(const struct job *job, const struct rule *rule, uint32_t rank,
                           const char *name, int64_t expert)
{
    const struct sim_tensor *a = sim_capture_find(job->expected, rank, name);
    const struct sim_tensor *b = sim_capture_find(job->actual, rank, name);
    const uint64_t before = job->comparison->mismatches;

    assert(job->expected->ranks == job->actual->ranks && rank < job->expected->ranks);
    if (a == NULL && b == NULL) return;
    if ((a == NULL || b == NULL) && !job->options->both_ways) return;
    job->comparison->tensors++;
    job->comparison->bytes += a != NULL ? a->bytes : 0;
    if (same_shape(a, b)) {
        compare_elements(job, rule, rank, a, b);
        if (before == 0 && job->comparison->mismatches > 0) job->comparison->first.expert = expert;
        return;
    }
    struct sim_mismatch found = place(rule->stage, name, rank);
    found.expert = expert;
    shape_text(a, found.expected);
    shape_text(b, found.actual);
    snprintf(found.cause, sizeof(found.cause), "shapes differ: nothing in it was compared");
    note(job, &found);
}

/* The rows of one expert; false when the tensors there are not those of the format. */
static bool block_view(const struct sim_capture *capture, const struct sim_ll_tag *tag,
                       uint32_t rank, uint32_t local_expert, struct sim_block_rows *view)
{
    const struct sim_tensor *part[4];
    static const char *const parts[4] = {"x", "src", "layout", "scales"};

    assert(local_expert < capture->settings.experts / capture->ranks);
    for (uint32_t i = 0; i < 4; i++) {
        char name[SIM_TENSOR_NAME_MAX];

        snprintf(name, sizeof(name), "%s.e%" PRIu32 ".%s", tag->name, local_expert, parts[i]);
        part[i] = sim_capture_find(capture, rank, name);
    }
    const bool scaled = tag->scale_channels > 0;
    if (part[0] == NULL || part[1] == NULL || part[2] == NULL || (scaled && part[3] == NULL))
        return false;
    const enum trace_dtype payload = tag->payload_bytes == 1 ? TRACE_F8_E4M3 : TRACE_BF16;
    const enum trace_dtype scale = tag->scale_channels == 512 ? TRACE_I32 : TRACE_F32;
    const uint64_t rows = part[0]->shape[0], hidden = part[0]->shape[1];
    if (part[0]->axes != 2 || part[0]->dtype != payload || part[1]->axes != 1 ||
        part[1]->dtype != TRACE_I32 || part[1]->shape[0] != rows || part[2]->axes != 1 ||
        part[2]->dtype != TRACE_I64 || part[2]->shape[0] != capture->ranks)
        return false;
    if (scaled && (part[3]->axes != 2 || part[3]->dtype != scale || part[3]->shape[0] != rows ||
                   part[3]->shape[1] != hidden / tag->scale_channels))
        return false;
    memset(view, 0, sizeof(*view));
    view->ranks = capture->ranks;
    view->rows = rows;
    view->layout = (const int64_t *)(const void *)part[2]->data;
    view->src = (const int32_t *)(const void *)part[1]->data;
    view->payload = part[0]->data;
    view->row_bytes = hidden * tag->payload_bytes;
    view->element_bytes = tag->payload_bytes;
    view->scale_channels = tag->scale_channels;
    if (scaled) view->scales = part[3]->data;
    if (scaled) view->scale_bytes = part[3]->shape[1] * 4;
    return true;
}

/* Does a rank have anything of a tag's expert? */
static bool has_block(const struct sim_capture *capture, const struct sim_ll_tag *tag,
                      uint32_t rank, uint32_t local_expert)
{
    char name[SIM_TENSOR_NAME_MAX];

    snprintf(name, sizeof(name), "%s.e%" PRIu32 ".x", tag->name, local_expert);
    return sim_capture_find(capture, rank, name) != NULL;
}

static int compare_expert(const struct job *job, const struct sim_ll_tag *tag, uint32_t rank,
                          uint32_t local_expert)
{
    const bool in_expected = has_block(job->expected, tag, rank, local_expert);
    const bool in_actual = has_block(job->actual, tag, rank, local_expert);
    struct sim_comparison *comparison = job->comparison;
    const uint64_t before = comparison->mismatches;
    struct sim_block_rows a, b;
    char name[SIM_TENSOR_NAME_MAX];

    if (!in_expected && !in_actual) return 0;
    if ((!in_expected || !in_actual) && !job->options->both_ways) return 0;
    snprintf(name, sizeof(name), "%s.e%" PRIu32 ".", tag->name, local_expert);
    const uint32_t local = job->expected->settings.experts / job->expected->ranks;
    struct sim_mismatch found = place("dispatch", name, rank);
    found.expert = (int64_t)rank * local + local_expert;

    const bool a_reads = in_expected && block_view(job->expected, tag, rank, local_expert, &a);
    const bool b_reads = in_actual && block_view(job->actual, tag, rank, local_expert, &b);
    if (!a_reads || !b_reads || a.row_bytes != b.row_bytes) {
        snprintf(found.expected, sizeof(found.expected), "%s", a_reads ? "rows" : "not readable");
        snprintf(found.actual, sizeof(found.actual), "%s", b_reads ? "rows" : "not readable");
        snprintf(found.cause, sizeof(found.cause),
                 "x, src, layout and scales of this expert do not fit together");
        note(job, &found);
        return 0;
    }
    comparison->tensors += a.scales != NULL ? 4 : 3;
    comparison->bytes += a.rows * (a.row_bytes + a.scale_bytes + 4) + 8ull * a.ranks;
    if (sim_compare_block(&a, &b, &comparison->mismatches, &comparison->first, job->err,
                          job->err_len) != 0)
        return -1;
    if (before > 0 || comparison->mismatches == 0) return 0;
    struct sim_mismatch *first = &comparison->first;
    const char *part = first->tensor[0] != '\0' ? "scales" : first->channel >= 0 ? "x" : "src";
    if (first->src_token < 0 && first->expected_row == NULL) part = "layout";
    snprintf(first->tensor, sizeof(first->tensor), "%.40s%s", name, part);
    first->stage = "dispatch";
    first->rank = rank;
    first->expert = found.expert;
    return 0;
}

/* Does any rank have anything of the tag? */
static bool has_tag(const struct sim_capture *capture, const struct sim_ll_tag *tag)
{
    const size_t length = strlen(tag->name);

    for (uint32_t r = 0; r < capture->ranks; r++)
        for (size_t i = 0; i < capture->rank[r].count; i++) {
            const char *name = capture->rank[r].tensors[i].name;
            if (strncmp(name, tag->name, length) == 0 && name[length] == '.') return true;
        }
    return false;
}

static int compare_dispatch(const struct job *job)
{
    const uint32_t ranks = job->expected->ranks;
    const uint32_t local = job->expected->settings.experts / ranks;
    static const struct rule counts = {"count", "dispatch", TABLE};

    assert(ranks > 0 && local > 0);
    for (uint32_t t = 0; t < SIM_LL_TAGS; t++) {
        const bool in_expected = has_tag(job->expected, sim_ll_tag(t));
        char name[SIM_TENSOR_NAME_MAX];

        if (in_expected != has_tag(job->actual, sim_ll_tag(t))) {
            job->comparison->one_sided |= 1u << t;
            continue;
        }
        snprintf(name, sizeof(name), "%s.count", sim_ll_tag(t)->name);
        for (uint32_t r = 0; r < ranks; r++) {
            const uint64_t before = job->comparison->mismatches;
            struct sim_mismatch *first = &job->comparison->first;

            compare_tensor(job, &counts, r, name, -1);
            if (before > 0 || job->comparison->mismatches == 0 || first->channel < 0) continue;
            first->expert = (int64_t)r * local + first->channel;
            first->channel = -1;
        }
        for (uint32_t r = 0; r < ranks; r++)
            for (uint32_t e = 0; e < local; e++)
                if (compare_expert(job, sim_ll_tag(t), r, e) != 0) return -1;
    }
    return 0;
}

static bool skipped(const struct sim_compare_options *options, const struct rule *rule)
{
    if (!options->inputs && strcmp(rule->stage, "input") == 0) return true;
    if (options->skip_expert_out && strcmp(rule->stage, "expert") == 0) return true;
    return options->skip_logfmt && strcmp(rule->name, "combined_x_logfmt") == 0;
}

static void compare_expert_outs(const struct job *job)
{
    const uint32_t local = job->expected->settings.experts / job->expected->ranks;
    static const struct rule rule = {"expert_out.e", "expert", TABLE};

    if (skipped(job->options, &rule)) return;
    for (uint32_t r = 0; r < job->expected->ranks; r++)
        for (uint32_t e = 0; e < local; e++) {
            char name[SIM_TENSOR_NAME_MAX];

            snprintf(name, sizeof(name), "expert_out.e%" PRIu32, e);
            compare_tensor(job, &rule, r, name, (int64_t)r * local + e);
        }
}

int sim_compare_captures(const struct sim_capture *expected, const struct sim_capture *actual,
                         const struct sim_compare_options *options,
                         struct sim_comparison *comparison, char *err, size_t err_len)
{
    const struct job job = {expected, actual, options, comparison, err, err_len};
    const bool ll = expected->settings.mode == SIM_MODE_LL;

    assert(expected->ranks == actual->ranks);
    assert(expected->settings.experts == actual->settings.experts);
    memset(comparison, 0, sizeof(*comparison));
    for (uint32_t i = 0; i < RULES; i++) {
        if (ll && strcmp(rules[i].name, "send_head") == 0) { /* Where combine begins. */
            if (compare_dispatch(&job) != 0) return -1;
            compare_expert_outs(&job);
        }
        if (skipped(options, &rules[i])) continue;
        for (uint32_t r = 0; r < expected->ranks; r++)
            compare_tensor(&job, &rules[i], r, rules[i].name, -1);
    }
    return 0;
}
