/* kernels/direct.h - the exchange as the library runs it: kernels that store into and load from
 * each other's memory, and wait for each other's flags.
 *
 * Group operations: all ranks take part in each call. Results are those of ref_ll_dispatch,
 * ref_ll_combine, ref_normal_dispatch and ref_normal_combine, bit by bit, wherever the ranks live.
 *
 * A rank with a GPU of its own does an operation in one launch, all of whose blocks must be
 * resident (a cooperative launch: the driver refuses one that would not fit). Ranks that share a
 * GPU cannot wait for each other inside a launch; there every operation is split in phases, all
 * ranks' launches of one phase before any of the next, with the GPUs fenced in between, so that no
 * wait is ever for something that has not run. The same holds where somebody else's launches use
 * the same GPUs (shared): two groups that each held one GPU and waited for the other would never
 * end.
 *
 * A wait that lasts longer than wait_ns ends the kernel with a trap; the next call that waits says
 * which wait it was. The GPUs are then lost to this process, as with any CUDA fault. */
#ifndef KERNELS_DIRECT_H
#define KERNELS_DIRECT_H

#include "kernels/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GPU_DIRECT_RANKS_MAX = 64,
    GPU_DIRECT_EXPERTS_END = 4096,
    GPU_DIRECT_CAST_CHANNELS = 512,     /* Low-latency FP8: hidden is a multiple of this. */
    GPU_DIRECT_SELECTIONS_END = 1 << 20 /* Of a rank: tokens by columns. */
};

struct gpu_direct;

struct gpu_direct_shape {
    uint32_t ranks, experts, topk; /* topk at most GPU_TOPK_MAX. */
    uint32_t hidden;               /* A multiple of 128. */
    uint32_t tokens_max;           /* Of any rank. */
    uint32_t sm_count;             /* Blocks of each rank's launches; 0: all of its GPU. */
    uint64_t wait_ns;              /* Longest wait; 0: ten seconds. */
    bool ll;                       /* Give memory to the low-latency operations. */
    bool shared;                   /* Others launch on these GPUs too: split every operation. */
};

/* What a call does: both is one operation, one each are the two launches of hook mode. Between the
 * two the caller's outputs are not written yet and inputs must stay as they are. */
enum gpu_direct_phase {
    GPU_DIRECT_SEND = 1,
    GPU_DIRECT_RECEIVE = 2,
    GPU_DIRECT_BOTH = 3,
};

/* Takes memory on every GPU for what is under way; says how many bytes are missing otherwise. */
int gpu_direct_open(struct gpu *gpu, const struct gpu_direct_shape *shape, struct gpu_direct **out,
                    char *err, size_t err_len);
void gpu_direct_close(struct gpu_direct *direct); /* NULL is fine. */
/* Blocks from the next call on, as sm_count. */
void gpu_direct_set_sms(struct gpu_direct *direct, uint32_t sm_count);
/* gpu_wait, and what a kernel that gave up says. */
int gpu_direct_wait(struct gpu_direct *direct, char *err, size_t err_len);

/* Rows of ref_ll_dispatch: rows->payload, counts and so on stand with the rank that owns the
 * expert; counts is a row of [experts / ranks][ranks] int32 a rank. src_token may be NULL. */
int gpu_direct_ll_dispatch(struct gpu_direct *direct, enum gpu_direct_phase phase,
                           const struct gpu_routing *routing, uint32_t recipe,
                           const struct gpu_buffer *x, const struct gpu_ll_rows *rows, char *err,
                           size_t err_len);
/* Of the tokens that the last dispatch sent. expert_out: BF16 rows where dispatch's rows are; no
 * rank may write them before the call is done everywhere. */
int gpu_direct_ll_combine(struct gpu_direct *direct, enum gpu_direct_phase phase,
                          const struct gpu_routing *routing, const struct gpu_buffer *expert_out,
                          struct gpu_buffer *combined, char *err, size_t err_len);

/* Counts exchanged, and every token's rows found: the handle that the next two use until the next
 * layout. counts: a row of [ranks] int32 a rank, its received rows by source; or NULL. */
int gpu_direct_normal_layout(struct gpu_direct *direct, const struct gpu_routing *routing,
                             struct gpu_buffer *counts, char *err, size_t err_len);
/* payload and scales (or NULL) are copied as they are; with a cached layout the members of rows
 * other than those two are NULL. rows->counts and src_meta are not used. */
int gpu_direct_normal_dispatch(struct gpu_direct *direct, const struct gpu_routing *routing,
                               const struct gpu_buffer *payload, const struct gpu_buffer *scales,
                               const struct gpu_normal_rows *rows, char *err, size_t err_len);
/* expert_out: BF16 rows where dispatch's rows are; weights (or NULL): the received top-k weights,
 * summed into combined_weights. Biases may be NULL. */
int gpu_direct_normal_combine(struct gpu_direct *direct, const struct gpu_routing *routing,
                              const struct gpu_buffer *expert_out, const struct gpu_buffer *weights,
                              const struct gpu_buffer *bias0, const struct gpu_buffer *bias1,
                              struct gpu_buffer *combined, struct gpu_buffer *combined_weights,
                              char *err, size_t err_len);

/* Timing. What is enqueued after gpu_direct_hold starts on all GPUs together once gpu_direct_go is
 * called, by which time everything that is to be timed must be enqueued. Its kernels must have run
 * before: CUDA loads a kernel when it is first wanted, and may wait for what runs to do so. */
int gpu_direct_hold(struct gpu_direct *direct, char *err, size_t err_len);
int gpu_direct_go(struct gpu_direct *direct, char *err, size_t err_len);
/* Waits. kernel_ns [ranks]: the last launch of each rank, from its first block's start to its last
 * block's end by the GPU's clock. event_ns [ranks]: from hold to go on the rank's GPU. */
int gpu_direct_times(struct gpu_direct *direct, uint64_t *kernel_ns, uint64_t *event_ns, char *err,
                     size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
