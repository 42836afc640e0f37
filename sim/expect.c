/* sim/expect.c - results of one case, and of a folder of cases. */
#include "sim/expect.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "sim/expect_parts.h"

/* Is this one of the tensors that a case may give? */
static bool is_input(const struct sim_inputs *inputs, const struct sim_expect_options *options,
                     const char *name)
{
    static const char *const always[] = {"x", "topk_idx", "topk_weights"};

    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
        if (strcmp(name, always[i]) == 0) return true;
    if (inputs->bias0 != NULL && strcmp(name, "bias0") == 0) return true;
    if (inputs->bias1 != NULL && strcmp(name, "bias1") == 0) return true;
    if (inputs->x_fp8 == NULL || !options->own_fp8) return false;
    return strcmp(name, "x_fp8") == 0 || strcmp(name, "x_scales") == 0;
}

static int copy_inputs(const struct sim_capture *capture, const struct sim_inputs *inputs,
                       const struct sim_expect_options *options, struct sim_capture *results,
                       char *err, size_t err_len)
{
    assert(results->ranks == capture->ranks);
    for (uint32_t r = 0; r < capture->ranks; r++) {
        for (size_t i = 0; i < capture->rank[r].count; i++) {
            const struct sim_tensor *from = &capture->rank[r].tensors[i];

            if (!is_input(inputs, options, from->name)) continue;
            void *to = sim_capture_add(results, r, from->name, from->dtype, from->axes, from->shape,
                                       err, err_len);
            if (to == NULL) return -1;
            assert(from->data != NULL);
            memcpy(to, from->data, from->bytes);
        }
    }
    return 0;
}

int sim_expect(const struct sim_capture *capture, const struct sim_inputs *inputs,
               const struct sim_expect_options *options, struct sim_capture *results, char *err,
               size_t err_len)
{
    struct sim_capture made;
    int status = 0;

    assert(inputs->routing.ranks == capture->ranks);
    if (sim_capture_open(capture->name, &capture->settings, &made, err, err_len) != 0) return -1;
    status = copy_inputs(capture, inputs, options, &made, err, err_len);
    if (status == 0 && capture->settings.mode == SIM_MODE_LL)
        status = sim_expect_ll(capture, inputs, options, &made, err, err_len);
    else if (status == 0)
        status = sim_expect_normal(capture, inputs, options, &made, err, err_len);
    if (status != 0) {
        sim_capture_close(&made);
        return -1;
    }
    *results = made;
    return 0;
}

/* Files written so far under names that no reader looks for, waiting to be renamed. */
struct pending {
    size_t count, capacity;
    char (*paths)[2][SIM_PATH_MAX]; /* From, to. */
};

static void forget(struct pending *pending)
{
    for (size_t i = 0; i < pending->count; i++) (void)unlink(pending->paths[i][0]);
    free(pending->paths);
    memset(pending, 0, sizeof(*pending));
}

static int add_pending(struct pending *pending, const char *folder,
                       const struct sim_capture *capture, uint32_t rank, char *err, size_t err_len)
{
    const char *slash = strrchr(capture->rank[rank].path, '/');
    const char *file = slash != NULL ? slash + 1 : capture->rank[rank].path;

    assert(pending->count <= pending->capacity && rank < capture->ranks);
    if (pending->count == pending->capacity) {
        const size_t capacity = pending->capacity == 0 ? 16 : 2 * pending->capacity;
        void *grown = realloc(pending->paths, capacity * sizeof(*pending->paths));

        if (grown == NULL) {
            snprintf(err, err_len, "%.200s: not enough memory", folder);
            return -1;
        }
        pending->paths = (char(*)[2][SIM_PATH_MAX])grown;
        pending->capacity = capacity;
    }
    char(*paths)[SIM_PATH_MAX] = pending->paths[pending->count];
    const int from = snprintf(paths[0], SIM_PATH_MAX, "%s/.%s.%ld", folder, file, (long)getpid());
    const int to = snprintf(paths[1], SIM_PATH_MAX, "%s/%s", folder, file);
    if (from >= SIM_PATH_MAX || to >= SIM_PATH_MAX) {
        snprintf(err, err_len, "%.200s: the path is longer than %d characters", folder,
                 SIM_PATH_MAX - 1);
        return -1;
    }
    pending->count++;
    return 0;
}

/* One case from files to waiting files. */
static int expect_case(const struct sim_case_place *place, const char *out_folder,
                       struct pending *pending, bool *usage, char *err, size_t err_len)
{
    struct sim_capture capture, results;
    struct sim_inputs inputs;
    const struct sim_expect_options options = {.own_fp8 = true, .own_expert_out = true};
    int status = -1;

    *usage = true;
    if (sim_capture_load(place, &capture, err, err_len) != 0) return -1;
    if (sim_inputs_read(&capture, &inputs, err, err_len) != 0) goto close_capture;
    *usage = false;
    if (sim_expect(&capture, &inputs, &options, &results, err, err_len) != 0) goto free_inputs;
    status = 0;
    for (uint32_t r = 0; r < results.ranks && status == 0; r++) {
        status = add_pending(pending, out_folder, &capture, r, err, err_len);
        if (status == 0)
            status = sim_capture_write(&results, r, &capture, pending->paths[pending->count - 1][0],
                                       err, err_len);
    }
    sim_capture_close(&results);
free_inputs:
    sim_inputs_free(&inputs);
close_capture:
    sim_capture_close(&capture);
    return status;
}

/* Create OUT unless it is there; it must be a folder other than IN. */
static int open_out(const char *in_folder, const char *out_folder, bool *created, bool *usage,
                    char *err, size_t err_len)
{
    struct stat in, out;

    *created = false;
    *usage = true;
    if (stat(in_folder, &in) != 0) {
        snprintf(err, err_len, "%.400s: %s", in_folder, strerror(errno));
        return -1;
    }
    if (stat(out_folder, &out) != 0) {
        *usage = false;
        if (mkdir(out_folder, 0777) != 0) {
            snprintf(err, err_len, "%.400s: %s", out_folder, strerror(errno));
            return -1;
        }
        *created = true;
        return 0;
    }
    if (S_ISDIR(out.st_mode) && (in.st_dev != out.st_dev || in.st_ino != out.st_ino)) return 0;
    snprintf(err, err_len, "%.400s: %s", out_folder,
             S_ISDIR(out.st_mode) ? "--out must not be the folder of the inputs"
                                  : "--out must be a folder");
    return -1;
}

int sim_expect_folder(const char *in_folder, const char *out_folder,
                      sim_expect_progress_fn progress, void *context, uint64_t *cases,
                      uint64_t *files, bool *usage, char *err, size_t err_len)
{
    struct sim_case_list list;
    struct pending pending = {0, 0, NULL};
    bool created = false;
    int status = -1;

    *usage = true;
    if (sim_case_list(in_folder, false, &list, err, err_len) != 0) return -1;
    if (list.count == 0) {
        snprintf(err, err_len, "%.400s: no NAME.rankR.safetensors in it", in_folder);
        goto free_list;
    }
    if (open_out(in_folder, out_folder, &created, usage, err, err_len) != 0) goto free_list;
    for (size_t i = 0; i < list.count; i++) {
        if (expect_case(&list.places[i], out_folder, &pending, usage, err, err_len) != 0)
            goto forget_pending;
        if (progress != NULL) progress(context, i + 1, list.count);
    }
    *usage = false;
    for (size_t i = 0; i < pending.count; i++) {
        if (rename(pending.paths[i][0], pending.paths[i][1]) == 0) continue;
        snprintf(err, err_len, "%.400s: %s", pending.paths[i][1], strerror(errno));
        goto forget_pending;
    }
    assert(pending.count >= list.count);
    *cases = list.count;
    *files = pending.count;
    status = 0;

forget_pending:
    forget(&pending);
    if (status != 0 && created) (void)rmdir(out_folder);
free_list:
    sim_case_list_free(&list);
    return status;
}
