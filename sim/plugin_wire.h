/* sim/plugin_wire.h - what passes between a run and the process that holds its plugin.
 *
 * Requests and answers are one datagram each over a socket pair; arrays travel in two shared
 * memory files without names: REGION_LAYER (routing, traffic, tokens) and REGION_CALL (what one
 * operation takes and makes). Both sides are the same program, so structs go as they are; their
 * pointers mean nothing on the other side and are set anew there from `places`.
 *
 *   file    | control | hole | slack array | hole | slack array | hole | ...
 *   plugin  | r/w     | none | read only,  | none | or r/w      | none |
 *
 * Every array ends where its last page ends, but for the bytes that 16-byte alignment takes, and
 * has a page (of 64 KiB, the largest that Linux has) that nobody can touch on either side. So a
 * store behind the end faults at once, one before the beginning or into the last bytes shows in the
 * slack, and inputs cannot be written. */
#ifndef SIM_PLUGIN_WIRE_H
#define SIM_PLUGIN_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sim/backend.h"

enum plugin_op {
    PLUGIN_LOAD, /* Not asked: the process begins with it and answers. */
    PLUGIN_OPEN,
    PLUGIN_CLOSE,
    PLUGIN_DISPATCH,
    PLUGIN_EXPERT,
    PLUGIN_COMBINE,
    PLUGIN_BEGIN,
    PLUGIN_PACK,
    PLUGIN_DELIVER,
    PLUGIN_FORWARD,
    PLUGIN_UNPACK,
    PLUGIN_RUN_EXPERT,
    PLUGIN_READ,
    PLUGIN_OPS
};

enum plugin_region { REGION_LAYER, REGION_CALL, REGIONS };

enum plugin_part {
    /* REGION_LAYER */
    PART_TOKEN_START,
    PART_TOPK_IDX,
    PART_TOPK_WEIGHTS,
    PART_X,
    PART_BIAS0,
    PART_BIAS1,
    PART_DISPATCH_MESSAGES,
    PART_COMBINE_MESSAGES,
    PART_BLOCK_START,
    PART_HOME_START,
    PART_RAIL_START,
    PART_CONTRIBUTION_START,
    /* REGION_CALL */
    PART_PAYLOAD,
    PART_SCALES,
    PART_SCALES_UE8M0,
    PART_SRC_TOKEN,
    PART_ROW_IDX,
    PART_ROW_WEIGHTS,
    PART_COUNTS,
    PART_EXPERT_OUT,
    PART_COMBINED,
    PART_COMBINED_WEIGHTS,
    PART_BATCH, /* The messages of one deliver. */
    PLUGIN_PARTS
};

enum { PLUGIN_PAGE = 65536, PLUGIN_ALIGN = 16, PLUGIN_TEXT_MAX = 512, PLUGIN_SLACK = 0xA5 };

/* Where an array stands in its region. */
struct plugin_place {
    uint32_t present; /* 0: the pointer is NULL. */
    uint32_t writable;
    uint64_t offset; /* From the start of the file. */
    uint64_t bytes;
};

struct plugin_request {
    enum plugin_op op;
    enum sim_direction direction;
    uint32_t rank;
    uint32_t carries[REGIONS]; /* Does `places` say anything about this region? */
    uint64_t count;            /* deliver: messages. */
    uint64_t region_bytes[REGIONS];
    struct plugin_place places[PLUGIN_PARTS];
    struct sim_layer_input input;
    struct ref_routing routing;
    struct sim_traffic traffic;
};

struct plugin_answer {
    int32_t status;
    uint32_t phases;            /* LOAD: are the phase operations offered? */
    char text[PLUGIN_TEXT_MAX]; /* When status is not 0; LOAD: the table's name. */
};

/* First page of REGION_LAYER: where the plugin faulted, written on its way down. */
struct plugin_control {
    uint32_t faulted;
    uint32_t region;  /* REGIONS: in neither. */
    uint64_t address; /* In a region: from the start of its file. */
};

static inline enum plugin_region plugin_region_of(enum plugin_part part)
{
    return part < PART_PAYLOAD ? REGION_LAYER : REGION_CALL;
}

static inline uint64_t plugin_pages(uint64_t bytes) /* An empty array has a page, too. */
{
    return bytes <= PLUGIN_PAGE ? 1 : (bytes + PLUGIN_PAGE - 1) / PLUGIN_PAGE;
}

/* The first byte of an array's pages. */
static inline uint64_t plugin_first_page(const struct plugin_place *place)
{
    return place->offset / PLUGIN_PAGE * PLUGIN_PAGE -
           (place->bytes == 0 && place->offset % PLUGIN_PAGE == 0 ? PLUGIN_PAGE : 0);
}

const char *plugin_op_name(enum plugin_op op);       /* "dispatch", ... */
const char *plugin_part_name(enum plugin_part part); /* As the header calls it. */

/* Give every present place of a region its offset; returns the bytes that the file must have. */
uint64_t plugin_place_region(struct plugin_place *places, enum plugin_region region);

/* "64 bytes behind the end of `payload`" and the like, for a fault at an offset of a region. */
void plugin_place_name(const struct plugin_place *places, enum plugin_region region,
                       uint64_t offset, char *text, size_t text_len);

#endif
