/* sim/ledger.h - what crosses between GPUs in one forward step, as arithmetic.
 *
 * Three answers side by side: the formula that the public accounts use (selections times row
 * bytes), the same counted from a routing in hand, and the bytes that go on the wire. Integers
 * throughout: bytes, picoseconds, floating-point operations, ten-thousandths. */
#ifndef SIM_LEDGER_H
#define SIM_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ref/routing.h"
#include "sim/model.h"

/* The workload. All counts are the whole group's unless their name says otherwise. */
struct sim_ledger_input {
    const struct sim_model *model; /* Borrowed. */
    uint32_t ranks;
    uint32_t ranks_per_node;
    uint64_t rows;     /* Token rows of one step. */
    uint64_t requests; /* Requests that these rows belong to. */
    uint64_t context;  /* Tokens a request has read so far. */
    uint64_t chunk;    /* Rows of one prefill chunk. */
};

enum {
    SIM_LEDGER_ROWS = 192, /* 32 requests of 6 verify tokens. */
    SIM_LEDGER_REQUESTS = 32,
    SIM_LEDGER_CONTEXT = 8192,
    SIM_LEDGER_CHUNK = 32768,
};

/* Bytes of the four crossings, by formula. */
struct sim_ledger {
    uint64_t gather;         /* Of one layer: rows * H * 2. */
    uint64_t dispatch;       /* Of one MoE layer, FP8: rows * K * H. */
    uint64_t combine;        /* Of one MoE layer, BF16: rows * K * 2H. */
    uint64_t reduce_scatter; /* Of one layer: rows * H * 2. */
    uint64_t step;           /* All four, over all layers that have them. */
    uint64_t all_bf16;       /* Dispatch and combine over all MoE layers, both in BF16 ... */
    uint64_t fp8_dispatch;   /* ... dispatch in FP8, combine in BF16 ... */
    uint64_t all_fp8;        /* ... both in FP8 (no library offers it). */
};

/* By formula. Every count of the input is above 0. *ledger is filled. */
void sim_ledger_compute(const struct sim_ledger_input *input, struct sim_ledger *ledger);

/* Rows of an expert in a layer (masked_m), over all experts and layers counted. */
enum { SIM_LEDGER_LOADS = 4096 };
struct sim_ledger_loads {
    uint64_t experts; /* (layer, expert) pairs. */
    uint64_t rows;    /* Sum over them. */
    uint64_t max;
    uint64_t by_rows[SIM_LEDGER_LOADS]; /* Pairs with so many rows; the last: so many or more. */
};

/* Rows below which that share of the pairs lies, by nearest rank; ten_thousandths 0 = least. */
uint64_t sim_ledger_load(const struct sim_ledger_loads *loads, uint32_t ten_thousandths);

/* One layer's exchange counted from a routing, for one mode. */
struct sim_ledger_counts {
    uint64_t selections;     /* (token, column) pairs with an expert: what the formula counts. */
    uint64_t messages;       /* LL: the same; normal: distinct (token, rank) pairs. */
    uint64_t local;          /* Messages that stay on their rank. */
    uint64_t nvlink;         /* Messages between ranks of one node. */
    uint64_t nic;            /* Messages between nodes; normal: distinct (token, node) pairs. */
    uint64_t dispatch_bytes; /* Of messages, row bytes by formula (FP8). */
    uint64_t combine_bytes;
    uint64_t dispatch_wire_bytes; /* nvlink + nic messages with headers and scales. */
    uint64_t combine_wire_bytes;
    struct sim_ledger_loads loads; /* The same in both modes. */
};

/* Count one routing's bytes and rows by walking it, token by token. *counts is filled. */
void sim_ledger_count(const struct ref_routing *routing, uint32_t ranks_per_node, uint32_t hidden,
                      bool ll, struct sim_ledger_counts *counts);

/* Sums over *layers MoE layers of one step, from a routing by name ("uniform", ...) or from a
 * trace file: its first rows tokens, dealt to the ranks in turn. trace tells which. 0, or -1 with
 * one line. */
struct sim_ledger_source {
    const char *routing;
    const char *offsets; /* Of a trace; "" = none. */
    bool trace;
    uint64_t seed;
};
int sim_ledger_count_source(const struct sim_ledger_input *input,
                            const struct sim_ledger_source *source, struct sim_ledger_counts *ll,
                            struct sim_ledger_counts *normal, uint64_t *layers, char *err,
                            size_t err_len);

enum sim_ledger_unit {
    SIM_LEDGER_BYTES,
    SIM_LEDGER_PS,
    SIM_LEDGER_FLOP,
    SIM_LEDGER_COUNT,
    SIM_LEDGER_PARTS, /* Ten-thousandths. */
};

/* One figure, computed, with what the article prints for its own workload ("" = nothing). */
struct sim_ledger_line {
    const char *section; /* Static storage, as all texts here but formula. */
    const char *name;
    char formula[64];
    uint64_t value;
    enum sim_ledger_unit unit;
    const char *article;
    const char *remark; /* What checking adds, or "". */
};

enum { SIM_LEDGER_LINES_MAX = 64 };

/* Every figure of the account that the model's known numbers allow. Returns how many. */
size_t sim_ledger_lines(const struct sim_ledger_input *input,
                        struct sim_ledger_line lines[SIM_LEDGER_LINES_MAX]);

/* Expected distinct groups that a token reaches when its K experts are drawn uniformly from E
 * and every group holds E / groups of them; in ten-thousandths. */
uint64_t sim_ledger_distinct(uint32_t experts, uint32_t topk, uint32_t groups);

#endif
