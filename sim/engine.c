/* sim/engine.c - the event queue and the loop over it.
 *
 * Nothing is scheduled in the past, so the queue hardly compares. A time is read as six digits;
 * an event waits at the level of the highest digit in which its time differs from the queue's
 * position, in the slot of that digit:
 *
 *     level     5       4        3        2        1        0
 *     bits   63..58   57..46   45..34   33..22   21..10    9..0
 *     a slot    -       -      17 ms    4.2 us   1 ns     1 ps wide
 *
 * The earliest event is in the first used slot of the lowest used level. A long list is dealt
 * to lower levels; short lists of level 1 are sorted on the spot. Either way the next few events
 * end up in a small array, due[], and the position moves to the last of them. Popping is a step
 * through due[]; since that needs nothing a schedule just wrote, the processor overlaps the two.
 *
 * An event scheduled at or after the position joins its list. One before it is inserted into
 * due[], or, where due[] is full, into a heap beside it, so a burst costs a heap at worst.
 *
 * Why equal times pop in the order of their sequence: lists are first in first out and dealt in
 * order; an event that joins a list comes later than all dealt to it before; an event at the
 * position's own time joins a list and so pops after due[]; insertion passes over equals; the
 * heap compares sequences. */
#include "sim/engine.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEVELS = 6,
    SLOTS_MAX = 4096,
    WORDS_MAX = SLOTS_MAX / 64,
    DUE_MAX = 64,
    BATCH = 16,    /* Events moved to due[] at once. More makes insertion into due[] dearer. */
    SORT_MAX = 16, /* A list of level 1 longer than this is dealt, not sorted. */
    PENDING_MIN = 64,
    KIND_BITS = 16
};
#define NONE UINT32_MAX
#define SEQUENCE_MAX (UINT64_MAX >> KIND_BITS)
_Static_assert(BATCH - 1 + SORT_MAX <= DUE_MAX, "a batch fits");
_Static_assert(SIM_EVENT_KIND_MAX < 1 << KIND_BITS, "a kind fits");

/* 10 and 12 bits: nearly all steps of a model are below 4 us, so an event is moved about once
 * between its list and due[], and the used parts of levels 0 and 1 stay in the cache. */
static const uint8_t first_bit[LEVELS] = {0, 10, 22, 34, 46, 58};
static const uint32_t slot_mask[LEVELS] = {1023, 4095, 4095, 4095, 4095, 63};

struct node { /* A pending event. */
    uint64_t time_ps;
    uint64_t payload;
    uint64_t sequence_kind; /* sequence << KIND_BITS | kind. */
    uint32_t target;
    uint32_t next; /* In its list, or in the list of free nodes. */
};
_Static_assert(sizeof(struct node) == 32, "two nodes fill a cache line and none straddles one");

struct list { /* Indices of nodes. */
    uint32_t head, tail;
};

struct level {
    uint64_t used_words;          /* Bit w: words[w] is not 0. */
    uint64_t words[WORDS_MAX];    /* Bit s % 64 of word s / 64: slot s holds events. */
    struct list slots[SLOTS_MAX]; /* Stale where its bit is 0. */
};

struct due {
    uint64_t time_ps;
    uint32_t index;
};

struct sim_engine {
    uint32_t due_head, due_end; /* due[head..end) pops next, sorted by (time, sequence). */
    struct due due[DUE_MAX];
    struct due *heap; /* Events before the position that found due[] full. */
    uint32_t heap_count, heap_capacity;
    uint32_t used_levels; /* Bit l: levels[l].used_words is not 0. */
    uint64_t position_ps; /* Time of the last event moved to due[]: lists hold no earlier one. */
    struct node *nodes;
    uint32_t capacity;  /* Of nodes. */
    uint32_t fresh;     /* Nodes from here on were never used since reset. */
    uint32_t free_head; /* Nodes to use again. */
    int out_of_memory;
    uint64_t now_ps, sequence, handled, digest;
    struct level levels[LEVELS];
};

struct sim_engine *sim_engine_open(size_t pending_max, char *err, size_t err_len)
{
    const size_t wanted = pending_max < PENDING_MIN ? PENDING_MIN : pending_max;
    const uint32_t capacity = wanted < NONE ? (uint32_t)wanted : NONE;
    struct sim_engine *engine = (struct sim_engine *)calloc(1, sizeof *engine);
    struct node *nodes = (struct node *)malloc(capacity * sizeof *nodes);
    if (!engine || !nodes) {
        snprintf(err, err_len, "engine: no memory for %zu pending events", wanted);
        free(engine);
        free(nodes);
        return NULL;
    }
    engine->nodes = nodes;
    engine->capacity = capacity;
    sim_engine_reset(engine);
    return engine;
}

void sim_engine_close(struct sim_engine *engine)
{
    if (!engine) return;
    free(engine->nodes);
    free(engine->heap);
    free(engine);
}

void sim_engine_reset(struct sim_engine *engine)
{
    for (int l = 0; l < LEVELS; l++) {
        engine->levels[l].used_words = 0;
        memset(engine->levels[l].words, 0, sizeof engine->levels[l].words);
    }
    engine->used_levels = 0;
    engine->due_head = engine->due_end = engine->heap_count = 0;
    engine->position_ps = 0;
    engine->fresh = 0;
    engine->free_head = NONE;
    engine->out_of_memory = 0;
    engine->now_ps = engine->sequence = engine->handled = engine->digest = 0;
}

/* --- lists ------------------------------------------------------------------------------- */

static int level_of(uint64_t difference)
{
    if (difference < UINT64_C(1) << first_bit[2]) return difference >> first_bit[1] != 0;
    int l = 2;
    while (l + 1 < LEVELS && difference >> first_bit[l + 1]) l++;
    return l;
}

/* Append a node to the list where its time belongs, seen from position_ps. Whether a slot is
 * in use is a coin toss to the branch predictor, so the place to write is selected instead. */
static void place(struct sim_engine *engine, uint32_t index, uint64_t position_ps)
{
    struct node *nodes = engine->nodes;
    const uint64_t time_ps = nodes[index].time_ps;
    const int l = level_of(time_ps ^ position_ps);
    struct level *level = &engine->levels[l];
    const uint32_t slot = (uint32_t)(time_ps >> first_bit[l]) & slot_mask[l];
    const uint64_t word = level->words[slot / 64];
    const uint64_t bit = UINT64_C(1) << (slot % 64);
    struct list *list = &level->slots[slot];
    uint32_t *next = &nodes[list->tail].next;
    uint32_t *link = word & bit ? next : &list->head;

    nodes[index].next = NONE;
    *link = index;
    list->tail = index;
    level->words[slot / 64] = word | bit;
    level->used_words |= UINT64_C(1) << (slot / 64);
    engine->used_levels |= 1u << l;
}

/* Say which slots of word w of level l are still in use. */
static void set_word(struct sim_engine *engine, int l, uint32_t w, uint64_t word)
{
    struct level *level = &engine->levels[l];
    level->words[w] = word;
    if (word != 0) return;
    level->used_words &= ~(UINT64_C(1) << w);
    if (level->used_words == 0) engine->used_levels &= ~(1u << l);
}

/* Move the first list of level l to lower levels, seen from its slot's first instant, before
 * which nothing is left. */
static void deal(struct sim_engine *engine, int l)
{
    const struct level *level = &engine->levels[l];
    const uint32_t w = (uint32_t)__builtin_ctzll(level->used_words);
    const uint32_t slot = w * 64 + (uint32_t)__builtin_ctzll(level->words[w]);
    uint32_t index = level->slots[slot].head;
    const uint64_t position_ps = engine->nodes[index].time_ps >> first_bit[l] << first_bit[l];

    assert(l > 0 && position_ps > engine->position_ps);
    set_word(engine, l, w, level->words[w] & (level->words[w] - 1));
    while (index != NONE) {
        const uint32_t next = engine->nodes[index].next;
        place(engine, index, position_ps);
        index = next;
    }
}

/* --- due[] ------------------------------------------------------------------------------- */

/* Take up to BATCH events from the first word of level 0, where a list is of one time. */
static void gather_instants(struct sim_engine *engine)
{
    struct level *level = &engine->levels[0];
    const uint32_t w = (uint32_t)__builtin_ctzll(level->used_words);
    uint64_t word = level->words[w];
    uint32_t n = 0;
    do {
        struct list *list = &level->slots[w * 64 + (uint32_t)__builtin_ctzll(word)];
        uint32_t index = list->head;
        for (; n < BATCH && index != NONE; index = engine->nodes[index].next)
            engine->due[n++] = (struct due){engine->nodes[index].time_ps, index};
        if (index != NONE) {
            list->head = index; /* The rest of the list stays. */
            break;
        }
        word &= word - 1;
    } while (word != 0 && n < BATCH);
    set_word(engine, 0, w, word);
    engine->due_end = n;
}

/* Sort the list from index on behind due[n] and return how many it were; nothing, and more than
 * SORT_MAX, when it is longer. Its times share all but their low 10 bits, so that those and the
 * place in the list make a key without equals, and each rank is a count without a branch. */
static uint32_t sort_list(struct sim_engine *engine, uint32_t index, uint32_t n)
{
    struct due found[SORT_MAX];
    uint32_t key[SORT_MAX];
    uint32_t count = 0;
    for (; index != NONE; index = engine->nodes[index].next) {
        if (count == SORT_MAX) return SORT_MAX + 1;
        const uint64_t time_ps = engine->nodes[index].time_ps;
        found[count] = (struct due){time_ps, index};
        key[count] = ((uint32_t)time_ps & slot_mask[0]) * SORT_MAX + count;
        count++;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rank = n;
        for (uint32_t j = 0; j < count; j++) rank += key[j] < key[i];
        engine->due[rank] = found[i];
    }
    return count;
}

/* Take BATCH events or some more from the first word of level 1, list by list. When the first
 * list is too long to sort, deal it and take none. */
static void gather_lists(struct sim_engine *engine)
{
    const struct level *level = &engine->levels[1];
    const uint32_t w = (uint32_t)__builtin_ctzll(level->used_words);
    uint64_t word = level->words[w];
    uint32_t n = 0;
    do {
        const struct list list = level->slots[w * 64 + (uint32_t)__builtin_ctzll(word)];
        if (list.head == list.tail) {
            engine->due[n++] = (struct due){engine->nodes[list.head].time_ps, list.head};
        } else {
            const uint32_t count = sort_list(engine, list.head, n);
            if (count > SORT_MAX) break;
            n += count;
        }
        word &= word - 1;
    } while (word != 0 && n < BATCH);
    if (n == 0) {
        deal(engine, 1);
        return;
    }
    set_word(engine, 1, w, word);
    engine->due_end = n;
}

/* Fill the empty due[] from the lists; 0 when they are empty too. */
__attribute__((noinline)) static int refill(struct sim_engine *engine)
{
    engine->due_head = engine->due_end = 0;
    while (engine->used_levels != 0 && engine->due_end == 0) {
        const int l = __builtin_ctz(engine->used_levels);
        if (l == 0)
            gather_instants(engine);
        else if (l == 1)
            gather_lists(engine);
        else
            deal(engine, l);
    }
    if (engine->due_end == 0) return 0;
    assert(engine->due_end <= DUE_MAX);
    engine->position_ps = engine->due[engine->due_end - 1].time_ps;
    return 1;
}

/* --- the heap ---------------------------------------------------------------------------- */

static int before(const struct sim_engine *engine, struct due a, struct due b)
{
    if (a.time_ps != b.time_ps) return a.time_ps < b.time_ps;
    return engine->nodes[a.index].sequence_kind < engine->nodes[b.index].sequence_kind;
}

static void heap_push(struct sim_engine *engine, struct due due)
{
    if (engine->heap_count == engine->heap_capacity) {
        const uint32_t capacity = engine->heap_capacity ? engine->heap_capacity * 2 : DUE_MAX;
        struct due *heap = (struct due *)realloc(engine->heap, capacity * sizeof *heap);
        if (!heap) {
            engine->out_of_memory = 1;
            return;
        }
        engine->heap = heap;
        engine->heap_capacity = capacity;
    }
    uint32_t at = engine->heap_count++;
    for (; at > 0 && before(engine, due, engine->heap[(at - 1) / 2]); at = (at - 1) / 2)
        engine->heap[at] = engine->heap[(at - 1) / 2];
    engine->heap[at] = due;
}

static struct due heap_pop(struct sim_engine *engine)
{
    const struct due first = engine->heap[0];
    const struct due last = engine->heap[--engine->heap_count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < engine->heap_count; child = 2 * at + 1) {
        if (child + 1 < engine->heap_count &&
            before(engine, engine->heap[child + 1], engine->heap[child]))
            child++;
        if (!before(engine, engine->heap[child], last)) break;
        engine->heap[at] = engine->heap[child];
        at = child;
    }
    engine->heap[at] = last;
    return first;
}

/* The next event where due[] and the heap both hold some, or only the heap does. */
__attribute__((noinline)) static struct due take_either(struct sim_engine *engine)
{
    assert(engine->heap_count > 0);
    if (engine->due_head == engine->due_end) return heap_pop(engine);
    if (before(engine, engine->heap[0], engine->due[engine->due_head])) return heap_pop(engine);
    return engine->due[engine->due_head++];
}

/* --- the interface ----------------------------------------------------------------------- */

/* Take an event that comes before the position. */
__attribute__((noinline)) static void insert(struct sim_engine *engine, struct due due)
{
    if (engine->due_end == DUE_MAX) {
        if (engine->due_head == 0) {
            heap_push(engine, due);
            return;
        }
        engine->due_end -= engine->due_head;
        memmove(engine->due, engine->due + engine->due_head, engine->due_end * sizeof due);
        engine->due_head = 0;
    }
    uint32_t at = engine->due_end++;
    for (; at > engine->due_head && engine->due[at - 1].time_ps > due.time_ps; at--)
        engine->due[at] = engine->due[at - 1];
    engine->due[at] = due;
}

/* A node that was never used; NONE when memory is short. */
__attribute__((noinline)) static uint32_t fresh_node(struct sim_engine *engine)
{
    if (engine->fresh < engine->capacity) return engine->fresh++;
    const uint32_t capacity = engine->capacity > NONE / 2 ? NONE : engine->capacity * 2;
    struct node *nodes = capacity == engine->capacity
                             ? NULL
                             : (struct node *)realloc(engine->nodes, capacity * sizeof *nodes);
    if (!nodes) {
        engine->out_of_memory = 1;
        return NONE;
    }
    engine->nodes = nodes;
    engine->capacity = capacity;
    return engine->fresh++;
}

void sim_engine_schedule(struct sim_engine *engine, uint64_t time_ps, uint32_t kind,
                         uint32_t target, uint64_t payload)
{
    assert(time_ps >= engine->now_ps);
    assert(kind <= SIM_EVENT_KIND_MAX && engine->sequence < SEQUENCE_MAX);
    uint32_t index = engine->free_head;
    if (index != NONE) {
        engine->free_head = engine->nodes[index].next;
    } else {
        index = fresh_node(engine);
        if (index == NONE) return;
    }
    struct node *node = &engine->nodes[index];
    node->time_ps = time_ps;
    node->payload = payload;
    node->sequence_kind = engine->sequence++ << KIND_BITS | kind;
    node->target = target;
    if (time_ps < engine->position_ps)
        insert(engine, (struct due){time_ps, index});
    else
        place(engine, index, engine->position_ps);
}

int sim_engine_pop(struct sim_engine *engine, struct sim_event *event)
{
    struct due due;
    if (engine->heap_count > 0) {
        due = take_either(engine);
    } else {
        if (engine->due_head == engine->due_end && !refill(engine)) return 0;
        due = engine->due[engine->due_head++];
    }
    struct node *node = &engine->nodes[due.index];
    event->time_ps = due.time_ps;
    event->sequence = node->sequence_kind >> KIND_BITS;
    event->kind = (uint32_t)(node->sequence_kind & SIM_EVENT_KIND_MAX);
    event->target = node->target;
    event->payload = node->payload;
    node->next = engine->free_head;
    engine->free_head = due.index;

    assert(event->time_ps >= engine->now_ps);
    engine->now_ps = event->time_ps;
    engine->handled++;
    engine->digest = (engine->digest ^ event->time_ps) * UINT64_C(0x9e3779b97f4a7c15);
    engine->digest ^= engine->digest >> 29;
    return 1;
}

int sim_engine_run(struct sim_engine *engine, sim_event_fn handler, void *model, char *err,
                   size_t err_len)
{
    struct sim_event event;
    while (!engine->out_of_memory && sim_engine_pop(engine, &event)) handler(model, engine, &event);
    if (!engine->out_of_memory) return 0;
    snprintf(err, err_len, "engine: no memory for more than %u pending events", engine->capacity);
    return -1;
}

uint64_t sim_engine_now_ps(const struct sim_engine *engine)
{
    return engine->now_ps;
}

uint64_t sim_engine_event_count(const struct sim_engine *engine)
{
    return engine->handled;
}

uint64_t sim_engine_digest(const struct sim_engine *engine)
{
    return engine->digest;
}
