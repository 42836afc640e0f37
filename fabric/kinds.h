/* fabric/kinds.h - how a machine's number came to be: its file says so in a comment.
 *
 * "nic_gbits_per_s: 400 # datasheet", "stage_us: 8.662 # fitted from 9". A number without a comment
 * is of its section's kind ("compute: # fitted to rows of ..."). */
#ifndef FABRIC_KINDS_H
#define FABRIC_KINDS_H

#include <stdint.h>
#include "fabric/yaml.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fabric_kind {
    FABRIC_KIND_UNSAID,
    FABRIC_KIND_DATASHEET,
    FABRIC_KIND_PUBLISHED,
    FABRIC_KIND_MEASURED, /* "read off" measured rows too. */
    FABRIC_KIND_FITTED,
    FABRIC_KIND_ASSUMED,
    FABRIC_KINDS
};

const char *fabric_kind_name(enum fabric_kind kind); /* "", "datasheet", ..., static. */

/* The kind whose word comes first in the comment. */
enum fabric_kind fabric_kind_read(const char *comment);

/* Where the file says the field, in whatever unit of its family; section "" is the file itself.
 * NULL where it does not. */
const struct fabric_yaml_node *fabric_kind_word(const struct fabric_yaml *yaml, const char *section,
                                                const char *field);

/* Of the field, by its comment or its section's. */
enum fabric_kind fabric_kind_of(const struct fabric_yaml *yaml, const char *section,
                                const char *field);

#ifdef __cplusplus
}
#endif

#endif
