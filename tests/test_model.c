/* tests/test_model.c - model files: the presets' shapes, what follows from them, refusals. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include "sim/model.h"
#include "tests/support.h"

static struct sim_model model;
static char err[512];

/* From the public configurations named in the files. The fifth column is the LL shape: 2048,
 * 2560, 3072, 4096, 5120, 6144, 7168 and 8192 exist. */
static const struct {
    const char *name;
    uint32_t layers, dense, hidden, padded, experts, topk, groups, kept, inter, shared;
    enum sim_router router;
} shapes[] = {
    {"deepseek-v2", 60, 1, 5120, 5120, 160, 6, 8, 3, 1536, 2, SIM_ROUTER_SOFTMAX},
    {"deepseek-v2-lite", 27, 1, 2048, 2048, 64, 6, 1, 1, 1408, 2, SIM_ROUTER_SOFTMAX},
    {"deepseek-v3", 61, 3, 7168, 7168, 256, 8, 8, 4, 2048, 1, SIM_ROUTER_SIGMOID_BIAS},
    {"glm-4.5", 92, 3, 5120, 5120, 160, 8, 1, 1, 1536, 1, SIM_ROUTER_SIGMOID_BIAS},
    {"glm-5", 78, 3, 6144, 6144, 256, 8, 1, 1, 2048, 1, SIM_ROUTER_SIGMOID_BIAS},
    {"glm-5.3", 45, 3, 4096, 4096, 288, 8, 1, 1, 2048, 1, SIM_ROUTER_SIGMOID_BIAS},
    {"glm-5.3-article", 78, 3, 6144, 6144, 256, 8, 1, 1, 2048, 1, SIM_ROUTER_SIGMOID_BIAS},
    {"gpt-oss-120b", 36, 0, 2880, 3072, 128, 4, 1, 1, 2880, 0, SIM_ROUTER_SOFTMAX_SELECTED},
    {"gpt-oss-20b", 24, 0, 2880, 3072, 32, 4, 1, 1, 2880, 0, SIM_ROUTER_SOFTMAX_SELECTED},
    {"kimi-k2", 61, 1, 7168, 7168, 384, 8, 1, 1, 2048, 1, SIM_ROUTER_SIGMOID_BIAS},
    {"minimax-m2", 62, 0, 3072, 3072, 256, 8, 1, 1, 1536, 0, SIM_ROUTER_SIGMOID_BIAS},
    {"mixtral-8x7b", 32, 0, 4096, 4096, 8, 2, 1, 1, 14336, 0, SIM_ROUTER_SOFTMAX_NORM},
    {"olmoe-1b-7b", 16, 0, 2048, 2048, 64, 8, 1, 1, 1024, 0, SIM_ROUTER_SOFTMAX},
    {"qwen3-235b-a22b", 94, 0, 4096, 4096, 128, 8, 1, 1, 1536, 0, SIM_ROUTER_SOFTMAX_NORM},
    {"qwen3-30b-a3b", 48, 0, 2048, 2048, 128, 8, 1, 1, 768, 0, SIM_ROUTER_SOFTMAX_NORM},
    {"toy-16x2", 1, 0, 2048, 2048, 16, 2, 1, 1, 1024, 0, SIM_ROUTER_SOFTMAX_NORM},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

START_TEST(presets_have_the_published_shapes)
{
    ck_assert_str_eq(sim_model_preset((size_t)_i), shapes[_i].name);
    ck_assert_msg(sim_model_load(shapes[_i].name, &model, err, sizeof err) == 0, "%s", err);
    ck_assert_str_eq(model.name, shapes[_i].name);
    ck_assert_str_ne(model.source, "");
    ck_assert_uint_eq(model.layers, shapes[_i].layers);
    ck_assert_uint_eq(model.dense_layers, shapes[_i].dense);
    ck_assert_uint_eq(model.moe_layers, shapes[_i].layers - shapes[_i].dense);
    ck_assert_uint_eq(model.hidden, shapes[_i].hidden);
    ck_assert_uint_eq(model.hidden_padded, shapes[_i].padded);
    ck_assert_uint_eq(model.experts, shapes[_i].experts);
    ck_assert_uint_eq(model.topk, shapes[_i].topk);
    ck_assert_uint_eq(model.groups, shapes[_i].groups);
    ck_assert_uint_eq(model.groups_kept, shapes[_i].kept);
    ck_assert_uint_eq(model.moe_inter, shapes[_i].inter);
    ck_assert_uint_eq(model.shared_experts, shapes[_i].shared);
    ck_assert_int_eq(model.router, shapes[_i].router);
}
END_TEST

START_TEST(there_are_no_other_presets)
{
    ck_assert_ptr_null(sim_model_preset(SHAPES));
    ck_assert_ptr_null(sim_model_preset(SHAPES + 1000));
}
END_TEST

START_TEST(attention_figures_are_there_where_published)
{
    ck_assert_int_eq(sim_model_load("deepseek-v3", &model, err, sizeof err), 0);
    ck_assert_uint_eq(model.vocabulary, 129280);
    ck_assert_uint_eq(model.query_heads, 128);
    ck_assert_uint_eq(model.kv_bytes, (512 + 64) * 2);
    ck_assert_uint_eq(model.kv_bytes_fp8, 656);
    ck_assert_uint_eq(model.dense_inter, 18432);
    ck_assert_uint_eq(model.attention_context_max, 0);
    ck_assert_uint_eq(model.attention_params, 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 +
                                                  512 * 128 * 256 + 128 * 128 * 7168);
    ck_assert_uint_eq(model.attention_weight_bytes, model.attention_params + 512 * 128 * 256);
    ck_assert_uint_eq(model.expert_32_bytes, 32);

    ck_assert_int_eq(sim_model_load("glm-5.3-article", &model, err, sizeof err), 0);
    ck_assert_uint_eq(model.vocabulary, 154880);
    ck_assert_uint_eq(model.query_heads, 64);
    ck_assert_uint_eq(model.attention_context_max, 2048);
    ck_assert_uint_eq(model.indexer_bytes, 132);
    ck_assert_uint_eq(model.indexer_layers, 21);

    ck_assert_int_eq(sim_model_load("gpt-oss-20b", &model, err, sizeof err), 0);
    ck_assert_uint_eq(model.kv_bytes, 8 * 64 * 2 * 2);
    ck_assert_uint_eq(model.window_context_max, 128);
    ck_assert_uint_eq(model.window_layers, 12);
    ck_assert_uint_eq(model.kv_bytes_fp8, 0);
}
END_TEST

START_TEST(scales_are_the_nearest_float)
{
    static const struct {
        const char *name;
        float scale;
    } want[] = {{"deepseek-v3", 2.5f},
                {"deepseek-v2", 16.0f},
                {"kimi-k2", 2.827f},
                {"qwen3-30b-a3b", 1.0f},
                {"glm-5.3", 2.5f}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        ck_assert_int_eq(sim_model_load(want[i].name, &model, err, sizeof err), 0);
        ck_assert_mem_eq(&model.routed_scale, &want[i].scale, sizeof(float));
    }
}
END_TEST

#define REST "layers: 4\ndense_layers: 1\nexperts: 8\ntopk: 2\nmoe_inter: 64\nshared_experts: 0\n"

START_TEST(hidden_is_padded_to_the_next_kernel_shape)
{
    static const uint32_t pairs[][2] = {{1, 2048},    {2048, 2048}, {2049, 2560}, {2880, 3072},
                                        {3073, 4096}, {8192, 8192}, {8193, 8193}, {12288, 12288}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char text[256];
        const int bytes = snprintf(text, sizeof text, "hidden: %u\n" REST, pairs[i][0]);
        ck_assert_int_eq(sim_model_parse("m.yaml", text, (size_t)bytes, &model, err, sizeof err),
                         0);
        ck_assert_uint_eq(model.hidden, pairs[i][0]);
        ck_assert_uint_eq(model.hidden_padded, pairs[i][1]);
    }
    ck_assert_str_eq(model.name, "m");
    ck_assert_uint_eq(model.moe_layers, 3);
    ck_assert_uint_eq(model.groups, 1);
    ck_assert_uint_eq(model.groups_kept, 1);
    ck_assert(model.routed_scale == 1.0f);
    ck_assert_int_eq(model.router, SIM_ROUTER_UNKNOWN);
    ck_assert_uint_eq(model.vocabulary, 0);
}
END_TEST

#define WHOLE "hidden: 4096\n" REST

static const struct {
    const char *text, *want;
} refusals[] = {
    {"hidden: unknown\n" REST, "mine.yaml: hidden: missing"},
    {REST, "mine.yaml: hidden: missing"},
    {"hidden: -4096\n" REST, "mine.yaml:1: hidden: -4096: must be above 0"},
    {WHOLE "heads: 3\n", "mine.yaml:8: heads: 3: unknown field"},
    {WHOLE "heads: unknown\n", "mine.yaml:8: heads: unknown: unknown field"},
    {WHOLE "topk: 3\n", "mine.yaml:8: topk: said twice"},
    {WHOLE "vocabulary: 0\n", "mine.yaml:8: vocabulary: 0: must be above 0"},
    {WHOLE "router: dice\n", "mine.yaml:8: router: dice: must be sigmoid_bias, softmax, "
                             "softmax_norm, softmax_selected or unknown"},
    {WHOLE "routed_scale: 0\n",
     "mine.yaml:8: routed_scale: 0: must lie in 0.000001..16, six decimals"},
    {WHOLE "routed_scale: [1]\n",
     "mine.yaml:8: routed_scale: must lie in 0.000001..16, six decimals"},
    {WHOLE "groups: 3\n", "mine.yaml: groups: 3: must divide experts 8"},
    {WHOLE "groups: 4\ngroups_kept: 5\n", "mine.yaml: groups_kept: 5: must not exceed groups 4"},
    {WHOLE "groups: 8\ngroups_kept: 1\n",
     "mine.yaml: topk: 2: the kept groups hold only 1 experts"},
    {"hidden: 1\nlayers: 1\ndense_layers: 1\nexperts: 1\ntopk: 1\nmoe_inter: 1\nshared_experts: "
     "0\n",
     "mine.yaml: dense_layers: 1: must be below layers 1"},
    {"hidden: 1\nlayers: 1\ndense_layers: 0\nexperts: 4\ntopk: 5\nmoe_inter: 1\nshared_experts: "
     "0\n",
     "mine.yaml: topk: 5: the kept groups hold only 4 experts"},
    {WHOLE "window_layers: 2\n", "mine.yaml: window_layers: 2: needs window_context_max"},
    {WHOLE "window_context_max: 128\n", "mine.yaml: window_context_max: 128: needs window_layers"},
    {WHOLE "window_layers: 5\nwindow_context_max: 128\n",
     "mine.yaml: window_layers: 5: must not exceed layers 4"},
    {WHOLE "indexer_layers: 2\n", "mine.yaml: indexer_layers: 2: needs indexer_bytes"},
    {WHOLE "indexer_bytes: 132\n", "mine.yaml: indexer_bytes: 132: needs indexer_layers"},
    {WHOLE "indexer_flop: 8192\n", "mine.yaml: indexer_flop: 8192: needs indexer_layers"},
    {"- 3\n", "mine.yaml:1: a model file holds fields"},
};
enum { REFUSALS = sizeof refusals / sizeof refusals[0] };

START_TEST(broken_files_are_refused_by_name)
{
    memset(&model, 0x5a, sizeof model);
    const struct sim_model before = model;
    ck_assert_int_eq(sim_model_parse("mine.yaml", refusals[_i].text, strlen(refusals[_i].text),
                                     &model, err, sizeof err),
                     -1);
    ck_assert_str_eq(err, refusals[_i].want);
    ck_assert_mem_eq(&model, &before, sizeof model);
}
END_TEST

START_TEST(files_load_by_path_and_unknown_names_list_the_known)
{
    const char *folder = test_temp_dir();
    const char *path = test_write_text(folder, "small.yaml", WHOLE);
    ck_assert_int_eq(sim_model_load(path, &model, err, sizeof err), 0);
    ck_assert_str_eq(model.name, "small");
    ck_assert_int_eq(sim_model_load("gpt-5", &model, err, sizeof err), -1);
    TEST_SAYS(err, "model gpt-5: unknown; there are deepseek-v2 deepseek-v2-lite");
    ck_assert_int_eq(sim_model_load("./none.yaml", &model, err, sizeof err), -1);
    ck_assert_str_eq(err, "./none.yaml: No such file or directory");
}
END_TEST

Suite *model_suite(void)
{
    Suite *suite = suite_create("model");
    TCase *tcase = tcase_create("model files");
    tcase_add_loop_test(tcase, presets_have_the_published_shapes, 0, SHAPES);
    tcase_add_test(tcase, there_are_no_other_presets);
    tcase_add_test(tcase, attention_figures_are_there_where_published);
    tcase_add_test(tcase, scales_are_the_nearest_float);
    tcase_add_test(tcase, hidden_is_padded_to_the_next_kernel_shape);
    tcase_add_loop_test(tcase, broken_files_are_refused_by_name, 0, REFUSALS);
    tcase_add_test(tcase, files_load_by_path_and_unknown_names_list_the_known);
    suite_add_tcase(suite, tcase);
    return suite;
}
