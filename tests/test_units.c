/* tests/test_units.c - decimals become integers exactly, or not at all. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include "fabric/units.h"

static const struct fabric_unit us = {1000000, 1}, gbits = {1000000000, 8}, one = {1, 1};

START_TEST(decimals_are_exact)
{
    static const struct {
        const char *text;
        struct fabric_unit unit;
        uint64_t value;
    } cases[] = {
        {"2.35", {1000000, 1}, 2350000},
        {"0.1", {1000000, 1}, 100000}, /* No double holds 0.1. */
        {"0.000001", {1000000, 1}, 1},
        {"450", {1000000000, 1}, UINT64_C(450000000000)},
        {"478.08", {1000000000, 1}, UINT64_C(478080000000)},
        {"400", {1000000000, 8}, UINT64_C(50000000000)},
        {"0.000000008", {1000000000, 8}, 1},
        {"3.35", {1000000000000, 1}, UINT64_C(3350000000000)},
        {"007.50", {1000000, 1}, 7500000},
        {".5", {1000000, 1}, 500000},
        {"5.", {1000000, 1}, 5000000},
        {"0", {1, 1}, 0},
        {"-0.0", {1, 1}, 0},
        {"18446744073709551615", {1, 1}, UINT64_MAX},
        {"18446744073709.551615", {1000000, 1}, UINT64_MAX},
        {"1.00000000000000000000000000000000000", {1, 1}, 1},
        {"00000000000000000000000000000000000001", {1, 1}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t value = 99;
        ck_assert_int_eq(fabric_decimal_parse(cases[i].text, cases[i].unit, &value),
                         FABRIC_DECIMAL_OK);
        ck_assert_msg(value == cases[i].value, "%s gave %" PRIu64, cases[i].text, value);
    }
}
END_TEST

START_TEST(what_is_no_exact_number_is_told_apart)
{
    static const struct {
        const char *text;
        enum fabric_decimal want;
    } cases[] = {
        {"", FABRIC_DECIMAL_BAD},
        {".", FABRIC_DECIMAL_BAD},
        {"-", FABRIC_DECIMAL_BAD},
        {"1e3", FABRIC_DECIMAL_BAD},
        {"0x10", FABRIC_DECIMAL_BAD},
        {"1.2.3", FABRIC_DECIMAL_BAD},
        {" 1", FABRIC_DECIMAL_BAD},
        {"+1", FABRIC_DECIMAL_BAD},
        {"1,5", FABRIC_DECIMAL_BAD},
        {"nan", FABRIC_DECIMAL_BAD},
        {"-3", FABRIC_DECIMAL_NEGATIVE},
        {"-0.5", FABRIC_DECIMAL_NEGATIVE},
        {"-99999999999999999999999999", FABRIC_DECIMAL_NEGATIVE},
        {"0.0000001", FABRIC_DECIMAL_FINE},
        {"1.2345678", FABRIC_DECIMAL_FINE},
        {"0.33333333333333333333333333333333333333", FABRIC_DECIMAL_FINE},
        {"18446744073709.551616", FABRIC_DECIMAL_LARGE},
        {"99999999999999999999", FABRIC_DECIMAL_LARGE},
        {"9999999999999999999999999999999999999999999999999", FABRIC_DECIMAL_LARGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t value = 99;
        ck_assert_msg(fabric_decimal_parse(cases[i].text, us, &value) == cases[i].want, "%s",
                      cases[i].text);
        ck_assert_uint_eq(value, 99);
    }
}
END_TEST

START_TEST(printing_is_the_inverse_of_reading)
{
    char text[40];
    uint64_t state = (uint64_t)_i, value, again;
    const struct fabric_unit units[] = {us, gbits, one};
    for (int n = 0; n < 300; n++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        value = (state >> 8) >> (state & 31); /* Below 2^56: times 8 it stays 19 digits. */
        fabric_decimal_format(value, units[n % 3], text, sizeof text);
        if (fabric_decimal_parse(text, units[n % 3], &again) != FABRIC_DECIMAL_OK || again != value)
            ck_abort_msg("%" PRIu64 " printed as %s", value, text);
    }
}
END_TEST

START_TEST(a_field_is_known_in_every_unit_of_its_family)
{
    struct fabric_unit unit;
    ck_assert(fabric_unit_match("launch_ps", "launch_us", &unit));
    ck_assert_uint_eq(unit.numerator, 1000000);
    ck_assert(fabric_unit_match("launch_ps", "launch_ps", &unit));
    ck_assert(fabric_unit_match("nic_bytes_per_s", "nic_gbits_per_s", &unit));
    ck_assert_uint_eq(unit.denominator, 8);
    ck_assert(fabric_unit_match("hbm_bytes", "hbm_gbytes", &unit));
    ck_assert(fabric_unit_match("sm_count", "sm_count", &unit));
    ck_assert(!fabric_unit_match("launch_ps", "launch", &unit));
    ck_assert(!fabric_unit_match("launch_ps", "lunch_us", &unit));
    ck_assert(!fabric_unit_match("launch_ps", "launch_gbytes_per_s", &unit));
    ck_assert(!fabric_unit_match("hbm_bytes", "hbm_bytes_per_s", &unit));
    ck_assert(!fabric_unit_match("hbm_bytes_per_s", "hbm_bytes", &unit));
    ck_assert(!fabric_unit_match("sm_count", "sm_count_us", &unit));
    ck_assert(!fabric_unit_match("launch_ps", "_us", &unit));
    ck_assert(!fabric_unit_match("launch_ps", "", &unit));
}
END_TEST

START_TEST(fields_print_in_the_unit_people_read)
{
    char key[48], text[40];
    fabric_unit_display("launch_ps", 2350000, key, sizeof key, text, sizeof text);
    ck_assert_str_eq(key, "launch_us");
    ck_assert_str_eq(text, "2.35");
    fabric_unit_display("nic_bytes_per_s", UINT64_C(50000000000), key, sizeof key, text,
                        sizeof text);
    ck_assert_str_eq(key, "nic_gbytes_per_s");
    ck_assert_str_eq(text, "50");
    fabric_unit_display("sm_count", 132, key, sizeof key, text, sizeof text);
    ck_assert_str_eq(key, "sm_count");
    ck_assert_str_eq(text, "132");
}
END_TEST

Suite *units_suite(void)
{
    Suite *suite = suite_create("units");
    TCase *tcase = tcase_create("units");
    tcase_add_test(tcase, decimals_are_exact);
    tcase_add_test(tcase, what_is_no_exact_number_is_told_apart);
    tcase_add_loop_test(tcase, printing_is_the_inverse_of_reading, 0, 4);
    tcase_add_test(tcase, a_field_is_known_in_every_unit_of_its_family);
    tcase_add_test(tcase, fields_print_in_the_unit_people_read);
    suite_add_tcase(suite, tcase);
    return suite;
}
