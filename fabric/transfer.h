/* fabric/transfer.h - how long bytes take at a rate: the one rounding rule of the model. */
#ifndef FABRIC_TRANSFER_H
#define FABRIC_TRANSFER_H

#include <assert.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FABRIC_PS_PER_S UINT64_C(1000000000000)

__extension__ typedef unsigned __int128 fabric_u128;

/* ceil(bytes x 10^12 / rate) picoseconds. Rounding up keeps one promise: splitting a transfer
 * cannot make it end sooner. The product is taken in 128 bits where it leaves 64, at 18 MB. */
static inline uint64_t fabric_transfer_ps(uint64_t bytes, uint64_t bytes_per_s)
{
    assert(bytes_per_s > 0);
    if (bytes < UINT64_MAX / FABRIC_PS_PER_S - 1)
        return bytes * FABRIC_PS_PER_S / bytes_per_s + (bytes * FABRIC_PS_PER_S % bytes_per_s > 0);
    const fabric_u128 span_ps =
        ((fabric_u128)bytes * FABRIC_PS_PER_S + bytes_per_s - 1) / bytes_per_s;
    assert(span_ps <= UINT64_MAX);
    return (uint64_t)span_ps;
}

#ifdef __cplusplus
}
#endif

#endif
