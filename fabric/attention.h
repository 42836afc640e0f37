/* fabric/attention.h - measured times of one layer's attention module in decode.
 *
 * A machine file may hold a table over requests and tokens read. Between its points time is
 * bilinear, which is what the work is: a part that grows with rows, and one with rows times
 * tokens. Where a file has no table, or the question lies beside it, a model answers
 * (sim/compute.h). */
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
    char model[64];   /* Preset whose attention was timed. */
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

/* The time for so many requests of so many tokens each: bilinear between the four points around
 * it. false where the table lacks one of them, or the question lies beyond its edges. */
bool fabric_attention_at(const struct fabric_attention *attention, uint64_t requests,
                         uint64_t tokens, uint64_t *ps);

#ifdef __cplusplus
}
#endif

#endif
