/* sim/traffic.h - who sends which row to whom in one dispatch and one combine of one layer.
 *
 * Built from routing alone; the protocols give every message a landing time, the data path
 * moves its row. Rows are numbered globally in the arenas of sim/backend.h:
 *
 *   LL dispatch      token t -> slot of (expert, source rank, order of token and column)
 *   LL combine       that slot -> home slot of (token, column with an expert, in order)
 *   normal, 1 node   token t -> row of (destination rank, source rank, token); combine mirrors
 *                    it into the home slot of (token, contributing rank ascending)
 *   normal, N nodes  hop 0: token t -> rail row of (forwarder, source rank, token), where the
 *                    forwarder is the GPU with the source's index on the destination node;
 *                    hop 1: rail row -> received row. Combine, hop 0: received row -> one
 *                    contribution slot per (rail row, GPU ascending); forward reduces; hop 1:
 *                    rail row -> home slot of (token, contributing node ascending).
 *
 * Order of messages: as the senders issue them: by (hop, source rank, source row's token order,
 * column or destination ascending). */
#ifndef SIM_TRAFFIC_H
#define SIM_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ref/routing.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sim_direction { SIM_DISPATCH, SIM_COMBINE, SIM_DIRECTIONS };
enum sim_mode { SIM_MODE_LL, SIM_MODE_NORMAL, SIM_MODE_AUTO };
enum sim_link_class { SIM_LINK_LOCAL, SIM_LINK_NVLINK, SIM_LINK_NIC, SIM_LINK_CLASSES };

struct sim_message {
    uint32_t src_rank;
    uint32_t dst_rank;
    uint64_t src_row;    /* Row of the sending arena. */
    uint64_t dst_row;    /* Row of the receiving arena. */
    uint32_t token;      /* Token index within its home rank. */
    uint32_t home_rank;  /* The rank whose token it is. */
    int32_t expert;      /* LL: the global expert; normal: -1. */
    uint8_t hop;         /* 0, or 1 for the second hop of normal mode on several nodes. */
    uint8_t link_class;  /* enum sim_link_class. */
    uint8_t column;      /* LL: the top-k column. Normal: 0. */
    uint8_t corrupt_xor; /* Fault injection: when not 0, XORed into byte corrupt_byte. */
    uint32_t corrupt_byte;
};

struct sim_traffic {
    enum sim_mode mode; /* LL or NORMAL. */
    uint32_t ranks;
    uint32_t ranks_per_node; /* P; node of rank r = r / P. */
    bool nvlink;             /* false: ranks of one node talk through their NICs. */
    uint32_t nodes;
    uint32_t experts;
    uint32_t topk;
    const uint64_t *token_start;            /* [ranks + 1], borrowed from the routing. */
    const int64_t *topk_idx;                /* [tokens][topk], borrowed from the routing. */
    uint64_t row_bytes[SIM_DIRECTIONS];     /* Bytes of one message on the wire. */
    uint64_t formula_bytes[SIM_DIRECTIONS]; /* Bytes the formula counts per selection. */
    uint64_t message_count[SIM_DIRECTIONS];
    struct sim_message *messages[SIM_DIRECTIONS]; /* Owned; NULL where rows were only counted. */
    /* LL: rows of block (expert, source rank) start at block_start[expert * ranks + rank];
     * normal: rows of (destination rank, source rank) at block_start[dst * ranks + src]. */
    uint64_t *block_start; /* Owned; [blocks + 1]. */
    uint64_t *home_start;  /* Owned; [tokens + 1]: first home slot of each token. */
    uint64_t *rail_start;  /* Owned; normal on several nodes: [ranks * ranks + 1], by (forwarder,
                              source rank); else NULL. */
    uint64_t *contribution_start; /* Owned; normal on several nodes: [rail rows + 1]; else NULL. */
    uint64_t received_rows;
    uint64_t rail_rows;         /* Normal on several nodes, else 0. */
    uint64_t contribution_rows; /* Normal on several nodes: slots at the forwarders, else 0. */
    uint64_t home_rows;         /* Combine slots over all tokens. */
};

struct sim_traffic_shape {
    enum sim_mode mode;
    uint32_t ranks_per_node;
    bool nvlink; /* false: ranks of one node talk through their NICs. */
    uint64_t row_bytes[SIM_DIRECTIONS];
    uint64_t formula_bytes[SIM_DIRECTIONS];
};

/* The traffic without its messages and where rows stand: all that normal mode's clock needs.
 * Borrows what traffic borrows; there is nothing to free. */
struct sim_traffic sim_traffic_outline(const struct ref_routing *routing,
                                       const struct sim_traffic_shape *shape);

/* In LL mode counts and starts of rows, without lists of messages: all that the clock needs, at a
 * fraction of the time; sim_traffic_list adds them. In normal mode as sim_traffic_build. */
int sim_traffic_count(const struct ref_routing *routing, const struct sim_traffic_shape *shape,
                      struct sim_traffic *traffic, char *err, size_t err_len);
/* The lists, if they are not there. routing is the one counted. 0, or -1 with err (memory). */
int sim_traffic_list(const struct ref_routing *routing, struct sim_traffic *traffic, char *err,
                     size_t err_len);

/* Build both directions' messages. The routing's arrays must outlive the traffic. 0, or -1
 * with err (memory). *traffic is written only on success; free with sim_traffic_free. */
int sim_traffic_build(const struct ref_routing *routing, const struct sim_traffic_shape *shape,
                      struct sim_traffic *traffic, char *err, size_t err_len);
/* The link class between two ranks. */
static inline enum sim_link_class sim_traffic_link(const struct sim_traffic *traffic, uint32_t src,
                                                   uint32_t dst)
{
    if (src == dst) return SIM_LINK_LOCAL;
    if (traffic->nvlink && src / traffic->ranks_per_node == dst / traffic->ranks_per_node)
        return SIM_LINK_NVLINK;
    return SIM_LINK_NIC;
}

void sim_traffic_free(struct sim_traffic *traffic); /* Safe on a zeroed struct. */

#ifdef __cplusplus
}
#endif

#endif
