/* kernels/handle_internode.cu - the prefix matrices and heads of a dispatch across nodes.
 *
 * Twins of ref_internode_handle() and ref_internode_head_rewrite(). A node owns a run of experts as
 * a rank does, so every table counts tokens that choose an expert of a run. Receivers count what
 * senders send them themselves, since every GPU has the routing: nothing crosses between GPUs.
 *
 * Bytes that must move: the ids and the tables, microseconds. Launch: a warp a (rank, column,
 * channel) counts; a thread a rank turns counts into sums; a warp a (forwarder, source node,
 * channel) numbers rail rows. */
#include "kernels/gpu_private.cuh"
#include "kernels/routing.cuh"

/* Whose tokens a table's column counts, and for whom. */
enum count_kind {
    SENT_TO_NODE,
    SENT_TO_RANK,
    FROM_NODE, /* From the node's rank with my index, to my node. */
    FROM_RANK
};

struct internode {
    const uint64_t *starts;
    const int64_t *topk_idx;
    uint32_t first_rank, rank_count;
    uint32_t ranks, nodes, ranks_per_node;
    uint32_t topk, channels;
    int64_t each;           /* Experts of a rank. */
    int32_t *sent_node;     /* [rank][N][C], rank 0; NULL: left out, as all below. */
    int32_t *sent_rank;     /* [rank][R][C] */
    int32_t *from_node;     /* [rank][N][C] */
    int32_t *from_node_sum; /* [rank][N] */
    int32_t *from_rank;     /* [rank][R][C] */
    int32_t *from_rank_sum; /* [rank][R] */
    int32_t *node_head;     /* [token][N] */
    int32_t *rail_head;     /* [rail row][P], the first forwarder's first. */
};

struct column {
    uint32_t source;
    int64_t first, each; /* Run of experts. */
};

static __device__ __forceinline__ struct column
column_of(const struct internode &all, enum count_kind kind, uint32_t me, uint32_t index)
{
    const int64_t wide = all.each * all.ranks_per_node;
    struct column column = {me, 0, all.each};

    switch (kind) {
    case SENT_TO_NODE:
        column.first = index * wide;
        column.each = wide;
        break;
    case SENT_TO_RANK: column.first = index * all.each; break;
    case FROM_NODE:
        column.source = index * all.ranks_per_node + me % all.ranks_per_node;
        column.first = me / all.ranks_per_node * wide;
        column.each = wide;
        break;
    default:
        column.source = index;
        column.first = me * all.each;
        break;
    }
    return column;
}

/* Tokens of one channel; their places go to heads [token][columns], where there are any. */
static __device__ int32_t count_channel(const struct internode &all, struct column column,
                                        uint32_t channel, int32_t *heads, uint32_t columns)
{
    uint64_t begin, end;
    int32_t count = 0;

    channel_range(all.starts, column.source, all.channels, channel, &begin, &end);
    for (uint64_t base = begin; base < end; base += WARP) {
        const uint64_t t = base + lane_id();
        const bool sent =
            t < end && goes_to(all.topk_idx + t * all.topk, all.topk, column.first, column.each);
        const uint32_t found = __ballot_sync(FULL_WARP, sent);
        if (t < end && heads != NULL)
            heads[t * columns] = sent ? count + __popc(found & ((1u << lane_id()) - 1)) : -1;
        count += __popc(found);
    }
    return count;
}

/* table [rank][columns][channels] becomes counts. */
static __global__ void internode_counts_kernel(struct internode all, enum count_kind kind,
                                               int32_t *table, int32_t *heads)
{
    const bool by_node = kind == SENT_TO_NODE || kind == FROM_NODE;
    const uint32_t columns = by_node ? all.nodes : all.ranks;
    const uint64_t items = (uint64_t)all.rank_count * columns * all.channels;

    for (uint64_t item = grid_warp(); item < items; item += grid_warps()) {
        const uint32_t channel = (uint32_t)(item % all.channels);
        const uint32_t index = (uint32_t)(item / all.channels % columns);
        const uint32_t me = all.first_rank + (uint32_t)(item / all.channels / columns);
        const int32_t count = count_channel(all, column_of(all, kind, me, index), channel,
                                            heads == NULL ? NULL : heads + index, columns);
        if (lane_id() == 0 && table != NULL)
            table[((uint64_t)me * columns + index) * all.channels + channel] = count;
    }
}

/* A thread a rank. Counts become sums over the channels up to and including each; absolute ones
 * begin where the column before ended, and each stands before its channel. sums (may be NULL)
 * receives what came up to and including each column. */
static __global__ void internode_sums_kernel(struct internode all, uint32_t columns, bool absolute,
                                             int32_t *table, int32_t *sums)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all.rank_count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint64_t row = (all.first_rank + i) * columns;
        int32_t whole = 0;
        for (uint64_t column = row; column < row + columns; column++) {
            int32_t sum = absolute ? whole : 0;
            for (uint32_t c = 0; c < all.channels; c++) {
                int32_t *cell = &table[column * all.channels + c];
                const int32_t count = *cell;
                *cell = absolute ? sum : sum + count;
                sum += count;
            }
            whole = absolute ? sum : whole + sum;
            if (sums != NULL) sums[column] = whole;
        }
    }
}

/* Rail rows of one (forwarder, source node, channel): [first, first + count) in rail_head. */
static __device__ __forceinline__ uint64_t rail_rows(const struct internode &all, uint64_t item,
                                                     uint32_t *forwarder, uint32_t *node,
                                                     uint32_t *channel, int32_t *count)
{
    *channel = (uint32_t)(item % all.channels);
    *node = (uint32_t)(item / all.channels % all.nodes);
    *forwarder = all.first_rank + (uint32_t)(item / all.channels / all.nodes);
    const uint64_t row = (uint64_t)*forwarder * all.nodes;
    uint64_t first = 0;
    for (uint64_t f = all.first_rank; f < *forwarder; f++)
        first += (uint64_t)all.from_node_sum[(f + 1) * all.nodes - 1];
    if (*node > 0) first += (uint64_t)all.from_node_sum[row + *node - 1];
    const int32_t *sums = all.from_node + (row + *node) * all.channels;
    const int32_t before = *channel > 0 ? sums[*channel - 1] : 0;
    *count = sums[*channel] - before;
    return first + (uint64_t)before;
}

/* A warp a (forwarder, source node, channel); lane g keeps the places in the queue to GPU g. */
static __global__ void rail_heads_kernel(struct internode all)
{
    const uint64_t items = (uint64_t)all.rank_count * all.nodes * all.channels;
    const uint32_t gpus = all.ranks_per_node;

    for (uint64_t item = grid_warp(); item < items; item += grid_warps()) {
        uint32_t forwarder, node, channel;
        int32_t rows, places = 0;
        uint64_t begin, end, row = rail_rows(all, item, &forwarder, &node, &channel, &rows);
        const struct column column = column_of(all, FROM_NODE, forwarder, node);
        channel_range(all.starts, column.source, all.channels, channel, &begin, &end);
        for (uint64_t base = begin; base < end; base += WARP) {
            const uint64_t t = base + lane_id();
            const int64_t *ids = all.topk_idx + t * all.topk;
            const bool here = t < end && goes_to(ids, all.topk, column.first, column.each);
            const uint32_t arrived = __ballot_sync(FULL_WARP, here);
            const uint32_t earlier = (1u << lane_id()) - 1;
            int32_t *head = all.rail_head + (row + __popc(arrived & earlier)) * gpus;
            for (uint32_t g = 0; g < gpus; g++) {
                const bool sent =
                    here && goes_to(ids, all.topk, column.first + g * all.each, all.each);
                const uint32_t to = __ballot_sync(FULL_WARP, sent);
                const int32_t place = __shfl_sync(FULL_WARP, places, (int)g);
                if (here) head[g] = sent ? place + __popc(to & earlier) : -1;
                if (lane_id() == g) places += __popc(to);
            }
            row += __popc(arrived);
        }
    }
}

/* A thread a (forwarder, source node, channel, GPU), backwards: each -1 becomes -(next sent head)
 * - 1, as in handle.cu. */
static __global__ void rail_rewrite_kernel(struct internode all, int32_t none_follows)
{
    const uint32_t gpus = all.ranks_per_node;
    const uint64_t items = (uint64_t)all.rank_count * all.nodes * all.channels * gpus;

    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < items;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t forwarder, node, channel;
        int32_t rows, next = none_follows;
        const uint64_t first = rail_rows(all, i / gpus, &forwarder, &node, &channel, &rows);
        for (int64_t r = rows; r-- > 0;) {
            int32_t *head = &all.rail_head[(first + (uint64_t)r) * gpus + i % gpus];
            if (*head < 0)
                *head = -next - 1;
            else
                next = *head;
        }
    }
}

static struct internode internode_of(const struct gpu_routing *routing, uint32_t ranks_per_node,
                                     uint32_t channels, const struct gpu_internode_out *out,
                                     const struct gpu_span *span)
{
    struct internode all;
    all.starts = (const uint64_t *)gpu_base(routing->starts, span);
    all.topk_idx = (const int64_t *)gpu_base(routing->topk_idx, span);
    all.first_rank = span->first;
    all.rank_count = span->end - span->first;
    all.ranks = routing->ranks;
    all.nodes = routing->ranks / ranks_per_node;
    all.ranks_per_node = ranks_per_node;
    all.topk = routing->topk;
    all.channels = channels;
    all.each = routing->experts / routing->ranks;
    all.sent_node = (int32_t *)gpu_base(out->rdma_channel_prefix_matrix, span);
    all.sent_rank = (int32_t *)gpu_base(out->gbl_channel_prefix_matrix, span);
    all.from_node = (int32_t *)gpu_base(out->recv_rdma_channel_prefix_matrix, span);
    all.from_node_sum = (int32_t *)gpu_base(out->recv_rdma_rank_prefix_sum, span);
    all.from_rank = (int32_t *)gpu_base(out->recv_gbl_channel_prefix_matrix, span);
    all.from_rank_sum = (int32_t *)gpu_base(out->recv_gbl_rank_prefix_sum, span);
    all.node_head = (int32_t *)gpu_base(out->send_rdma_head, span);
    all.rail_head = NULL;
    if (out->send_nvl_head != NULL)
        all.rail_head =
            (int32_t *)(gpu_base(out->send_nvl_head, span) +
                        gpu_first_row(out->send_nvl_head, span) * out->send_nvl_head->row_bytes);
    return all;
}

/* Counts of one table, then its sums. */
static int make_table(const struct gpu_device *device, const struct internode *all,
                      enum count_kind kind, int32_t *table, int32_t *sums, int32_t *heads,
                      char *err, size_t err_len)
{
    const uint32_t columns = kind == SENT_TO_NODE || kind == FROM_NODE ? all->nodes : all->ranks;
    const uint64_t items = (uint64_t)all->rank_count * columns * all->channels;

    if (table == NULL && heads == NULL) return 0;
    GPU_LAUNCH(internode_counts_kernel, gpu_grid(device, items, internode_counts_kernel),
               GPU_THREADS, 0, device->stream, *all, kind, table, heads);
    GPU_TRY(cudaGetLastError());
    if (table == NULL) return 0;
    GPU_LAUNCH(internode_sums_kernel,
               gpu_grid(device, all->rank_count / WARP + 1, internode_sums_kernel), GPU_THREADS, 0,
               device->stream, *all, columns, kind == FROM_RANK, table, sums);
    GPU_TRY(cudaGetLastError());
    return 0;
}

extern "C" int gpu_internode_handle(struct gpu *gpu, const struct gpu_routing *routing,
                                    uint32_t ranks_per_node, uint32_t channels,
                                    const struct gpu_internode_out *out, char *err, size_t err_len)
{
    struct gpu_span span = gpu_span_before(0);

    assert(channels >= 1 && ranks_per_node >= 1 && ranks_per_node <= WARP);
    assert(routing->ranks % ranks_per_node == 0 && routing->experts % routing->ranks == 0);
    assert(out->recv_rdma_rank_prefix_sum == NULL || out->recv_rdma_channel_prefix_matrix != NULL);
    assert(out->recv_gbl_rank_prefix_sum == NULL || out->recv_gbl_channel_prefix_matrix != NULL);
    assert(out->send_nvl_head == NULL || out->recv_rdma_rank_prefix_sum != NULL);
    while (gpu_next_span(gpu, routing->ranks, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        const struct internode all = internode_of(routing, ranks_per_node, channels, out, &span);
        const uint64_t rails = (uint64_t)all.rank_count * all.nodes * channels;
        if (make_table(device, &all, SENT_TO_NODE, all.sent_node, NULL, all.node_head, err,
                       err_len) != 0 ||
            make_table(device, &all, SENT_TO_RANK, all.sent_rank, NULL, NULL, err, err_len) != 0 ||
            make_table(device, &all, FROM_NODE, all.from_node, all.from_node_sum, NULL, err,
                       err_len) != 0 ||
            make_table(device, &all, FROM_RANK, all.from_rank, all.from_rank_sum, NULL, err,
                       err_len) != 0)
            return -1;
        if (all.rail_head == NULL) continue;
        GPU_LAUNCH(rail_heads_kernel, gpu_grid(device, rails, rail_heads_kernel), GPU_THREADS, 0,
                   device->stream, all);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}

extern "C" int gpu_internode_head_rewrite(struct gpu *gpu, const struct gpu_routing *routing,
                                          uint32_t ranks_per_node, uint32_t channels,
                                          const struct gpu_internode_out *out, char *err,
                                          size_t err_len)
{
    enum { NONE_FOLLOWS = 1 << 25 };
    struct gpu_span span = gpu_span_before(0);

    if (out->send_rdma_head != NULL &&
        gpu_send_head_rewrite(gpu, routing, channels, routing->ranks / ranks_per_node,
                              out->send_rdma_head, err, err_len) != 0)
        return -1;
    if (out->send_nvl_head == NULL) return 0;
    assert(out->recv_rdma_rank_prefix_sum != NULL && out->recv_rdma_channel_prefix_matrix != NULL);
    while (gpu_next_span(gpu, routing->ranks, &span)) {
        const struct gpu_device *device = &gpu->device[span.device];
        const struct internode all = internode_of(routing, ranks_per_node, channels, out, &span);
        const uint64_t threads = (uint64_t)all.rank_count * all.nodes * channels * ranks_per_node;
        GPU_LAUNCH(rail_rewrite_kernel, gpu_grid(device, threads / WARP + 1, rail_rewrite_kernel),
                   GPU_THREADS, 0, device->stream, all, (int32_t)NONE_FOLLOWS);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
