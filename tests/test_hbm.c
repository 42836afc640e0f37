/* tests/test_hbm.c - bytes through memory are what the kernels load and store, counted by hand.
 *
 * Rows are the messages of a random routing; which of them go by NIC is counted from the ids. */
#include "sim/hbm.h"
#include "tests/attribute_layer.h"
#include "tests/db_support.h"

Suite *hbm_suite(void);

enum { RANKS = 16, TOKENS = 12, TOPK = 3, HIDDEN = 1024 };

/* All ranks' bytes, of the messages that the traffic lists. */
static uint64_t counted(const struct layer *layer)
{
    static struct sim_pair_bytes pairs[RANKS * RANKS];
    uint64_t bytes[RANKS], sum = 0;
    sim_bytes_pairs(&layer->traffic, layer->exchange.direction, pairs);
    sim_hbm_bytes(&layer->exchange, pairs, bytes);
    for (uint32_t r = 0; r < RANKS; r++) sum += bytes[r];
    return sum;
}

START_TEST(low_latency_moves_each_row_as_often_as_its_kernels_do)
{
    const struct layer_shape shape = {.machine = "h100-hgx",
                                      .mode = SIM_MODE_LL,
                                      .direction = (enum sim_direction)_i,
                                      .ranks = RANKS,
                                      .experts = 2 * RANKS,
                                      .topk = TOPK,
                                      .tokens = TOKENS,
                                      .hidden = HIDDEN};
    const struct layer *layer = layer_make(&shape, 9);
    const uint64_t rows = RANKS * TOKENS * TOPK, tokens = RANKS * TOKENS;
    uint64_t by_nic = 0; /* To an expert of the other node of eight. */
    for (uint64_t i = 0; i < rows; i++) {
        const uint64_t home = i / TOPK / TOKENS;
        const uint64_t owner = (uint64_t)layer->routing.topk_idx[i] / 2;
        by_nic += home / 8 != owner / 8;
    }
    ck_assert_uint_gt(by_nic, 0);
    if (_i == SIM_DISPATCH) /* Read, staged; fetched by the NIC; landed, read, stored. */
        ck_assert_uint_eq(counted(layer), tokens * (2 * HIDDEN + HIDDEN + 16) +
                                              (by_nic + 3 * rows) * (HIDDEN + 16));
    else /* Read; staged and fetched by the NIC; landed, read; summed. */
        ck_assert_uint_eq(counted(layer),
                          (rows + 2 * by_nic + 2 * rows) * 2 * HIDDEN + tokens * 2 * HIDDEN);
}
END_TEST

START_TEST(a_run_records_every_kind_of_resource)
{
    const char *db = test_join(test_temp_dir(), "run.db");
    struct test_output output;
    TEST_EPSIM(&output, "run", "--ep", "16", "--tokens", "32", "--layers", "1", "--db", db);
    ck_assert_int_eq(output.status, 0);
    ck_assert_str_eq(db_ask(db, "SELECT DISTINCT kind FROM resource_use ORDER BY kind"),
                     "hbm;link;nic;qp;sm_pool");
    /* A row waits behind others at the busiest NIC, and memory is never the bottleneck. */
    ck_assert_str_eq(db_ask(db, "SELECT max(queue_peak) > 1, max(stall_ps) > 0 FROM resource_use "
                                "WHERE kind = 'nic'"),
                     "1|1");
    ck_assert_str_eq(db_ask(db,
                            "SELECT max(busy_ps) < (SELECT max(end_ps - start_ps) FROM span) AND "
                            "min(bytes) > 0 FROM resource_use WHERE kind = 'hbm'"),
                     "1");
}
END_TEST

Suite *hbm_suite(void)
{
    Suite *suite = suite_create("hbm");
    TCase *tcase = tcase_create("hbm");
    tcase_add_loop_test(tcase, low_latency_moves_each_row_as_often_as_its_kernels_do, 0, 2);
    tcase_add_test(tcase, a_run_records_every_kind_of_resource);
    suite_add_tcase(suite, tcase);
    return suite;
}
