/* sim/sorted.h - times, bytes and counts in ascending order, and the one in the middle. */
#ifndef SIM_SORTED_H
#define SIM_SORTED_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static inline int sim_compare_u64(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static inline void sim_sort(uint64_t *values, size_t count)
{
    if (count > 0) qsort(values, count, sizeof *values, sim_compare_u64);
}

/* Sorts the values; of an even count, the upper of the two in the middle. */
static inline uint64_t sim_median(uint64_t *values, size_t count)
{
    assert(count > 0);
    sim_sort(values, count);
    return values[count / 2];
}

#endif
