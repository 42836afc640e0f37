/* sim/plugin_call.c - one operation asked of a plugin's process: arrays into shared memory, the
 * question, and a look at the bytes around what came back. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/memory.h"
#include "sim/plugin_private.h"

/* Make a region's file and our mapping of it large enough. */
static int reserve_region(struct plugin_child *child, enum plugin_region region, char *err,
                          size_t err_len)
{
    struct plugin_shared *shared = &child->shared[region];
    const uint64_t bytes = child->request.region_bytes[region];

    if (bytes <= shared->room) return 0;
    if (ftruncate(shared->fd, (off_t)bytes) != 0) goto no_room;
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd, 0);
    if (mapped == MAP_FAILED) goto no_room;
    if (shared->bytes != NULL) (void)munmap(shared->bytes, shared->room);
    shared->bytes = (uint8_t *)mapped;
    shared->room = bytes;
    return 0;
no_room:
    snprintf(err, err_len, "%.400s: %s: %" PRIu64 " bytes of shared memory: %s",
             child->plugin->path, plugin_op_name(child->request.op), bytes, strerror(errno));
    return -1;
}

/* Bytes of one region for these arrays alone. */
static uint64_t region_bytes(const struct plugin_array *arrays, enum plugin_region region)
{
    struct plugin_place places[PLUGIN_PARTS] = {{0}};
    for (int p = 0; p < PLUGIN_PARTS; p++)
        places[p] = (struct plugin_place){.present = arrays[p].present, .bytes = arrays[p].bytes};
    return plugin_place_region(places, region);
}

/* Is there memory for what this call adds, and, when a layer begins, for its results, in every
 * process that will hold as much? Asked before any of it is taken. */
static int check_memory(const struct plugin_child *child, const struct plugin_array *arrays,
                        char *err, size_t err_len)
{
    const bool begins = child->request.op == PLUGIN_BEGIN;
    char what[SIM_PATH_MAX + 64];
    uint64_t grows = 0;

    for (int r = 0; r < REGIONS; r++) {
        const struct plugin_array *of = begins && r == REGION_CALL ? child->read : arrays;
        const uint64_t bytes = region_bytes(of, (enum plugin_region)r);
        if (bytes > child->shared[r].room) grows += bytes - child->shared[r].room;
    }
    if (grows < UINT64_C(1) << 20) return 0; /* Not worth the kernel's files on every deliver. */
    snprintf(what, sizeof what, "%.200s: %s: shared memory", child->plugin->path,
             plugin_op_name(child->request.op));
    return sim_memory_check(what, grows * child->plugin->states, sim_memory_free_bytes(), err,
                            err_len);
}

void *plugin_child_at(const struct plugin_child *child, enum plugin_part part)
{
    const struct plugin_place *place = &child->request.places[part];
    if (!place->present) return NULL;
    return child->shared[plugin_region_of(part)].bytes + place->offset;
}

/* The slack before and behind an array: [first, second) of its pages without the array. */
static void slack_ranges(const struct plugin_place *place, uint64_t ranges[2][2])
{
    const uint64_t first = plugin_first_page(place), end = place->offset + place->bytes;
    ranges[0][0] = first;
    ranges[0][1] = place->offset;
    ranges[1][0] = end;
    ranges[1][1] = first + plugin_pages(place->bytes) * PLUGIN_PAGE;
    assert(ranges[1][0] <= ranges[1][1]);
}

/* Place the arrays of the call, copy what goes in, poison what comes out. */
static int lay_out(struct plugin_child *child, const struct plugin_array *arrays, char *err,
                   size_t err_len)
{
    struct plugin_request *request = &child->request;

    for (int p = 0; p < PLUGIN_PARTS; p++) {
        const enum plugin_region region = plugin_region_of((enum plugin_part)p);
        const struct plugin_array *array = &arrays[p];
        request->carries[region] |= array->present;
        request->places[p] = (struct plugin_place){
            .present = array->present, .writable = array->source == NULL, .bytes = array->bytes};
    }
    for (int r = 0; r < REGIONS; r++) {
        const enum plugin_region region = (enum plugin_region)r;
        if (!request->carries[r]) continue;
        request->region_bytes[r] = plugin_place_region(request->places, region);
        if (reserve_region(child, region, err, err_len) != 0) return -1;
    }
    for (int p = 0; p < PLUGIN_PARTS; p++) {
        const struct plugin_place *place = &request->places[p];
        uint8_t *base = child->shared[plugin_region_of((enum plugin_part)p)].bytes;
        uint64_t ranges[2][2];
        if (!place->present) continue;
        if (!place->writable) {
            memcpy(base + place->offset, arrays[p].source, place->bytes);
            continue;
        }
        memset(base + place->offset, 0xFF, place->bytes); /* NaN in every format. */
        slack_ranges(place, ranges);
        for (int i = 0; i < 2; i++)
            memset(base + ranges[i][0], PLUGIN_SLACK, ranges[i][1] - ranges[i][0]);
    }
    return 0;
}

/* Has anything been written around the outputs? */
static int check_slack(const struct plugin_child *child, char *err, size_t err_len)
{
    const struct plugin_request *request = &child->request;
    for (int p = 0; p < PLUGIN_PARTS; p++) {
        const struct plugin_place *place = &request->places[p];
        const enum plugin_region region = plugin_region_of((enum plugin_part)p);
        const uint8_t *base = child->shared[region].bytes;
        uint64_t ranges[2][2];
        if (!place->present || !place->writable) continue;
        slack_ranges(place, ranges);
        for (int i = 0; i < 2; i++) {
            for (uint64_t at = ranges[i][0]; at < ranges[i][1]; at++) {
                char where[128];
                if (base[at] == PLUGIN_SLACK) continue;
                plugin_place_name(request->places, region, at, where, sizeof where);
                snprintf(err, err_len, "%.400s: %s: wrote outside its output: %s",
                         child->plugin->path, plugin_op_name(request->op), where);
                return SIM_BACKEND_FAILED;
            }
        }
    }
    return 0;
}

int plugin_child_call(struct plugin_child *child, enum plugin_op op,
                      const struct plugin_array *arrays, char *err, size_t err_len)
{
    struct plugin_answer answer;
    int status = 0;

    assert(op > PLUGIN_LOAD && op < PLUGIN_OPS);
    child->request.op = op;
    memset(child->request.carries, 0, sizeof child->request.carries);
    if (arrays != NULL && (check_memory(child, arrays, err, err_len) != 0 ||
                           lay_out(child, arrays, err, err_len) != 0))
        return SIM_BACKEND_FAILED;
    status = plugin_child_ask(child, &answer, err, err_len);
    if (status == 0 && arrays != NULL) status = check_slack(child, err, err_len);
    return status;
}
