/* sim/ledger_lines.c - every figure of the public account, by formula.
 *
 * The account: a long article on a model of 256 routed experts and one shared, top-8, hidden
 * 6144, 78 layers of which 3 dense, served with SGLang and DeepEP (model glm-5.3-article). Its
 * text is not repeated; its figures stand beside ours, and a remark says what checking adds. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "ref/layout.h"
#include "sim/ledger.h"

__extension__ typedef unsigned __int128 u128;

#define PS_PER_S UINT64_C(1000000000000)

static const uint64_t nvlink_bytes_per_s = 900000000000; /* Both directions, as the article. */
static const uint64_t nic_bytes_per_s = 50000000000;     /* 400 Gb/s per GPU. */
static const uint64_t hbm_bytes_per_s = 4800000000000;
static const uint64_t gemm_flop_per_s = 500000000000000;
static const uint64_t server_dispatch_ps = 170000000; /* SGLang's 0.17 ms a layer. */

enum { GEMM_ROWS = 1024, NODE_RANKS = 8, LONG_CONTEXT = 100000, LONGEST_CONTEXT = 1000000 };

struct lines {
    struct sim_ledger_line *line;
    size_t count;
    const char *section;
    const struct sim_ledger_input *input;
    struct sim_ledger ledger;
    bool article; /* The article's model and workload: its figures stand beside ours. */
};

static uint64_t ratio(uint64_t a, uint64_t b, uint64_t c) /* a * b / c to nearest. */
{
    const u128 product = (u128)a * b;

    assert(c > 0);
    return (uint64_t)((product + c / 2) / c);
}

__attribute__((format(printf, 7, 8))) static void add(struct lines *lines, const char *name,
                                                      uint64_t value, enum sim_ledger_unit unit,
                                                      const char *article, const char *remark,
                                                      const char *formula, ...)
{
    struct sim_ledger_line *line = &lines->line[lines->count++];
    va_list args;

    assert(lines->count <= SIM_LEDGER_LINES_MAX);
    line->section = lines->section;
    line->name = name;
    line->value = value;
    line->unit = unit;
    line->article = lines->article ? article : "";
    line->remark = remark;
    va_start(args, formula);
    vsnprintf(line->formula, sizeof(line->formula), formula, args);
    va_end(args);
}

static void add_crossings(struct lines *lines)
{
    const struct sim_ledger *ledger = &lines->ledger;
    const struct sim_model *model = lines->input->model;
    const uint64_t moe = model->moe_layers;

    assert(ledger->step >= ledger->dispatch + ledger->combine);
    lines->section = "crossings of one layer";
    add(lines, "gather", ledger->gather, SIM_LEDGER_BYTES, "2.36 MB",
        "ring: (R-1)/R of it per rank", "rows x H x 2");
    add(lines, "dispatch", ledger->dispatch, SIM_LEDGER_BYTES, "9.44 MB",
        "only low latency sends a copy per expert", "rows x K x H");
    add(lines, "combine", ledger->combine, SIM_LEDGER_BYTES, "18.9 MB", "the same",
        "rows x K x 2H");
    add(lines, "reduce-scatter", ledger->reduce_scatter, SIM_LEDGER_BYTES, "2.36 MB", "",
        "rows x H x 2");
    lines->section = "one step";
    add(lines, "dispatch and combine of a layer", ledger->dispatch + ledger->combine,
        SIM_LEDGER_BYTES, "28.3 MB", "", "rows x K x 3H");
    add(lines, "gather and reduce-scatter of a layer", 2 * ledger->gather, SIM_LEDGER_BYTES,
        "4.72 MB", "", "rows x H x 4");
    add(lines, "all four over all layers", ledger->step, SIM_LEDGER_BYTES, "2.49 GB", "",
        "%u x EP + %u x DP crossings", model->moe_layers, model->layers);
    lines->section = "dispatch and combine by precision";
    add(lines, "all BF16", ledger->all_bf16, SIM_LEDGER_BYTES, "2.83 GB", "",
        "%llu x rows x K x 4H", (unsigned long long)moe);
    add(lines, "FP8 dispatch, BF16 combine", ledger->fp8_dispatch, SIM_LEDGER_BYTES, "2.13 GB",
        lines->article ? "2.12 to three digits" : "", "%llu x rows x K x 3H",
        (unsigned long long)moe);
    add(lines, "all FP8", ledger->all_fp8, SIM_LEDGER_BYTES, "1.42 GB",
        "no library combines in FP8", "%llu x rows x K x 2H", (unsigned long long)moe);
}

/* The same step with tensor parallelism in place of DP attention: ring all-reduces instead of
 * gather and reduce-scatter, logits gathered, dispatch in BF16. */
static void add_reconciliation(struct lines *lines)
{
    const struct sim_ledger *ledger = &lines->ledger;
    const struct sim_model *model = lines->input->model;
    const uint64_t ranks = lines->input->ranks;
    const uint64_t dp = 2 * ledger->gather * model->layers;
    const uint64_t tp = ratio(2 * dp, ranks - 1, ranks);
    const uint64_t logits = lines->input->rows * model->vocabulary * 2;
    const uint64_t extra = ledger->all_bf16 - ledger->fp8_dispatch;

    assert(ranks > 0 && ledger->all_bf16 >= ledger->fp8_dispatch && ledger->step >= dp);
    lines->section = "the same step with TP + EP";
    add(lines, "DP crossings, replaced", dp, SIM_LEDGER_BYTES, "368 MB", "",
        "layers x rows x H x 4");
    add(lines, "TP all-reduces", tp, SIM_LEDGER_BYTES, "644 MB", "",
        "ring: 2 x DP crossings x (R-1)/R");
    add(lines, "dispatch in BF16 adds", extra, SIM_LEDGER_BYTES, "0.708 GB", "",
        "MoE layers x rows x K x H");
    if (model->vocabulary == 0) return;
    add(lines, "logits gather", logits, SIM_LEDGER_BYTES, "59.5 MB", "", "rows x vocabulary x 2");
    add(lines, "step", ledger->step - dp + tp + logits + extra, SIM_LEDGER_BYTES, "3.55 GB",
        lines->article ? "the sum is 3.53" : "", "step - DP + TP + logits + BF16");
}

static void add_sizes(struct lines *lines)
{
    const struct sim_model *model = lines->input->model;
    const uint64_t hidden = model->hidden, chunk = lines->input->chunk;
    const uint64_t prefill = chunk * model->topk * hidden;
    const uint64_t expected =
        ref_expected_m(lines->input->rows, lines->input->ranks, model->topk, model->experts);
    const uint64_t local = model->experts / lines->input->ranks;
    const uint64_t scales = hidden / 128;

    assert(model->experts % lines->input->ranks == 0);
    lines->section = "prefill chunk, per layer";
    add(lines, "dispatch", prefill, SIM_LEDGER_BYTES, "1.61 GB", "", "%llu x K x H",
        (unsigned long long)chunk);
    add(lines, "combine", 2 * prefill, SIM_LEDGER_BYTES, "3.22 GB", "", "%llu x K x 2H",
        (unsigned long long)chunk);
    lines->section = "sizes";
    add(lines, "expected_m", expected, SIM_LEDGER_COUNT, "49",
        "reads rows as rows per rank, as the article does", "(rows x R x K + E) / E");
    add(lines, "GEMM workspace", local * GEMM_ROWS * hidden * 2, SIM_LEDGER_BYTES, "402.65 MB",
        lines->article ? "R x M = 1024 rows per expert at M = 128, R = 8" : "",
        "%llu experts x 1024 x H x 2", (unsigned long long)local);
    add(lines, "casts of a row, after sending", lines->input->ranks, SIM_LEDGER_COUNT, "8",
        "once before sending; after: by every receiver, reading two bytes a channel", "R");
    if (model->experts % 32 == 0)
        add(lines, "GEMM workspace at EP32", model->experts / 32 * GEMM_ROWS * hidden * 2,
            SIM_LEDGER_BYTES, "100.66 MB", "", "%u experts x 1024 x H x 2", model->experts / 32);
    add(lines, "FP32 scales of a row", 4 * scales, SIM_LEDGER_BYTES, "192 B", "", "H / 128 x 4");
    add(lines, "their share of the codes", ratio(4 * scales, 10000, hidden), SIM_LEDGER_PARTS,
        "3.1 %", "", "4 / 128");
    add(lines, "UE8M0 scales of a row", scales, SIM_LEDGER_BYTES, "48 B", "", "H / 128");
    add(lines, "their share of the codes", ratio(scales, 10000, hidden), SIM_LEDGER_PARTS, "0.8 %",
        "", "1 / 128");
}

static void add_scale_out(struct lines *lines)
{
    static const char *const local_names[] = {"EP8: local experts, LL QPs a rank",
                                              "EP16: local experts, LL QPs a rank",
                                              "EP32: local experts, LL QPs a rank"};
    static const char *const share_names[] = {"EP8: share that crosses nodes",
                                              "EP16: share that crosses nodes",
                                              "EP32: share that crosses nodes"};
    static const char *const distinct_names[] = {"EP8: distinct ranks of a token, uniform",
                                                 "EP16: distinct ranks of a token, uniform",
                                                 "EP32: distinct ranks of a token, uniform"};
    static const char *const local_article[] = {"32", "16", "8"};
    static const char *const share_article[] = {"0", "1/2", "3/4"};
    const struct sim_model *model = lines->input->model;

    lines->section = "where experts live";
    add(lines, "copies of a token, low latency", model->topk, SIM_LEDGER_COUNT, "8", "", "K");
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t ranks = 8u << i;

        if (model->experts % ranks != 0) continue;
        add(lines, local_names[i], model->experts / ranks, SIM_LEDGER_COUNT, local_article[i], "",
            "E / %u", ranks);
        add(lines, share_names[i], 10000 - 10000 * NODE_RANKS / ranks, SIM_LEDGER_PARTS,
            share_article[i], "nodes of 8, uniform routing", "1 - 8 / %u", ranks);
        add(lines, distinct_names[i], sim_ledger_distinct(model->experts, model->topk, ranks),
            SIM_LEDGER_PARTS, "", "what normal mode sends instead of K copies",
            "R (1 - C(E - E/R, K) / C(E, K))");
    }
}

static void add_network(struct lines *lines)
{
    const struct sim_ledger *ledger = &lines->ledger;
    const struct sim_model *model = lines->input->model;
    const uint64_t moe = model->moe_layers, rank_bytes = ledger->dispatch / lines->input->ranks;
    const uint64_t dispatch = ledger->dispatch * 3 / 4, combine = ledger->combine * 3 / 4;
    const uint64_t step = moe * (dispatch + combine), node = step / 4;

    lines->section = "EP32 over IB (4 nodes of 8)";
    add(lines, "copies of a token inside the node", model->topk / 4, SIM_LEDGER_COUNT, "2", "",
        "K x 1/4");
    add(lines, "copies of a token over IB", model->topk - model->topk / 4, SIM_LEDGER_COUNT, "6",
        "", "K x 3/4");
    add(lines, "dispatch of a layer", dispatch, SIM_LEDGER_BYTES, "7.08 MB", "", "dispatch x 3/4");
    add(lines, "combine of a layer", combine, SIM_LEDGER_BYTES, "14.16 MB", "", "combine x 3/4");
    add(lines, "both", dispatch + combine, SIM_LEDGER_BYTES, "21.23 MB", "",
        "(dispatch + combine) x 3/4");
    add(lines, "step", step, SIM_LEDGER_BYTES, "1.59 GB", "", "MoE layers x both");
    add(lines, "step, each node", node, SIM_LEDGER_BYTES, "398 MB",
        "DP attention spreads the rows over 32 ranks", "step / 4");
    add(lines, "at the line rate", ratio(node, PS_PER_S, NODE_RANKS * nic_bytes_per_s),
        SIM_LEDGER_PS, "0.995 ms", "", "node / (8 x 50 GB/s)");
    add(lines, "at the server's latency", server_dispatch_ps * moe, SIM_LEDGER_PS, "12.75 ms",
        "SGLang, 96 H100, EP72", "0.17 ms x MoE layers");
    lines->section = "one node";
    add(lines, "dispatch of a rank", rank_bytes, SIM_LEDGER_BYTES, "1.18 MB", "",
        "rows x K x H / R");
    add(lines, "at 900 GB/s", ratio(rank_bytes, PS_PER_S, nvlink_bytes_per_s), SIM_LEDGER_PS,
        "1.31 us", "900 is both directions: one is 450, stores reach 370", "bytes / 900 GB/s");
    add(lines, "step at 20 us a layer", 20000000 * moe, SIM_LEDGER_PS, "1.5 ms",
        "the article's estimate of launch, barrier, sync", "20 us x MoE layers");
    add(lines, "step at 40 us a layer", 40000000 * moe, SIM_LEDGER_PS, "3 ms", "",
        "40 us x MoE layers");
}

static void add_compute(struct lines *lines)
{
    const struct sim_model *model = lines->input->model;
    const uint64_t hidden = model->hidden, inter = model->moe_inter, rows = lines->input->rows;
    const uint64_t rank_rows = rows * model->topk / lines->input->ranks;
    const uint64_t down = rank_rows * inter * hidden * 2, shared = 6 * rows * inter * hidden;
    const uint64_t combine = lines->ledger.combine / lines->input->ranks;
    const uint64_t weights =
        3 * hidden * inter * (model->experts / lines->input->ranks) * model->moe_layers;

    lines->section = "memory and compute";
    add(lines, "expert weights of a rank, FP8", weights, SIM_LEDGER_BYTES, "90 GB",
        lines->article ? "109 GB with the replicated rest is quoted, not derived" : "",
        "3 x H x I x E / R x MoE layers");
    add(lines, "down projection of a layer", down, SIM_LEDGER_FLOP, "4.83 GFLOP", "",
        "rows x K / R x I x H x 2");
    add(lines, "at 500 TFLOP/s", ratio(down, PS_PER_S, gemm_flop_per_s), SIM_LEDGER_PS, "10 us", "",
        "down / 500 TFLOP/s");
    if (model->shared_experts > 0)
        add(lines, "shared expert of a layer", shared * model->shared_experts, SIM_LEDGER_FLOP,
            "14.5 GFLOP", "all rows on one rank", "3 matrices x rows x I x H x 2");
    add(lines, "combine of a rank", combine, SIM_LEDGER_BYTES, "2.36 MB", "", "rows x K x 2H / R");
    add(lines, "at 900 GB/s", ratio(combine, PS_PER_S, nvlink_bytes_per_s), SIM_LEDGER_PS, "2.6 us",
        "", "bytes / 900 GB/s");
}

static void add_attention(struct lines *lines)
{
    const struct sim_ledger_input *input = lines->input;
    const struct sim_model *model = input->model;
    const uint64_t most = model->attention_context_max;
    const uint64_t read = most > 0 && most < input->context ? most : input->context;
    const uint64_t token = (uint64_t)model->indexer_bytes * model->indexer_layers;
    const uint64_t kv = model->kv_bytes_fp8 > 0 ? model->kv_bytes_fp8 : model->kv_bytes;
    const uint64_t index = input->context * token * input->requests;
    const uint64_t main_bytes = read * kv * model->layers * input->requests;

    lines->section = "attention, per card and step";
    if (kv > 0) {
        add(lines, "main attention reads", main_bytes, SIM_LEDGER_BYTES, "3.35 GB", "",
            "%llu x KV x layers x requests", (unsigned long long)read);
        add(lines, "at 4.8 TB/s", ratio(main_bytes, PS_PER_S, hbm_bytes_per_s), SIM_LEDGER_PS,
            "0.70 ms", "", "bytes / HBM");
    }
    if (token == 0) return;
    add(lines, "indexer reads", index, SIM_LEDGER_BYTES, "0.73 GB", "",
        "context x cache x requests");
    add(lines, "at 4.8 TB/s", ratio(index, PS_PER_S, hbm_bytes_per_s), SIM_LEDGER_PS, "0.15 ms", "",
        "bytes / HBM");
    add(lines, "indexer reads at 100K", LONG_CONTEXT * token * input->requests, SIM_LEDGER_BYTES,
        "8.9 GB", "", "100000 x cache x requests");
    add(lines, "indexer cache of a token", token, SIM_LEDGER_BYTES, "2,772 B",
        "follows the request, never the expert: no EP traffic", "%u B x %u layers",
        model->indexer_bytes, model->indexer_layers);
    add(lines, "indexer cache at 1M", LONGEST_CONTEXT * token, SIM_LEDGER_BYTES, "2.77 GB", "",
        "1000000 x cache");
}

size_t sim_ledger_lines(const struct sim_ledger_input *input,
                        struct sim_ledger_line line[SIM_LEDGER_LINES_MAX])
{
    struct lines lines = {.line = line, .input = input};

    sim_ledger_compute(input, &lines.ledger);
    lines.article = strcmp(input->model->name, "glm-5.3-article") == 0 && input->ranks == 8 &&
                    input->rows == SIM_LEDGER_ROWS && input->requests == SIM_LEDGER_REQUESTS &&
                    input->context == SIM_LEDGER_CONTEXT && input->chunk == SIM_LEDGER_CHUNK;
    add_crossings(&lines);
    add_reconciliation(&lines);
    add_sizes(&lines);
    add_scale_out(&lines);
    add_network(&lines);
    add_compute(&lines);
    add_attention(&lines);
    assert(lines.count <= SIM_LEDGER_LINES_MAX);
    return lines.count;
}
