/* sim/cause_bytes.c - what two rows of bytes tell without knowing what they are. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "sim/cause.h"

static bool all_are(const uint8_t *row, uint64_t bytes, uint8_t value)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (row[i] != value) return false;
    return bytes > 0;
}

static bool is_swapped(const uint8_t *expected, const uint8_t *actual, uint64_t bytes,
                       uint32_t element_bytes)
{
    if (element_bytes < 2) return false;
    for (uint64_t i = 0; i < bytes; i++) {
        const uint64_t start = i / element_bytes * element_bytes;

        if (actual[i] != expected[start + element_bytes - 1 - i % element_bytes]) return false;
    }
    return true;
}

bool sim_cause_bytes(const uint8_t *expected, const uint8_t *actual, uint64_t bytes,
                     uint32_t element_bytes, char cause[SIM_CAUSE_MAX])
{
    uint64_t differing = 0, last = 0;
    uint32_t bits = 0;

    assert(element_bytes >= 1 && bytes % element_bytes == 0);
    if (all_are(actual, bytes, 0xFF)) {
        snprintf(cause, SIM_CAUSE_MAX, "the row was never written: every byte is FF");
        return true;
    }
    if (all_are(actual, bytes, 0)) {
        snprintf(cause, SIM_CAUSE_MAX, "the row is all zeros");
        return true;
    }
    if (is_swapped(expected, actual, bytes, element_bytes)) {
        snprintf(cause, SIM_CAUSE_MAX, "the bytes of every element are in the other order");
        return true;
    }
    for (uint64_t i = 0; i < bytes; i++) {
        if (expected[i] == actual[i]) continue;
        differing++;
        last = i;
        bits += (uint32_t)__builtin_popcount((unsigned)(expected[i] ^ actual[i]));
    }
    if (differing != 1) return false;
    snprintf(cause, SIM_CAUSE_MAX, "one byte of the row differs, byte %" PRIu64 ", by %s%02X: %s",
             last, "exclusive or ", expected[last] ^ actual[last],
             bits == 1 ? "one bit is flipped" : "the rest is right");
    return true;
}
