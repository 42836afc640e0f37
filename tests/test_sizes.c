/* tests/test_sizes.c - buffer bytes and queue depths, against tables worked out twice elsewhere
 * (a Python formula and the library's own header compiled with stub types). */
#include "tests/exchange.h"

#include "ref/sizes.h"

static const struct {
    uint32_t sms, hidden, ranks;
    uint64_t nvl, rdma_dispatch, rdma_combine;
} HINTS[] = {{20, 7168, 8, 335709824, 0, 0},
             {20, 7168, 16, 377673984, 91887744, 86637184},
             {20, 7168, 32, 377675264, 168023680, 168023680},
             {20, 6144, 8, 293766784, 0, 0},
             {20, 6144, 16, 330488064, 80418944, 75823744},
             {20, 6144, 32, 330489344, 147052160, 147052160},
             {24, 7168, 8, 402851712, 0, 0},
             {24, 7168, 16, 453208704, 110265216, 103964544},
             {24, 7168, 32, 453210240, 201628416, 201628416},
             {24, 6144, 8, 352520064, 0, 0},
             {24, 6144, 16, 396585600, 96502656, 90988416},
             {24, 6144, 32, 396587136, 176462592, 176462592}};
enum { HINT_COUNT = sizeof HINTS / sizeof HINTS[0] };

START_TEST(normal_hints_are_the_librarys)
{
    struct ref_size_config dispatch, combine;
    const uint64_t hidden_bytes = 2 * HINTS[_i].hidden;
    const uint32_t ranks = HINTS[_i].ranks;
    ck_assert(ref_size_default_config(false, ranks, HINTS[_i].sms, &dispatch));
    ck_assert(ref_size_default_config(true, ranks, HINTS[_i].sms, &combine));
    ck_assert_uint_eq(ref_size_nvl(&dispatch, hidden_bytes, ranks), HINTS[_i].nvl);
    ck_assert_uint_eq(ref_size_nvl(&combine, hidden_bytes, ranks), HINTS[_i].nvl);
    ck_assert_uint_eq(ref_size_rdma(&dispatch, hidden_bytes, ranks), HINTS[_i].rdma_dispatch);
    ck_assert_uint_eq(ref_size_rdma(&combine, hidden_bytes, ranks), HINTS[_i].rdma_combine);
}
END_TEST

START_TEST(default_configs_are_the_librarys_table)
{
    static const uint32_t listed[] = {2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160};
    struct ref_size_config config = {.sms = 7};
    uint32_t found = 0;
    for (uint32_t ranks = 0; ranks <= 200; ranks++) {
        if (!ref_size_default_config(_i == 1, ranks, 20, &config)) continue;
        ck_assert_uint_eq(ranks, listed[found++]);
        ck_assert_uint_eq(config.rdma_recv, 128);
        ck_assert_uint_lt(config.nvl_send, config.nvl_recv);
        ck_assert_uint_le(config.rdma_send, config.rdma_recv / 2);
    }
    ck_assert_uint_eq(found, 12);
    ck_assert(ref_size_default_config(false, 16, 20, &config));
    ck_assert_uint_eq(config.nvl_send, 36);
    ck_assert_uint_eq(ref_size_rdma_recv(&config), 140);
    ck_assert(ref_size_default_config(true, 16, 20, &config));
    ck_assert_uint_eq(ref_size_rdma_recv(&config), 132);
}
END_TEST

static const struct {
    uint32_t hidden, experts;
    uint64_t max_tokens, bytes;
    bool fits;
} LL[] = {{2048, 128, 128, 272630912, true},     {7168, 256, 128, 1908410496, true},
          {7168, 288, 128, 2146961792, true},    {7168, 256, 256, 3816818816, true},
          {7168, 288, 1024, 17175677312, true},  {5120, 448, 1536, 28626128512, true},
          {5120, 448, 1840, 34291715712, true},  {5120, 448, 1856, 34589904512, false},
          {5120, 448, 2048, 38168170112, false}, {7168, 256, 2304, 34351351936, true},
          {7168, 256, 2308, 34410989696, false}, {6144, 256, 128, 1635780736, true},
          {6144, 288, 128, 1840253312, true}};
enum { LL_COUNT = sizeof LL / sizeof LL[0] };

START_TEST(low_latency_bytes_are_the_librarys)
{
    const uint64_t bytes =
        ref_size_ll(LL[_i].max_tokens, LL[_i].hidden, LL[_i].experts).total_bytes;
    ck_assert_uint_eq(bytes, LL[_i].bytes);
    ck_assert_int_eq(ref_size_bytes_fit(bytes), LL[_i].fits);
}
END_TEST

START_TEST(low_latency_parts_add_up_as_by_hand)
{
    const struct ref_size_ll size = ref_size_ll(128, 7168, 256);
    ck_assert_uint_eq(size.dispatch_message_bytes, 14352);
    ck_assert_uint_eq(size.combine_slot_bytes, 14560);
    ck_assert_uint_eq(size.send_bytes, 477102080);
    ck_assert_uint_eq(size.recv_bytes, 477102080);
    ck_assert_uint_eq(size.signal_bytes, 1024);
    ck_assert_uint_eq(size.total_bytes, 2 * (2 * 477102080u + 1024) + 128);
    ck_assert_uint_eq(ref_size_ll(128, 2048, 33).signal_bytes, 256); /* 132 bytes, aligned. */
}
END_TEST

START_TEST(largest_m_is_the_last_that_fits)
{
    ck_assert_uint_eq(ref_size_ll_max_tokens(7168, 256, 4), 2304);
    ck_assert_uint_eq(ref_size_ll_max_tokens(7168, 288, 4), 2048);
    ck_assert_uint_eq(ref_size_ll_max_tokens(7168, 320, 4), 1840);
    const uint64_t most = ref_size_ll_max_tokens(5120, 448, 1);
    ck_assert(ref_size_bytes_fit(ref_size_ll(most, 5120, 448).total_bytes));
    ck_assert(!ref_size_bytes_fit(ref_size_ll(most + 1, 5120, 448).total_bytes));
}
END_TEST

START_TEST(a_buffer_fits_up_to_the_last_16_bytes_below_two_to_the_35)
{
    ck_assert(ref_size_bytes_fit(UINT64_C(16) * 0x7FFFFFFE + 15));
    ck_assert(!ref_size_bytes_fit(UINT64_C(16) * 0x7FFFFFFF));
}
END_TEST

START_TEST(queue_depth_is_twice_m_plus_one)
{
    static const uint64_t right[][2] = {{128, 258},   {511, 1024},  {512, 1026},
                                        {1024, 2050}, {1025, 2052}, {2304, 4610}};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        ck_assert_uint_eq(ref_size_qp_depth(right[i][0]), right[i][1]);
        ck_assert_uint_eq(ref_size_qp_max_tokens(right[i][1]), right[i][0]);
    }
    ck_assert_uint_eq(ref_size_qp_max_tokens(1025), 511);
    ck_assert_uint_eq(ref_size_qp_max_tokens(1), 0);
}
END_TEST

Suite *sizes_suite(void)
{
    Suite *suite = suite_create("sizes");
    TCase *tcase = tcase_create("sizes");
    tcase_add_loop_test(tcase, normal_hints_are_the_librarys, 0, HINT_COUNT);
    tcase_add_loop_test(tcase, default_configs_are_the_librarys_table, 0, 2);
    tcase_add_loop_test(tcase, low_latency_bytes_are_the_librarys, 0, LL_COUNT);
    tcase_add_test(tcase, low_latency_parts_add_up_as_by_hand);
    tcase_add_test(tcase, largest_m_is_the_last_that_fits);
    tcase_add_test(tcase, a_buffer_fits_up_to_the_last_16_bytes_below_two_to_the_35);
    tcase_add_test(tcase, queue_depth_is_twice_m_plus_one);
    suite_add_tcase(suite, tcase);
    return suite;
}
