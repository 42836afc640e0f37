/* sim/model.h - a model's shape, as far as expert parallelism can see it.
 *
 * Read from YAML (presets embedded, sim/models; any path overrides them). A figure that the
 * public record does not give is 0 = unknown (a file says `unknown` or nothing), and a command that
 * needs it refuses by name. */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How scores become a choice and weights. A file says it by the name in the comment. */
enum sim_router {
    SIM_ROUTER_UNKNOWN,
    SIM_ROUTER_SIGMOID_BIAS,     /* sigmoid_bias: top-k of sigmoid + bias; weights sigmoid / sum */
    SIM_ROUTER_SOFTMAX,          /* softmax: top-k of softmax; weights as they are */
    SIM_ROUTER_SOFTMAX_NORM,     /* softmax_norm: the same, weights / their sum */
    SIM_ROUTER_SOFTMAX_SELECTED, /* softmax_selected: top-k of logits; softmax over the chosen */
    SIM_ROUTERS
};

struct sim_model {
    char name[64]; /* The file's, without folder and extension. */
    char source[256];
    uint32_t hidden;        /* The model's own. */
    uint32_t hidden_padded; /* What kernels carry: hidden rounded up to the next LL shape, or
                               hidden itself where every LL shape is smaller. */
    uint32_t layers;        /* Decoder layers in all, without MTP layers. */
    uint32_t dense_layers;  /* The first ones, which have no experts. */
    uint32_t moe_layers;    /* layers - dense_layers. */
    uint32_t experts;
    uint32_t topk;
    uint32_t groups; /* Group-limited routing; 1 = none. */
    uint32_t groups_kept;
    uint32_t moe_inter;
    uint32_t shared_experts;
    uint32_t vocabulary; /* 0 = unknown, as all below. */
    uint32_t query_heads;
    uint32_t kv_bytes; /* Per token and layer, BF16. */
    uint32_t kv_bytes_fp8;
    uint32_t dense_inter;
    uint32_t attention_context_max; /* Sparse attention reads at most so many tokens; 0 = all. */
    uint32_t window_context_max;    /* The same for the layers with a sliding window; 0 = none. */
    uint32_t window_layers;
    uint32_t indexer_bytes; /* Sparse attention's index, per token and indexed layer. */
    uint32_t indexer_layers;
    uint32_t indexer_flop; /* The same: multiplies and adds per query row. */
    /* Attention of one layer; 0 = unknown. */
    uint32_t attention_params;       /* Weights of its projections. */
    uint32_t attention_weight_bytes; /* What they take, as served. */
    uint32_t attention_flop;         /* Decode: multiplies and adds per query row and token read. */
    uint32_t prefill_flop;           /* The same in prefill. */
    uint32_t expert_32_bytes;        /* Bytes of 32 expert weights: FP8 32, MXFP4 17, BF16 64. */
    uint32_t math_bytes;             /* Width of the experts' arithmetic: 1 FP8, 2 BF16. */
    enum sim_router router;
    float routed_scale; /* routed_scaling_factor; 1 where the model has none. */
};

/* NAME or path; 0, or -1 with one line in err. *model is written only on success. */
int sim_model_load(const char *name_or_path, struct sim_model *model, char *err, size_t err_len);

/* The same from text in memory: what sim_model_load does with a file called name. */
int sim_model_parse(const char *name, const char *text, size_t bytes, struct sim_model *model,
                    char *err, size_t err_len);

/* Name of the index-th preset in alphabetical order, NULL behind the last; static storage. */
const char *sim_model_preset(size_t index);
bool sim_model_is_preset(const char *name);

const char *sim_router_name(enum sim_router router); /* As files say it; "unknown" where it is. */

#ifdef __cplusplus
}
#endif

#endif
