/* fabric/attention.h - measured times of one layer's attention module in decode.
 *
 * A machine file may hold a table over requests and tokens read. Between its points values
 * are bilinear: sim/compute.h takes the share that the model is off by at the four points around,
 * which is smoother than time. Where a file has no table, or the question lies beside it, the
 * model answers alone. */
#ifndef FABRIC_ATTENTION_H
#define FABRIC_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/yaml.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FABRIC_ATTENTION_MAX = 16 }; /* Rows, and columns. */

struct fabric_attention {
    char model[64];   /* Whose attention was timed: a preset, or a model file's name. */
    char source[128]; /* Who timed it. */
    uint32_t rows;    /* 0 = no table. */
    uint32_t columns;
    uint64_t requests[FABRIC_ATTENTION_MAX]; /* [rows], ascending. */
    uint64_t tokens[FABRIC_ATTENTION_MAX];   /* [columns], ascending: context of each request. */
    uint64_t ps[FABRIC_ATTENTION_MAX][FABRIC_ATTENTION_MAX]; /* 0 = not measured. */
};

/* Read the attention section of a machine file: model, source, tokens (a list of whole numbers)
 * and requests_N_us (a list of times by tokens, ascending N; a shorter list ends early). It
 * replaces an inherited table whole. 0, or -1 with err. */
int fabric_attention_read(const struct fabric_yaml *yaml, const struct fabric_yaml_node *section,
                          struct fabric_attention *attention, char *err, size_t err_len);

/* The four points around a question: row and column of the lower and the upper one, which are the
 * same where the question lies on the grid. */
struct fabric_attention_box {
    uint32_t row[2], column[2];
};

/* false where the table lacks one of them, or the question lies beyond its edges. */
bool fabric_attention_around(const struct fabric_attention *attention, uint64_t requests,
                             uint64_t tokens, struct fabric_attention_box *box);

/* What four values at the points, [row][column], are between them. */
uint64_t fabric_attention_between(const struct fabric_attention *attention,
                                  const struct fabric_attention_box *box, uint64_t requests,
                                  uint64_t tokens, uint64_t value[2][2]);

/* The time for so many requests of so many tokens each: bilinear between the four points around
 * it. false where the table lacks one of them, or the question lies beyond its edges. */
bool fabric_attention_at(const struct fabric_attention *attention, uint64_t requests,
                         uint64_t tokens, uint64_t *ps);

#ifdef __cplusplus
}
#endif

#endif
