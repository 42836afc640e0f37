/* sim/predict.c - the machines of the rows, and which part answers a kind of rows. */
#include "sim/predict.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/predict_parts.h"

int sim_predict_machines(const struct sim_measured *measured, sim_predict_place_fn place,
                         const void *context, struct fabric_machine **pool,
                         const struct fabric_machine **out, char *err, size_t err_len)
{
    size_t count = 0;
    *pool = (struct fabric_machine *)calloc(measured->count + 1, sizeof **pool);
    if (!*pool) {
        snprintf(err, err_len, "%zu machines: out of memory", measured->count);
        return -1;
    }
    for (size_t i = 0; i < measured->count; i++) {
        const struct sim_measured_row *row = &measured->rows[i];
        size_t j = 0;
        while (j < i && (strcmp(measured->rows[j].machine, row->machine) != 0 ||
                         strcmp(measured->rows[j].stack, row->stack) != 0))
            j++;
        if (j < i) {
            out[i] = out[j];
            continue;
        }
        assert(count <= i);
        const char *from = place != NULL ? place(context, row->machine) : row->machine;
        if (fabric_machine_load(from, &(*pool)[count], err, err_len) != 0) {
            free(*pool);
            *pool = NULL;
            return -1;
        }
        if (row->stack[0] != '\0') (void)fabric_machine_select_stack(&(*pool)[count], row->stack);
        out[i] = &(*pool)[count++];
    }
    return 0;
}

int sim_predict(const struct sim_measured *measured, const struct sim_predict_options *options,
                uint64_t *predicted_ps, uint64_t *floor_ps, char *err, size_t err_len)
{
    struct fabric_machine *pool = NULL;
    const struct fabric_machine **loaded =
        (const struct fabric_machine **)calloc(measured->count + 1, sizeof *loaded);
    const struct fabric_machine *const *machines = options->machines;
    int status = -1;

    assert(measured->rows != NULL || measured->count == 0);
    assert(predicted_ps != NULL || measured->count == 0);
    if (!loaded) {
        snprintf(err, err_len, "%zu rows: out of memory", measured->count);
        return -1;
    }
    if (!machines) {
        if (sim_predict_machines(measured, NULL, NULL, &pool, loaded, err, err_len) != 0)
            goto free_loaded;
        machines = loaded;
    }
    status = measured->kind == SIM_MEASURED_CALIBRATE
                 ? sim_predict_exchange(measured, options, machines, predicted_ps, floor_ps, err,
                                        err_len)
                 : sim_predict_compute(measured, options, machines, predicted_ps, floor_ps, err,
                                       err_len);
free_loaded:
    free(pool);
    free(loaded);
    return status;
}
