/* sim/arena.h - a byte array that grows between layers and never while one is played. */
#ifndef SIM_ARENA_H
#define SIM_ARENA_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct sim_arena {
    uint8_t *bytes; /* Owned; 64-byte aligned; NULL until first used. */
    uint64_t room;
};

/* Make room for count items of item_bytes each; what was there is lost. 0, or -1 with err. */
static inline int sim_arena_reserve(struct sim_arena *arena, uint64_t count, uint64_t item_bytes,
                                    char *err, size_t err_len)
{
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, item_bytes, &bytes) || bytes > INT64_MAX) {
        snprintf(err, err_len, "%" PRIu64 " rows of %" PRIu64 " bytes: more than memory can hold",
                 count, item_bytes);
        return -1;
    }
    if (arena->bytes != NULL && bytes <= arena->room) return 0;
    bytes = (bytes / 64 + 1) * 64;
    free(arena->bytes);
    arena->bytes = (uint8_t *)aligned_alloc(64, bytes);
    arena->room = arena->bytes != NULL ? bytes : 0;
    if (arena->bytes != NULL) return 0;
    snprintf(err, err_len, "%" PRIu64 " rows of %" PRIu64 " bytes: out of memory", count,
             item_bytes);
    return -1;
}

static inline void sim_arena_free(struct sim_arena *arena)
{
    free(arena->bytes);
    arena->bytes = NULL;
    arena->room = 0;
}

#endif
