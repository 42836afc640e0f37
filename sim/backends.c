/* sim/backends.c - backends by name. */
#include "sim/backends.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "gen/config.h"

#if !EPSIM_CUDA
const struct sim_backend_ops *sim_backend_cuda(void)
{
    return NULL;
}

int sim_backend_cuda_room(const struct sim_settings *settings, uint64_t *bytes, char *err,
                          size_t err_len)
{
    (void)settings;
    *bytes = 0;
    snprintf(err, err_len, "--backend: cuda: not in this build");
    return -1;
}
#endif

int sim_backend_find(const char *name, const struct sim_backend_ops **ops, char *err,
                     size_t err_len)
{
    assert(name != NULL && ops != NULL);
    if (strcmp(name, "none") == 0 || strcmp(name, "ref") == 0) {
        *ops = strcmp(name, "ref") == 0 ? sim_backend_ref() : NULL;
        return 0;
    }
    if (strcmp(name, "cuda") != 0) {
        snprintf(err, err_len, "--backend: %.200s: must be none, ref, cuda or PATH.so", name);
        return SIM_BACKEND_UNKNOWN;
    }
    if (sim_backend_cuda() == NULL) {
        snprintf(err, err_len,
                 "--backend: cuda: not in this build; `make CUDA=1` with nvcc has it");
        return -1;
    }
    *ops = sim_backend_cuda();
    return 0;
}

int sim_backend_choose(const struct sim_settings *settings, struct sim_backend_choice *choice,
                       char *err, size_t err_len)
{
    const struct sim_plugin_options options = {.limit_s = settings->time_limit_s};
    struct sim_backend_choice chosen = {NULL, NULL};

    if (!sim_plugin_is_path(settings->backend)) {
        const int status = sim_backend_find(settings->backend, &chosen.ops, err, err_len);
        if (status != 0) return status;
    } else {
        chosen.plugin = sim_plugin_open(settings->backend, &options, err, err_len);
        if (chosen.plugin == NULL) return -1;
        chosen.ops = sim_plugin_ops(chosen.plugin);
    }
    *choice = chosen;
    return 0;
}

int sim_backend_release(struct sim_backend_choice *choice, char *err, size_t err_len)
{
    int status = 0;
    if (choice->plugin != NULL && sim_plugin_complaint(choice->plugin)[0] != '\0') {
        snprintf(err, err_len, "%s", sim_plugin_complaint(choice->plugin));
        status = -1;
    }
    sim_plugin_close(choice->plugin);
    *choice = (struct sim_backend_choice){NULL, NULL};
    return status;
}

int sim_backend_place(const struct sim_settings *settings, struct sim_backend_place *place,
                      char *err, size_t err_len)
{
    const bool direct = strcmp(settings->transport, "direct") == 0;
    const bool interleave = strcmp(settings->mapping, "round-robin") == 0;

    if (strcmp(settings->backend, "cuda") != 0 && (direct || settings->gpus != 1 || interleave)) {
        snprintf(err, err_len, "--%s: --backend %.200s has no GPUs: it needs --backend cuda",
                 direct                ? "transport: direct"
                 : settings->gpus != 1 ? "gpus"
                                       : "mapping: round-robin",
                 settings->backend);
        return -1;
    }
    *place = sim_backend_place_default();
    place->transport = direct ? SIM_TRANSPORT_DIRECT : SIM_TRANSPORT_DRIVEN;
    place->gpus = settings->gpus;
    place->interleave = interleave;
    place->gpu_bytes = (uint64_t)settings->gpu_mib << 20;
    return 0;
}

int sim_backend_open(const struct sim_backend_ops *ops, const struct sim_backend_place *place,
                     void **state_out, char *err, size_t err_len)
{
    const struct sim_backend_place fallback = sim_backend_place_default();
    const size_t needed = offsetof(struct sim_backend_ops, open_at) + sizeof ops->open_at;

    assert(ops != NULL && ops->abi == SIM_BACKEND_ABI);
    if (ops->table_bytes < needed || ops->open_at == NULL)
        return ops->open(ops, state_out, err, err_len);
    if (place == NULL) place = &fallback;
    assert(place->gpus >= 1 && place->in_flight >= 1);
    return ops->open_at(ops, place, state_out, err, err_len);
}
