/* tools/origins.h - from whose files the numbers are that measured rows were predicted with. */
#ifndef TOOLS_ORIGINS_H
#define TOOLS_ORIGINS_H

#include <jansson.h>
#include <stdio.h>
#include "sim/measured.h"

/* One object per machine, in the order of the rows: {"machine", "costs": {section: {file: how many
 * of the section's numbers it says}}, "unknown_stacks": [builds that rows name and no file
 * knows]}; sections: those that the rows use. NULL, with err, where a machine is not known. Owned
 * by the caller. */
json_t *origins_json(const struct sim_measured *measured, char *err, size_t err_len);

/* For people: the machines that have numbers from others' files, and the builds that no file
 * knows. Nothing where there are none. */
void origins_print(const json_t *origins, FILE *out);

#endif
