/* tests/gpu_faults.c - harm done to one message spoils the same rows on the kernels as on the
 * reference: the same list of (stage, rank, expert, source rank, token), and the same bytes.
 *
 * Method: every kind of fault, in every hop of every mode, on a message picked from the traffic;
 * both backends play the layer by one schedule, wherever the ranks live. */
#include "sim/backends.h"
#include "tests/fault_bench.h"
#include "tests/gpu_support.h"

Suite *gpu_faults_suite(void);

static const enum sim_fault_kind kinds[] = {SIM_FAULT_DROP,    SIM_FAULT_DOUBLE,   SIM_FAULT_SWAP,
                                            SIM_FAULT_CORRUPT, SIM_FAULT_OVERTAKE, SIM_FAULT_LATE};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* The same fault for both, named by the first one's traffic. */
static void add_fault(struct fault_bench *bench, int place, enum sim_fault_kind kind)
{
    const enum sim_direction direction = FAULT_PLACES[place].direction;
    const uint32_t hop = FAULT_PLACES[place].hop;
    struct sim_message other;
    const struct sim_message message = fault_bench_pick(bench, direction, hop, &other);

    bench->plan->scenario.count = 1;
    bench->plan->scenario.faults[0] = (struct sim_fault){.kind = kind,
                                                         .stage = direction,
                                                         .hop = hop,
                                                         .target = fault_bench_target(&message),
                                                         .other = fault_bench_target(&other),
                                                         .byte = 64,
                                                         .xor_mask = 0x11};
}

START_TEST(a_fault_spoils_the_rows_that_it_spoils_on_the_reference)
{
    const int place = _i % FAULT_PLACE_COUNT;
    const enum sim_fault_kind kind = kinds[_i / FAULT_PLACE_COUNT % KINDS];
    const struct sim_backend_place where =
        test_gpu_place(test_gpu_loop_place(_i / FAULT_PLACE_COUNT / KINDS));
    const struct sim_backend_ops *const backends[] = {sim_backend_ref(), sim_backend_cuda()};
    struct fault_bench bench[2];
    uint64_t mismatches[2][SIM_STAGES];

    for (int b = 0; b < 2; b++) {
        bench[b] = fault_bench_open(backends[b], &where, FAULT_PLACES[place].mode,
                                    FAULT_PLACES[place].machine, FAULT_PLACES[place].ep);
        fault_bench_play(&bench[b], mismatches[b]);
        ck_assert_uint_eq(bench[b].cell->wrong->count, 0);
        add_fault(&bench[b], place, kind);
        fault_bench_play(&bench[b], mismatches[b]);
    }
    const struct sim_wrong_rows *ref = bench[0].cell->wrong, *cuda = bench[1].cell->wrong;
    ck_assert_uint_gt(ref->count, 0);
    ck_assert_uint_eq(cuda->count, ref->count);
    for (uint32_t i = 0; i < sim_wrong_rows_listed(ref); i++) {
        const struct sim_wrong_row *a = &ref->rows[i], *b = &cuda->rows[i];
        ck_assert_msg(a->stage == b->stage && a->rank == b->rank && a->expert == b->expert &&
                          a->src_rank == b->src_rank && a->src_token == b->src_token,
                      "%s, row %u: stage %u rank %u expert %d token %" PRId64
                      ", not stage %u rank %u expert %d token %" PRId64,
                      sim_fault_name(kind), i, b->stage, b->rank, b->expert, b->src_token, a->stage,
                      a->rank, a->expert, a->src_token);
    }
    ck_assert_uint_eq(cuda->digest, ref->digest);
    ck_assert_uint_eq(sim_cell_digest(bench[1].cell), sim_cell_digest(bench[0].cell));
    for (int b = 0; b < 2; b++) fault_bench_close(&bench[b]);
}
END_TEST

Suite *gpu_faults_suite(void)
{
    Suite *suite = suite_create("gpu_faults");
    TCase *tests = tcase_create("faults");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, a_fault_spoils_the_rows_that_it_spoils_on_the_reference, 0,
                        FAULT_PLACE_COUNT * KINDS * test_gpu_loop_places());
    suite_add_tcase(suite, tests);
    return suite;
}
