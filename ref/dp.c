/* ref/dp.c - gather, gatherv and reduce-scatter over arrays in one address space. */
#include "ref/dp.h"

#include <assert.h>
#include <string.h>

#include "ref/bf16.h"
#include "ref/hot.h"

enum { CHUNK = 128 }; /* Values summed at a time: the sums stay in L1 while ranks go by. */

void ref_dp_gather(const void *const *parts, uint32_t ranks, uint64_t bytes, void *out)
{
    assert(ranks > 0 && (bytes == 0 || (parts != NULL && out != NULL)));
    for (uint32_t r = 0; r < ranks && bytes > 0; r++)
        memcpy((unsigned char *)out + r * bytes, parts[r], bytes);
}

void ref_dp_gatherv(const void *const *parts, const uint64_t *part_bytes, uint32_t ranks, void *out)
{
    unsigned char *to = (unsigned char *)out;

    assert(ranks > 0 && parts != NULL && part_bytes != NULL);
    for (uint32_t r = 0; r < ranks; r++) {
        if (part_bytes[r] == 0) continue;
        assert(parts[r] != NULL && to != NULL);
        memcpy(to, parts[r], part_bytes[r]);
        to += part_bytes[r];
    }
}

REF_HOT static void add_bf16(float *restrict sum, const uint16_t *restrict x)
{
    for (int i = 0; i < CHUNK; i++) sum[i] += ref_bf16_to_f32(x[i]);
}

REF_HOT static void narrow(const float *restrict sum, uint16_t *restrict out)
{
    for (int i = 0; i < CHUNK; i++) out[i] = ref_bf16_from_f32(sum[i]);
}

void ref_dp_reduce_scatter(const uint16_t *const *inputs, const uint64_t *row_start, uint32_t ranks,
                           uint32_t hidden, uint32_t rank, uint16_t *out)
{
    assert(inputs != NULL && row_start != NULL && rank < ranks && hidden > 0);
    assert(row_start[rank] <= row_start[rank + 1]);
    const uint64_t first = row_start[rank] * hidden;
    const uint64_t count = (row_start[rank + 1] - row_start[rank]) * hidden;
    uint64_t done = 0;

    for (; done + CHUNK <= count; done += CHUNK) {
        float sum[CHUNK] = {0};
        for (uint32_t r = 0; r < ranks; r++) add_bf16(sum, inputs[r] + first + done);
        narrow(sum, out + done);
    }
    for (; done < count; done++) {
        float sum = 0;
        for (uint32_t r = 0; r < ranks; r++) sum += ref_bf16_to_f32(inputs[r][first + done]);
        out[done] = ref_bf16_from_f32(sum);
    }
}
