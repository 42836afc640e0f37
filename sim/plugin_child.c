/* sim/plugin_child.c - starts, asks, watches and buries the process that holds a plugin. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/plugin_private.h"

/* In the forked child, where only calls that are safe after fork may be made: never returns.
 * Standard output becomes standard error, so that what a plugin prints is in nobody's way; a
 * session of its own, so that a signal to its group reaches neither the run nor the shell behind
 * it. */
static void become_host(char *const argv[], const char *program, const int *fds)
{
    (void)setsid();
    const int null_fd = open("/dev/null", O_RDONLY);
    (void)dup2(null_fd, STDIN_FILENO);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    (void)close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    for (int i = 0; i < 1 + REGIONS; i++) (void)fcntl(fds[i], F_SETFD, 0);
    execv(program, argv);
    _exit(127);
}

/* Fork and exec. fds: the host's end of the socket pair, then the regions. */
static pid_t start_host(const struct sim_plugin *plugin, const int *fds)
{
    char numbers[1 + REGIONS][16], name[] = "epsim", command[] = "plugin-host", path[SIM_PATH_MAX];
    char *argv[] = {name, command, path, numbers[0], numbers[1], numbers[2], NULL};

    memcpy(path, plugin->path, sizeof path);
    for (int i = 0; i < 1 + REGIONS; i++) snprintf(numbers[i], sizeof numbers[i], "%d", fds[i]);
    const pid_t pid = fork();
    if (pid == 0) become_host(argv, plugin->program, fds);
    return pid;
}

/* Where the plugin faulted, as it noted on its way down. "" when it did not. */
static void describe_fault(const struct plugin_child *child, char *text, size_t text_len)
{
    const struct plugin_control *control =
        (const struct plugin_control *)(const void *)child->shared[REGION_LAYER].bytes;
    char place[128] = "";

    text[0] = '\0';
    if (!control->faulted) return;
    if (control->region < REGIONS)
        plugin_place_name(child->request.places, (enum plugin_region)control->region,
                          control->address, place, sizeof place);
    else
        snprintf(place, sizeof place, "at address 0x%llx", (unsigned long long)control->address);
    snprintf(text, text_len, ": %s", place);
}

/* Kill it and what it started (its group, whose number is taken until it was waited for), take its
 * exit status, and keep in child->gone what became of it. A process that closed its socket because
 * it was ending keeps the status that it ended with. */
static void bury(struct plugin_child *child, bool late)
{
    const char *op = plugin_op_name(child->request.op);
    char fault[160] = "";
    int status = 0;

    assert(child->pid > 1); /* Minus 1 would be every process there is. */
    (void)kill(-child->pid, SIGKILL);
    (void)kill(child->pid, SIGKILL); /* Before it had a group. */
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) continue;
    child->pid = 0;
    if (late) {
        snprintf(child->gone, sizeof child->gone,
                 "hang in %s: no answer within %u s (--time-limit-s), killed", op,
                 child->plugin->limit_s);
    } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        snprintf(child->gone, sizeof child->gone,
                 "SIGKILL in %s: it closed its connection, or memory ran out", op);
    } else if (WIFSIGNALED(status)) {
        describe_fault(child, fault, sizeof fault);
        snprintf(child->gone, sizeof child->gone, "SIG%s in %s%s", sigabbrev_np(WTERMSIG(status)),
                 op, fault);
    } else {
        snprintf(child->gone, sizeof child->gone, "exit with status %d in %s", WEXITSTATUS(status),
                 op);
    }
}

static int say_gone(const struct plugin_child *child, char *err, size_t err_len)
{
    snprintf(err, err_len, "%.400s: %s", child->plugin->path, child->gone);
    return SIM_BACKEND_FAILED;
}

/* Printable text alone: it goes into lines and JSON. */
static void clean(char *text, size_t text_len)
{
    text[text_len - 1] = '\0';
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~') *text = '?';
}

/* Wait until the socket has something or has ended, or the process has, at most the limit. The
 * socket alone does not tell: what the plugin forked holds it open after the process has ended. */
static bool wait_child(const struct plugin_child *child)
{
    const int process_fd = pidfd_open(child->pid, 0); /* -1, which poll skips: no such call. */
    struct pollfd ends[2] = {{.fd = child->socket_fd, .events = POLLIN},
                             {.fd = process_fd, .events = POLLIN}};
    int ready = -1;
    do ready = poll(ends, 2, (int)child->plugin->limit_s * 1000);
    while (ready < 0 && errno == EINTR);
    if (process_fd >= 0) (void)close(process_fd);
    return ready > 0;
}

/* The next answer. 0 with *answer, whatever it says; -1 when the process is gone. */
static int take_answer(struct plugin_child *child, struct plugin_answer *answer)
{
    if (!wait_child(child)) {
        bury(child, true);
        return -1;
    }
    if (recv(child->socket_fd, answer, sizeof *answer, MSG_DONTWAIT) != (ssize_t)sizeof *answer) {
        bury(child, false);
        return -1;
    }
    clean(answer->text, sizeof answer->text);
    return 0;
}

int plugin_child_ask(struct plugin_child *child, struct plugin_answer *answer, char *err,
                     size_t err_len)
{
    const struct plugin_request *request = &child->request;
    const char *op = plugin_op_name(request->op), *path = child->plugin->path;

    if (child->pid == 0) return say_gone(child, err, err_len);
    /* A process that has ended cannot be sent to; how it ended is found when waiting for it. */
    (void)send(child->socket_fd, request, sizeof *request, MSG_NOSIGNAL);
    if (take_answer(child, answer) != 0) return say_gone(child, err, err_len);
    if (answer->status == 0) return 0;
    if (answer->status == SIM_BACKEND_UNSUPPORTED || answer->status == SIM_BACKEND_FAILED)
        snprintf(err, err_len, "%.400s: %s: %s", path, op,
                 answer->text[0] != '\0' ? answer->text : "failed and did not say why");
    else
        snprintf(err, err_len,
                 "%.400s: %s: returned %d: must be 0, %d (failed) or %d (unsupported)", path, op,
                 answer->status, SIM_BACKEND_FAILED, SIM_BACKEND_UNSUPPORTED);
    return answer->status == SIM_BACKEND_UNSUPPORTED ? answer->status : SIM_BACKEND_FAILED;
}

int plugin_child_end(struct plugin_child *child, char *err, size_t err_len)
{
    int status = 0;
    char byte;
    assert(child->pid > 0 && child->request.op == PLUGIN_CLOSE);
    if (!wait_child(child) || recv(child->socket_fd, &byte, 1, MSG_DONTWAIT) > 0) {
        bury(child, true);
        return say_gone(child, err, err_len);
    }
    bury(child, false);
    if (strcmp(child->gone, "exit with status 0 in close") != 0) status = -1;
    return status == 0 ? 0 : say_gone(child, err, err_len);
}

static int open_shared(struct plugin_child *child)
{
    for (int r = 0; r < REGIONS; r++) {
        /* Sealed against shrinking: a plugin that cuts the file short would take the pages from
         * under our feet, and the run with them. */
        const int fd = memfd_create("epsim-plugin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        child->shared[r].fd = fd;
        if (fd < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) return -1;
    }
    struct plugin_shared *layer = &child->shared[REGION_LAYER];
    if (ftruncate(layer->fd, PLUGIN_PAGE) != 0) return -1;
    void *bytes = mmap(NULL, PLUGIN_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, layer->fd, 0);
    if (bytes == MAP_FAILED) return -1;
    layer->bytes = (uint8_t *)bytes;
    layer->room = PLUGIN_PAGE;
    return 0;
}

struct plugin_child *plugin_child_open(struct sim_plugin *plugin, bool *phases, char *err,
                                       size_t err_len)
{
    struct plugin_child *child = (struct plugin_child *)calloc(1, sizeof *child);
    struct plugin_answer answer;
    int pair[2] = {-1, -1};

    if (child == NULL) goto no_start;
    child->plugin = plugin;
    child->socket_fd = -1;
    for (int r = 0; r < REGIONS; r++) child->shared[r].fd = -1;
    if (open_shared(child) != 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        goto no_start;
    child->socket_fd = pair[0];
    const int fds[1 + REGIONS] = {pair[1], child->shared[0].fd, child->shared[1].fd};
    child->pid = start_host(plugin, fds);
    if (child->pid < 0) child->pid = 0;
    if (child->pid == 0) goto no_start;
    (void)close(pair[1]);
    child->request.op = PLUGIN_LOAD;
    if (take_answer(child, &answer) != 0) {
        say_gone(child, err, err_len);
        goto close_child;
    }
    if (answer.status != 0) {
        snprintf(err, err_len, "%.400s: %s", plugin->path, answer.text);
        goto close_child;
    }
    *phases = answer.phases != 0;
    snprintf(plugin->name, sizeof plugin->name, "%.63s", answer.text);
    return child;
no_start:
    snprintf(err, err_len, "%.400s: its process cannot be started: %s", plugin->path,
             strerror(errno));
    if (pair[1] >= 0) (void)close(pair[1]);
close_child:
    plugin_child_close(child);
    return NULL;
}

void plugin_child_close(struct plugin_child *child)
{
    if (child == NULL) return;
    if (child->pid > 0) bury(child, false);
    for (int r = 0; r < REGIONS; r++) {
        if (child->shared[r].bytes != NULL)
            (void)munmap(child->shared[r].bytes, child->shared[r].room);
        if (child->shared[r].fd >= 0) (void)close(child->shared[r].fd);
    }
    if (child->socket_fd >= 0) (void)close(child->socket_fd);
    sim_arena_free(&child->order);
    free(child);
}
