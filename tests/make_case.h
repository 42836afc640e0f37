/* tests/make_case.h - small cases of the capture format, written by tests that need one. */
#ifndef TESTS_MAKE_CASE_H
#define TESTS_MAKE_CASE_H

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/support.h"
#include "traces/safetensors.h"

/* One rank's inputs. x is [tokens] values, each spread over all channels. */
struct made_rank {
    uint64_t tokens;
    const uint16_t *x;    /* [tokens] bf16 */
    const int64_t *ids;   /* [tokens][topk] */
    const float *weights; /* [tokens][topk] */
};

static inline struct trace_tensor made_tensor(const char *name, enum trace_dtype dtype,
                                              uint64_t rows, uint64_t columns, const void *data)
{
    static const uint64_t nothing = 0;
    struct trace_tensor tensor = {.name = name, .dtype = dtype, .axes = 2};

    tensor.shape[0] = rows;
    tensor.shape[1] = columns;
    tensor.data = data != NULL ? data : &nothing;
    return tensor;
}

static inline uint16_t *made_rows(const uint16_t *values, uint64_t tokens, uint64_t hidden)
{
    uint16_t *rows = (uint16_t *)calloc(tokens * hidden + 1, sizeof(*rows));

    ck_assert_ptr_nonnull(rows);
    for (uint64_t i = 0; i < tokens * hidden; i++) rows[i] = values[i / hidden];
    return rows;
}

/* folder/NAME.rankR.safetensors with the inputs and, behind them, more tensors. */
static inline void make_rank(const char *folder, const char *name, uint32_t rank,
                             const char *settings, uint64_t hidden, uint64_t topk,
                             const struct made_rank *given, const struct trace_tensor *more,
                             size_t more_count)
{
    uint16_t *x = made_rows(given->x, given->tokens, hidden);
    struct trace_tensor tensors[16];
    const struct trace_pair pair = {"case", settings};
    char file[128], err[512] = "";

    tensors[0] = made_tensor("x", TRACE_BF16, given->tokens, hidden, x);
    tensors[1] = made_tensor("topk_idx", TRACE_I64, given->tokens, topk, given->ids);
    tensors[2] = made_tensor("topk_weights", TRACE_F32, given->tokens, topk, given->weights);
    ck_assert_uint_le(more_count, 13);
    for (size_t i = 0; i < more_count; i++) tensors[3 + i] = more[i];
    snprintf(file, sizeof(file), "%s.rank%" PRIu32 ".safetensors", name, rank);
    const int status = trace_tensors_write(test_join(folder, file), tensors, 3 + more_count, &pair,
                                           1, err, sizeof(err));
    ck_assert_msg(status == 0, "%s", err);
    free(x);
}

#endif
