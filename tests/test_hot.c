/* tests/test_hot.c - the same bits from every compiler, optimisation level and vector width.
 *
 * Method: the arithmetic of ref/ is compiled again, without vector clones and otherwise
 * differently, into a shared object, and both copies digest the same work. */
#include <check.h>
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ref/digest.h"
#include "ref/dp.h"
#include "ref/expert.h"
#include "ref/logfmt.h"
#include "ref/quantise.h"
#include "ref/router.h"
#include "tests/support.h"

enum { ROWS = 6, HIDDEN = 1024, INTER = 256, VALUES = ROWS * HIDDEN, GROUP = REF_GROUP_CHANNELS };

struct library {
    uint64_t (*digest)(const void *, uint64_t);
    void (*quantise)(enum ref_recipe, const uint16_t *, uint64_t, uint32_t, uint8_t *, float *);
    void (*dequantise)(enum ref_recipe, const void *, const void *, uint64_t, uint32_t, float *);
    void (*standin)(enum ref_recipe, const void *, const void *, uint64_t, uint32_t, uint16_t *);
    void (*identity)(enum ref_recipe, const void *, const void *, uint64_t, uint32_t, uint16_t *);
    void (*mlp)(const struct ref_expert_weights *, enum ref_recipe, const void *, const void *,
                uint64_t, enum ref_recipe, uint16_t *, void *);
    int (*topk)(const struct ref_router_rule *, const float *, const float *, uint64_t, int64_t *,
                float *, char *, size_t);
    uint64_t (*encode)(const uint16_t *, uint32_t, uint32_t *, uint8_t *);
    void (*decode)(const uint32_t *, const uint8_t *, uint32_t, float *);
    void (*reduce)(const uint16_t *const *, const uint64_t *, uint32_t, uint32_t, uint32_t,
                   uint16_t *);
};

static const struct library built_in = {
    ref_digest,     ref_quantise,    ref_dequantise,    ref_expert_standin, ref_expert_identity,
    ref_expert_mlp, ref_router_topk, ref_logfmt_encode, ref_logfmt_decode,  ref_dp_reduce_scatter};

/* A function pointer out of a shared object; ISO C has no cast for it. */
static void load(void *handle, const char *name, void *function, size_t bytes)
{
    void *symbol = dlsym(handle, name);
    ck_assert_msg(symbol != NULL, "no %s", name);
    ck_assert_uint_eq(bytes, sizeof symbol);
    memcpy(function, &symbol, bytes);
}

#define LOAD(field, name) load(handle, name, &library->field, sizeof library->field)

static void load_all(void *handle, struct library *library)
{
    LOAD(digest, "ref_digest");
    LOAD(quantise, "ref_quantise");
    LOAD(dequantise, "ref_dequantise");
    LOAD(standin, "ref_expert_standin");
    LOAD(identity, "ref_expert_identity");
    LOAD(mlp, "ref_expert_mlp");
    LOAD(topk, "ref_router_topk");
    LOAD(encode, "ref_logfmt_encode");
    LOAD(decode, "ref_logfmt_decode");
    LOAD(reduce, "ref_dp_reduce_scatter");
}

/* Rows of ordinary values, then one of any bits at all, then one of small values. */
static void fill(uint16_t *x)
{
    for (uint64_t i = 0; i < VALUES; i++) {
        const uint64_t z = ref_digest_scramble(i + 1);
        const uint64_t row = i / HIDDEN;
        x[i] = row == 4 ? (uint16_t)z : (uint16_t)((row == 5 ? 0x3B00 : 0x3E00) + (z & 0x81FF));
    }
}

struct work {
    uint16_t all[65536], all_out[65536];
    uint16_t x[VALUES], y[VALUES];
    uint8_t codes[VALUES], data[2 * HIDDEN];
    float scales[VALUES / GROUP], wide[VALUES];
    uint8_t matrix[3][HIDDEN * INTER];
    float matrix_scales[3][HIDDEN / GROUP * (INTER / GROUP)];
    int64_t ids[ROWS * 8];
    float weights[ROWS * 8];
};

static uint64_t add(uint64_t digest, const struct library *library, const void *bytes, size_t n)
{
    return ref_digest_mix(digest, library->digest(bytes, n));
}

static uint64_t recipes(const struct library *library, struct work *work)
{
    uint64_t digest = 0;
    for (int r = 1; r < REF_RECIPE_COUNT; r++) { /* 0 is bf16. */
        const enum ref_recipe recipe = (enum ref_recipe)r;
        library->quantise(recipe, work->x, ROWS, HIDDEN, work->codes, work->scales);
        digest = add(digest, library, work->codes, sizeof work->codes);
        digest = add(digest, library, work->scales, sizeof work->scales);
        if (ref_recipe_scales(recipe) == REF_SCALE_UE8M0) continue;
        library->standin(recipe, work->codes, work->scales, ROWS, HIDDEN, work->y);
        digest = add(digest, library, work->y, sizeof work->y);
        library->identity(recipe, work->codes, work->scales, ROWS, HIDDEN, work->y);
        digest = add(digest, library, work->y, sizeof work->y);
    }
    /* All values: a fused stand-in differs in three of them only. */
    for (uint32_t i = 0; i < 65536; i++) work->all[i] = (uint16_t)i;
    library->standin(REF_RECIPE_BF16, work->all, NULL, 64, 1024, work->all_out);
    digest = add(digest, library, work->all_out, sizeof work->all_out);
    library->quantise(REF_RECIPE_LL, work->x, 4, HIDDEN, work->codes, work->scales);
    library->dequantise(REF_RECIPE_LL, work->codes, work->scales, 4, HIDDEN, work->wide);
    return add(digest, library, work->wide, 4 * HIDDEN * sizeof(float));
}

static uint64_t mlp(const struct library *library, struct work *work)
{
    const struct ref_expert_weights weights = {HIDDEN,
                                               INTER,
                                               work->matrix[0],
                                               work->matrix[1],
                                               work->matrix[2],
                                               work->matrix_scales[0],
                                               work->matrix_scales[1],
                                               work->matrix_scales[2]};
    void *scratch = malloc(ref_expert_mlp_scratch_bytes(ROWS, HIDDEN, INTER));
    ck_assert_ptr_nonnull(scratch);
    for (uint32_t m = 0; m < 3; m++)
        ref_expert_fill(3, 1, m, HIDDEN, INTER, work->matrix[m], work->matrix_scales[m]);
    library->quantise(REF_RECIPE_LL, work->x, ROWS, HIDDEN, work->codes, work->scales);
    library->mlp(&weights, REF_RECIPE_LL, work->codes, work->scales, ROWS, REF_RECIPE_LL, work->y,
                 scratch);
    free(scratch);
    return add(0, library, work->y, sizeof work->y);
}

static uint64_t routers(const struct library *library, struct work *work)
{
    uint64_t digest = 0;
    char err[200];
    for (uint64_t i = 0; i < VALUES; i++)
        work->wide[i] = (float)(int64_t)(ref_digest_scramble(i) >> 48) / 4096.0f - 8.0f;
    for (int f = 0; f < REF_ROUTER_COUNT; f++) {
        struct ref_router_rule rule = ref_router_rule_of((enum ref_router)f, 256, 8);
        rule.groups = f < 2 ? 8 : 0;
        rule.groups_kept = 4;
        ck_assert_int_eq(library->topk(&rule, work->wide, work->wide + VALUES - 256, ROWS,
                                       work->ids, work->weights, err, sizeof err),
                         0);
        digest = add(digest, library, work->ids, sizeof work->ids);
        digest = add(digest, library, work->weights, sizeof work->weights);
    }
    return digest;
}

static uint64_t the_rest(const struct library *library, struct work *work)
{
    static const uint64_t starts[3] = {0, 1, 3};
    const uint16_t *inputs[2] = {work->x, work->x + 3 * HIDDEN};
    uint32_t ranges[HIDDEN / GROUP];
    uint64_t digest = 0;
    for (int row = 0; row < ROWS; row++) {
        const uint64_t bytes = library->encode(work->x + row * HIDDEN, HIDDEN, ranges, work->data);
        digest = add(digest, library, work->data, bytes);
        library->decode(ranges, work->data, HIDDEN, work->wide);
        if (row != 4) digest = add(digest, library, work->wide, HIDDEN * sizeof(float));
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        library->reduce(inputs, starts, 2, HIDDEN, rank, work->y);
        digest = add(digest, library, work->y, (rank + 1) * HIDDEN * sizeof(uint16_t));
    }
    return digest;
}

/* Compiles ref/ into a shared object and opens it; NULL when there is no such compiler. */
static void *compile(const char *compiler, const char *flags)
{
    static const char *const files[] = {"quantise", "digest", "expert", "expert_mlp",
                                        "router",   "logfmt", "dp"};
    const char *folder = test_temp_dir();
    char command[2000];
    struct test_output output;

    if (!test_has_program(compiler)) return NULL;
    int used = snprintf(command, sizeof command,
                        "cd '%s' && %s -std=c11 -D_GNU_SOURCE -I. -UNDEBUG -ffp-contract=off "
                        "-fno-math-errno -fPIC -shared -Wl,-Bsymbolic %s -o '%s/ref.so'",
                        test_tree_path("."), compiler, flags, folder);
    for (unsigned i = 0; i < sizeof files / sizeof files[0]; i++)
        used += snprintf(command + used, sizeof command - (size_t)used, " ref/%s.c", files[i]);
    snprintf(command + used, sizeof command - (size_t)used, " -lm");
    ck_assert_msg(test_run((const char *const[]){"sh", "-c", command, NULL}, &output) == 0, "%s",
                  output.err);
    void *handle = dlopen(test_join(folder, "ref.so"), RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(handle != NULL, "%s", dlerror());
    return handle;
}

static const struct {
    const char *compiler, *flags;
} builds[] = {{"cc", "-O0 -DREF_HOT_OFF"}, {"cc", "-O2 -DREF_HOT_OFF"}, {"clang", "-O3"}};

START_TEST(every_build_gives_the_same_bits)
{
    static struct work work;
    struct library other;
    if (test_quick() && _i > 0) return;
    void *handle = compile(builds[_i].compiler, builds[_i].flags);
    if (handle == NULL) {
        test_skip("no clang");
        return;
    }
    load_all(handle, &other);
    fill(work.x);
    const uint64_t ours[4] = {recipes(&built_in, &work), mlp(&built_in, &work),
                              routers(&built_in, &work), the_rest(&built_in, &work)};
    const uint64_t theirs[4] = {recipes(&other, &work), mlp(&other, &work), routers(&other, &work),
                                the_rest(&other, &work)};
    for (int i = 0; i < 4; i++)
        ck_assert_msg(ours[i] == theirs[i], "%s %s: part %d differs", builds[_i].compiler,
                      builds[_i].flags, i);
    dlclose(handle);
}
END_TEST

Suite *hot_suite(void)
{
    Suite *suite = suite_create("hot");
    TCase *tests = tcase_create("hot");
    tcase_set_timeout(tests, 240);
    tcase_add_loop_test(tests, every_build_gives_the_same_bits, 0, 3);
    suite_add_tcase(suite, tests);
    return suite;
}
