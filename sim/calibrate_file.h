/* sim/calibrate_file.h - a machine file whose numbers a fit may move, and the file with new ones.
 */
#ifndef SIM_CALIBRATE_FILE_H
#define SIM_CALIBRATE_FILE_H

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
    size_t rows;                /* That a small step of the number changes. */
    double relative_error;      /* One standard error; 1 or more: the rows say nothing of it. */
    bool held;                  /* Not determined, and so kept: after is before. */
};

/* A machine file whose numbers may move. */
struct sim_calibrate_file {
    char name[64];    /* The machine's. */
    const char *path; /* NULL: the preset of that name. Borrowed. */
    char *text;       /* Owned by whoever read it: sim_calibrate_files_free. */
    size_t bytes;
};

/* One file, by path. */
int sim_calibrate_file_read(const char *path, struct sim_calibrate_file *file, char *err,
                            size_t err_len);
/* Presets and paths that the rows name, and all they inherit from: how many (files has room for
 * max), or -1 with err. */
int64_t sim_calibrate_files_of(const struct sim_measured *measured,
                               struct sim_calibrate_file *files, size_t max, char *err,
                               size_t err_len);
void sim_calibrate_files_free(struct sim_calibrate_file *files, size_t count);

/* Numbers that may move, of the mode asked for: how many (at most max), or -1
 * with err. */
int64_t sim_knobs_find(const struct sim_calibrate_file *file, uint32_t index, const char *mode,
                       struct sim_knob *knobs, size_t max, char *err, size_t err_len);
/* How many numbers of the mode asked for may not move, for their comments. */
size_t sim_knobs_fixed(const struct sim_calibrate_file *file, const char *mode);
/* The key of the first number outside those sections whose comment begins with "fitted" too, which
 * no fit moves: true and in key, or false. */
bool sim_knobs_stray(const struct sim_calibrate_file *file, char key[64]);
/* The file's text with the number of each of its knobs replaced by after, and behind those that
 * were held a comment that says so, which goes once a fit moves them: a new string, NULL when
 * memory is short. */
char *sim_knobs_write(const struct sim_calibrate_file *file, uint32_t index,
                      const struct sim_knob *knobs, size_t count, size_t *new_bytes);

#endif
