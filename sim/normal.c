/* sim/normal.c - the time of one normal-mode dispatch or combine.
 *
 * Plans the queues, chooses chunk sizes, hands the run to the model of one node or of several
 * and reports. Owns no protocol step itself. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim/normal_model.h"

__extension__ typedef unsigned __int128 u128; /* ISO C has none; -Wpedantic wants it said. */

uint64_t normal_transfer_ps(uint64_t bytes, uint64_t rate_bytes_per_s)
{
    if (rate_bytes_per_s == 0) return 0;
    const u128 byte_ps = (u128)bytes * UINT64_C(1000000000000);
    const u128 whole_ps = (byte_ps + rate_bytes_per_s - 1) / rate_bytes_per_s;
    assert(whole_ps <= UINT64_MAX);
    return (uint64_t)whole_ps;
}
