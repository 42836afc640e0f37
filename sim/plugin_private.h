/* sim/plugin_private.h - the run's side of a plugin: its process and how it is asked. */
#ifndef SIM_PLUGIN_PRIVATE_H
#define SIM_PLUGIN_PRIVATE_H

#include <sys/types.h>
#include "sim/arena.h"
#include "sim/plugin.h"
#include "sim/plugin_wire.h"
#include "sim/received.h"
#include "sim/settings.h"

struct plugin_shared {
    int fd;
    uint8_t *bytes; /* Mapped here; NULL while empty. */
    uint64_t room;
};

/* What one call carries: in when source is not NULL, out otherwise. */
struct plugin_array {
    bool present;
    const void *source;
    uint64_t bytes;
};

/* One process with one open state of the plugin: the state of our table. */
struct plugin_child {
    struct sim_plugin *plugin; /* Borrowed. */
    pid_t pid;                 /* 0: it has ended, and gone says how. */
    int socket_fd;
    struct plugin_shared shared[REGIONS];
    struct plugin_request request;          /* The last one. */
    struct plugin_array read[PLUGIN_PARTS]; /* Results of the layer that begin was told. */
    struct sim_arena order;
    char gone[PLUGIN_TEXT_MAX];
};

struct sim_plugin {
    struct sim_backend_ops ops; /* First: open gets a pointer to it as self. */
    char path[SIM_PATH_MAX];
    char program[SIM_PATH_MAX];
    uint32_t limit_s;
    uint32_t states; /* Open ones: each will want as much memory as the first that asks. */
    char name[64];
    char complaint[PLUGIN_TEXT_MAX];
    struct plugin_child *spare; /* Loaded and not opened yet, or NULL. */
};

/* Start a process and wait until it has loaded the plugin. NULL with one line. */
struct plugin_child *plugin_child_open(struct sim_plugin *plugin, bool *phases, char *err,
                                       size_t err_len);
/* End it, whatever it does. NULL is fine. */
void plugin_child_close(struct plugin_child *child);

/* Send child->request and wait for the answer; 0, or the answer's status with one line. */
int plugin_child_ask(struct plugin_child *child, struct plugin_answer *answer, char *err,
                     size_t err_len);
/* It was told to close: wait until it has ended. 0, or -1 with one line. */
int plugin_child_end(struct plugin_child *child, char *err, size_t err_len);

/* Ask for op with arrays [PLUGIN_PARTS], NULL for none: outputs are poisoned before and the bytes
 * around them looked at after. plugin_child_at then shows the outputs. */
int plugin_child_call(struct plugin_child *child, enum plugin_op op,
                      const struct plugin_array *arrays, char *err, size_t err_len);
void *plugin_child_at(const struct plugin_child *child, enum plugin_part part);

/* The operations of the table; state is a struct plugin_child. */
int plugin_open_state(const struct sim_backend_ops *self, void **state_out, char *err,
                      size_t err_len);
void plugin_close_state(void *state);
int plugin_dispatch(void *state, const struct sim_layer_input *in, struct sim_received *out,
                    char *err, size_t err_len);
int plugin_expert(void *state, const struct sim_layer_input *in, const struct sim_received *rows,
                  uint16_t *expert_out, char *err, size_t err_len);
int plugin_combine(void *state, const struct sim_layer_input *in, const uint16_t *expert_out,
                   const float *row_weights, struct sim_combined *out, char *err, size_t err_len);
int plugin_begin(void *state, const struct sim_layer_input *in, char *err, size_t err_len);
int plugin_pack(void *state, enum sim_direction direction, uint32_t rank, char *err,
                size_t err_len);
int plugin_deliver(void *state, enum sim_direction direction, const struct sim_message *messages,
                   size_t count, char *err, size_t err_len);
int plugin_forward(void *state, enum sim_direction direction, uint32_t rank, char *err,
                   size_t err_len);
int plugin_unpack(void *state, enum sim_direction direction, uint32_t rank, char *err,
                  size_t err_len);
int plugin_run_expert(void *state, uint32_t rank, char *err, size_t err_len);
int plugin_read(void *state, struct sim_received *received, uint16_t **expert_out,
                struct sim_combined *combined, char *err, size_t err_len);

/* Copy received rows, those of every low-latency block in the order of (source token, place). */
int plugin_order_rows(const struct sim_layer_input *in, const struct sim_received *from,
                      struct sim_received *to, struct sim_arena *scratch, char *err,
                      size_t err_len);

#endif
