/* tests/mutate.h - a small generator and ways to break bytes, for tests that print their seed. */
#ifndef TESTS_MUTATE_H
#define TESTS_MUTATE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The next number of a sequence that *state alone decides (splitmix64). */
static inline uint64_t mutate_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint64_t mutate_below(uint64_t *state, uint64_t limit)
{
    return mutate_next(state) % limit;
}

/* Break bytes[0, *count) in one to four ways; the buffer has room for capacity. What parsers trip
 * over: flipped bits, digits and punctuation in the wrong place, lost and repeated pieces. */
static inline void mutate(uint64_t *state, uint8_t *bytes, size_t *count, size_t capacity)
{
    static const char spice[] = "0123456789{}[]()'\",: -.eE\\\n\xff\x80";
    const uint64_t changes = 1 + mutate_below(state, 4);
    for (uint64_t i = 0; i<changes && * count> 0; i++) {
        const size_t at = (size_t)mutate_below(state, *count);
        const size_t rest = *count - at;
        const size_t length = 1 + (size_t)mutate_below(state, rest < 16 ? rest : 16);
        switch (mutate_below(state, 6)) {
        case 0: bytes[at] = (uint8_t)(bytes[at] ^ 1u << mutate_below(state, 8)); break;
        case 1: bytes[at] = (uint8_t)mutate_next(state); break;
        case 2: bytes[at] = (uint8_t)spice[mutate_below(state, sizeof spice - 1)]; break;
        case 3: /* Lose a piece. */
            memmove(bytes + at, bytes + at + length, rest - length);
            *count -= length;
            break;
        case 4: /* Repeat a piece. */
            if (*count + length > capacity) break;
            memmove(bytes + at + length, bytes + at, rest);
            *count += length;
            break;
        default: *count = at; break; /* Lose the end. */
        }
    }
}

#endif
