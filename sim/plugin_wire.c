/* sim/plugin_wire.c - names and places that both processes agree on. */
#include "sim/plugin_wire.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

_Static_assert(sizeof(struct plugin_control) <= PLUGIN_PAGE, "control is one page");

const char *plugin_op_name(enum plugin_op op)
{
    static const char *const NAMES[PLUGIN_OPS] = {
        "load", "open",    "close",   "dispatch", "expert",     "combine", "begin",
        "pack", "deliver", "forward", "unpack",   "run_expert", "read"};
    assert(op < PLUGIN_OPS);
    return NAMES[op];
}

const char *plugin_part_name(enum plugin_part part)
{
    static const char *const NAMES[PLUGIN_PARTS] = {"token_start",
                                                    "topk_idx",
                                                    "topk_weights",
                                                    "x",
                                                    "bias0",
                                                    "bias1",
                                                    "messages[SIM_DISPATCH]",
                                                    "messages[SIM_COMBINE]",
                                                    "block_start",
                                                    "home_start",
                                                    "rail_start",
                                                    "contribution_start",
                                                    "payload",
                                                    "scales",
                                                    "scales_ue8m0",
                                                    "src_token",
                                                    "topk_idx of received rows",
                                                    "topk_weights of received rows",
                                                    "counts",
                                                    "expert_out",
                                                    "combined x",
                                                    "combined topk_weights",
                                                    "messages"};
    assert(part < PLUGIN_PARTS);
    return NAMES[part];
}

uint64_t plugin_place_region(struct plugin_place *places, enum plugin_region region)
{
    uint64_t at = 2 * PLUGIN_PAGE; /* Behind the control page and a hole. */
    for (int p = 0; p < PLUGIN_PARTS; p++) {
        struct plugin_place *place = &places[p];
        if (!place->present || plugin_region_of((enum plugin_part)p) != region) continue;
        const uint64_t pages_bytes = plugin_pages(place->bytes) * PLUGIN_PAGE;
        const uint64_t aligned = (place->bytes + PLUGIN_ALIGN - 1) / PLUGIN_ALIGN * PLUGIN_ALIGN;
        assert(aligned <= pages_bytes && place->bytes <= INT64_MAX / 2);
        place->offset = at + pages_bytes - aligned;
        assert(plugin_first_page(place) == at);
        at += pages_bytes + PLUGIN_PAGE;
    }
    return at;
}

void plugin_place_name(const struct plugin_place *places, enum plugin_region region,
                       uint64_t offset, char *text, size_t text_len)
{
    uint64_t nearest = UINT64_MAX;
    snprintf(text, text_len, "in shared memory");
    for (int p = 0; p < PLUGIN_PARTS; p++) {
        const struct plugin_place *place = &places[p];
        const char *name = plugin_part_name((enum plugin_part)p);
        if (!place->present || plugin_region_of((enum plugin_part)p) != region) continue;
        const uint64_t end = place->offset + place->bytes;
        const uint64_t away = offset < place->offset ? place->offset - offset
                              : offset < end         ? 0
                                                     : offset - end;
        if (away >= nearest) continue;
        nearest = away;
        if (offset >= place->offset && offset < end)
            snprintf(text, text_len, "%s `%s`", place->writable ? "in" : "a store into its input",
                     name);
        else if (offset < place->offset)
            snprintf(text, text_len, "%" PRIu64 " bytes before `%s`", away, name);
        else if (away == 0)
            snprintf(text, text_len, "right behind the end of `%s`", name);
        else
            snprintf(text, text_len, "%" PRIu64 " bytes behind the end of `%s`", away, name);
    }
}
