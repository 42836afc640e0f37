/* sim/calibrate_why.c - why no number of the files may move, in one line. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/calibrate_parts.h"

static const char bandwidths[] = "; bandwidths and flights outside them are to be measured";

/* The first row of a machine that takes numbers from one of the files; rows when there is none. */
static size_t first_row(const struct sim_calibrate_work *fit)
{
    for (size_t i = 0; i < fit->measured->count; i++)
        for (uint32_t o = 0; o < fit->machines[i]->origin_count; o++)
            for (size_t f = 0; f < fit->options->file_count; f++)
                if (strcmp(fit->machines[i]->origins[o], fit->options->files[f].name) == 0)
                    return i;
    return fit->measured->count;
}

int sim_calibrate_explain(const struct sim_calibrate_work *fit, size_t count, char *err,
                          size_t err_len)
{
    const char *name = fit->options->files[0].name;
    const struct sim_measured_row *rows = fit->measured->rows;
    const size_t row = first_row(fit);
    size_t fixed = 0, zero = 0, kind = 0, taken = 0;

    assert(fit->options->file_count > 0);
    for (size_t f = 0; f < fit->options->file_count; f++)
        fixed += sim_knobs_fixed(&fit->options->files[f], fit->options->mode);
    for (size_t k = 0; k < count; k++) {
        const struct sim_knob *knob = &fit->knobs[k];
        bool same = false, takes = false;
        for (size_t i = row; i < fit->measured->count; i++) {
            if (strcmp(rows[i].mode, knob->field->section) != 0) continue;
            same = true;
            takes = takes || sim_calibrate_takes(fit, fit->machines[i], knob);
        }
        zero += knob->start == 0;
        kind += same;
        taken += takes;
    }
    if (fit->measured->count == 0)
        snprintf(err, err_len, "%.63s: no number may move: the CSV has no row", name);
    else if (count == 0 && fixed > 0)
        snprintf(
            err, err_len,
            "%.63s: no number may move: each of its %zu in ll, normal and compute has a comment "
            "that does not begin with \"fitted\"%s",
            name, fixed, bandwidths);
    else if (count == 0)
        snprintf(err, err_len,
                 "%.63s: no number may move: it has none under ll, normal or compute, and what it "
                 "inherits stays%s",
                 name, bandwidths);
    else if (row == fit->measured->count)
        snprintf(err, err_len,
                 "%.63s: no number may move: no row is of that machine (the file's name) or of one "
                 "that inherits from it; the first is of %.95s",
                 name, rows[0].machine);
    else if (kind == 0)
        snprintf(err, err_len,
                 "%.63s: no number may move: the %zu that might are of %s, and the rows of the "
                 "machine of %s",
                 name, count, fit->knobs[0].field->section, rows[row].mode);
    else if (taken == 0 && fit->knobs[0].stack[0] != '\0')
        snprintf(err, err_len,
                 "%.63s: no number may move: they are of stack %.31s, and the rows of the machine "
                 "of %.31s",
                 name, fit->knobs[0].stack, rows[row].stack[0] ? rows[row].stack : "none");
    else if (taken == 0)
        snprintf(err, err_len,
                 "%.63s: no number may move: stack %.31s, of which the rows are, has its own", name,
                 rows[row].stack);
    else if (zero == count)
        snprintf(err, err_len, "%.63s: no number may move: they stand at 0", name);
    else
        snprintf(
            err, err_len,
            "%.63s: no number may move: the rows that they touch have too many tokens to count, "
            "or are of other operations",
            name);
    return -1;
}
