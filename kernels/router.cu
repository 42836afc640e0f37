/* kernels/router.cu - from gate logits to expert ids and weights.
 *
 * Twin of ref_router_topk(): scores by ref/mathfn.h, sums over ascending index, ties to the lower
 * index. The order of a sum is part of the result, so one lane walks it.
 *
 * Bytes that must move, a token: 4 E in, 12 K out. The serial sums, not the bytes, are its time.
 *
 * Launch: a warp a token, two a block; scores, choices and group scores of up to 1024 experts in
 * shared memory, 12 KiB a warp. */
#include "kernels/device.cuh"
#include "kernels/gpu_private.cuh"
#include "ref/mathfn.h"

enum { EXPERTS_MAX = 1024, ROUTER_THREADS = 64, ROUTER_WARPS = ROUTER_THREADS / WARP };
/* The numbers of ref/router.h. */
enum { SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_LOGIT, SCORE_SQRT_SOFTPLUS };
enum { GROUPS_MAX, GROUPS_TOP2 };
enum { WEIGHT_SCORE, WEIGHT_SHARE, WEIGHT_SOFTMAX, WEIGHT_SIGMOID };

static const unsigned long long NONE_BAD = ~0ull;

struct work { /* One warp's. */
    float score[EXPERTS_MAX];
    float choice[EXPERTS_MAX];
    float group[EXPERTS_MAX];
};

static __device__ float to_bf16(float value)
{
    return bf16_low(bf16_pair(value, 0.0f));
}

/* Softmax of shared values by one warp: maximum, sum over ascending index, one division each. */
static __device__ void softmax(float *x, uint32_t count)
{
    float max = x[0], sum = 0.0f;

    for (uint32_t i = lane_id(); i < count; i += WARP) max = x[i] > max ? x[i] : max;
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        const float other = __shfl_xor_sync(FULL_WARP, max, apart);
        max = other > max ? other : max;
    }
    __syncwarp();
    for (uint32_t i = lane_id(); i < count; i += WARP) x[i] = ref_exp(__fsub_rn(x[i], max));
    __syncwarp();
    if (lane_id() == 0)
        for (uint32_t i = 0; i < count; i++) sum = __fadd_rn(sum, x[i]);
    sum = __shfl_sync(FULL_WARP, sum, 0);
    for (uint32_t i = lane_id(); i < count; i += WARP) x[i] = __fdiv_rn(x[i], sum);
    __syncwarp();
}

static __device__ void score_all(const struct gpu_router_rule &rule, float *x)
{
    if (rule.score == SCORE_SOFTMAX) softmax(x, rule.experts);
    for (uint32_t e = lane_id(); e < rule.experts; e += WARP) {
        if (rule.score == SCORE_SIGMOID) x[e] = ref_sigmoid(x[e]);
        if (rule.score == SCORE_SQRT_SOFTPLUS) x[e] = __fsqrt_rn(ref_softplus(x[e]));
    }
    __syncwarp();
}

/* First NaN of the warp's values, or count. */
static __device__ uint32_t first_nan(const float *x, uint32_t count)
{
    uint32_t found = count;
    for (uint32_t i = lane_id(); i < count; i += WARP)
        if (is_nan_bits(__float_as_uint(x[i])) && i < found) found = i;
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(FULL_WARP, found, apart);
        found = other < found ? other : found;
    }
    return found;
}

static __device__ float group_score(uint32_t by, const float *choice, uint32_t size)
{
    float best = choice[0], second = __uint_as_float(0xFF800000u);
    for (uint32_t i = 1; i < size; i++) {
        if (choice[i] > best) {
            second = best;
            best = choice[i];
        } else if (choice[i] > second) {
            second = choice[i];
        }
    }
    return by == GROUPS_TOP2 ? __fadd_rn(best, second) : best;
}

/* A lane a group: all but the best groups_kept become -infinity. */
static __device__ void mask_groups(const struct gpu_router_rule &rule, struct work *work)
{
    const uint32_t size = rule.experts / rule.groups;

    for (uint32_t g = lane_id(); g < rule.groups; g += WARP)
        work->group[g] = group_score(rule.group_by, work->choice + g * size, size);
    __syncwarp();
    for (uint32_t g = lane_id(); g < rule.groups; g += WARP) {
        const float mine = work->group[g];
        uint32_t better = 0;
        for (uint32_t o = 0; o < rule.groups; o++)
            better += work->group[o] > mine || (work->group[o] == mine && o < g);
        if (better < rule.groups_kept) continue;
        for (uint32_t e = 0; e < size; e++)
            work->choice[g * size + e] = __uint_as_float(0xFF800000u);
    }
    __syncwarp();
}

/* The best expert that no lane has taken yet; value descending, then index ascending. Bit i of
 * *taken stands for the lane's i-th expert. */
static __device__ uint32_t take_best(const float *choice, uint32_t experts, uint32_t *taken)
{
    float value = 0.0f;
    uint32_t index = experts;

    for (uint32_t i = 0, e = lane_id(); e < experts; i++, e += WARP) {
        if (*taken >> i & 1u) continue;
        if (index < experts && choice[e] <= value) continue;
        value = choice[e];
        index = e;
    }
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        const float other = __shfl_xor_sync(FULL_WARP, value, apart);
        const uint32_t other_index = __shfl_xor_sync(FULL_WARP, index, apart);
        if (other_index == experts) continue;
        if (index < experts && (other < value || (other == value && other_index > index))) continue;
        value = other;
        index = other_index;
    }
    if (index % WARP == lane_id()) *taken |= 1u << index / WARP;
    return index;
}

/* The weights, K of them in shared memory, become what is delivered. */
static __device__ void weigh(const struct gpu_router_rule &rule, float *weights)
{
    float sum = 0.0f;

    if (rule.weight == WEIGHT_SOFTMAX) softmax(weights, rule.topk);
    if (rule.weight == WEIGHT_SHARE)
        for (uint32_t k = 0; k < rule.topk; k++) sum = __fadd_rn(sum, weights[k]);
    __syncwarp();
    if (lane_id() >= rule.topk) return;
    float weight = weights[lane_id()];
    if (rule.weight == WEIGHT_SHARE) weight = __fdiv_rn(weight, sum == 0.0f ? 1.0f : sum);
    if (rule.weight == WEIGHT_SIGMOID) weight = ref_sigmoid(weight);
    if (rule.scaled) weight = __fmul_rn(weight, rule.scale);
    if (rule.weights_bf16) weight = to_bf16(weight);
    weights[lane_id()] = weight;
}

/* One token by one warp. Returns the expert whose value is NaN, or the number of experts. */
static __device__ uint32_t route_token(const struct gpu_router_rule &rule, const float *logits,
                                       const float *bias, struct work *work, int64_t *ids,
                                       float *weights)
{
    const uint32_t experts = rule.experts;
    uint32_t taken = 0, chosen = 0;

    const uint32_t bad_logit = first_nan(logits, experts);
    if (bad_logit < experts) return bad_logit;
    for (uint32_t e = lane_id(); e < experts; e += WARP)
        work->score[e] = rule.logits_bf16 ? to_bf16(logits[e]) : logits[e];
    __syncwarp();
    score_all(rule, work->score);
    for (uint32_t e = lane_id(); e < experts; e += WARP)
        work->choice[e] = bias == NULL ? work->score[e] : __fadd_rn(work->score[e], bias[e]);
    __syncwarp();
    const uint32_t bad_choice = first_nan(work->choice, experts);
    if (bad_choice < experts) return bad_choice;

    if (rule.groups > 1) mask_groups(rule, work);
    for (uint32_t k = 0; k < rule.topk; k++) {
        const uint32_t index = take_best(work->choice, experts, &taken);
        if (lane_id() == k) chosen = index;
    }
    __syncwarp();
    if (lane_id() < rule.topk) work->group[lane_id()] = work->score[chosen];
    __syncwarp();
    weigh(rule, work->group);
    if (lane_id() < rule.topk) {
        ids[lane_id()] = chosen;
        weights[lane_id()] = work->group[lane_id()];
    }
    __syncwarp();
    return experts;
}

static __global__ void __launch_bounds__(ROUTER_THREADS)
    router_kernel(struct gpu_router_rule rule, const float *logits, const float *bias,
                  uint64_t first, uint64_t end, int64_t *ids, float *weights,
                  unsigned long long *bad)
{
    __shared__ struct work works[ROUTER_WARPS];
    struct work *work = &works[threadIdx.x / WARP];

    for (uint64_t t = first + grid_warp(); t < end; t += grid_warps()) {
        const uint32_t wrong = route_token(rule, logits + t * rule.experts, bias, work,
                                           ids + t * rule.topk, weights + t * rule.topk);
        if (wrong < rule.experts && lane_id() == 0)
            atomicMin(bad, (unsigned long long)t << 16 | wrong); /* The first token's is least. */
    }
}

extern "C" int gpu_router_topk(struct gpu *gpu, const struct gpu_router_rule *rule, uint32_t rank,
                               uint32_t rank_count, const struct gpu_buffer *logits,
                               const struct gpu_buffer *bias, struct gpu_buffer *ids,
                               struct gpu_buffer *weights, char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(rank);
    unsigned long long worst = NONE_BAD;

    assert(rule->experts >= 1 && rule->experts <= EXPERTS_MAX);
    assert(rule->topk >= 1 && rule->topk <= GPU_TOPK_MAX && rule->topk <= rule->experts);
    assert(logits->row_bytes == rule->experts * sizeof(float));
    while (gpu_next_span(gpu, rank + rank_count, &span)) {
        struct gpu_device *device = &gpu->device[span.device];
        const uint64_t first = gpu_first_row(logits, &span), end = gpu_end_row(logits, &span);
        unsigned long long bad = NONE_BAD;
        if (gpu_stage(device, sizeof bad, err, err_len) != 0) return -1;
        GPU_TRY(cudaMemsetAsync(device->staging, 0xFF, sizeof bad, device->stream));
        GPU_LAUNCH(router_kernel,
                   gpu_grid(device, (end - first) * GPU_WARPS / ROUTER_WARPS, router_kernel),
                   ROUTER_THREADS, 0, device->stream, *rule, (const float *)gpu_base(logits, &span),
                   (const float *)gpu_base(bias, &span), first, end,
                   (int64_t *)gpu_base(ids, &span), (float *)gpu_base(weights, &span),
                   (unsigned long long *)device->staging);
        GPU_TRY(cudaGetLastError());
        GPU_TRY(cudaMemcpyAsync(&bad, device->staging, sizeof bad, cudaMemcpyDeviceToHost,
                                device->stream));
        GPU_TRY(cudaStreamSynchronize(device->stream));
        if (bad < worst) worst = bad;
    }
    if (worst == NONE_BAD) return 0;
    snprintf(err, err_len, "router: token %llu, expert %llu: logit or score is not a number",
             worst >> 16, worst & 0xFFFF);
    return -1;
}
