/* ref/v2.c - the arithmetic of the second interface. Doubles are the library's own here (it
 * computes the SM count in Python floats); they decide nothing but that count. */
#include "ref/v2.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "ref/bf16.h"
#include "ref/layout.h"
#include "ref/sum.h"

enum {
    SM_READ_GBS = 200,
    SM_WRITE_GBS = 50,
    SMS_MIN = 4,
    SMS_NO_OVERLAP = 64,
    DIRECT_QPS = 9,
    CHANNELS_MAX = 1280, /* kNumMaxChannels. */
    SIZING_TOPK = 32,
    SCALE_CHANNELS_MIN = 32, /* The finest scale groups that sizing allows for. */
    BUFFER_ALIGN = 2 << 20,
};

/* Expected number of distinct groups among `groups` that topk different experts of `experts`
 * touch: groups * (1 - C(experts - experts/groups, topk) / C(experts, topk)). The quotient is
 * a product of topk factors, each the chance to miss the group once more. */
static double expected_groups(uint32_t experts, uint32_t topk, uint32_t groups)
{
    assert(groups >= 1 && experts % groups == 0 && topk <= experts);
    const uint32_t others = experts - experts / groups;
    double missed = 1.0;
    for (uint32_t i = 0; i < topk; i++)
        missed *= others > i ? (double)(others - i) / (double)(experts - i) : 0.0;
    return (double)groups * (1.0 - missed);
}

/* Bytes per row's byte that one rank moves: read and written by its SMs, sent on NVLink, NIC. */
struct v2_traffic {
    double read, write, nvlink, rdma;
};

static struct v2_traffic traffic_of(const struct ref_v2_sms_in *in)
{
    const struct ref_v2_group *group = &in->group;
    const double ranks = expected_groups(in->experts, in->topk, group->ranks);
    struct v2_traffic traffic = {.read = 1.0 / ranks};

    if (group->scaleout > 1) {
        const double nodes = expected_groups(in->experts, in->topk, group->scaleout);
        traffic.write = 1.0 / ranks + nodes / (ranks * group->scaleout) + 1.0;
        traffic.rdma = nodes * (1.0 - 1.0 / group->scaleout) / ranks;
        traffic.read += nodes / ranks;
        traffic.nvlink = 1.0 - 1.0 / group->scaleup;
        return traffic;
    }
    const double near = (double)group->nvlink_ranks / group->ranks;
    traffic.write = (group->nvlink_ranks < group->ranks ? 1.0 / ranks : 0.0) + near;
    traffic.nvlink = near * (1.0 - 1.0 / group->nvlink_ranks);
    traffic.rdma = (double)(group->ranks - group->nvlink_ranks) / group->ranks;
    return traffic;
}

uint32_t ref_v2_num_sms(const struct ref_v2_sms_in *in)
{
    assert(in->group.scaleout >= 1 && in->group.scaleup >= 1);
    assert(in->group.scaleup * in->group.scaleout == in->group.ranks);
    assert(in->nvlink_gbs > 0 && (in->rdma_gbs > 0 || in->group.nvlink_ranks == in->group.ranks));
    const struct v2_traffic traffic = traffic_of(in);
    const double nvlink_time = traffic.nvlink / in->nvlink_gbs;
    const double rdma_time = in->rdma_gbs > 0 ? traffic.rdma / in->rdma_gbs : 0.0;
    const bool rdma_bound = rdma_time > nvlink_time;
    const double bound_time = rdma_bound ? rdma_time : nvlink_time;

    if (!(bound_time > 0)) return in->device_sms; /* Nothing leaves the rank. */
    const double sm_time = fmax(traffic.read / SM_READ_GBS, traffic.write / SM_WRITE_GBS);
    const double wanted = ceil(1.25 * sm_time / bound_time);
    uint32_t sms = wanted < in->device_sms ? (uint32_t)wanted : in->device_sms;
    if (sms < SMS_MIN) sms = SMS_MIN;
    sms += sms % 2;
    if (!in->prefer_overlap && sms < SMS_NO_OVERLAP) sms = SMS_NO_OVERLAP;
    return sms < in->device_sms ? sms : in->device_sms;
}

uint32_t ref_v2_num_qps(bool hybrid, uint32_t num_sms, uint32_t allocated)
{
    assert(num_sms <= UINT32_MAX / 16 - 1);
    const uint32_t direct = num_sms < DIRECT_QPS ? num_sms : DIRECT_QPS;
    const uint32_t wanted = hybrid ? num_sms * 16 + 1 : direct;
    return wanted < allocated ? wanted : allocated;
}

static uint64_t align_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

static uint64_t dispatch_bytes(const struct ref_v2_buffer_in *in, uint64_t topk)
{
    const uint64_t up = in->group.scaleup, out = in->group.scaleout, tokens = in->max_tokens;
    const uint64_t scales =
        in->fp8_dispatch ? (in->hidden + SCALE_CHANNELS_MIN - 1) / SCALE_CHANNELS_MIN : 0;
    const uint64_t row = align_up(in->hidden * (in->fp8_dispatch ? UINT64_C(1) : UINT64_C(2)), 32) +
                         align_up(4 * scales, 32) + align_up(topk * 8 + (1 + topk) * 4, 32);

    if (out == 1)
        return row * (tokens * in->group.ranks +
                      (in->group.nvlink_ranks == in->group.ranks ? 0 : tokens));
    return row * (up * out * tokens + tokens + out * (tokens + CHANNELS_MAX));
}

static uint64_t combine_bytes(const struct ref_v2_buffer_in *in, uint64_t topk)
{
    const uint64_t ranks = in->group.ranks, tokens = in->max_tokens;
    const uint64_t up = in->group.scaleup, out = in->group.scaleout;
    const bool reduce = in->multiple_reduction;
    const uint64_t copies = reduce ? 1 : topk; /* Rows a sender ships for one token. */
    const uint64_t row = align_up(UINT64_C(2) * in->hidden, 32) + align_up(topk * 8, 32);

    if (out == 1)
        return row * (tokens * (reduce && ranks < topk ? ranks : topk) +
                      (in->group.nvlink_ranks == ranks ? 0 : ranks * tokens * copies));
    return row *
           ((reduce && up < topk ? up : topk) * out * tokens +
            (reduce && out < topk ? out : topk) * tokens + copies * out * (tokens + CHANNELS_MAX));
}

uint64_t ref_v2_buffer_bytes(const struct ref_v2_buffer_in *in)
{
    assert(in->group.scaleup * in->group.scaleout == in->group.ranks);
    assert(in->max_tokens <= UINT32_MAX && in->hidden <= 1u << 20);
    const uint64_t topk = in->topk == 0 ? SIZING_TOPK : in->topk;
    const uint64_t dispatch = dispatch_bytes(in, topk), combine = combine_bytes(in, topk);
    return align_up(dispatch > combine ? dispatch : combine, BUFFER_ALIGN);
}

static uint64_t rows_from(const struct ref_routing *routing, uint32_t source, uint32_t rank)
{
    uint64_t rows = 0;
    for (uint64_t t = routing->token_start[source]; t < routing->token_start[source + 1]; t++) {
        uint32_t to[REF_TOPK_MAX];
        const uint32_t count = ref_token_ranks(routing, t, to);
        for (uint32_t i = 0; i < count; i++) rows += to[i] == rank;
    }
    return rows;
}

void ref_v2_psums(const struct ref_routing *routing, uint32_t rank, uint32_t alignment, bool expand,
                  const struct ref_v2_psum *out)
{
    assert(rank < routing->ranks && alignment >= 1);
    const uint32_t local = ref_local_experts(routing);
    const uint64_t selections = ref_token_count(routing) * routing->topk;
    uint64_t sum = 0;

    for (uint32_t s = 0; s < routing->ranks && out->rank_psum != NULL; s++) {
        sum += rows_from(routing, s, rank);
        out->rank_psum[s] = (int32_t)sum;
    }
    sum = 0;
    for (uint32_t e = 0; e < local; e++) {
        uint64_t count = 0;
        for (uint64_t i = 0; i < selections; i++)
            count += routing->topk_idx[i] == (int64_t)rank * local + e;
        const uint64_t aligned = align_up(count, alignment);
        assert(sum + aligned <= INT32_MAX);
        if (out->expert_unaligned != NULL) out->expert_unaligned[e] = (int32_t)count;
        if (out->expert_psum != NULL)
            out->expert_psum[e] = (int32_t)(sum + (expand ? count : aligned));
        sum += aligned;
    }
}

uint32_t ref_v2_order(const struct ref_routing *routing, uint64_t token,
                      uint32_t ranks[REF_TOPK_MAX], uint32_t masters[REF_TOPK_MAX])
{
    const int64_t *columns = routing->topk_idx + token * routing->topk;
    uint32_t count = 0;

    assert(token < ref_token_count(routing) && routing->topk <= REF_TOPK_MAX);
    for (uint32_t k = 0; k < routing->topk; k++) {
        bool last_on_rank = ref_names_expert(routing, columns[k]);
        for (uint32_t later = k + 1; last_on_rank && later < routing->topk; later++)
            if (ref_names_expert(routing, columns[later]) &&
                ref_expert_rank(routing, columns[later]) == ref_expert_rank(routing, columns[k]))
                last_on_rank = false;
        if (!last_on_rank) continue;
        ranks[count] = ref_expert_rank(routing, columns[k]);
        masters[count++] = k;
    }
    return count;
}

void ref_v2_reduce(uint32_t hidden, const uint16_t *const *rows, uint32_t row_count,
                   const uint16_t *bias0, const uint16_t *bias1, uint16_t *out)
{
    assert(row_count <= REF_TOPK_MAX);
    if (row_count > 2 || row_count == 0 || bias0 != NULL || bias1 != NULL) {
        ref_sum_plain(hidden, rows, row_count, bias0, bias1, out);
        return;
    }
    if (row_count == 1) { /* Nothing to add: the bits pass, -0 and NaN payloads included. */
        memcpy(out, rows[0], hidden * sizeof *out);
        return;
    }
    for (uint32_t c = 0; c < hidden; c++)
        out[c] = ref_bf16_from_f32(ref_bf16_to_f32(rows[0][c]) + ref_bf16_to_f32(rows[1][c]));
}
