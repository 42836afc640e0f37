/* kernels/gpu.h - the exchange on GPUs, as plain C sees it.
 *
 * Twins of ref/ by name: the same bytes in give the same bytes out (kernels/README.md lists the
 * pairs). Callers must not know of devices, streams or addresses: a struct gpu holds the GPUs,
 * a buffer is an array of rows that either stand with their rank (each rank's on the GPU it is
 * mapped to) or are the same on every GPU.
 *
 * Calls only enqueue work; gpu_read, gpu_wait and gpu_timer_stop wait for it. Every call is 0,
 * or -1 with one line in err. What a kernel itself finds wrong shows at the next wait.
 *
 * A call that names `rank, rank_count` does that part for ranks rank .. rank + rank_count - 1:
 * what ref/ does one rank at a time. Ranks that share a GPU share a launch. */
#ifndef KERNELS_GPU_H
#define KERNELS_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/mapping.h"
#include "kernels/plan.h"
#include "kernels/recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpu;
struct gpu_buffer;

enum { GPU_DEVICES_MAX = 16, GPU_BUFFERS_MAX = 48, GPU_TOPK_MAX = 32 };

/* --- GPUs ------------------------------------------------------------------------------------ */

struct gpu_options {
    uint32_t devices; /* GPUs to use, 1..what is there. */
    enum gpu_mapping mapping;
    uint64_t memory_bytes; /* Most that may be taken on each GPU; 0: what is free. */
};

struct gpu_info {
    char name[256];
    char driver[32]; /* Version, as "13.0". */
    char cuda[32];   /* Of the runtime this was built with. */
    uint32_t devices;
    uint32_t sm_count;
    uint64_t memory_bytes;
    uint64_t l2_bytes;
};

/* GPUs that can run these kernels (compute capability 9.0); -1 when there is no driver or none. */
int gpu_device_count(uint32_t *count, char *err, size_t err_len);
int gpu_open(const struct gpu_options *options, struct gpu **gpu, char *err, size_t err_len);
void gpu_close(struct gpu *gpu); /* NULL is fine. */
int gpu_describe(const struct gpu *gpu, struct gpu_info *info, char *err, size_t err_len);
int gpu_wait(struct gpu *gpu, char *err, size_t err_len);

/* Time from start to stop on the GPUs' own clocks; stop waits. */
int gpu_timer_start(struct gpu *gpu, char *err, size_t err_len);
int gpu_timer_stop(struct gpu *gpu, uint64_t *elapsed_ns, char *err, size_t err_len);
/* From the first start to the last end of any warp of the driven transport's kernels and grouped
 * GEMMs launched between the two, by the clock of the first GPU: without the launch itself, which
 * the timer's interval contains. 0 when none ran there; stop waits. */
int gpu_stamps_start(struct gpu *gpu, char *err, size_t err_len);
int gpu_stamps_stop(struct gpu *gpu, uint64_t *elapsed_ns, char *err, size_t err_len);
/* Fill every L2 with clean lines of no use to anybody. Takes memory of its own at first use. */
int gpu_flush(struct gpu *gpu, char *err, size_t err_len);

/* --- memory ---------------------------------------------------------------------------------- */

/* Give memory to all parts (kernels/plan.h) at once; what earlier plans held is gone. When a
 * GPU has less than its share, nothing is taken and err says how many bytes are missing. */
int gpu_plan(struct gpu *gpu, uint32_t ranks, const struct gpu_part *parts, uint32_t count,
             char *err, size_t err_len);
/* Bytes free on GPU 0, 1, ... now. */
int gpu_room(uint32_t device, uint64_t *bytes, char *err, size_t err_len);
/* Buffer i of the plan; the pointer stays the same over plans. */
struct gpu_buffer *gpu_plan_buffer(struct gpu *gpu, uint32_t index);

int gpu_write(struct gpu *gpu, struct gpu_buffer *to, const void *rows, char *err, size_t err_len);
int gpu_read(struct gpu *gpu, const struct gpu_buffer *from, void *rows, char *err,
             size_t err_len); /* Waits. */
/* Every byte of the buffer. Poison is 0xFF; cleaning is 0. */
int gpu_fill(struct gpu *gpu, struct gpu_buffer *buffer, uint8_t byte, char *err, size_t err_len);

/* --- quantising, digest ---------------------------------------------------------------------- */

/* recipe is enum ref_recipe's number. Rows are those of the ranks in x. */
int gpu_quantise(struct gpu *gpu, uint32_t recipe, uint32_t rank, uint32_t rank_count,
                 uint32_t hidden, const struct gpu_buffer *x, struct gpu_buffer *codes,
                 struct gpu_buffer *scales, char *err, size_t err_len);
int gpu_scales_pack_ue8m0(struct gpu *gpu, uint32_t rank, uint32_t rank_count, uint32_t groups,
                          const struct gpu_buffer *scales, struct gpu_buffer *packed, char *err,
                          size_t err_len);
/* digests[i] over the bytes of rank + i in the buffer. Waits. */
int gpu_digest(struct gpu *gpu, uint32_t rank, uint32_t rank_count, const struct gpu_buffer *buffer,
               uint64_t *digests, char *err, size_t err_len);

/* --- routing --------------------------------------------------------------------------------- */

struct gpu_routing {
    uint32_t ranks;
    uint32_t experts;
    uint32_t topk;
    const uint64_t *token_start;           /* Host, [ranks + 1]. */
    const struct gpu_buffer *starts;       /* The same on every GPU: rows of 8 bytes. */
    const struct gpu_buffer *topk_idx;     /* On every GPU: [tokens] rows of 8 * topk bytes. */
    const struct gpu_buffer *topk_weights; /* [tokens] rows of 4 * topk bytes, or NULL. */
};

/* One message's row, as struct ref_move; its ranks say which GPUs hold it. */
struct gpu_move {
    uint64_t src_row;
    uint64_t dst_row;
    uint32_t src_rank;
    uint32_t dst_rank;
    uint32_t corrupt_byte;
    uint32_t corrupt_xor; /* 0 or 1..255. */
};

/* A message in its row of an arena. Rows are whole lines of 128 bytes, and the payload begins on
 * one, so that every access to it is whole lines: that is worth a tenth of the memory's speed. */
struct gpu_slot {
    uint64_t row_bytes; /* Of the arena's buffer: a multiple of 128. */
    uint64_t lead;      /* Where the message begins in the row. */
    uint64_t bytes;     /* Of the message. */
};

/* Land messages in the given order, src_rank's GPU storing into dst_rank's. Where two moves name
 * the same dst_row the later one stays: the earlier is never copied, so copies may run in any
 * order. Both buffers have rows of the slot. */
int gpu_deliver(struct gpu *gpu, const struct gpu_move *moves, uint64_t count,
                const struct gpu_slot *slot, const struct gpu_buffer *src, struct gpu_buffer *dst,
                char *err, size_t err_len);
/* The copies of the last gpu_deliver once more, for timing them alone: no other call that waits may
 * stand between. */
int gpu_deliver_again(struct gpu *gpu, char *err, size_t err_len);
/* sent [rank][columns] words land in received [column][ranks]; columns are shared out evenly. */
int gpu_deliver_counts(struct gpu *gpu, uint32_t columns, uint32_t rank, uint32_t rank_count,
                       const struct gpu_buffer *sent, struct gpu_buffer *received, char *err,
                       size_t err_len);

/* --- low latency ----------------------------------------------------------------------------- */

/* A dispatch message of ref/ll_phase.h: its 16-byte header stands right before a line. */
struct gpu_slot gpu_ll_message(uint32_t hidden, uint32_t recipe);
/* A row of expert output on its way home: nothing but the row. */
struct gpu_slot gpu_ll_answer(uint32_t hidden);

struct gpu_ll_rows {
    struct gpu_buffer *payload;
    struct gpu_buffer *scales;       /* FP8 with fp32 scales, else NULL. */
    struct gpu_buffer *scales_ue8m0; /* FP8 with packed exponents, else NULL. */
    struct gpu_buffer *src_token;
    struct gpu_buffer *counts;
};

int gpu_ll_pack(struct gpu *gpu, const struct gpu_routing *routing, uint32_t rank,
                uint32_t rank_count, uint32_t hidden, uint32_t recipe, const struct gpu_buffer *x,
                struct gpu_buffer *staged, struct gpu_buffer *sent_words, char *err,
                size_t err_len);
/* block_start on every GPU, rows of 8 bytes. */
int gpu_ll_unpack(struct gpu *gpu, const struct gpu_routing *routing, uint32_t rank,
                  uint32_t rank_count, uint32_t hidden, uint32_t recipe,
                  const struct gpu_buffer *block_start, const struct gpu_buffer *landed_words,
                  const struct gpu_buffer *landed, const struct gpu_ll_rows *rows, char *err,
                  size_t err_len);
int gpu_ll_combine_pack(struct gpu *gpu, uint32_t rank, uint32_t rank_count,
                        const struct gpu_buffer *expert_out, struct gpu_buffer *staged, char *err,
                        size_t err_len);
/* home_start on every GPU, rows of 8 bytes. */
int gpu_ll_combine_unpack(struct gpu *gpu, const struct gpu_routing *routing, uint32_t rank,
                          uint32_t rank_count, uint32_t hidden, const struct gpu_buffer *home_start,
                          const struct gpu_buffer *home, struct gpu_buffer *combined, char *err,
                          size_t err_len);

/* --- normal mode ----------------------------------------------------------------------------- */

/* struct ref_record, field by field. */
struct gpu_record {
    uint64_t payload_bytes;
    uint64_t scale_bytes;
    uint64_t scales_at;
    uint64_t meta_at;
    uint64_t ids_at;
    uint64_t weights_at;
    uint64_t bytes; /* A multiple of 16. */
    uint32_t topk;
    bool internode;
};

/* Records begin on a line: their payload is what they begin with. */
struct gpu_slot gpu_normal_record(const struct gpu_record *record);

struct gpu_normal_rows {
    struct gpu_buffer *payload;
    struct gpu_buffer *scales; /* NULL where the record has none. */
    struct gpu_buffer *topk_idx;
    struct gpu_buffer *topk_weights;
    struct gpu_buffer *src_token;
    struct gpu_buffer *src_meta; /* Several nodes, else NULL. */
    struct gpu_buffer *counts;
};

int gpu_normal_pack(struct gpu *gpu, const struct gpu_routing *routing, uint32_t ranks_per_node,
                    uint32_t rank, uint32_t rank_count, const struct gpu_record *record,
                    const struct gpu_buffer *payload, const struct gpu_buffer *scales,
                    struct gpu_buffer *staged, struct gpu_buffer *sent_words, char *err,
                    size_t err_len);
int gpu_normal_unpack(struct gpu *gpu, const struct gpu_routing *routing, uint32_t ranks_per_node,
                      uint32_t rank, uint32_t rank_count, const struct gpu_record *record,
                      const struct gpu_buffer *block_start, const struct gpu_buffer *landed_words,
                      const struct gpu_buffer *landed, const struct gpu_normal_rows *rows,
                      char *err, size_t err_len);
/* weights, src_meta and src_token may be NULL: 0 is staged. */
int gpu_normal_combine_pack(struct gpu *gpu, uint32_t rank, uint32_t rank_count,
                            const struct gpu_record *record, const struct gpu_buffer *expert_out,
                            const struct gpu_buffer *weights, const struct gpu_buffer *src_meta,
                            const struct gpu_buffer *src_token, struct gpu_buffer *staged,
                            char *err, size_t err_len);
/* contribution_start on every GPU, rows of 8 bytes; rail rows are those of rails' ranks. */
int gpu_normal_forward(struct gpu *gpu, uint32_t rank, uint32_t rank_count,
                       const struct gpu_record *record, const struct gpu_buffer *contribution_start,
                       const struct gpu_buffer *contributions, struct gpu_buffer *rails, char *err,
                       size_t err_len);
/* bias0, bias1 and combined_weights may be NULL. */
int gpu_normal_combine_unpack(struct gpu *gpu, uint32_t rank, uint32_t rank_count,
                              const struct gpu_record *record, const struct gpu_buffer *home_start,
                              const struct gpu_buffer *home, const struct gpu_buffer *bias0,
                              const struct gpu_buffer *bias1, struct gpu_buffer *combined,
                              struct gpu_buffer *combined_weights, char *err, size_t err_len);

/* --- layout ---------------------------------------------------------------------------------- */

/* ref_ll_blocks and ref_normal_blocks: the whole table, on every GPU. */
int gpu_ll_blocks(struct gpu *gpu, const struct gpu_routing *routing,
                  struct gpu_buffer *block_start, char *err, size_t err_len);
int gpu_normal_blocks(struct gpu *gpu, const struct gpu_routing *routing,
                      struct gpu_buffer *block_start, char *err, size_t err_len);

/* struct ref_layout_out; rows stand with their rank. NULL members are left out. */
struct gpu_layout_out {
    struct gpu_buffer *num_tokens_per_rank;      /* A row a rank: [R] int32. */
    struct gpu_buffer *num_tokens_per_rdma_rank; /* A row a rank: [N] int32. */
    struct gpu_buffer *num_tokens_per_expert;    /* A row a rank: [E] int32. */
    struct gpu_buffer *is_token_in_rank;         /* A row a token: [R] bytes. */
};
int gpu_layout(struct gpu *gpu, const struct gpu_routing *routing, uint32_t ranks_per_node,
               uint32_t rank, uint32_t rank_count, const struct gpu_layout_out *out, char *err,
               size_t err_len);

/* struct ref_intranode_out; each rank's part stands with it, rank_prefix_matrix on every GPU. */
struct gpu_intranode_out {
    struct gpu_buffer *rank_prefix_matrix;         /* On every GPU: R rows of [R]. */
    struct gpu_buffer *channel_prefix_matrix;      /* A row a rank: [R][C]. */
    struct gpu_buffer *recv_channel_prefix_matrix; /* A row a rank: [R][C]. */
    struct gpu_buffer *send_head;                  /* A row a token: [R]. */
};
int gpu_intranode_handle(struct gpu *gpu, const struct gpu_routing *routing, uint32_t channels,
                         const struct gpu_intranode_out *out, char *err, size_t err_len);
/* Rows of heads are those of the ranks' tokens, columns int32 each. */
int gpu_send_head_rewrite(struct gpu *gpu, const struct gpu_routing *routing, uint32_t channels,
                          uint32_t columns, struct gpu_buffer *send_head, char *err,
                          size_t err_len);

/* struct ref_internode_out; each rank's part stands with it, a row a rank but for the heads.
 * Members may be NULL, but sums need their matrix, and send_nvl_head both of recv_rdma. */
struct gpu_internode_out {
    struct gpu_buffer *rdma_channel_prefix_matrix;      /* [N][C] */
    struct gpu_buffer *gbl_channel_prefix_matrix;       /* [R][C] */
    struct gpu_buffer *recv_rdma_channel_prefix_matrix; /* [N][C] */
    struct gpu_buffer *recv_rdma_rank_prefix_sum;       /* [N] */
    struct gpu_buffer *recv_gbl_channel_prefix_matrix;  /* [R][C] */
    struct gpu_buffer *recv_gbl_rank_prefix_sum;        /* [R] */
    struct gpu_buffer *send_rdma_head;                  /* A row a token: [N]. */
    struct gpu_buffer *send_nvl_head;                   /* A row a rail row of the rank: [P]. */
};
int gpu_internode_handle(struct gpu *gpu, const struct gpu_routing *routing,
                         uint32_t ranks_per_node, uint32_t channels,
                         const struct gpu_internode_out *out, char *err, size_t err_len);
/* Both heads in place; what gpu_internode_handle made must still stand in the others. */
int gpu_internode_head_rewrite(struct gpu *gpu, const struct gpu_routing *routing,
                               uint32_t ranks_per_node, uint32_t channels,
                               const struct gpu_internode_out *out, char *err, size_t err_len);

/* --- experts --------------------------------------------------------------------------------- */

/* scales: fp32 or packed exponents as the recipe says; NULL for bf16. */
int gpu_expert_standin(struct gpu *gpu, uint32_t recipe, uint32_t rank, uint32_t rank_count,
                       uint32_t hidden, const struct gpu_buffer *payload,
                       const struct gpu_buffer *scales, struct gpu_buffer *out, char *err,
                       size_t err_len);
int gpu_expert_identity(struct gpu *gpu, uint32_t recipe, uint32_t rank, uint32_t rank_count,
                        uint32_t hidden, const struct gpu_buffer *payload,
                        const struct gpu_buffer *scales, struct gpu_buffer *out, char *err,
                        size_t err_len);

/* Weights of one expert after the other on the GPU of `rank`: gate, up, down as in ref/expert.h.
 * codes: a row of 3 * hidden * inter bytes; scales: a row of 3 * (hidden/128) * (inter/128)
 * floats, one row a rank each. */
int gpu_expert_fill(struct gpu *gpu, uint32_t rank, uint64_t seed, uint32_t expert, uint32_t hidden,
                    uint32_t inter, struct gpu_buffer *codes, struct gpu_buffer *scales, char *err,
                    size_t err_len);

/* One expert's MLP over rows [first, first + rows) of the rank, every sum in the order of
 * ref_expert_mlp. gate and up: BF16 rows of inter; act, act_scales: its quantised product. */
struct gpu_mlp {
    uint32_t hidden, inter;
    uint32_t recipe;                         /* Of the rows, FP8. */
    uint32_t activation;                     /* Recipe of the quantised product. */
    const struct gpu_buffer *codes, *scales; /* As gpu_expert_fill leaves them. */
    struct gpu_buffer *gate, *up;            /* Scratch: a row per received row, 2 * inter bytes. */
    struct gpu_buffer *act, *act_scales;     /* Scratch: inter bytes; inter / 128 floats. */
};
int gpu_expert_mlp(struct gpu *gpu, const struct gpu_mlp *mlp, uint32_t rank, uint64_t first,
                   uint64_t rows, const struct gpu_buffer *payload,
                   const struct gpu_buffer *row_scales, struct gpu_buffer *out, char *err,
                   size_t err_len);
/* gate = silu(gate) * up in BF16, quantised into codes and scales, in one pass; the product is
 * not written. masked (may be NULL) holds, a row of [groups] int32 per rank, how many of each
 * run of capacity rows are valid; others are left alone. */
int gpu_expert_activate(struct gpu *gpu, uint32_t recipe, uint32_t rank, uint32_t rank_count,
                        uint32_t inter, const struct gpu_buffer *gate, const struct gpu_buffer *up,
                        const struct gpu_buffer *masked, uint64_t capacity,
                        struct gpu_buffer *codes, struct gpu_buffer *scales, char *err,
                        size_t err_len);

/* Grouped GEMM over FP8 rows: those of group g (a local expert) times its weights, BF16 out. Rows
 * that belong to no group are left alone. */
struct gpu_grouped {
    uint32_t depth;                  /* Summed dimension, a multiple of 128: bytes of a row... */
    uint32_t outputs;                /* ...and columns of the result, one too. */
    uint32_t groups;                 /* Of a rank. */
    uint32_t recipe;                 /* Of the rows: FP8, scales of 1 x 128. */
    uint64_t capacity;               /* Masked: group g's rows begin at g * capacity; or 0... */
    uint32_t alignment;              /* ...contiguous: at the next multiple of this behind g - 1. */
    const struct gpu_buffer *counts; /* A row a rank: [groups] int32, rows of each group. */
    const struct gpu_buffer *codes;  /* A row a rank: [groups][outputs][depth] e4m3. */
    const struct gpu_buffer *scales; /* A row a rank: [groups][outputs/128][depth/128] fp32. */
};
/* In the order of ref_expert_mlp's sums, bit for bit. rows and row_scales as payload and scales of
 * a dispatch; out: rows of 2 * outputs bytes. */
int gpu_grouped_exact(struct gpu *gpu, const struct gpu_grouped *grouped, uint32_t rank,
                      uint32_t rank_count, const struct gpu_buffer *rows,
                      const struct gpu_buffer *row_scales, struct gpu_buffer *out, char *err,
                      size_t err_len);
/* On tensor cores; kernels/grouped_fast.cu states how far it may be from the exact one. */
int gpu_grouped_fast(struct gpu *gpu, const struct gpu_grouped *grouped, uint32_t rank,
                     uint32_t rank_count, const struct gpu_buffer *rows,
                     const struct gpu_buffer *row_scales, struct gpu_buffer *out, char *err,
                     size_t err_len);

/* --- router, collectives --------------------------------------------------------------------- */

/* struct ref_router_rule, field by field; enumerations by their numbers. */
struct gpu_router_rule {
    uint32_t score, group_by, weight;
    bool logits_bf16, weights_bf16, scaled;
    float scale;
    uint32_t experts, topk, groups, groups_kept;
};
/* Rows are the tokens of the ranks in logits ([experts] floats); bias on every GPU or NULL. A NaN
 * logit or score is refused like in ref_router_topk: waits to know. */
int gpu_router_topk(struct gpu *gpu, const struct gpu_router_rule *rule, uint32_t rank,
                    uint32_t rank_count, const struct gpu_buffer *logits,
                    const struct gpu_buffer *bias, struct gpu_buffer *ids,
                    struct gpu_buffer *weights, char *err, size_t err_len);

/* Every rank's rows of parts, ranks ascending, on every GPU. */
int gpu_dp_gather(struct gpu *gpu, const struct gpu_buffer *parts, struct gpu_buffer *out,
                  char *err, size_t err_len);
/* inputs: a row a rank, each BF16 [rows of all ranks][hidden]; out: rows stand with their rank,
 * which is how row_start is known. */
int gpu_dp_reduce_scatter(struct gpu *gpu, uint32_t rank, uint32_t rank_count, uint32_t hidden,
                          const struct gpu_buffer *inputs, struct gpu_buffer *out, char *err,
                          size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
