/* tests/test_case_table.c - the table of cases: which pairs it covers, what its lines mean.
 *
 * Method: coverage is proved from the rule book (sim/rules.h), never from a list: a pair of values
 * either stands in a case that every rule passes, or the table names the rule that forbids it and
 * that rule refuses every case that could hold the pair. */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/case_inputs.h"
#include "sim/case_table.h"
#include "tests/support.h"

Suite *case_table_suite(void);

static char err[512];
static struct sim_case_table table;
static struct fabric_machine machine;

static void load(void)
{
    ck_assert_msg(sim_case_table_load(NULL, &table, err, sizeof err) == 0, "%s", err);
    ck_assert_msg(fabric_machine_load("h200-hgx", &machine, err, sizeof err) == 0, "%s", err);
}

/* No rule refuses the shape, not even as model only. */
static bool allowed(const struct sim_table_case *made, struct sim_rule rules[SIM_RULES])
{
    char refusal[SIM_RULE_REFUSAL_MAX];
    sim_case_rules(made, &machine, rules);
    return sim_rules_refuse(rules, true, refusal, sizeof refusal) == 0;
}

static uint32_t most_tokens(const struct sim_table_case *made)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < made->ep; r++) {
        const uint32_t tokens = sim_case_rank_tokens(made, r);
        if (tokens > most) most = tokens;
    }
    return most;
}

/* Does the case count for the pair? With hardly a token it says little, so then only for pairs
 * that ask for so few. */
static bool holds(const struct sim_table_case *made, uint32_t a, const char *left, uint32_t b,
                  const char *right)
{
    const bool asks = a == SIM_AXIS_TOKENS || b == SIM_AXIS_TOKENS;
    return strcmp(made->value[a], left) == 0 && strcmp(made->value[b], right) == 0 &&
           !made->model_only && (asks || most_tokens(made) >= 7);
}

static const struct sim_table_pair *forbidden(uint32_t a, const char *left, uint32_t b,
                                              const char *right)
{
    for (size_t i = 0; i < table.pair_count; i++) {
        const struct sim_table_pair *pair = &table.pairs[i];
        if ((uint32_t)pair->axis[0] == a && (uint32_t)pair->axis[1] == b &&
            strcmp(pair->value[0], left) == 0 && strcmp(pair->value[1], right) == 0)
            return pair;
    }
    return NULL;
}

/* Experts enough for any rule: a multiple of the ranks with room for every column twice. */
static void set(struct sim_table_case *made, uint32_t axis, const char *value)
{
    ck_assert_msg(sim_case_set(made, (enum sim_case_axis)axis, value, err, sizeof err) == 0, "%s",
                  err);
    made->node = 8;
    made->experts = made->ep;
    while (made->experts < 2 * made->topk) made->experts += made->ep;
}

/* Every case that could hold the pair is refused, and by the rule named. */
static void check_forbidden(const struct sim_table_pair *pair)
{
    uint32_t at[SIM_AXES] = {0}, tried = 0;
    struct sim_table_case made;
    struct sim_rule rules[SIM_RULES];

    memset(&made, 0, sizeof made);
    for (uint32_t axis = 0; axis < SIM_AXES;) { /* An odometer; the kind is nothing to a rule. */
        for (uint32_t a = 0; a < SIM_AXES; a++)
            set(&made, a, sim_axis_values((enum sim_case_axis)a)[at[a]]);
        for (int i = 0; i < 2; i++) set(&made, pair->axis[i], pair->value[i]);
        bool named = false;
        ck_assert_msg(!allowed(&made, rules), "%s=%s, %s=%s is allowed",
                      sim_axis_name(pair->axis[0]), pair->value[0], sim_axis_name(pair->axis[1]),
                      pair->value[1]);
        for (uint32_t r = 0; r < SIM_RULES; r++)
            named |= !rules[r].ok && strcmp(rules[r].name, pair->rule) == 0;
        ck_assert_msg(named, "%s is not what refuses it", pair->rule);
        tried++;
        for (axis = 0; axis < SIM_AXES; axis++) {
            const bool fixed = axis == (uint32_t)pair->axis[0] || axis == (uint32_t)pair->axis[1];
            if (fixed || axis == SIM_AXIS_KIND) continue;
            if (sim_axis_values((enum sim_case_axis)axis)[++at[axis]] != NULL) break;
            at[axis] = 0;
        }
    }
    ck_assert_uint_gt(tried, 1);
}

START_TEST(every_pair_of_values_is_covered_or_forbidden_by_the_rule_named)
{
    uint32_t pairs = 0;
    load();
    for (uint32_t a = 0; a < SIM_AXES; a++)
        for (uint32_t b = a + 1; b < SIM_AXES; b++) {
            const char *const *left = sim_axis_values((enum sim_case_axis)a);
            for (; *left != NULL; left++) {
                const char *const *right = sim_axis_values((enum sim_case_axis)b);
                for (; *right != NULL; right++, pairs++) {
                    bool found = false;
                    for (size_t i = 0; i < table.count && !found; i++)
                        found = holds(&table.cases[i], a, *left, b, *right);
                    const struct sim_table_pair *pair = forbidden(a, *left, b, *right);
                    ck_assert_msg(found != (pair != NULL), "%s=%s, %s=%s: %s",
                                  sim_axis_name((enum sim_case_axis)a), *left,
                                  sim_axis_name((enum sim_case_axis)b), *right,
                                  found ? "forbidden and covered"
                                        : "neither covered nor forbidden");
                    if (pair != NULL) check_forbidden(pair);
                }
            }
        }
    ck_assert_uint_eq(pairs, 707); /* The sum over pairs of axes of 7, 2, 4, 6, 8, 7, 7 values. */
    ck_assert_uint_eq(table.pair_count, 1);
    sim_case_table_free(&table);
}
END_TEST

START_TEST(model_only_is_what_some_rule_refuses)
{
    uint32_t labelled = 0;
    struct sim_rule rules[SIM_RULES];
    load();
    ck_assert_uint_ge(table.count, 100);
    for (size_t i = 0; i < table.count; i++) {
        const struct sim_table_case *made = &table.cases[i];
        ck_assert_msg(allowed(made, rules) != made->model_only, "%s: %s", made->name,
                      made->model_only ? "labelled, but allowed" : "refused, but not labelled");
        labelled += made->model_only;
    }
    ck_assert_uint_ge(labelled, 5);
    sim_case_table_free(&table);
}
END_TEST

/* Rows for one expert from one rank, and host memory. */
START_TEST(cases_fit_the_buffers_they_stand_for_and_one_gibibyte)
{
    load();
    for (size_t i = 0; i < table.count; i++) {
        const struct sim_table_case *made = &table.cases[i];
        uint64_t bytes = 0;
        ck_assert_msg(sim_case_bytes(made, &bytes, err, sizeof err) == 0, "%s", err);
        ck_assert_uint_gt(bytes, 0);
        ck_assert_uint_le(bytes, UINT64_C(1) << 30);
        if (made->mode != SIM_MODE_LL || bytes > 50000000) continue;
        struct sim_case_inputs inputs;
        ck_assert_int_eq(sim_case_inputs_open(made, &inputs, err, sizeof err), 0);
        const uint64_t capacity = (most_tokens(made) + 127) / 128 * 128;
        const uint64_t *start = inputs.traffic.block_start;
        for (uint64_t b = 0; b < (uint64_t)made->experts * made->ep; b++)
            ck_assert_uint_le(start[b + 1] - start[b], capacity);
        sim_case_inputs_free(&inputs);
    }
    sim_case_table_free(&table);
}
END_TEST

/* Lines that cannot be, and the words that say why. */
static const struct {
    const char *line, *says;
} broken[] = {
    {"a,3,ll,fp8,1,2048,1,uniform,8,16,0,", "experts must be a multiple of ep"},
    {"a,65,ll,fp8,1,2048,1,uniform,8,65,0,", "ep: 65: must be 1 to 64"},
    {"a,2,both,fp8,1,2048,1,uniform,8,16,0,", "mode: both: must be ll or normal"},
    {"a,2,ll,fp9,1,2048,1,uniform,8,16,0,", "recipe: fp9"},
    {"a,2,ll,fp8,-1,2048,1,uniform,8,16,0,", "tokens: -1: must be unequal, or 0 to 8192"},
    {"a,2,ll,fp8,1,2050,1,uniform,8,16,0,", "multiple of 128"},
    {"a,2,ll,ue8m0,1,2176,1,uniform,8,16,0,", "multiple of 512"},
    {"a,2,ll,fp8,1,2048,33,uniform,8,64,0,", "topk: 33: must be 1 to 32"},
    {"a,2,ll,fp8,1,2048,9,uniform,8,8,0,", "topk must be at most experts"},
    {"a,2,ll,fp8,1,2048,1,odd,8,16,0,", "kind: odd"},
    {"a,12,normal,fp8,1,2048,1,uniform,8,24,0,", "multiple of it"},
    {"a,2,ll,fp8,1,2048,1,uniform,8,16,1,", "bias: normal mode only"},
    {"a,2,ll,fp8,1,2048,1,uniform,8,16,0,model", "label must be"},
    {",2,ll,fp8,1,2048,1,uniform,8,16,0,", "name: : must be 1 to 63"},
    {"a,2,ll,fp8,1,2048,1,uniform,8,16,0", "11 fields: must be 12"},
    {"a,2,ll,fp8,1,2048,1,uniform,8,16,0,,,", "13 or more fields"},
    {"forbidden,ep=1,mode=normal,gravity", "no rule is called that"},
    {"forbidden,mode=normal,ep=1,local_ranks", "axes in order"},
    {"forbidden,ep=3,mode=normal,local_ranks", "AXIS=VALUE"},
    {"# only a comment", "no case in it"},
    {"a,2,ll,fp8,1,2048,1,uniform,8,16,0,\na,2,ll,fp8,7,2048,1,uniform,8,16,0,", "twice"},
};

START_TEST(a_broken_line_is_named)
{
    const char *path = test_write_text(test_temp_dir(), "broken.csv", broken[_i].line);
    ck_assert_int_eq(sim_case_table_load(path, &table, err, sizeof err), -1);
    TEST_SAYS(err, broken[_i].says);
    TEST_SAYS(err, "broken.csv");
    ck_assert_ptr_null(strchr(err, '\n'));
}
END_TEST

START_TEST(no_file_no_text_and_long_lines_are_refused)
{
    char line[400];
    memset(line, 'x', sizeof line);
    ck_assert_int_eq(sim_case_table_load("/no/such/table", &table, err, sizeof err), -1);
    TEST_SAYS(err, "No such file");
    const char *path = test_write(test_temp_dir(), "nul.csv", "a\0b", 3);
    ck_assert_int_eq(sim_case_table_load(path, &table, err, sizeof err), -1);
    TEST_SAYS(err, "no table of cases");
    path = test_write(test_temp_dir(), "long.csv", line, sizeof line);
    ck_assert_int_eq(sim_case_table_load(path, &table, err, sizeof err), -1);
    TEST_SAYS(err, "long.csv:1: 400 characters");
}
END_TEST

Suite *case_table_suite(void)
{
    Suite *suite = suite_create("case_table");
    TCase *tests = tcase_create("case_table");
    tcase_add_test(tests, every_pair_of_values_is_covered_or_forbidden_by_the_rule_named);
    tcase_add_test(tests, model_only_is_what_some_rule_refuses);
    tcase_add_test(tests, cases_fit_the_buffers_they_stand_for_and_one_gibibyte);
    tcase_add_loop_test(tests, a_broken_line_is_named, 0, sizeof broken / sizeof broken[0]);
    tcase_add_test(tests, no_file_no_text_and_long_lines_are_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
