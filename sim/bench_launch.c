/* sim/bench_launch.c - times one launch after another and keeps the medians. */
#include "sim/bench_launch.h"

#include "gen/config.h"

#if EPSIM_CUDA
#include <assert.h>

#include "kernels/gpu.h"
#include "sim/sorted.h"

enum { ROUNDS_MAX = 64 };

/* One launch behind a flush, between two events; its kernels also note their times. */
static int time_launch(struct gpu *gpu, sim_bench_work_fn work, void *context, uint64_t *kernel_ps,
                       uint64_t *event_ps, char *err, size_t err_len)
{
    uint64_t event_ns = 0, kernel_ns = 0;

    if (gpu_stamps_start(gpu, err, err_len) != 0 || gpu_flush(gpu, err, err_len) != 0 ||
        gpu_timer_start(gpu, err, err_len) != 0 || work(context, err, err_len) != 0 ||
        gpu_timer_stop(gpu, &event_ns, err, err_len) != 0 ||
        gpu_stamps_stop(gpu, &kernel_ns, err, err_len) != 0)
        return -1;
    *event_ps = event_ns * 1000;
    *kernel_ps = (kernel_ns != 0 ? kernel_ns : event_ns) * 1000;
    return 0;
}

int sim_bench_kernel_time(struct gpu *gpu, sim_bench_work_fn work, void *context,
                          const struct sim_bench_kernel *kernel, uint32_t rounds,
                          struct sim_bench_kernels *bench, char *err, size_t err_len)
{
    uint64_t kernel_ps[ROUNDS_MAX], event_ps[ROUNDS_MAX];
    struct sim_bench_kernel *row = &bench->kernels[bench->count];

    assert(rounds >= 1 && rounds <= ROUNDS_MAX && bench->count < SIM_BENCH_KERNELS_MAX);
    if (work(context, err, err_len) != 0) return -1;
    for (uint32_t r = 0; r < rounds; r++)
        if (time_launch(gpu, work, context, &kernel_ps[r], &event_ps[r], err, err_len) != 0)
            return -1;
    *row = *kernel;
    row->kernel_ps = sim_median(kernel_ps, rounds);
    row->event_ps = sim_median(event_ps, rounds);
    row->floor_ps = sim_bench_ps(row->bytes, SIM_BENCH_MEMORY_BYTES_PER_S);
    const uint64_t arithmetic_ps = sim_bench_ps(row->operations, SIM_BENCH_FP8_OPERATIONS_PER_S);
    if (arithmetic_ps > row->floor_ps) row->floor_ps = arithmetic_ps;
    bench->count++;
    return 0;
}
#endif
