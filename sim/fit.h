/* sim/fit.h - robust least squares over positive parameters: the numerical half of calibrate.
 *
 * Levenberg-Marquardt on relative steps, with every residual beyond `knee` weighed down (Huber),
 * so that a spike in the data cannot pull a parameter far. Slopes are taken by differences, once
 * in SIM_FIT_SLOPE_ROUNDS rounds or when no step helps; in between they learn from each step
 * taken (Broyden's rule, by row), which costs nothing. A weak pull towards the start keeps what the
 * data do not determine where it was; relative_error tells which those are. Deterministic: no libm,
 * no random start. */
#ifndef SIM_FIT_H
#define SIM_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_FIT_PARAMETERS_MAX = 160, SIM_FIT_SLOPE_ROUNDS = 3 };
#define SIM_FIT_ALL SIZE_MAX
#define SIM_FIT_ANEW (SIZE_MAX - 1)

struct sim_fit {
    size_t parameters; /* 1..SIM_FIT_PARAMETERS_MAX. */
    size_t residuals;
    double *value;           /* [parameters], above 0: start and result. */
    const double *min, *max; /* [parameters] */
    double *relative_error;  /* [parameters]: one standard error over the value; 1 or more: the
                                residuals say nothing of it. */
    size_t *moved;           /* [parameters], or NULL: residuals that a step of it changes. */
    double knee;             /* Residuals beyond count linearly. */
    double pull;             /* Standard deviation of the weak pull, relative: 1 = a factor 2. */
    unsigned rounds;         /* At most; the fit ends before when no step helps. */
    void *context;
    /* Residuals at value. With parameter below parameters only that one differs from where the
     * residuals passed in were taken: those that it does not touch may stay as they are.
     * SIM_FIT_ALL: any may differ. SIM_FIT_ANEW: the same, and what the model settles by itself
     * (a best chunk size) is settled anew; all other calls hold what the last such call settled,
     * so that slopes are those of a smooth function. */
    int (*evaluate)(void *context, const double *value, size_t parameter, double *residual,
                    char *err, size_t err_len);
    void (*report)(void *context, unsigned round, double loss); /* Or NULL. */
};

/* 0, or -1 with err (memory, or what evaluate said). *loss is the mean Huber loss reached. */
int sim_fit_run(struct sim_fit *fit, double *loss, char *err, size_t err_len);

#endif
