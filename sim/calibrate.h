/* sim/calibrate.h - fit the costs of a machine file to measurements.
 *
 * The file says what may move: every number of its ll and normal sections, and of those under
 * stacks, that stands on a line of its own without a comment, or with one that starts with
 * "fitted". A number with another comment (measured, assumed, ...) keeps its value. A fit starts
 * from the number, or, where the comment reads "fitted from NUMBER", from that one: then the
 * result does not depend on what an earlier fit had written. Rows of
 * machines that inherit such a number count as well, so what a family shares is fitted to the
 * rows of all of it. */
#ifndef SIM_CALIBRATE_H
#define SIM_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fabric/machine.h"
#include "fabric/units.h"
#include "sim/measured.h"

enum { SIM_KNOBS_MAX = 160, SIM_CALIBRATE_FILES_MAX = 16 };

/* One number that may move. */
struct sim_knob {
    uint32_t file;  /* Index among the files. */
    char stack[32]; /* "" = the machine's default. */
    char key[48];   /* As written: "token_chain_us". */
    const struct fabric_cost_field *field;
    struct fabric_unit unit;    /* Of the key. */
    size_t text_at, text_bytes; /* The number in the file's text. */
    uint64_t start;             /* Where a fit begins, in the field's unit. */
    uint64_t before, after;     /* The same unit; after is rounded as it is written. */
    size_t rows;                /* That the number can touch. */
    double relative_error;      /* One standard error; 1 or more: the data do not determine it. */
};

/* A machine file whose numbers may move. */
struct sim_calibrate_file {
    char name[64];    /* The machine's. */
    const char *path; /* NULL: the preset of that name. Borrowed. */
    char *text;       /* Owned by whoever read it: sim_calibrate_files_free. */
    size_t bytes;
};

struct sim_calibrate_options {
    const struct sim_calibrate_file *files;
    size_t file_count;
    const char *mode;   /* "ll", "normal", or "" for both. */
    const bool *wanted; /* [rows] to fit to; NULL = all. */
    uint32_t threads;   /* 0 = all cores. */
    unsigned rounds;    /* At most. */
    void (*report)(void *context, unsigned round, double loss); /* Or NULL. */
    void *context;
};

struct sim_calibration {
    struct sim_knob *knobs; /* Owned. Those that touch a row. */
    size_t knob_count;
    size_t rows;                        /* That counted. */
    double median_before, median_after; /* Of the absolute error over them. */
    double p90_before, p90_after;
    struct fabric_machine *pool;            /* Owned: the fitted machines. */
    const struct fabric_machine **machines; /* [all rows], into pool. */
};

/* 0, or -1 with err. *calibration is written only on success. */
int sim_calibrate(const struct sim_measured *measured, const struct sim_calibrate_options *options,
                  struct sim_calibration *calibration, char *err, size_t err_len);
void sim_calibration_free(struct sim_calibration *calibration); /* Safe on a zeroed struct. */

/* A number for a row's id, the same wherever and beside whatever it stands. */
uint64_t sim_calibrate_hash(const char *id);

/* One file, by path. */
int sim_calibrate_file_read(const char *path, struct sim_calibrate_file *file, char *err,
                            size_t err_len);
/* Presets and paths that the rows name, and all they inherit from: how many (files has room for
 * max), or -1 with err. */
int64_t sim_calibrate_files_of(const struct sim_measured *measured,
                               struct sim_calibrate_file *files, size_t max, char *err,
                               size_t err_len);
void sim_calibrate_files_free(struct sim_calibrate_file *files, size_t count);

/* The file's half. Numbers that may move, of the mode asked for: how many (at most max), or -1
 * with err. */
int64_t sim_knobs_find(const struct sim_calibrate_file *file, uint32_t index, const char *mode,
                       struct sim_knob *knobs, size_t max, char *err, size_t err_len);
/* The file's text with the number of each of its knobs replaced by after: a new string, NULL when
 * memory is short. */
char *sim_knobs_write(const struct sim_calibrate_file *file, uint32_t index,
                      const struct sim_knob *knobs, size_t count, size_t *new_bytes);

#endif
