/* ref/sizes.c - the library's buffer arithmetic, in 64 bits and in its own order of rounding. */
#include "ref/sizes.h"

#include <assert.h>
#include <stddef.h>

enum {
    NVL_PEERS = 8,
    BUFFER_ALIGN = 128,
    META_BYTES = 8,      /* SourceMeta. */
    SIZING_TOPK = 128,   /* The hints allow for this many columns ... */
    SIZING_SCALES = 128, /* ... and scales per token, whatever is used. */
    TOPK_IDX_BYTES = 8,
    WEIGHT_BYTES = 4,
    SCALE_BYTES = 4,
    LL_HEADER_BYTES = 16,
    GROUP_CHANNELS = 128,
};

static uint64_t align_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

uint32_t ref_size_rdma_recv(const struct ref_size_config *config)
{
    assert(config->rdma_send >= 1);
    return (uint32_t)align_up(config->rdma_recv, config->rdma_send);
}

struct table_row {
    uint32_t ranks;
    uint32_t dispatch[4]; /* nvl_send, nvl_recv, rdma_send, rdma_recv. */
    uint32_t combine[4];
};

/* deep_ep/buffers/legacy.py, get_dispatch_config and get_combine_config. */
static const struct table_row TABLE[] = {
    {2, {24, 256, 6, 128}, {10, 256, 6, 128}},   {4, {6, 256, 6, 128}, {9, 256, 6, 128}},
    {8, {6, 256, 6, 128}, {4, 256, 6, 128}},     {16, {36, 288, 20, 128}, {4, 288, 12, 128}},
    {24, {32, 288, 8, 128}, {1, 288, 8, 128}},   {32, {32, 288, 8, 128}, {1, 288, 8, 128}},
    {48, {32, 288, 8, 128}, {1, 288, 8, 128}},   {64, {32, 288, 8, 128}, {1, 288, 8, 128}},
    {96, {20, 480, 12, 128}, {1, 480, 8, 128}},  {128, {20, 560, 12, 128}, {1, 560, 8, 128}},
    {144, {32, 720, 12, 128}, {2, 720, 8, 128}}, {160, {28, 720, 12, 128}, {2, 720, 8, 128}},
};

bool ref_size_default_config(bool combine, uint32_t ranks, uint32_t sms,
                             struct ref_size_config *config)
{
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        if (TABLE[i].ranks != ranks) continue;
        const uint32_t *row = combine ? TABLE[i].combine : TABLE[i].dispatch;
        *config = (struct ref_size_config){.sms = sms,
                                           .nvl_send = row[0],
                                           .nvl_recv = row[1],
                                           .rdma_send = row[2],
                                           .rdma_recv = row[3]};
        return true;
    }
    return false;
}

/* What a ring slot holds beside the row: meta, ids, weights, scales. */
static uint64_t slot_bytes(uint64_t hidden_bytes)
{
    return hidden_bytes + META_BYTES + SIZING_TOPK * (TOPK_IDX_BYTES + WEIGHT_BYTES) +
           SIZING_SCALES * SCALE_BYTES;
}

uint64_t ref_size_nvl(const struct ref_size_config *config, uint64_t hidden_bytes, uint32_t ranks)
{
    assert(ranks >= 1 && config->sms % 2 == 0);
    const uint64_t channels = config->sms / 2;
    const uint64_t peers = ranks < NVL_PEERS ? ranks : NVL_PEERS;
    const uint64_t nodes = ranks < NVL_PEERS ? 1 : ranks / NVL_PEERS;
    const uint64_t counters = channels * peers * (2 * nodes + 3) * sizeof(int32_t);
    const uint64_t rings = channels * peers * config->nvl_recv * slot_bytes(hidden_bytes);

    assert(hidden_bytes <= UINT32_MAX && channels <= UINT16_MAX && config->nvl_recv <= UINT16_MAX);
    return align_up(counters + rings, BUFFER_ALIGN);
}

uint64_t ref_size_rdma(const struct ref_size_config *config, uint64_t hidden_bytes, uint32_t ranks)
{
    assert(ranks >= 1 && config->sms % 2 == 0);
    if (ranks <= NVL_PEERS) return 0;
    const uint64_t channels = config->sms / 2;
    const uint64_t nodes = ranks / NVL_PEERS;
    const uint64_t meta = channels * nodes * (NVL_PEERS * 2 + 2) * 2 * sizeof(int32_t);
    const uint64_t slots = channels * nodes * ref_size_rdma_recv(config) * 2;

    assert(hidden_bytes <= UINT32_MAX && channels <= UINT16_MAX && nodes <= UINT16_MAX);
    return align_up(meta + slots * (slot_bytes(hidden_bytes) + 16), BUFFER_ALIGN);
}

struct ref_size_ll ref_size_ll(uint64_t max_tokens, uint32_t hidden, uint32_t experts)
{
    assert(hidden % GROUP_CHANNELS == 0);
    assert(max_tokens <= UINT32_MAX / 8 && experts <= UINT16_MAX && hidden <= 1u << 20);
    const uint64_t scales = hidden / GROUP_CHANNELS * SCALE_BYTES;
    const uint64_t bf16 = 2 * (uint64_t)hidden, fp8 = hidden + scales;
    struct ref_size_ll size;

    size.dispatch_message_bytes = LL_HEADER_BYTES + (bf16 > fp8 ? bf16 : fp8);
    size.combine_slot_bytes = bf16 + scales;
    const uint64_t dispatch_send = max_tokens * size.dispatch_message_bytes;
    const uint64_t dispatch_recv = experts * max_tokens * size.dispatch_message_bytes;
    const uint64_t combine = experts * max_tokens * size.combine_slot_bytes;
    size.send_bytes = dispatch_send > combine ? dispatch_send : combine;
    size.recv_bytes = dispatch_recv > combine ? dispatch_recv : combine;
    size.signal_bytes = align_up(experts * (uint64_t)sizeof(int32_t), BUFFER_ALIGN);

    const uint64_t total = 2 * (size.send_bytes + size.recv_bytes + size.signal_bytes);
    /* Not align_up: the library always adds between 1 and 128 bytes. */
    size.total_bytes = (total + BUFFER_ALIGN) / BUFFER_ALIGN * BUFFER_ALIGN;
    return size;
}

bool ref_size_bytes_fit(uint64_t bytes)
{
    return bytes / 16 < INT32_MAX;
}

uint64_t ref_size_ll_max_tokens(uint32_t hidden, uint32_t experts, uint32_t multiple)
{
    assert(multiple >= 1);
    uint64_t low = 0, high = UINT32_MAX / 16 / multiple; /* In multiples; low always fits. */
    while (low < high) {
        const uint64_t middle = low + (high - low + 1) / 2;
        if (ref_size_bytes_fit(ref_size_ll(middle * multiple, hidden, experts).total_bytes)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low * multiple;
}

uint64_t ref_size_qp_depth(uint64_t max_tokens)
{
    assert(max_tokens < UINT64_MAX / 2);
    return 2 * (max_tokens + 1);
}

uint64_t ref_size_qp_max_tokens(uint64_t qp_depth)
{
    return qp_depth < 2 ? 0 : qp_depth / 2 - 1;
}
