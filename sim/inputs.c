/* sim/inputs.c - reads a case's tensors, checks shapes and ids, and joins the ranks. */
#include "sim/inputs.h"
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ref/ll.h"
#include "ref/normal.h"

enum { HIDDEN_MAX = 1 << 20, LIBRARY_NODE_RANKS = 8, LL_HIDDEN_UNIT = 512 };

/* Reads one capture into one struct; err gets the first complaint. */
struct reader {
    const struct sim_capture *capture;
    struct sim_inputs *inputs;
    char *err;
    size_t err_len;
};

__attribute__((format(printf, 4, 5))) static int fail(const struct reader *reader, uint32_t rank,
                                                      const char *tensor, const char *format, ...)
{
    const char *path = reader->capture->rank[rank].path;
    char why[256];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    snprintf(reader->err, reader->err_len, "%.600s: %s: %s",
             path[0] != '\0' ? path : reader->capture->name, tensor, why);
    return -1;
}

static int out_of_memory(const struct reader *reader)
{
    return fail(reader, 0, "case", "not enough memory");
}

/* The tensor with that dtype and shape [rows][columns], or NULL with err. */
static const struct sim_tensor *need(const struct reader *reader, uint32_t rank, const char *name,
                                     enum trace_dtype dtype, uint64_t rows, uint64_t columns)
{
    const struct sim_tensor *tensor = sim_capture_find(reader->capture, rank, name);

    if (tensor == NULL) {
        (void)fail(reader, rank, name, "missing: must be %s [%" PRIu64 ",%" PRIu64 "]",
                   trace_dtype_name(dtype), rows, columns);
        return NULL;
    }
    if (tensor->dtype == dtype && tensor->axes == 2 && tensor->shape[0] == rows &&
        tensor->shape[1] == columns)
        return tensor;
    (void)fail(reader, rank, name,
               "%s of %" PRIu32 " axes [%" PRIu64 ",%" PRIu64 "...]: must be %s [%" PRIu64
               ",%" PRIu64 "]",
               trace_dtype_name(tensor->dtype), tensor->axes, tensor->shape[0], tensor->shape[1],
               trace_dtype_name(dtype), rows, columns);
    return NULL;
}

/* Tokens per rank, hidden and top-k, from x and topk_idx. */
static int read_shapes(const struct reader *reader)
{
    const struct sim_capture *capture = reader->capture;
    struct sim_inputs *inputs = reader->inputs;
    const bool ll = capture->settings.mode == SIM_MODE_LL;
    const uint32_t unit = ll ? (uint32_t)LL_HIDDEN_UNIT : (uint32_t)REF_GROUP_CHANNELS;
    uint64_t topk = 0, hidden = 0;

    for (uint32_t r = 0; r < capture->ranks; r++) {
        const struct sim_tensor *x = sim_capture_find(capture, r, "x");
        const struct sim_tensor *ids = sim_capture_find(capture, r, "topk_idx");

        if (x == NULL || x->axes != 2 || x->dtype != TRACE_BF16)
            return fail(reader, r, "x", "must be BF16 [tokens, hidden]");
        if (ids == NULL || ids->axes != 2 || ids->dtype != TRACE_I64)
            return fail(reader, r, "topk_idx", "must be I64 [tokens, topk]");
        if (r == 0) hidden = x->shape[1], topk = ids->shape[1];
        if (x->shape[1] != hidden || hidden == 0 || hidden % unit != 0 || hidden > HIDDEN_MAX)
            return fail(reader, r, "x",
                        "hidden %" PRIu64 ": must be a multiple of %" PRIu32
                        " up to %d, the same on every rank",
                        x->shape[1], unit, HIDDEN_MAX);
        if (ids->shape[1] != topk || topk < 1 || topk > REF_TOPK_MAX)
            return fail(reader, r, "topk_idx",
                        "top-k %" PRIu64 ": must be 1 to %d, the same on every rank", ids->shape[1],
                        REF_TOPK_MAX);
        if (ll && x->shape[0] > capture->settings.max)
            return fail(reader, r, "x", "%" PRIu64 " tokens: must be at most max, %" PRIu64,
                        x->shape[0], capture->settings.max);
        inputs->token_start[r + 1] = inputs->token_start[r] + x->shape[0];
        if (inputs->token_start[r + 1] > (uint64_t)INT32_MAX / REF_TOPK_MAX)
            return fail(reader, r, "x", "more than %d tokens in all", INT32_MAX / REF_TOPK_MAX);
    }
    inputs->hidden = (uint32_t)hidden;
    inputs->tokens = inputs->token_start[capture->ranks];
    inputs->routing.ranks = capture->ranks;
    inputs->routing.experts = capture->settings.experts;
    inputs->routing.topk = (uint32_t)topk;
    return 0;
}

/* Does any rank that has tokens lack the tensor (then *complete is false), and does any have it? */
static bool present(const struct reader *reader, const char *name, bool *complete)
{
    const uint64_t *start = reader->inputs->token_start;
    bool any = false;

    *complete = true;
    for (uint32_t r = 0; r < reader->capture->ranks; r++) {
        if (sim_capture_find(reader->capture, r, name) != NULL)
            any = true;
        else if (start[r + 1] > start[r])
            *complete = false;
    }
    return any;
}

/* One tensor of every rank, back to back. 0 with *out NULL when optional and on no rank. */
static int join(const struct reader *reader, const char *name, enum trace_dtype dtype,
                uint64_t columns, bool optional, void **out)
{
    const struct sim_inputs *inputs = reader->inputs;
    const uint64_t row_bytes = columns * trace_dtype_bytes(dtype);
    bool complete = true;

    if (optional && !present(reader, name, &complete)) return 0;
    uint8_t *data = (uint8_t *)malloc(inputs->tokens * row_bytes + 1);
    if (data == NULL) return out_of_memory(reader);
    *out = data; /* Freed with the inputs, whatever happens from here on. */
    for (uint32_t r = 0; r < reader->capture->ranks; r++) {
        const uint64_t rows = inputs->token_start[r + 1] - inputs->token_start[r];

        if (rows == 0 && sim_capture_find(reader->capture, r, name) == NULL) continue;
        const struct sim_tensor *tensor = need(reader, r, name, dtype, rows, columns);
        if (tensor == NULL) return -1;
        assert(tensor->bytes == rows * row_bytes);
        memcpy(data + inputs->token_start[r] * row_bytes, tensor->data, tensor->bytes);
    }
    return 0;
}

static int check_ids(const struct reader *reader)
{
    const struct sim_inputs *inputs = reader->inputs;
    const uint32_t topk = inputs->routing.topk;
    const int64_t experts = reader->capture->settings.experts;

    for (uint32_t r = 0; r < reader->capture->ranks; r++) {
        for (uint64_t t = inputs->token_start[r]; t < inputs->token_start[r + 1]; t++) {
            for (uint32_t k = 0; k < topk; k++) {
                const int64_t id = inputs->topk_idx[t * topk + k];

                if (id < experts) continue;
                return fail(reader, r, "topk_idx",
                            "[%" PRIu64 "][%" PRIu32 "]: %" PRId64 ": must be below %" PRId64
                            " experts",
                            t - inputs->token_start[r], k, id, experts);
            }
        }
    }
    return 0;
}

/* No rank may send an expert more rows than its slots hold. block_start is there already. */
static int check_sends(const struct reader *reader)
{
    const struct sim_inputs *inputs = reader->inputs;
    const uint32_t ranks = reader->capture->ranks;

    for (uint64_t block = 0; block < (uint64_t)inputs->routing.experts * ranks; block++) {
        const uint64_t sends = inputs->block_start[block + 1] - inputs->block_start[block];

        if (sends <= reader->capture->settings.max) continue;
        return fail(reader, (uint32_t)(block % ranks), "topk_idx",
                    "%" PRIu64 " rows for expert %" PRIu64 ": must be at most max, %" PRIu64, sends,
                    block / ranks, reader->capture->settings.max);
    }
    return 0;
}

uint64_t sim_inputs_rank_row(const struct sim_inputs *inputs, enum sim_mode mode, uint32_t rank)
{
    const uint64_t ranks = inputs->routing.ranks;

    assert(rank <= ranks);
    if (mode == SIM_MODE_NORMAL) return inputs->block_start[rank * ranks];
    return inputs->block_start[(uint64_t)rank * ref_local_experts(&inputs->routing) * ranks];
}

/* Rows [first, end) of the expert output, from one tensor of one rank. */
static int copy_rows(const struct reader *reader, uint32_t rank, const char *name, uint64_t first,
                     uint64_t end)
{
    struct sim_inputs *inputs = reader->inputs;

    if (end == first && sim_capture_find(reader->capture, rank, name) == NULL) return 0;
    const struct sim_tensor *tensor =
        need(reader, rank, name, TRACE_BF16, end - first, inputs->hidden);
    if (tensor == NULL) return -1;
    memcpy(&inputs->expert_out[first * inputs->hidden], tensor->data, tensor->bytes);
    return 0;
}

static bool brings_expert_out(const struct sim_capture *capture)
{
    const bool ll = capture->settings.mode == SIM_MODE_LL;
    const char *prefix = ll ? "expert_out.e" : "expert_out";

    for (uint32_t r = 0; r < capture->ranks; r++)
        for (size_t i = 0; i < capture->rank[r].count; i++) {
            const char *name = capture->rank[r].tensors[i].name;
            const bool matches =
                ll ? strncmp(name, prefix, strlen(prefix)) == 0 : strcmp(name, prefix) == 0;

            if (matches) return true;
        }
    return false;
}

/* Normal: expert_out [received rows]; LL: expert_out.eE [rows of local expert E]. */
static int read_expert_out(const struct reader *reader)
{
    const struct sim_capture *capture = reader->capture;
    struct sim_inputs *inputs = reader->inputs;
    const uint32_t ranks = capture->ranks, local = ref_local_experts(&inputs->routing);

    if (!brings_expert_out(capture)) return 0;
    inputs->expert_out = (uint16_t *)malloc(inputs->rows * inputs->hidden * 2 + 1);
    if (inputs->expert_out == NULL) return out_of_memory(reader);
    for (uint32_t r = 0; r < ranks; r++) {
        if (capture->settings.mode == SIM_MODE_NORMAL) {
            if (copy_rows(reader, r, "expert_out", sim_inputs_rank_row(inputs, SIM_MODE_NORMAL, r),
                          sim_inputs_rank_row(inputs, SIM_MODE_NORMAL, r + 1)) != 0)
                return -1;
            continue;
        }
        for (uint32_t e = 0; e < local; e++) {
            const uint64_t block = ((uint64_t)r * local + e) * ranks;
            char name[SIM_TENSOR_NAME_MAX];

            snprintf(name, sizeof(name), "expert_out.e%" PRIu32, e);
            if (copy_rows(reader, r, name, inputs->block_start[block],
                          inputs->block_start[block + ranks]) != 0)
                return -1;
        }
    }
    return 0;
}

static int read_blocks(const struct reader *reader)
{
    struct sim_inputs *inputs = reader->inputs;
    const uint64_t ranks = reader->capture->ranks, experts = inputs->routing.experts;
    const bool ll = reader->capture->settings.mode == SIM_MODE_LL;
    const uint64_t blocks = (ll ? experts : ranks) * ranks;

    inputs->block_start = (uint64_t *)calloc(blocks + 1, sizeof(uint64_t));
    inputs->scratch = (uint64_t *)calloc(experts > ranks ? experts : ranks, sizeof(uint64_t));
    if (inputs->block_start == NULL || inputs->scratch == NULL) return out_of_memory(reader);
    inputs->rows = ll ? ref_ll_blocks(&inputs->routing, inputs->block_start)
                      : ref_normal_blocks(&inputs->routing, inputs->block_start);
    assert(inputs->rows <= INT32_MAX);
    return ll ? check_sends(reader) : 0;
}

static int read_all(const struct reader *reader)
{
    const struct sim_capture *capture = reader->capture;
    struct sim_inputs *inputs = reader->inputs;
    const bool normal = capture->settings.mode == SIM_MODE_NORMAL;
    void *ids = NULL, *weights = NULL, *x = NULL, *bias0 = NULL, *bias1 = NULL, *codes = NULL,
         *scales = NULL;
    int status = -1;

    if (normal && capture->ranks > LIBRARY_NODE_RANKS && capture->ranks % LIBRARY_NODE_RANKS != 0)
        return fail(reader, 0, "ranks", "%" PRIu32 ": must be at most 8 or a multiple of 8",
                    capture->ranks);
    inputs->ranks_per_node =
        capture->ranks > LIBRARY_NODE_RANKS ? LIBRARY_NODE_RANKS : capture->ranks;
    inputs->token_start = (uint64_t *)calloc((size_t)capture->ranks + 1, sizeof(uint64_t));
    if (inputs->token_start == NULL) return out_of_memory(reader);
    if (read_shapes(reader) != 0) return -1;
    const uint64_t topk = inputs->routing.topk, hidden = inputs->hidden;
    if (join(reader, "topk_idx", TRACE_I64, topk, false, &ids) == 0 &&
        join(reader, "topk_weights", TRACE_F32, topk, false, &weights) == 0 &&
        join(reader, "x", TRACE_BF16, hidden, false, &x) == 0 &&
        (!normal || (join(reader, "bias0", TRACE_BF16, hidden, true, &bias0) == 0 &&
                     join(reader, "bias1", TRACE_BF16, hidden, true, &bias1) == 0 &&
                     join(reader, "x_fp8", TRACE_F8_E4M3, hidden, true, &codes) == 0 &&
                     join(reader, "x_scales", TRACE_F32, hidden / 128, true, &scales) == 0)))
        status = 0;
    inputs->topk_idx = (int64_t *)ids;
    inputs->topk_weights = (float *)weights;
    inputs->x = (uint16_t *)x;
    inputs->bias0 = (uint16_t *)bias0;
    inputs->bias1 = (uint16_t *)bias1;
    inputs->x_fp8 = (uint8_t *)codes;
    inputs->x_scales = (float *)scales;
    if (status != 0) return -1;
    if ((codes == NULL) != (scales == NULL))
        return fail(reader, 0, codes == NULL ? "x_fp8" : "x_scales",
                    "missing: x_fp8 and x_scales come together");
    inputs->routing.token_start = inputs->token_start;
    inputs->routing.topk_idx = inputs->topk_idx;
    inputs->routing.topk_weights = inputs->topk_weights;
    if (check_ids(reader) != 0 || read_blocks(reader) != 0) return -1;
    return read_expert_out(reader);
}

int sim_inputs_read(const struct sim_capture *capture, struct sim_inputs *inputs, char *err,
                    size_t err_len)
{
    struct sim_inputs read;
    const struct reader reader = {capture, &read, err, err_len};

    assert(capture->ranks == capture->settings.ranks);
    memset(&read, 0, sizeof(read));
    if (read_all(&reader) != 0) {
        sim_inputs_free(&read);
        return -1;
    }
    *inputs = read;
    return 0;
}

void sim_inputs_free(struct sim_inputs *inputs)
{
    free(inputs->token_start);
    free(inputs->block_start);
    free(inputs->scratch);
    free(inputs->topk_idx);
    free(inputs->topk_weights);
    free(inputs->x);
    free(inputs->bias0);
    free(inputs->bias1);
    free(inputs->x_fp8);
    free(inputs->x_scales);
    free(inputs->expert_out);
    memset(inputs, 0, sizeof(*inputs));
}
