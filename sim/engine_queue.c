/* sim/engine_queue.c - lists by digit, the few events due next, and the heap for bursts. */
#include "sim/engine_queue.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEVELS = SIM_QUEUE_LEVELS,
    DUE_MAX = SIM_QUEUE_DUE,
    BATCH = 16,   /* Events moved to due[] at once. More makes insertion into due[] dearer. */
    SORT_MAX = 16 /* A list of level 1 longer than this is dealt, not sorted. */
};
#define NONE SIM_QUEUE_NONE
_Static_assert(BATCH - 1 + SORT_MAX <= DUE_MAX, "a batch fits");
_Static_assert(sizeof(struct sim_queue_node) == 32, "two nodes fill a cache line exactly");

/* 10 and 12 bits: nearly all steps of a model are below 4 us, so an event is moved about once
 * between its list and due[], and the used parts of levels 0 and 1 stay in the cache. */
static const uint8_t first_bit[LEVELS] = {0, 10, 22, 34, 46, 58};
static const uint32_t slot_mask[LEVELS] = {1023, 4095, 4095, 4095, 4095, 63};

int sim_queue_open(struct sim_queue *queue, uint32_t capacity)
{
    assert(capacity > 0);
    memset(queue, 0, sizeof *queue);
    queue->nodes = (struct sim_queue_node *)malloc(capacity * sizeof *queue->nodes);
    if (!queue->nodes) return -1;
    queue->capacity = capacity;
    sim_queue_reset(queue);
    return 0;
}

void sim_queue_close(struct sim_queue *queue)
{
    free(queue->nodes);
    free(queue->heap);
}

void sim_queue_reset(struct sim_queue *queue)
{
    for (int l = 0; l < LEVELS; l++) {
        queue->levels[l].used_words = 0;
        memset(queue->levels[l].words, 0, sizeof queue->levels[l].words);
    }
    queue->used_levels = 0;
    queue->due_head = queue->due_end = queue->heap_count = 0;
    queue->position_ps = 0;
    queue->fresh = 0;
    queue->free_head = NONE;
    queue->out_of_memory = 0;
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
 * in use is a coin toss to the branch predictor, so the place to write is selected by a mask,
 * which no compiler turns back into a branch. */
void sim_queue_place(struct sim_queue *queue, uint32_t index, uint64_t position_ps)
{
    struct sim_queue_node *nodes = queue->nodes;
    const uint64_t time_ps = nodes[index].time_ps;
    const int l = level_of(time_ps ^ position_ps);
    struct sim_queue_level *level = &queue->levels[l];
    const uint32_t slot = (uint32_t)(time_ps >> first_bit[l]) & slot_mask[l];
    const uint64_t word = level->words[slot / 64];
    const uint64_t bit = UINT64_C(1) << (slot % 64);
    struct sim_queue_list *list = &level->slots[slot];
    const uintptr_t used = 0 - (uintptr_t)((word & bit) != 0);
    const uintptr_t head = (uintptr_t)&list->head;
    const uintptr_t next = (uintptr_t)&nodes[list->tail].next;
    uint32_t *link = (uint32_t *)(head ^ ((head ^ next) & used));

    nodes[index].next = NONE;
    *link = index;
    list->tail = index;
    level->words[slot / 64] = word | bit;
    level->used_words |= UINT64_C(1) << (slot / 64);
    queue->used_levels |= 1u << l;
}

/* Say which slots of word w of level l are still in use. */
static void set_word(struct sim_queue *queue, int l, uint32_t w, uint64_t word)
{
    struct sim_queue_level *level = &queue->levels[l];
    level->words[w] = word;
    if (word != 0) return;
    level->used_words &= ~(UINT64_C(1) << w);
    if (level->used_words == 0) queue->used_levels &= ~(1u << l);
}

/* Move the first list of level l to lower levels, seen from its slot's first instant, before
 * which nothing is left. */
static void deal(struct sim_queue *queue, int l)
{
    const struct sim_queue_level *level = &queue->levels[l];
    const uint32_t w = (uint32_t)__builtin_ctzll(level->used_words);
    const uint32_t slot = w * 64 + (uint32_t)__builtin_ctzll(level->words[w]);
    uint32_t index = level->slots[slot].head;
    const uint64_t position_ps = queue->nodes[index].time_ps >> first_bit[l] << first_bit[l];

    assert(l > 0 && position_ps > queue->position_ps);
    set_word(queue, l, w, level->words[w] & (level->words[w] - 1));
    while (index != NONE) {
        const uint32_t next = queue->nodes[index].next;
        sim_queue_place(queue, index, position_ps);
        index = next;
    }
}

/* --- due[] ------------------------------------------------------------------------------- */

/* Take up to BATCH events from the first word of level 0, where a list is of one time. */
static void gather_instants(struct sim_queue *queue)
{
    struct sim_queue_level *level = &queue->levels[0];
    const uint32_t w = (uint32_t)__builtin_ctzll(level->used_words);
    uint64_t word = level->words[w];
    uint32_t n = 0;
    do {
        struct sim_queue_list *list = &level->slots[w * 64 + (uint32_t)__builtin_ctzll(word)];
        uint32_t index = list->head;
        for (; n < BATCH && index != NONE; index = queue->nodes[index].next)
            queue->due[n++] = (struct sim_queue_due){queue->nodes[index].time_ps, index};
        if (index != NONE) {
            list->head = index; /* The rest of the list stays. */
            break;
        }
        word &= word - 1;
    } while (word != 0 && n < BATCH);
    set_word(queue, 0, w, word);
    queue->due_end = n;
}

/* Sort the list from index on behind due[n] and return how many it were; nothing, and more than
 * SORT_MAX, when it is longer. Its times share all but their low 10 bits, so that those and the
 * place in the list make a key without equals, and each rank is a count without a branch. */
static uint32_t sort_list(struct sim_queue *queue, uint32_t index, uint32_t n)
{
    struct sim_queue_due found[SORT_MAX];
    uint32_t key[SORT_MAX];
    uint32_t count = 0;
    for (; index != NONE; index = queue->nodes[index].next) {
        if (count == SORT_MAX) return SORT_MAX + 1;
        const uint64_t time_ps = queue->nodes[index].time_ps;
        found[count] = (struct sim_queue_due){time_ps, index};
        key[count] = ((uint32_t)time_ps & slot_mask[0]) * SORT_MAX + count;
        count++;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rank = n;
        for (uint32_t j = 0; j < count; j++) rank += key[j] < key[i];
        queue->due[rank] = found[i];
    }
    return count;
}

/* Take BATCH events or some more from the first word of level 1, list by list. When the first
 * list is too long to sort, deal it and take none. */
static void gather_lists(struct sim_queue *queue)
{
    const struct sim_queue_level *level = &queue->levels[1];
    const uint32_t w = (uint32_t)__builtin_ctzll(level->used_words);
    uint64_t word = level->words[w];
    uint32_t n = 0;
    do {
        const struct sim_queue_list list = level->slots[w * 64 + (uint32_t)__builtin_ctzll(word)];
        if (list.head == list.tail) {
            queue->due[n++] = (struct sim_queue_due){queue->nodes[list.head].time_ps, list.head};
        } else {
            const uint32_t count = sort_list(queue, list.head, n);
            if (count > SORT_MAX) break;
            n += count;
        }
        word &= word - 1;
    } while (word != 0 && n < BATCH);
    if (n == 0) {
        deal(queue, 1);
        return;
    }
    set_word(queue, 1, w, word);
    queue->due_end = n;
}

/* Above level 1: take the first list if it is a lone event, else deal it. Not more than one, as
 * lists there lie microseconds apart, and whatever is scheduled between would have to go through
 * insert. */
static void gather_one(struct sim_queue *queue, int l)
{
    const struct sim_queue_level *level = &queue->levels[l];
    const uint32_t w = (uint32_t)__builtin_ctzll(level->used_words);
    const uint64_t word = level->words[w];
    const struct sim_queue_list list = level->slots[w * 64 + (uint32_t)__builtin_ctzll(word)];
    if (list.head != list.tail) {
        deal(queue, l);
        return;
    }
    queue->due[0] = (struct sim_queue_due){queue->nodes[list.head].time_ps, list.head};
    queue->due_end = 1;
    set_word(queue, l, w, word & (word - 1));
}

/* Fill the empty due[] from the lists; 0 when they are empty too. */
int sim_queue_refill(struct sim_queue *queue)
{
    queue->due_head = queue->due_end = 0;
    while (queue->used_levels != 0 && queue->due_end == 0) {
        const int l = __builtin_ctz(queue->used_levels);
        if (l == 0)
            gather_instants(queue);
        else if (l == 1)
            gather_lists(queue);
        else
            gather_one(queue, l);
    }
    if (queue->due_end == 0) return 0;
    assert(queue->due_end <= DUE_MAX);
    queue->position_ps = queue->due[queue->due_end - 1].time_ps;
    return 1;
}

/* --- the heap ---------------------------------------------------------------------------- */

static int before(const struct sim_queue *queue, struct sim_queue_due a, struct sim_queue_due b)
{
    if (a.time_ps != b.time_ps) return a.time_ps < b.time_ps;
    return queue->nodes[a.index].sequence_kind < queue->nodes[b.index].sequence_kind;
}

static void heap_push(struct sim_queue *queue, struct sim_queue_due due)
{
    if (queue->heap_count == queue->heap_capacity) {
        const uint32_t capacity = queue->heap_capacity ? queue->heap_capacity * 2 : DUE_MAX;
        struct sim_queue_due *heap =
            (struct sim_queue_due *)realloc(queue->heap, capacity * sizeof *heap);
        if (!heap) {
            queue->out_of_memory = 1;
            return;
        }
        queue->heap = heap;
        queue->heap_capacity = capacity;
    }
    uint32_t at = queue->heap_count++;
    for (; at > 0 && before(queue, due, queue->heap[(at - 1) / 2]); at = (at - 1) / 2)
        queue->heap[at] = queue->heap[(at - 1) / 2];
    queue->heap[at] = due;
}

static struct sim_queue_due heap_pop(struct sim_queue *queue)
{
    const struct sim_queue_due first = queue->heap[0];
    const struct sim_queue_due last = queue->heap[--queue->heap_count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < queue->heap_count; child = 2 * at + 1) {
        if (child + 1 < queue->heap_count &&
            before(queue, queue->heap[child + 1], queue->heap[child]))
            child++;
        if (!before(queue, queue->heap[child], last)) break;
        queue->heap[at] = queue->heap[child];
        at = child;
    }
    queue->heap[at] = last;
    return first;
}

/* The next event where due[] and the heap both hold some, or only the heap does. */
struct sim_queue_due sim_queue_take_either(struct sim_queue *queue)
{
    assert(queue->heap_count > 0);
    if (queue->due_head == queue->due_end) return heap_pop(queue);
    if (before(queue, queue->heap[0], queue->due[queue->due_head])) return heap_pop(queue);
    return queue->due[queue->due_head++];
}

/* Take an event that comes before the position. */
void sim_queue_insert(struct sim_queue *queue, uint32_t index)
{
    const struct sim_queue_due due = {queue->nodes[index].time_ps, index};
    assert(due.time_ps < queue->position_ps);
    if (queue->due_end == DUE_MAX) {
        if (queue->due_head == 0) {
            heap_push(queue, due);
            return;
        }
        queue->due_end -= queue->due_head;
        memmove(queue->due, queue->due + queue->due_head, queue->due_end * sizeof due);
        queue->due_head = 0;
    }
    uint32_t at = queue->due_end++;
    for (; at > queue->due_head && queue->due[at - 1].time_ps > due.time_ps; at--)
        queue->due[at] = queue->due[at - 1];
    queue->due[at] = due;
}

/* A node that was never used; NONE when memory is short. */
static uint32_t fresh_node(struct sim_queue *queue)
{
    if (queue->fresh < queue->capacity) return queue->fresh++;
    const uint32_t capacity = queue->capacity > NONE / 2 ? NONE : queue->capacity * 2;
    struct sim_queue_node *nodes =
        capacity == queue->capacity
            ? NULL
            : (struct sim_queue_node *)realloc(queue->nodes, capacity * sizeof *nodes);
    if (!nodes) {
        queue->out_of_memory = 1;
        return NONE;
    }
    queue->nodes = nodes;
    queue->capacity = capacity;
    return queue->fresh++;
}

void sim_queue_add_fresh(struct sim_queue *queue, uint64_t time_ps, uint64_t payload,
                         uint64_t sequence_kind, uint32_t target)
{
    assert(queue->free_head == NONE);
    const uint32_t index = fresh_node(queue);
    if (index == NONE) return;
    queue->nodes[index].next = NONE;
    queue->free_head = index;
    sim_queue_add(queue, time_ps, payload, sequence_kind, target);
}
