/* sim/compare_block.c - one expert's rows against another's, whatever order they landed in.
 *
 * Both sides are sorted by (source rank, source token, content), so copies of a row are counted
 * and a payload that moved to another row's place is seen: a sum or a hash over all rows would
 * miss two payloads that changed places. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim/compare.h"

struct entry {
    uint32_t src_rank;
    int32_t token;
    uint64_t row;
};

static int by_key(const void *a, const void *b, void *context)
{
    const struct entry *left = (const struct entry *)a, *right = (const struct entry *)b;
    const struct sim_block_rows *rows = (const struct sim_block_rows *)context;

    if (left->src_rank != right->src_rank) return left->src_rank < right->src_rank ? -1 : 1;
    if (left->token != right->token) return left->token < right->token ? -1 : 1;
    int order = memcmp(rows->payload + left->row * rows->row_bytes,
                       rows->payload + right->row * rows->row_bytes, rows->row_bytes);
    if (order == 0 && rows->scales != NULL)
        order = memcmp(rows->scales + left->row * rows->scale_bytes,
                       rows->scales + right->row * rows->scale_bytes, rows->scale_bytes);
    if (order != 0) return order;
    return left->row < right->row ? -1 : left->row > right->row;
}

static void note(struct sim_mismatch *first, uint64_t *mismatches, const struct sim_mismatch *found)
{
    if (*mismatches == 0) *first = *found;
    (*mismatches)++;
}

/* Blocks of the source ranks must tile the rows: each row in exactly one. Gives every row its
 * source rank. false, with a mismatch, when they do not; side says whose layout it is. */
static bool owners(const struct sim_block_rows *rows, bool expected_side, struct entry *entries,
                   uint64_t *mismatches, struct sim_mismatch *first)
{
    uint64_t covered = 0;

    for (uint64_t i = 0; i < rows->rows; i++) entries[i].src_rank = UINT32_MAX;
    for (uint32_t s = 0; s < rows->ranks; s++) {
        const uint64_t word = (uint64_t)rows->layout[s];
        const uint64_t count = word & UINT32_MAX, begin = word >> 32;
        bool tiles = count == 0 || (begin + count <= rows->rows);

        for (uint64_t i = begin; tiles && i < begin + count; i++) {
            tiles = entries[i].src_rank == UINT32_MAX;
            entries[i].src_rank = s;
        }
        covered += count;
        if (tiles && (s + 1 < rows->ranks || covered == rows->rows)) continue;

        struct sim_mismatch found = {.src_rank = s, .src_token = -1, .channel = -1};
        char *bad = expected_side ? found.expected : found.actual;
        char *good = expected_side ? found.actual : found.expected;
        snprintf(bad, sizeof(found.actual), "[%" PRIu64 ",%" PRIu64 ")", begin, begin + count);
        snprintf(good, sizeof(found.actual), "tiles [0,%" PRIu64 ")", rows->rows);
        snprintf(found.cause, sizeof(found.cause),
                 "the layout's blocks do not tile the expert's %" PRIu64
                 " rows (source rank %" PRIu32 ")",
                 rows->rows, s);
        note(first, mismatches, &found);
        return false;
    }
    return true;
}

/* First differing element of a row of count bytes; its index, or -1. */
static int64_t first_difference(const uint8_t *expected, const uint8_t *actual, uint64_t bytes,
                                uint32_t element_bytes, char expected_hex[32], char actual_hex[32])
{
    for (uint64_t at = 0; at < bytes; at += element_bytes) {
        if (memcmp(expected + at, actual + at, element_bytes) == 0) continue;
        for (uint32_t b = 0; b < element_bytes; b++) { /* Little-endian: highest byte first. */
            const uint64_t from = at + element_bytes - 1 - b;

            snprintf(expected_hex + 2 * b, 3, "%02X", expected[from]);
            snprintf(actual_hex + 2 * b, 3, "%02X", actual[from]);
        }
        return (int64_t)(at / element_bytes);
    }
    return -1;
}

/* Two rows of one key. */
static void compare_rows(const struct sim_block_rows *expected, const struct entry *a,
                         const struct sim_block_rows *actual, const struct entry *b,
                         uint64_t *mismatches, struct sim_mismatch *first)
{
    struct sim_mismatch found = {.src_rank = a->src_rank, .src_token = a->token, .channel = -1};

    found.expected_row = expected->payload + a->row * expected->row_bytes;
    found.actual_row = actual->payload + b->row * actual->row_bytes;
    if (expected->scales != NULL) {
        found.expected_scales = expected->scales + a->row * expected->scale_bytes;
        found.actual_scales = actual->scales + b->row * actual->scale_bytes;
    }
    found.channel = first_difference(found.expected_row, found.actual_row, expected->row_bytes,
                                     expected->element_bytes, found.expected, found.actual);
    if (found.channel < 0 && expected->scales != NULL) {
        found.channel = first_difference(found.expected_scales, found.actual_scales,
                                         expected->scale_bytes, 4, found.expected, found.actual);
        if (found.channel >= 0) {
            found.channel *= expected->scale_channels;
            memcpy(found.tensor, "scales", sizeof("scales"));
        }
    }
    if (found.channel >= 0) note(first, mismatches, &found);
}

static uint64_t copies(const struct entry *entries, uint64_t from, uint64_t count)
{
    uint64_t end = from;

    while (end < count && entries[end].src_rank == entries[from].src_rank &&
           entries[end].token == entries[from].token)
        end++;
    return end - from;
}

static int key_order(const struct entry *a, const struct entry *b)
{
    if (a->src_rank != b->src_rank) return a->src_rank < b->src_rank ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

/* One key stands a different number of times on the two sides. */
static void note_copies(const struct sim_block_rows *rows, bool in_expected,
                        const struct entry *entry, uint64_t expected_copies, uint64_t actual_copies,
                        uint64_t *mismatches, struct sim_mismatch *first)
{
    struct sim_mismatch found = {
        .src_rank = entry->src_rank, .src_token = entry->token, .channel = -1};
    const uint8_t *row = rows->payload + entry->row * rows->row_bytes;

    snprintf(found.expected, sizeof(found.expected), "%" PRIu64 " rows", expected_copies);
    snprintf(found.actual, sizeof(found.actual), "%" PRIu64 " rows", actual_copies);
    snprintf(found.cause, sizeof(found.cause), "%s: stands %" PRIu64 " times instead of %" PRIu64,
             actual_copies < expected_copies ? "a row is lost" : "a row is there too often",
             actual_copies, expected_copies);
    *(in_expected ? &found.expected_row : &found.actual_row) = row;
    note(first, mismatches, &found);
}

static void merge(const struct sim_block_rows *expected, const struct entry *a,
                  const struct sim_block_rows *actual, const struct entry *b, uint64_t *mismatches,
                  struct sim_mismatch *first)
{
    uint64_t i = 0, j = 0;

    while (i < expected->rows || j < actual->rows) {
        const int order = i == expected->rows ? 1
                          : j == actual->rows ? -1
                                              : key_order(&a[i], &b[j]);
        const uint64_t expected_copies = order <= 0 ? copies(a, i, expected->rows) : 0;
        const uint64_t actual_copies = order >= 0 ? copies(b, j, actual->rows) : 0;

        assert(expected_copies + actual_copies > 0);
        if (expected_copies != actual_copies) {
            const bool in_expected = expected_copies > 0;
            note_copies(in_expected ? expected : actual, in_expected, in_expected ? &a[i] : &b[j],
                        expected_copies, actual_copies, mismatches, first);
        } else {
            for (uint64_t c = 0; c < expected_copies; c++)
                compare_rows(expected, &a[i + c], actual, &b[j + c], mismatches, first);
        }
        i += expected_copies;
        j += actual_copies;
    }
}

static struct entry *open_entries(const struct sim_block_rows *rows)
{
    struct entry *entries = (struct entry *)malloc((rows->rows + 1) * sizeof(*entries));

    for (uint64_t i = 0; entries != NULL && i < rows->rows; i++) {
        entries[i].row = i;
        entries[i].token = rows->src[i];
    }
    return entries;
}

int sim_compare_block(const struct sim_block_rows *expected, const struct sim_block_rows *actual,
                      uint64_t *mismatches, struct sim_mismatch *first, char *err, size_t err_len)
{
    struct entry *a = open_entries(expected), *b = open_entries(actual);
    struct sim_block_rows left = *expected, right = *actual;
    int status = -1;

    assert(expected->row_bytes == actual->row_bytes && expected->ranks == actual->ranks);
    assert(expected->scale_bytes == actual->scale_bytes);
    assert((expected->scales == NULL) == (actual->scales == NULL));
    if (a == NULL || b == NULL) {
        snprintf(err, err_len, "not enough memory to compare %" PRIu64 " rows", expected->rows);
        goto free_entries;
    }
    status = 0;
    if (!owners(expected, true, a, mismatches, first) ||
        !owners(actual, false, b, mismatches, first))
        goto free_entries;
    qsort_r(a, left.rows, sizeof(*a), by_key, &left);
    qsort_r(b, right.rows, sizeof(*b), by_key, &right);
    merge(expected, a, actual, b, mismatches, first);
free_entries:
    free(a);
    free(b);
    return status;
}
