/* tests/plugin_broken.c - the example plugin with one thing wrong, named by EPSIM_BREAK.
 *
 * Linked with tests/plugin_example.c, whose table is called example_backend there. EPSIM_BREAK is
 * "WHAT" or "WHAT-OPERATION", e.g. "crash-dispatch". With EPSIM_BREAK_PID set, the number of the
 * process that holds the plugin is written to that file. */
#include "sim/backend.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct sim_backend_ops *example_backend(void);

static int is(const char *what)
{
    const char *chosen = getenv("EPSIM_BREAK");
    return chosen != NULL && strcmp(chosen, what) == 0;
}

/* Is it "WHAT-OPERATION"? */
static int is_at(const char *what, const char *operation)
{
    char joined[64];
    snprintf(joined, sizeof joined, "%s-%s", what, operation);
    return is(joined);
}

/* Into the file that EPSIM_BREAK_PID names, if any. */
static void write_pid(pid_t pid)
{
    const char *path = getenv("EPSIM_BREAK_PID");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;
    if (file == NULL) return;
    fprintf(file, "%ld", (long)pid);
    fclose(file);
}

static void misbehave(const char *operation)
{
    volatile uintptr_t address = 16;
    if (is("print")) {
        printf("{\"not\": \"for the report\"}\n");
        fflush(stdout);
    }
    if (is_at("crash", operation)) *(volatile char *)address = 0; /* NOLINT */
    if (is_at("abort", operation)) abort();
    if (is_at("exit", operation)) exit(7);
    while (is_at("hang", operation)) pause();
    /* A helper process that outlives us a little and holds what we had open, but no terminal. */
    if (is_at("leave", operation) && fork() == 0) {
        for (int fd = 0; fd <= STDERR_FILENO; fd++) close(fd);
        sleep(3);
        _exit(0);
    }
    if (is_at("stay", operation)) { /* One that stays. Its number goes where ours went. */
        const pid_t helper = fork();
        if (helper == 0) {
            for (int fd = 0; fd <= STDERR_FILENO; fd++) close(fd);
            sleep(60);
            _exit(0);
        }
        write_pid(helper);
    }
    if (is_at("signal", operation)) { /* To whoever is in our group: not the run, nor its shell. */
        if (getpgrp() == getpgid(getppid())) exit(9);
        kill(0, SIGTERM);
        pause();
    }
    for (int fd = STDERR_FILENO + 1; is_at("shrink", operation) && fd < 64; fd++)
        if (ftruncate(fd, 0) == 0) exit(8); /* Must not be possible. */
}

static int broken_open(const struct sim_backend_ops *self, void **state_out, char *err,
                       size_t err_len)
{
    write_pid(getpid());
    misbehave("open");
    if (is("refuse")) {
        snprintf(err, err_len, "no GPU of\nmine here");
        return -1;
    }
    return example_backend()->open(self, state_out, err, err_len);
}

static void broken_close(void *state)
{
    misbehave("close");
    example_backend()->close(state);
}

/* The rows of every low-latency block in the opposite order. */
static void reverse_rows(const struct sim_layer_input *in, const struct sim_received *out)
{
    const uint64_t blocks = (uint64_t)in->routing->experts * in->routing->ranks;
    const uint64_t bytes = in->recipe == REF_RECIPE_BF16 ? 2 * (uint64_t)in->hidden : in->hidden;
    const uint64_t scale_bytes = out->scales != NULL         ? in->hidden / 128 * 4
                                 : out->scales_ue8m0 != NULL ? in->hidden / 512 * 4
                                                             : 0;
    uint8_t *scales = out->scales != NULL ? (uint8_t *)out->scales : (uint8_t *)out->scales_ue8m0;
    for (uint64_t b = 0; b < blocks; b++) {
        uint64_t low = in->traffic->block_start[b], high = in->traffic->block_start[b + 1];
        for (; low + 1 < high; low++) {
            high--;
            const int32_t token = out->src_token[low];
            out->src_token[low] = out->src_token[high];
            out->src_token[high] = token;
            for (uint64_t i = 0; i < bytes; i++) {
                const uint8_t byte = out->payload[low * bytes + i];
                out->payload[low * bytes + i] = out->payload[high * bytes + i];
                out->payload[high * bytes + i] = byte;
            }
            for (uint64_t i = 0; i < scale_bytes; i++) {
                const uint8_t byte = scales[low * scale_bytes + i];
                scales[low * scale_bytes + i] = scales[high * scale_bytes + i];
                scales[high * scale_bytes + i] = byte;
            }
        }
    }
}

static int broken_dispatch(void *state, const struct sim_layer_input *in, struct sim_received *out,
                           char *err, size_t err_len)
{
    const uint64_t rows = in->traffic->received_rows;
    const uint64_t blocks =
        (uint64_t)in->routing->ranks *
        (in->traffic->mode == SIM_MODE_LL ? in->routing->experts : in->routing->ranks);
    const int status = example_backend()->dispatch(state, in, out, err, err_len);

    misbehave("dispatch");
    if (is("unordered") && in->traffic->mode == SIM_MODE_LL) reverse_rows(in, out);
    if (is("behind")) out->payload[rows * in->hidden * (in->recipe == 0 ? 2u : 1u) + 40] = 1;
    if (is("just-behind")) ((uint8_t *)(out->src_token + rows))[0] = 1;
    if (is("before")) out->counts[-2] = 1;
    if (is("input")) *(volatile uint16_t *)(uintptr_t)in->x = 1;
    if (is("counts")) out->counts[0] = out->counts[blocks - 1] = 0x7FFFFFFF;
    if (is("fail")) {
        snprintf(err, err_len, "kernel launch: \"invalid\" %c\t argument", 0xE9);
        return -1;
    }
    if (is("mute")) return -1;
    if (is("odd")) return 5;
    if (is("unsupported")) return SIM_BACKEND_UNSUPPORTED;
    return status;
}

static int broken_expert(void *state, const struct sim_layer_input *in,
                         const struct sim_received *rows, uint16_t *expert_out, char *err,
                         size_t err_len)
{
    misbehave("expert");
    return example_backend()->expert(state, in, rows, expert_out, err, err_len);
}

static int broken_combine(void *state, const struct sim_layer_input *in, const uint16_t *expert_out,
                          const float *row_weights, struct sim_combined *out, char *err,
                          size_t err_len)
{
    misbehave("combine");
    return example_backend()->combine(state, in, expert_out, row_weights, out, err, err_len);
}

static int broken_begin(void *state, const struct sim_layer_input *in, char *err, size_t err_len)
{
    (void)state, (void)in, (void)err, (void)err_len;
    return 0;
}

const struct sim_backend_ops *sim_backend_v1(void)
{
    static struct sim_backend_ops table;

    misbehave("load");
    table = *example_backend();
    table.name = "broken";
    table.open = broken_open;
    table.close = broken_close;
    table.dispatch = broken_dispatch;
    table.expert = broken_expert;
    table.combine = broken_combine;
    if (is("abi")) table.abi = 2;
    if (is("short")) table.table_bytes = offsetof(struct sim_backend_ops, expert);
    if (is("missing")) table.combine = NULL;
    if (is("half-phases")) table.begin = broken_begin;
    return is("no-table") ? NULL : &table;
}
