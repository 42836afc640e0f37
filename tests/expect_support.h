/* tests/expect_support.h - a folder of inputs for expect, and where its results go. */
#ifndef TESTS_EXPECT_SUPPORT_H
#define TESTS_EXPECT_SUPPORT_H

#include <check.h>
#include "tests/make_case.h"
#include "tests/support.h"

enum { HIDDEN = 2048 };

static const char ll_2_4[] = "{\"mode\": \"ll\", \"ranks\": 2, \"experts\": 4, \"max\": 8, "
                             "\"expert\": \"identity\", \"note\": [1, null]}";
static const char normal_2_4[] = "{\"mode\": \"normal\", \"ranks\": 2, \"experts\": 4, "
                                 "\"expert\": \"identity\", \"sms\": 4}";

static const char *in_folder, *out_folder;

static inline void setup(void)
{
    const char *folder = test_temp_dir();

    in_folder = test_join(folder, "in");
    out_folder = test_join(folder, "out");
    struct test_output output;
    const char *mkdir[] = {"mkdir", in_folder, NULL};
    ck_assert_int_eq(test_run(mkdir, &output), 0);
}

static inline void put(uint32_t rank, const char *settings, uint64_t topk,
                       const struct made_rank *given)
{
    make_rank(in_folder, "case", rank, settings, HIDDEN, topk, given, NULL, 0);
}

static const float halves[8] = {.5f, .5f, .5f, .5f, .5f, .5f, .5f, .5f};

#endif
