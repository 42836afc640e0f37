/* sim/backends.c - backends by name. */
#include "sim/backends.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "gen/config.h"

#if !EPSIM_CUDA
const struct sim_backend_ops *sim_backend_cuda(void)
{
    return NULL;
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
        snprintf(err, err_len, "--backend: %.200s: must be none, ref or cuda", name);
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
