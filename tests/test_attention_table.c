/* tests/test_attention_table.c - a machine's table of attention times, and what lies between.
 *
 * Right values: points of a small table, and their bilinear middle by hand. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include "fabric/machine.h"
#include "tests/support.h"

static struct fabric_machine machine;
static char err[512];

static int parse(const char *table)
{
    char text[1024];
    snprintf(text, sizeof text, "inherits: h100-hgx\nattention:\n%s", table);
    return fabric_machine_parse("mine.yaml", text, strlen(text), &machine, err, sizeof err);
}

START_TEST(points_are_themselves_and_middles_are_bilinear)
{
    uint64_t ps = 0;
    ck_assert_int_eq(parse("  model: deepseek-v3\n  tokens: [100, 300]\n"
                           "  requests_1_us: [10, 20]\n  requests_5_us: [30, 80.5]\n"),
                     0);
    ck_assert(fabric_attention_at(&machine.attention, 1, 100, &ps));
    ck_assert_uint_eq(ps, 10000000);
    ck_assert(fabric_attention_at(&machine.attention, 5, 300, &ps));
    ck_assert_uint_eq(ps, 80500000);
    ck_assert(fabric_attention_at(&machine.attention, 3, 200, &ps));
    ck_assert_uint_eq(ps, 35125000); /* (10 + 20 + 30 + 80.5) / 4 */
}
END_TEST

START_TEST(beyond_the_edges_and_in_holes_there_is_no_answer)
{
    uint64_t ps = 7;
    ck_assert_int_eq(parse("  model: deepseek-v3\n  tokens: [100, 300]\n"
                           "  requests_1_us: [10, 20]\n  requests_5_us: [30]\n"),
                     0);
    ck_assert(!fabric_attention_at(&machine.attention, 6, 100, &ps));
    ck_assert(!fabric_attention_at(&machine.attention, 1, 99, &ps));
    ck_assert(!fabric_attention_at(&machine.attention, 3, 200, &ps));
    ck_assert_uint_eq(ps, 7);
    ck_assert(fabric_attention_at(&machine.attention, 3, 100, &ps));
    ck_assert_uint_eq(ps, 20000000);
}
END_TEST

static const struct {
    const char *table, *want;
} refusals[] = {
    {"  model: x\n", "mine.yaml:2: attention: must hold model, tokens, requests_N_us"},
    {"  tokens: [3, 2]\n  model: x\n", "mine.yaml:2: attention: tokens ascend"},
    {"  tokens: 3\n", "mine.yaml:3: tokens: 3: must be a list of numbers"},
    {"  tokens: [1]\n  requests_1_us: [0]\n",
     "mine.yaml:4: requests_1_us: numbers above 0, at most a second"},
    {"  requests_1_us: [1]\n",
     "mine.yaml:3: requests_1_us: one time for each of tokens, which stands before"},
    {"  tokens: [1]\n  requests_2_us: [1]\n  requests_1_us: [1]\n",
     "mine.yaml:5: requests_1_us: rows ascend, at most 16"},
    {"  heads: 3\n", "mine.yaml:3: heads: 3: unknown field"},
    {"  model: deepseek-v3.yaml\n",
     "mine.yaml:3: model: deepseek-v3.yaml: must be a model's name, without folder and .yaml"},
};

START_TEST(broken_tables_are_refused_by_line)
{
    ck_assert_int_eq(parse(refusals[_i].table), -1);
    ck_assert_str_eq(err, refusals[_i].want);
}
END_TEST

/* The note of a step of deepseek-v3 on a machine whose table is of another model. */
START_TEST(a_table_of_another_model_is_said_to_be_unused)
{
    static const struct {
        const char *table_of, *attention, *want;
    } cases[] = {
        {"deepseek-v3", "auto", "\"note\": \"\""},
        {"glm-4.5", "auto",
         "attention is modelled: the table of mine is of glm-4.5, not of deepseek-v3"},
        {"deepseek-v9", "auto",
         "attention is modelled: the table of mine is of deepseek-v9 (no preset has that name), "
         "not of deepseek-v3"},
        {"deepseek-v9", "roofline", "\"note\": \"\""}, /* As asked. */
    };
    const char *folder = test_temp_dir();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct test_output output;
        const char *text = test_format("inherits: h100-hgx\nattention:\n  model: %s\n"
                                       "  tokens: [100]\n  requests_1_us: [10]\n",
                                       cases[i].table_of);
        const char *path = test_write_text(folder, "mine.yaml", text);
        TEST_EPSIM(&output, "run", "--machine", path, "--context", "100", "--layers", "1",
                   "--attention", cases[i].attention, "--json");
        ck_assert_msg(output.status == 0, "%s", output.err);
        ck_assert_msg(strstr(output.out, cases[i].want) != NULL, "%s: %s", cases[i].table_of,
                      strstr(output.out, "\"note\""));
        TEST_EPSIM(&output, "machines", path);
        ck_assert_int_eq(strstr(output.out, "no preset has that name") != NULL,
                         strcmp(cases[i].table_of, "deepseek-v9") == 0);
    }
}
END_TEST

Suite *attention_table_suite(void);
Suite *attention_table_suite(void)
{
    Suite *suite = suite_create("attention_table");
    TCase *tcase = tcase_create("attention table");
    tcase_add_test(tcase, points_are_themselves_and_middles_are_bilinear);
    tcase_add_test(tcase, beyond_the_edges_and_in_holes_there_is_no_answer);
    tcase_add_loop_test(tcase, broken_tables_are_refused_by_line, 0,
                        (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_test(tcase, a_table_of_another_model_is_said_to_be_unused);
    suite_add_tcase(suite, tcase);
    return suite;
}
