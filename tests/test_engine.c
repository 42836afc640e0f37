/* tests/test_engine.c - the event queue pops exactly as a plain heap does.
 *
 * Method: the same random schedule goes into the engine and into a binary heap ordered by
 * (time, sequence); every popped event must agree in all fields. Patterns aim at each part of
 * the queue: every level, long lists, equal times, events before the gathered ones. Then a few
 * orders written down by hand. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "sim/bench_engine.h"
#include "sim/engine.h"
#include "tests/support.h"

enum { HEAP_MAX = 1 << 17 };

static struct sim_event *heap;
static size_t heap_count;
static uint64_t random_state;
static struct sim_engine *engine;

static uint64_t draw(uint64_t below)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static void set_up(void)
{
    char err[200];
    heap = (struct sim_event *)malloc(HEAP_MAX * sizeof *heap);
    engine = sim_engine_open(0, err, sizeof err);
    ck_assert_ptr_nonnull(heap);
    ck_assert_ptr_nonnull(engine);
    heap_count = 0;
}

static void tear_down(void)
{
    sim_engine_close(engine);
    free(heap);
}

static int earlier(const struct sim_event *a, const struct sim_event *b)
{
    return a->time_ps != b->time_ps ? a->time_ps < b->time_ps : a->sequence < b->sequence;
}

static void heap_add(struct sim_event event)
{
    if (heap_count == HEAP_MAX) ck_abort_msg("the test's own heap is full");
    size_t i = heap_count++;
    for (; i > 0 && earlier(&event, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = event;
}

static struct sim_event heap_take(void)
{
    const struct sim_event first = heap[0], last = heap[--heap_count];
    size_t i = 0;
    for (size_t child = 1; child < heap_count; child = 2 * i + 1) {
        if (child + 1 < heap_count && earlier(&heap[child + 1], &heap[child])) child++;
        if (!earlier(&heap[child], &last)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return first;
}

static uint64_t scheduled;

static void schedule_both(uint64_t time_ps)
{
    const struct sim_event event = {time_ps, scheduled, (uint32_t)(scheduled * 7 % 65536),
                                    (uint32_t)(scheduled * 2654435761u), ~scheduled};
    sim_engine_schedule(engine, event.time_ps, event.kind, event.target, event.payload);
    heap_add(event);
    scheduled++;
}

static uint64_t pop_both(void)
{
    struct sim_event got = {0};
    const struct sim_event want = heap_take();
    /* One check for all: Check writes a message to its parent for every ck_assert. */
    if (!sim_engine_pop(engine, &got) || got.time_ps != want.time_ps ||
        got.sequence != want.sequence || got.kind != want.kind || got.target != want.target ||
        got.payload != want.payload || sim_engine_now_ps(engine) != want.time_ps)
        ck_abort_msg("event %llu at %llu ps was due, event %llu came",
                     (unsigned long long)want.sequence, (unsigned long long)want.time_ps,
                     (unsigned long long)got.sequence);
    return got.time_ps;
}

static void drain_both(void)
{
    struct sim_event event;
    while (heap_count > 0) pop_both();
    ck_assert_int_eq(sim_engine_pop(engine, &event), 0);
}

/* How far ahead an event is scheduled; each pattern leans on another part of the queue. */
static uint64_t step(int pattern)
{
    switch (pattern) {
    case 0: return draw(1 << 20);           /* The hold model. */
    case 1: return draw(4);                 /* Mostly equal times. */
    case 2: return draw(1 << 10);           /* Level 0. */
    case 3: return UINT64_C(1) << draw(44); /* Every level, digit borders. */
    case 4: return draw(10) ? draw(20000) : draw(UINT64_C(1) << 50); /* Near and very far. */
    case 5: return draw(3) * 1024;                                   /* Borders of level 1. */
    default: return draw(50) ? draw(100) : 4194304 - draw(2);        /* Borders of level 2. */
    }
}

/* Random pushes and pops, with bursts at the current instant and sudden crowds. */
START_TEST(pops_as_a_plain_heap)
{
    const int pattern = _i % 7;
    random_state = (uint64_t)_i;
    scheduled = 0;
    uint64_t now_ps = 0;
    const int rounds = test_quick() ? 2000 : 8000;
    for (int i = 0; i < rounds; i++) {
        const uint64_t action = draw(100);
        if (action < 40) schedule_both(now_ps + step(pattern));
        if (action == 40) /* A burst now. */
            for (uint64_t n = draw(300); n > 0; n--) schedule_both(now_ps);
        if (action == 41) /* A crowd. */
            for (uint64_t n = draw(2000); n > 0; n--) schedule_both(now_ps + step(pattern));
        if (action == 42) /* A crowd before most of what is pending, latest first. */
            for (uint64_t n = draw(300); n > 0; n--) schedule_both(now_ps + n * 3);
        if (action == 43) drain_both(), now_ps = sim_engine_now_ps(engine);
        if (action > 43 && heap_count > 0) now_ps = pop_both();
    }
    drain_both();
    ck_assert_uint_eq(sim_engine_event_count(engine), scheduled);
}
END_TEST

START_TEST(holds_many_events_at_every_size)
{
    static const size_t sizes[] = {1, 2, 256, 4096, 65536};
    random_state = (uint64_t)_i;
    scheduled = 0;
    for (size_t i = 0; i < sizes[_i]; i++) schedule_both(draw(1 << 20));
    for (int i = 0; i < 100000; i++) schedule_both(pop_both() + draw(1 << 20));
    drain_both();
}
END_TEST

START_TEST(equal_times_run_in_the_order_scheduled)
{
    struct sim_event event;
    for (uint32_t i = 0; i < 1000; i++) sim_engine_schedule(engine, 5000, 1, i, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        if (!sim_engine_pop(engine, &event) || event.target != i) ck_abort_msg("event %u", i);
        if (i < 500) sim_engine_schedule(engine, 5000, 1, 1000 + i, 0);
    }
    for (uint32_t i = 0; i < 500; i++) {
        ck_assert_int_eq(sim_engine_pop(engine, &event), 1);
        ck_assert_uint_eq(event.target, 1000 + i);
    }
}
END_TEST

/* Sixteen events within one word of level 1 are gathered together, so what is scheduled after
 * the first pop comes before the position; sixty-four fill due[], the rest needs the heap. */
START_TEST(a_crowd_before_gathered_events_keeps_its_order)
{
    scheduled = 0;
    random_state = 7;
    for (uint64_t i = 0; i < 16; i++) schedule_both(1 + i * 4000);
    const uint64_t now_ps = pop_both();
    for (int i = 0; i < 5000; i++) schedule_both(now_ps + draw(60000));
    for (int i = 0; i < 200; i++) schedule_both(now_ps);
    drain_both();
}
END_TEST

START_TEST(the_last_instant_can_be_reached)
{
    struct sim_event event;
    sim_engine_schedule(engine, UINT64_MAX, 0, 0, 0);
    sim_engine_schedule(engine, UINT64_MAX - 1, 0, 1, 0);
    sim_engine_schedule(engine, UINT64_MAX, 0, 2, 0);
    const uint32_t order[] = {1, 0, 2};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(sim_engine_pop(engine, &event), 1);
        ck_assert_uint_eq(event.target, order[i]);
    }
    ck_assert_uint_eq(event.time_ps, UINT64_MAX);
    ck_assert_int_eq(sim_engine_pop(engine, &event), 0);
}
END_TEST

START_TEST(times_over_all_64_bits_keep_their_order)
{
    scheduled = 0;
    random_state = 11;
    for (int i = 0; i < 5000; i++) schedule_both(draw(UINT64_MAX));
    for (int i = 0; i < 2000; i++) {
        const uint64_t now_ps = pop_both();
        schedule_both(now_ps + draw(UINT64_MAX - now_ps));
    }
    drain_both();
}
END_TEST

struct trace {
    uint64_t times[16];
    int count;
};

/* A chain: each event at t schedules one at t + 10 until payload runs out. */
static void chain(void *model, struct sim_engine *e, const struct sim_event *event)
{
    struct trace *trace = (struct trace *)model;
    trace->times[trace->count++] = event->time_ps;
    if (event->payload > 0)
        sim_engine_schedule(e, event->time_ps + 10, event->kind, event->target, event->payload - 1);
}

START_TEST(run_handles_what_handlers_schedule)
{
    char err[200];
    struct trace trace = {.count = 0};
    sim_engine_schedule(engine, 100, 3, 0, 2);
    sim_engine_schedule(engine, 105, 3, 0, 1);
    ck_assert_int_eq(sim_engine_run(engine, chain, &trace, err, sizeof err), 0);
    const uint64_t want[] = {100, 105, 110, 115, 120};
    ck_assert_int_eq(trace.count, 5);
    ck_assert_mem_eq(trace.times, want, sizeof want);
    ck_assert_uint_eq(sim_engine_event_count(engine), 5);
}
END_TEST

START_TEST(reset_forgets_everything_and_digests_repeat)
{
    struct sim_event event;
    uint64_t digests[3];
    for (int run = 0; run < 3; run++) {
        sim_engine_reset(engine);
        ck_assert_int_eq(sim_engine_pop(engine, &event), 0);
        ck_assert_uint_eq(sim_engine_digest(engine), 0);
        random_state = run == 2; /* The third run has other times. */
        for (int i = 0; i < 1000; i++) sim_engine_schedule(engine, draw(1 << 24), 0, 0, 0);
        for (int i = 0; i < 900; i++) sim_engine_pop(engine, &event);
        digests[run] = sim_engine_digest(engine);
    }
    ck_assert_uint_eq(digests[0], digests[1]);
    ck_assert_uint_ne(digests[0], digests[2]);
}
END_TEST

START_TEST(the_past_is_a_bug)
{
    struct sim_event event;
    sim_engine_schedule(engine, 10, 0, 0, 0);
    sim_engine_pop(engine, &event);
    sim_engine_schedule(engine, 9, 0, 0, 0);
}
END_TEST

START_TEST(a_kind_beyond_its_range_is_a_bug)
{
    sim_engine_schedule(engine, 10, SIM_EVENT_KIND_MAX + 1, 0, 0);
}
END_TEST

START_TEST(the_benchmark_measures_something)
{
    char err[200];
    ck_assert(sim_bench_engine_hold(256, 1, 1000000, err, sizeof err) > 1000);
}
END_TEST

Suite *engine_suite(void)
{
    Suite *suite = suite_create("engine");
    TCase *tcase = tcase_create("queue");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, pops_as_a_plain_heap, 0, 42);
    tcase_add_loop_test(tcase, holds_many_events_at_every_size, 0, 5);
    tcase_add_test(tcase, equal_times_run_in_the_order_scheduled);
    tcase_add_test(tcase, a_crowd_before_gathered_events_keeps_its_order);
    tcase_add_test(tcase, the_last_instant_can_be_reached);
    tcase_add_test(tcase, times_over_all_64_bits_keep_their_order);
    tcase_add_test(tcase, run_handles_what_handlers_schedule);
    tcase_add_test(tcase, reset_forgets_everything_and_digests_repeat);
    tcase_add_test_raise_signal(tcase, the_past_is_a_bug, SIGABRT);
    tcase_add_test_raise_signal(tcase, a_kind_beyond_its_range_is_a_bug, SIGABRT);
    tcase_add_test(tcase, the_benchmark_measures_something);
    suite_add_tcase(suite, tcase);
    return suite;
}
