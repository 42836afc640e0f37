/* tests/gpu_support.h - what the suites on a GPU share.
 *
 * They are a second program, build/test-gpu: a CUDA context does not survive a fork, so all tests
 * run in one process. Loop tests over test_gpu_places() cover every way to spread ranks over the
 * GPUs that are there. */
#ifndef TESTS_GPU_SUPPORT_H
#define TESTS_GPU_SUPPORT_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gpu.h"
#include "sim/backends.h"
#include "tests/exchange.h"
#include "tests/support.h"

/* GPUs at hand, found once by gpu_main.c; at least 1 in every test. */
uint32_t test_gpu_count(void);

/* One GPU; and, where there are several, all of them in blocks and round robin. */
static inline int test_gpu_places(void)
{
    return test_gpu_count() > 1 ? 3 : 1;
}

/* Loop index to place: the quick set (sanitizers) has the last one alone, all GPUs by turns. */
static inline int test_gpu_loop_places(void)
{
    return test_quick() ? 1 : test_gpu_places();
}

static inline int test_gpu_loop_place(int index)
{
    return test_quick() ? test_gpu_places() - 1 : index;
}

static inline struct gpu *test_gpu_open(int place)
{
    const struct gpu_options options = {
        .devices = place == 0 ? 1 : test_gpu_count(),
        .mapping = place == 2 ? GPU_MAP_ROUND_ROBIN : GPU_MAP_BLOCKS,
    };
    struct gpu *gpu = NULL;
    char err[256] = "";
    ck_assert_msg(gpu_open(&options, &gpu, err, sizeof err) == 0, "%s", err);
    return gpu;
}

/* The same for a backend. */
static inline struct sim_backend_place test_gpu_place(int place)
{
    struct sim_backend_place where = sim_backend_place_default();
    where.gpus = place == 0 ? 1 : test_gpu_count();
    where.interleave = place == 2;
    return where;
}

/* A call of gpu.h that must succeed; its last two arguments are added here. */
#define TEST_GPU(call, ...)                                                                        \
    do {                                                                                           \
        char gpu_err[256] = "";                                                                    \
        ck_assert_msg(call(__VA_ARGS__, gpu_err, sizeof gpu_err) == 0, #call ": %s", gpu_err);     \
    } while (0)

/* Read a whole buffer and compare; names the first byte that differs. */
static inline void test_gpu_equals(struct gpu *gpu, const struct gpu_buffer *buffer,
                                   const void *expected, uint64_t bytes, const char *what,
                                   uint64_t seed)
{
    const uint8_t *wanted = (const uint8_t *)expected;
    uint8_t *got = (uint8_t *)malloc(bytes + 1);
    ck_assert_ptr_nonnull(got);
    TEST_GPU(gpu_read, gpu, buffer, got);
    uint64_t i = 0;
    while (i < bytes && got[i] == wanted[i]) i++;
    ck_assert_msg(i == bytes, "%s, seed %" PRIu64 ": byte %" PRIu64 " is %02x, not %02x", what,
                  seed, i, got[i], wanted[i]);
    free(got);
}

/* BF16 bits of every sort: normal numbers, and where special is set zeros of both signs, values
 * under every floor, infinities and NaNs of both signs. */
static inline uint16_t test_gpu_bf16(uint64_t *state, bool special)
{
    const uint16_t bits =
        (uint16_t)((0x3C00 + test_below(state, 0x0800)) | (test_below(state, 2) << 15));
    if (!special || test_below(state, 64) != 0) return bits;
    switch (test_below(state, 6)) {
    case 0: return (uint16_t)(bits & 0x8000);
    case 1: return (uint16_t)((bits & 0x8000) | 0x2E00); /* About 3e-11. */
    case 2: return (uint16_t)((bits & 0x8000) | 0x7F80);
    case 3: return (uint16_t)((bits & 0x8000) | 0x7F81);
    case 4: return (uint16_t)((bits & 0x8000) | 0x7FFF);
    default: return (uint16_t)((bits & 0x8000) | 0x7F7F);
    }
}

#endif
