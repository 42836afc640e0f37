/* sim/datapath.c - plays a layer's calls on a backend, and the same layer on the reference. */
#include "sim/datapath.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/backends.h"
#include "sim/datapath_check.h"
#include "sim/explain.h"
#include "sim/received.h"

struct sim_datapath {
    const struct sim_backend_ops *backend; /* Whose output is checked; borrowed. */
    void *state;
    bool driven; /* By phases; else group operations. */
    const struct sim_backend_ops *reference;
    void *reference_state;
    struct sim_results expected; /* Owned storage. */
    struct sim_results actual;   /* Owned storage where the backend has no phases. */
    struct sim_layer_results expected_view, actual_view;
};

void sim_datapath_close(struct sim_datapath *path)
{
    if (path == NULL) return;
    path->backend->close(path->state);
    path->reference->close(path->reference_state);
    sim_results_free(&path->expected);
    sim_results_free(&path->actual);
    free(path);
}

struct sim_datapath *sim_datapath_open(const struct sim_backend_ops *backend,
                                       const struct sim_backend_place *place, char *err,
                                       size_t err_len)
{
    struct sim_datapath *path = (struct sim_datapath *)calloc(1, sizeof *path);

    assert(backend != NULL && backend->abi == SIM_BACKEND_ABI);
    if (path == NULL) {
        snprintf(err, err_len, "data path: out of memory");
        return NULL;
    }
    path->backend = backend;
    path->reference = sim_backend_ref();
    path->driven =
        backend->begin != NULL && (place == NULL || place->transport == SIM_TRANSPORT_DRIVEN);
    if (sim_backend_open(backend, place, &path->state, err, err_len) != 0) goto free_path;
    if (path->reference->open(path->reference, &path->reference_state, err, err_len) != 0)
        goto close_backend;
    return path;
close_backend:
    backend->close(path->state);
free_path:
    free(path);
    return NULL;
}

/* All three group operations of one backend into storage of ours. */
static int play_group(const struct sim_backend_ops *ops, void *state,
                      const struct sim_layer_input *input, struct sim_results *results,
                      struct sim_layer_results *view, char *err, size_t err_len)
{
    if (sim_results_reserve(results, input, err, err_len) != 0) return -1;
    if (ops->dispatch(state, input, &results->received, err, err_len) != 0) return -1;
    if (ops->expert(state, input, &results->received, results->expert_out, err, err_len) != 0)
        return -1;
    if (ops->combine(state, input, results->expert_out, results->received.topk_weights,
                     &results->combined, err, err_len) != 0)
        return -1;
    *view = (struct sim_layer_results){results->received, results->expert_out, results->combined};
    return 0;
}

static int play_calls(const struct sim_backend_ops *ops, void *state,
                      const struct sim_schedule *schedule, char *err, size_t err_len)
{
    const enum sim_direction direction = schedule->direction;
    for (uint64_t c = 0; c < schedule->call_count; c++) {
        const struct sim_call *call = &schedule->calls[c];
        int status = -1;
        switch (call->kind) {
        case SIM_CALL_PACK: status = ops->pack(state, direction, call->rank, err, err_len); break;
        case SIM_CALL_DELIVER:
            status = ops->deliver(state, direction, schedule->messages + call->first,
                                  (size_t)call->count, err, err_len);
            break;
        case SIM_CALL_FORWARD:
            status = ops->forward(state, direction, call->rank, err, err_len);
            break;
        case SIM_CALL_UNPACK:
            status = ops->unpack(state, direction, call->rank, err, err_len);
            break;
        }
        if (status != 0) return -1;
    }
    return 0;
}

/* Dispatch's calls, every rank's experts, combine's calls. */
int sim_datapath_phases(const struct sim_backend_ops *ops, void *state,
                        const struct sim_layer_input *input, const struct sim_schedule *schedules,
                        struct sim_layer_results *view, char *err, size_t err_len)
{
    assert(ops->begin != NULL && schedules[SIM_COMBINE].direction == SIM_COMBINE);
    if (ops->begin(state, input, err, err_len) != 0) return -1;
    if (play_calls(ops, state, &schedules[SIM_DISPATCH], err, err_len) != 0) return -1;
    for (uint32_t r = 0; r < input->routing->ranks; r++)
        if (ops->run_expert(state, r, err, err_len) != 0) return -1;
    if (play_calls(ops, state, &schedules[SIM_COMBINE], err, err_len) != 0) return -1;
    return ops->read(state, &view->received, &view->expert_out, &view->combined, err, err_len);
}

int sim_datapath_layer(struct sim_datapath *path, const struct sim_layer_input *input,
                       const struct sim_schedule *schedules, struct sim_check *checks,
                       struct sim_wrong_rows *wrong, char *err, size_t err_len)
{
    int status = 0;
    assert(schedules[SIM_DISPATCH].direction == SIM_DISPATCH);
    assert(schedules[SIM_COMBINE].direction == SIM_COMBINE);
    if (play_group(path->reference, path->reference_state, input, &path->expected,
                   &path->expected_view, err, err_len) != 0)
        return -1;
    status = path->driven ? sim_datapath_phases(path->backend, path->state, input, schedules,
                                                &path->actual_view, err, err_len)
                          : play_group(path->backend, path->state, input, &path->actual,
                                       &path->actual_view, err, err_len);
    if (status != 0) return -1;
    if (wrong != NULL) sim_wrong_rows_clear(wrong);
    for (uint32_t stage = 0; stage < SIM_STAGES; stage++) {
        for (uint32_t r = 0; r < input->routing->ranks; r++) {
            struct sim_check *check = &checks[(uint64_t)stage * input->routing->ranks + r];
            sim_datapath_check(input, &path->expected_view, &path->actual_view,
                               (enum sim_stage)stage, r, check, wrong);
            if (check->mismatch_count > 0)
                (void)sim_explain_row(input, &path->expected_view, &path->actual_view, check,
                                      check->cause);
        }
    }
    return 0;
}

const struct sim_layer_results *sim_datapath_expected(const struct sim_datapath *path)
{
    return &path->expected_view;
}

const struct sim_layer_results *sim_datapath_actual(const struct sim_datapath *path)
{
    return &path->actual_view;
}
