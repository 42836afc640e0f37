/* kernels/grouped_exact.cu - grouped FP8 GEMM in the reference's order of sums.
 *
 * Each row is what ref_expert_mlp() makes of it in one GEMM (kernels/exact_gemm.cuh): the measure
 * for kernels/grouped_fast.cu. Operations: 2 a product; 67 TFLOP/s of fp32 is the floor.
 *
 * Launch: a block a tile of 64 by 64, as many as any counts can ask for; a block walks over the
 * groups to find its rows, and returns when there are none. */
#include "kernels/grouped.cuh"

static __global__ void __launch_bounds__(GPU_THREADS) grouped_exact_kernel(struct grouped grouped)
{
    uint32_t tile = blockIdx.y;
    struct group_walk walk;

    walk.begin(grouped);
    for (; walk.group < grouped.groups && tile >= walk.tiles(TILE); walk.next(grouped))
        tile -= walk.tiles(TILE);
    if (walk.group >= grouped.groups) return;

    const uint64_t blocks = (uint64_t)(grouped.outputs / GROUP) * (grouped.rows.depth / GROUP);
    struct operand a = grouped.rows;
    a.rows = walk.first + walk.count;
    const struct weights b = {grouped.codes +
                                  (uint64_t)walk.group * grouped.outputs * grouped.rows.depth,
                              grouped.scales + walk.group * blocks, grouped.outputs};
    exact_tile(a, b, walk.first + (uint64_t)tile * TILE, blockIdx.x * TILE, grouped.out);
}

struct grouped gpu_grouped_of(const struct gpu *gpu, const struct gpu_grouped *grouped,
                              const struct gpu_span *span, const struct gpu_buffer *rows,
                              const struct gpu_buffer *row_scales, const struct gpu_buffer *out)
{
    const uint64_t codes = (uint64_t)grouped->outputs * grouped->depth;
    const uint64_t first = gpu_first_row(rows, span);
    struct grouped made;

    assert(span->end == span->first + 1); /* Ranks have weights of their own. */
    assert(grouped->depth % GROUP == 0 && grouped->outputs % GROUP == 0);
    assert(grouped->recipe != GPU_RECIPE_BF16 && rows->row_bytes == grouped->depth);
    assert(out->row_bytes == 2 * (uint64_t)grouped->outputs);
    assert(grouped->counts->row_bytes == grouped->groups * sizeof(int32_t));
    assert(grouped->codes->row_bytes == grouped->groups * codes);
    assert(grouped->scales->row_bytes == grouped->groups * codes / (GROUP * GROUP) * sizeof(float));
    assert(grouped->capacity != 0 || grouped->alignment != 0);
    memset(&made, 0, sizeof made);
    made.rows.codes = gpu_base(rows, span) + first * rows->row_bytes;
    made.rows.scales =
        (const uint32_t *)(gpu_base(row_scales, span) + first * row_scales->row_bytes);
    made.rows.kind = gpu_recipe_of(grouped->recipe).rule.kind;
    made.rows.rows = gpu_end_row(rows, span) - first;
    made.rows.depth = grouped->depth;
    made.counts = (const int32_t *)(gpu_base(grouped->counts, span) +
                                    span->first * grouped->counts->row_bytes);
    made.groups = grouped->groups;
    made.capacity = grouped->capacity;
    made.alignment = grouped->alignment;
    made.codes = gpu_base(grouped->codes, span) + span->first * grouped->codes->row_bytes;
    made.scales =
        (const float *)(gpu_base(grouped->scales, span) + span->first * grouped->scales->row_bytes);
    made.outputs = grouped->outputs;
    made.out = (uint16_t *)(gpu_base(out, span) + gpu_first_row(out, span) * out->row_bytes);
    made.stamps = gpu->device[span->device].stamps;
    return made;
}

extern "C" int gpu_grouped_exact(struct gpu *gpu, const struct gpu_grouped *grouped, uint32_t rank,
                                 uint32_t rank_count, const struct gpu_buffer *rows,
                                 const struct gpu_buffer *row_scales, struct gpu_buffer *out,
                                 char *err, size_t err_len)
{
    for (uint32_t r = rank; r < rank + rank_count; r++) {
        struct gpu_span span = gpu_span_before(r);
        (void)gpu_next_span(gpu, r + 1, &span);
        const struct grouped made = gpu_grouped_of(gpu, grouped, &span, rows, row_scales, out);
        const uint64_t tiles = grouped_tiles_most(&made, TILE);
        if (made.rows.rows == 0 || tiles == 0) continue;
        assert(tiles <= 65535);
        GPU_LAUNCH(grouped_exact_kernel, dim3(grouped->outputs / TILE, (uint32_t)tiles),
                   GPU_THREADS, 0, gpu->device[span.device].stream, made);
        GPU_TRY(cudaGetLastError());
    }
    return 0;
}
