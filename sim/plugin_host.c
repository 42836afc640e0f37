/* sim/plugin_host.c - the process that holds a plugin: does as it is told until the other side ends
 * or says so. What the plugin does to this process is seen from there. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <ucontext.h>
#include <unistd.h>

#include "sim/plugin.h"
#include "sim/plugin_load.h"
#include "sim/plugin_wire.h"

#define HOST_MAGIC UINT64_C(0x70696c67686f7374)
enum { SIGNAL_STACK_BYTES = 65536 };

struct mapping {
    uint8_t *bytes;
    uint64_t room;
    struct plugin_place places[PLUGIN_PARTS];
};

struct host {
    uint64_t magic;
    int socket_fd;
    const int *region_fds;
    struct plugin_control *control;
    const struct sim_backend_ops *ops;
    void *state;
    struct mapping map[REGIONS];
    struct sim_layer_input input; /* Of the layer; points to the two below. */
    struct ref_routing routing;
    struct sim_traffic traffic;
    struct plugin_answer answer;
};

/* --- a fault notes where it was --- */

/* On the way down. There is no global to find the host by, so the signal stack begins with its
 * address; a thread of the plugin's own has no such stack, and notes nothing. */
static void note_fault(int number, siginfo_t *info, void *opaque)
{
    const ucontext_t *context = (const ucontext_t *)opaque;
    struct host *host = NULL;

    if (context->uc_stack.ss_sp != NULL && context->uc_stack.ss_size == SIGNAL_STACK_BYTES)
        memcpy(&host, context->uc_stack.ss_sp, sizeof(void *));
    if (host != NULL && host->magic == HOST_MAGIC && info->si_code > 0) {
        const uintptr_t address = (uintptr_t)info->si_addr;
        host->control->region = REGIONS;
        host->control->address = address;
        for (uint32_t r = 0; r < REGIONS; r++) {
            const uintptr_t base = (uintptr_t)host->map[r].bytes;
            if (base == 0 || address < base || address >= base + host->map[r].room) continue;
            host->control->region = r;
            host->control->address = address - base;
        }
        host->control->faulted = 1;
    }
    (void)signal(number, SIG_DFL);
    (void)raise(number); /* Held back until this returns. */
}

static int create_signal_stack(struct host *host)
{
    struct sigaction action = {.sa_sigaction = note_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    stack_t stack = {.ss_size = SIGNAL_STACK_BYTES};

    stack.ss_sp =
        mmap(NULL, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack.ss_sp == MAP_FAILED) return -1;
    memcpy(stack.ss_sp, &host, sizeof(void *)); /* Stacks grow down: the lowest bytes are free. */
    (void)sigemptyset(&action.sa_mask);
    if (sigaltstack(&stack, NULL) != 0) return -1;
    return sigaction(SIGSEGV, &action, NULL) != 0 || sigaction(SIGBUS, &action, NULL) != 0 ? -1 : 0;
}

/* --- whose child it is --- */

/* A thread that ends this process when the other side is gone, whatever the plugin is doing. Not
 * PR_SET_PDEATHSIG, which means the thread that forked, and that may end long before the run. */
static void *watch_parent(void *opaque)
{
    const struct host *host = (const struct host *)opaque;
    struct pollfd end = {.fd = host->socket_fd}; /* No events: a hang-up is always told. */
    while (poll(&end, 1, -1) < 0 || (end.revents & (POLLHUP | POLLERR | POLLNVAL)) == 0) continue;
    (void)kill(-getpid(), SIGKILL); /* What the plugin started, where we lead a group. */
    (void)kill(getpid(), SIGKILL);
    return NULL;
}

static int create_watch(struct host *host)
{
    pthread_t thread;
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before); /* Signals are the plugin's own business. */
    const int status = pthread_create(&thread, NULL, watch_parent, host);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == 0) (void)pthread_detach(thread);
    return status == 0 ? 0 : -1;
}

/* --- shared memory as the plugin sees it --- */

/* Map a region as the request describes it; nothing happens when it looks as it did. */
static int map_region(struct host *host, enum plugin_region region,
                      const struct plugin_request *request)
{
    struct mapping *map = &host->map[region];
    const uint64_t bytes = request->region_bytes[region];

    const int first_part = region == REGION_LAYER ? 0 : PART_PAYLOAD;
    const int parts = (region == REGION_LAYER ? PART_PAYLOAD : PLUGIN_PARTS) - first_part;
    const size_t places_bytes = (size_t)parts * sizeof map->places[0];

    if (map->bytes != NULL && map->room == bytes &&
        memcmp(&map->places[first_part], &request->places[first_part], places_bytes) == 0)
        return 0;
    if (map->bytes != NULL) (void)munmap(map->bytes, map->room);
    map->bytes = NULL;
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return -1;
    map->bytes = (uint8_t *)base;
    map->room = bytes;
    memcpy(&map->places[first_part], &request->places[first_part], places_bytes);
    for (int p = first_part; p < first_part + parts; p++) {
        const struct plugin_place *place = &map->places[p];
        if (!place->present) continue;
        const uint64_t first = plugin_first_page(place);
        const int access = place->writable ? PROT_READ | PROT_WRITE : PROT_READ;
        if (mmap(map->bytes + first, plugin_pages(place->bytes) * PLUGIN_PAGE, access,
                 MAP_SHARED | MAP_FIXED, host->region_fds[region], (off_t)first) == MAP_FAILED)
            return -1;
    }
    return 0;
}

static int map_control(struct host *host)
{
    void *control = mmap(NULL, PLUGIN_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
                         host->region_fds[REGION_LAYER], 0);
    if (control == MAP_FAILED) return -1;
    host->control = (struct plugin_control *)control;
    return 0;
}

static void *at(const struct host *host, enum plugin_part part)
{
    const struct mapping *map = &host->map[plugin_region_of(part)];
    const struct plugin_place *place = &map->places[part];
    return map->bytes != NULL && place->present ? map->bytes + place->offset : NULL;
}

/* The layer's structs with pointers that hold here. */
static void point_layer(struct host *host, const struct plugin_request *request)
{
    host->routing = request->routing;
    host->routing.token_start = (const uint64_t *)at(host, PART_TOKEN_START);
    host->routing.topk_idx = (const int64_t *)at(host, PART_TOPK_IDX);
    host->routing.topk_weights = (const float *)at(host, PART_TOPK_WEIGHTS);
    host->traffic = request->traffic;
    host->traffic.token_start = host->routing.token_start;
    host->traffic.topk_idx = host->routing.topk_idx;
    host->traffic.messages[SIM_DISPATCH] = (struct sim_message *)at(host, PART_DISPATCH_MESSAGES);
    host->traffic.messages[SIM_COMBINE] = (struct sim_message *)at(host, PART_COMBINE_MESSAGES);
    host->traffic.block_start = (uint64_t *)at(host, PART_BLOCK_START);
    host->traffic.home_start = (uint64_t *)at(host, PART_HOME_START);
    host->traffic.rail_start = (uint64_t *)at(host, PART_RAIL_START);
    host->traffic.contribution_start = (uint64_t *)at(host, PART_CONTRIBUTION_START);
    host->input = request->input;
    host->input.routing = &host->routing;
    host->input.traffic = &host->traffic;
    host->input.x = (const uint16_t *)at(host, PART_X);
    host->input.bias0 = (const uint16_t *)at(host, PART_BIAS0);
    host->input.bias1 = (const uint16_t *)at(host, PART_BIAS1);
}

static struct sim_received received(const struct host *host)
{
    return (struct sim_received){.rows = host->traffic.received_rows,
                                 .payload = (uint8_t *)at(host, PART_PAYLOAD),
                                 .scales = (float *)at(host, PART_SCALES),
                                 .scales_ue8m0 = (uint32_t *)at(host, PART_SCALES_UE8M0),
                                 .src_token = (int32_t *)at(host, PART_SRC_TOKEN),
                                 .topk_idx = (int64_t *)at(host, PART_ROW_IDX),
                                 .topk_weights = (float *)at(host, PART_ROW_WEIGHTS),
                                 .counts = (int32_t *)at(host, PART_COUNTS)};
}

/* --- doing as told --- */

/* Copy what the plugin shows into the call's arrays. */
static int read_results(struct host *host, char *text, size_t text_len)
{
    struct sim_received rows = {0};
    struct sim_combined combined = {0};
    uint16_t *expert_out = NULL;
    const int status = host->ops->read(host->state, &rows, &expert_out, &combined, text, text_len);

    if (status != 0) return status;
    const void *const shown[] = {
        rows.payload,      rows.scales, rows.scales_ue8m0, rows.src_token, rows.topk_idx,
        rows.topk_weights, rows.counts, expert_out,        combined.x,     combined.topk_weights};
    for (int i = 0; i < (int)(sizeof shown / sizeof shown[0]); i++) {
        const enum plugin_part part = (enum plugin_part)(PART_PAYLOAD + i);
        void *to = at(host, part);
        if (to == NULL) continue;
        if (shown[i] == NULL) {
            snprintf(text, text_len, "shows no `%s`", plugin_part_name(part));
            return SIM_BACKEND_FAILED;
        }
        memcpy(to, shown[i], host->map[REGION_CALL].places[part].bytes);
    }
    return 0;
}

static int do_group(struct host *host, enum plugin_op op, char *text, size_t text_len)
{
    const struct sim_backend_ops *ops = host->ops;
    struct sim_received rows = received(host);
    struct sim_combined combined = {(uint16_t *)at(host, PART_COMBINED),
                                    (float *)at(host, PART_COMBINED_WEIGHTS)};
    uint16_t *expert_out = (uint16_t *)at(host, PART_EXPERT_OUT);

    if (op == PLUGIN_DISPATCH)
        return ops->dispatch(host->state, &host->input, &rows, text, text_len);
    if (op == PLUGIN_EXPERT)
        return ops->expert(host->state, &host->input, &rows, expert_out, text, text_len);
    assert(op == PLUGIN_COMBINE);
    return ops->combine(host->state, &host->input, expert_out,
                        (const float *)at(host, PART_ROW_WEIGHTS), &combined, text, text_len);
}

static int say(struct host *host, const char *text)
{
    snprintf(host->answer.text, sizeof host->answer.text, "%s", text);
    return SIM_BACKEND_FAILED;
}

static int do_request(struct host *host, const struct plugin_request *request)
{
    const struct sim_backend_ops *ops = host->ops;
    const enum sim_direction direction = request->direction;
    void *state = host->state;
    char *text = host->answer.text;
    const size_t text_len = sizeof host->answer.text;

    for (int r = 0; r < REGIONS; r++)
        if (request->carries[r] && map_region(host, (enum plugin_region)r, request) != 0)
            return say(host, strerror(errno));
    if (request->carries[REGION_LAYER]) point_layer(host, request);
    switch (request->op) {
    case PLUGIN_OPEN: return ops->open(ops, &host->state, text, text_len);
    case PLUGIN_CLOSE: ops->close(state); return 0;
    case PLUGIN_DISPATCH:
    case PLUGIN_EXPERT:
    case PLUGIN_COMBINE: return do_group(host, request->op, text, text_len);
    case PLUGIN_BEGIN: return ops->begin(state, &host->input, text, text_len);
    case PLUGIN_PACK: return ops->pack(state, direction, request->rank, text, text_len);
    case PLUGIN_DELIVER:
        return ops->deliver(state, direction, (const struct sim_message *)at(host, PART_BATCH),
                            (size_t)request->count, text, text_len);
    case PLUGIN_FORWARD: return ops->forward(state, direction, request->rank, text, text_len);
    case PLUGIN_UNPACK: return ops->unpack(state, direction, request->rank, text, text_len);
    case PLUGIN_RUN_EXPERT: return ops->run_expert(state, request->rank, text, text_len);
    case PLUGIN_READ: return read_results(host, text, text_len);
    case PLUGIN_LOAD:
    case PLUGIN_OPS:
    default: return say(host, "no such request");
    }
}

static bool answer(const struct host *host)
{
    return send(host->socket_fd, &host->answer, sizeof host->answer, MSG_NOSIGNAL) ==
           (ssize_t)sizeof host->answer;
}

int sim_plugin_serve(const char *path, int socket_fd, const int *region_fds)
{
    struct host host = {.magic = HOST_MAGIC, .socket_fd = socket_fd, .region_fds = region_fds};
    struct plugin_request request = {.op = PLUGIN_LOAD};

    (void)fcntl(socket_fd, F_SETFD, FD_CLOEXEC); /* Programs that the plugin runs are not us. */
    for (int r = 0; r < REGIONS; r++) (void)fcntl(region_fds[r], F_SETFD, FD_CLOEXEC);
    if (map_control(&host) != 0 || create_signal_stack(&host) != 0 || create_watch(&host) != 0)
        return 1;
    host.ops = plugin_load(path, host.answer.text, sizeof host.answer.text);
    host.answer.status = host.ops != NULL ? 0 : SIM_BACKEND_FAILED;
    host.answer.phases = host.ops != NULL && plugin_offers_phases(host.ops);
    if (!answer(&host) || host.ops == NULL) return 1;
    for (;;) {
        if (recv(socket_fd, &request, sizeof request, 0) != (ssize_t)sizeof request) return 0;
        memset(&host.answer, 0, sizeof host.answer);
        host.answer.status = do_request(&host, &request);
        if (!answer(&host)) return 1;
        if (request.op == PLUGIN_CLOSE) return 0;
    }
}
