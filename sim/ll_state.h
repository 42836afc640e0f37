/* sim/ll_state.h - what the parts of the low-latency model share; for sim/ll*.c alone.
 *
 * Vocabulary of the kernels (DeepEP internode_ll.cu). A group is E of them per rank: in the
 * send half it serves one destination expert (dispatch) or one (destination rank, local
 * expert) (combine), in the receive half one (source rank, local expert). A block holds
 * groups_per_block of them, so a rank has grid = ceil(E / groups_per_block) blocks. Group
 * number = peer x L + local expert in both halves, and with the rank before it, rank x E +
 * group, it also names the queue pair that carries the group's messages through the NIC. */
#ifndef SIM_LL_STATE_H
#define SIM_LL_STATE_H

#include "fabric/link.h"
#include "fabric/share.h"
#include "sim/exchange.h"
#include "sim/ll_queue.h"

enum { LL_WARPS = 32, LL_DOORBELL = 4, LL_REDUCE_GROUPS = 2 };
#define LL_NEVER UINT64_MAX

enum ll_event {
    LL_START, /* rank: the send half's first instruction. */
    LL_TOKEN, /* block (dispatch): its token is cast and staged, and those of blocks chained. */

    LL_ROWS,  /* rank (combine): the first rows are in shared memory. */
    LL_WAVES, /* group (combine): it and those chained to it have staged all their rows. */
    LL_WAVE,  /* group (combine): its warps have staged one more row each, payload before. */
    LL_LINK,  /* rank: look at the NVLink port. */

    /* Where ll.network is: */
    LL_PUBLISH, /* group by NIC: its count (dispatch) or flag (combine) is issued. */
    LL_TURN,    /* rank: its NIC takes the next train. */
    LL_NIC,     /* train: its first byte reaches the far NIC. */
    LL_CREDIT   /* group: a work request of its queue pair has completed. */
};

/* A sender's group with its queue pair. */
struct ll_group {
    union {
        uint64_t gate_ps; /* Dispatch: the latest of what it waited for so far. */
        uint32_t next;    /* Combine: of as many rows, on the same rank. */
    };
    uint32_t rows;
    uint32_t gates;      /* What a publish still waits for. */
    uint32_t first_slot; /* Of rows slots, in the order of posts. */
    uint32_t posted;     /* Every LL_DOORBELL-th rings. */
    uint16_t rank, peer; /* Whose it is, and where it leads. */
    uint8_t link_class;  /* enum sim_link_class */
};

/* What a doorbell told a NIC of: LL_DOORBELL rows of a group ... */
struct ll_rung {
    uint64_t at_ps; /* The doorbell is at the NIC. */
    uint32_t group, first_slot;
};

/* ... or the group's flag, with the rows left over. */
struct ll_flag {
    uint64_t at_ps;
    uint32_t group;
};

/* Either, waiting at its NIC. */
struct ll_told {
    uint64_t at_ps;
    uint32_t group, first_slot;
    bool flag;
};

/* Either on its way. */
struct ll_train {
    uint64_t at_ps;     /* Its first byte is at the far NIC. */
    uint64_t engine_ps; /* The sending NIC's engine was through with its first row, if any. */
    uint32_t group_rows;
    uint32_t first_slot;
    uint16_t src;
    uint8_t rows; /* At most LL_DOORBELL. */
    bool flag;
};

struct ll_turn { /* Of a train at its receiver. */
    uint64_t at_ps;
    uint32_t train;
};

struct ll_arrival { /* A count, at the receiver. */
    uint64_t land_ps;
    uint32_t rows;
};

struct ll_copy { /* Of a group's rows at the receiver: by its SM alone; what each warp moves. */
    uint64_t alone_ps, stream_bytes;
};

struct ll_nic { /* One direction: an engine that overlaps with the wire behind it. */
    uint64_t engine_free_ps, wire_free_ps;
};

struct ll_rank {
    struct fabric_share link; /* NVLink port, outgoing. Jobs: blocks or groups. */
    struct fabric_share sm;   /* Copies or sums of the receive half. Jobs: groups or blocks. */
    uint64_t link_at_ps;      /* Earliest look scheduled, or LL_NEVER. */
    uint64_t link_in_free_ps; /* NVLink port, incoming. */
    struct ll_nic nic_out, nic_in;
    uint64_t begin_ps;     /* First instruction of the send half. */
    uint64_t sent_ps;      /* Latest publish so far; hook mode: launch of the receive half. */
    uint64_t open_ps;      /* The receive half looks from here on, or LL_NEVER. */
    uint64_t last_land_ps; /* Latest count or flag so far, and whose. */
    uint32_t last_source;
    uint32_t unpublished, unarrived; /* Groups to go. */
    struct ll_rung *rung, *rung_end; /* What its NIC was told of, in order. */
    struct ll_flag *flag, *flag_end;
    struct ll_train *train;       /* What comes to it, up to ll.train_end. */
    struct sim_resource_use *use; /* LL_USES of them. */
};

enum ll_use { LL_LINK_OUT, LL_LINK_IN, LL_NIC_OUT, LL_NIC_IN, LL_SMS, LL_QPS, LL_USES };

struct ll_block {       /* A block walks tokens b, b + grid, ...; combine uses the first field. */
    uint64_t token;     /* In all ranks' numbering. */
    uint64_t issued_ps; /* The token's sends began. */
    uint64_t done_ps;   /* The latest of its sends so far. */
    uint32_t next;      /* Dispatch: a block at the same point, or LL_NONE. */
    uint16_t stalled;   /* Sends that wait for a queue pair. */
    uint32_t linked;    /* Bit i: send i of the token is on the NVLink port. */
};

struct ll {
    const struct sim_exchange *exchange;
    const struct fabric_machine *machine;
    const struct fabric_ll_costs *costs;
    const struct sim_traffic *traffic;
    struct sim_timing *timing;
    struct sim_engine *engine;
    struct ll_network *network; /* NULL: nothing holds up what is posted for a NIC. */
    enum sim_direction direction;
    uint64_t row_bytes, message_count;
    uint64_t events, digest;          /* So far. */
    uint64_t row_link_ps, row_nic_ps; /* A row at an NVLink port; on the wire of a NIC. */
    uint64_t row_store_ps;            /* Stored by one stream that has its port to itself. */
    uint64_t token_ps;                /* Dispatch: a block loads, casts and stages a token. */
    uint32_t ranks, experts, local;   /* R, E, L = E / R. */
    uint32_t groups_per_block, warps, grid;
    uint32_t jobs_max; /* Blocks or groups of a rank, at most. */
    struct ll_rank *rank;
    struct ll_group *group; /* [R x E] by sender */
    struct ll_block *block; /* [R x jobs_max] */
    /* Rows by NIC, in slots numbered like the receiver's rows: their turn on the sender's wire, and
     * when they land. In combine a slot is a message, and these are the timing's. */
    uint64_t *slot_depart_ps, *slot_land_ps;
    uint32_t *message_slot;      /* Dispatch: [messages]; LL_NONE where it did not go by NIC. */
    struct ll_told *told;        /* [rungs and flags of a rank, at most] */
    struct ll_queue queue;       /* Of numbers in told. */
    struct ll_train **train_end; /* [R] by receiver. */
    struct ll_turn *turns;       /* [2][trains_most] */
    uint32_t trains_most;        /* That a rank receives, at most. */
    struct fabric_share_job *jobs;
    struct ll_arrival *arrival; /* Dispatch: [R x E] by receiver, in the order of being told. */
    uint32_t *turn;             /* Combine: [jobs_max], blocks of a receive half. */
    struct ll_copy copy[LL_WARPS + 1]; /* Dispatch: by rows, as dividing takes long. */
    uint64_t *job_ps;                  /* [jobs_max] of a receive half. */
};

static inline uint64_t ll_later(uint64_t a_ps, uint64_t b_ps)
{
    return a_ps > b_ps ? a_ps : b_ps;
}

/* Pass one message through a NIC that sees it from first_ps on: the engine works on it, then
 * the wire, while the engine is at the next. Returns when the wire begins with it. */
static inline uint64_t ll_nic_pass(struct ll_nic *nic, uint64_t engine_ps, uint64_t wire_ps,
                                   uint64_t first_ps)
{
    nic->engine_free_ps = ll_later(first_ps, nic->engine_free_ps) + engine_ps;
    const uint64_t begin_ps = ll_later(nic->engine_free_ps, nic->wire_free_ps);
    nic->wire_free_ps = begin_ps + wire_ps;
    return begin_ps;
}

/* Something waited for a wire. Until the books are closed queue_peak is the longest such wait. */
static inline void ll_waited(struct sim_resource_use *use, uint64_t waited_ps)
{
    use->stall_ps += waited_ps;
    if (waited_ps > use->queue_peak) use->queue_peak = waited_ps;
}

static inline uint32_t ll_group(const struct ll *ll, uint32_t rank, uint32_t peer, uint32_t local)
{
    return rank * ll->experts + peer * ll->local + local;
}

/* sim/ll_wire.c. */
void ll_link_add(struct ll *ll, uint32_t rank, uint32_t job, uint32_t streams, uint64_t bytes,
                 uint64_t now_ps);
int ll_link_take(struct ll *ll, uint32_t rank, uint64_t now_ps, uint32_t *job);
uint64_t ll_link_land(struct ll *ll, uint32_t dst, uint64_t first_ps, uint64_t last_ps,
                      uint64_t rows);

/* sim/ll_nic.c: a message of dispatch is posted on its group's queue pair, or (false) must wait
 * for a slot; rows from..to - 1 of a group in combine: how many must wait. */
bool ll_nic_post(struct ll *ll, uint32_t group, uint32_t message, uint64_t now_ps);
uint32_t ll_nic_post_rows(struct ll *ll, uint32_t group, uint32_t from, uint32_t to,
                          uint64_t now_ps);
void ll_nic_flag(struct ll *ll, uint32_t group, uint64_t now_ps);
/* Without a network: all that a rank sends, when its send half is over, and then all that it
 * receives, when everybody has sent. */
void ll_nic_leave(struct ll *ll, uint32_t rank);
void ll_nic_arrive(struct ll *ll, uint32_t rank);

/* sim/ll_order.c: turns by at_ps into sorted; equals stay as they are. turns is used up. */
void ll_order(struct ll_turn *turns, struct ll_turn *sorted, uint32_t count);

/* sim/ll_network.c: the same where something may hold messages up; NULL is fine for close. */
bool ll_network_wanted(const struct ll *ll);
struct ll_network *ll_network_open(const struct ll *ll, char *err, size_t err_len);
void ll_network_close(struct ll_network *network);
void ll_network_report(const struct ll_network *network, struct sim_timing *timing);
bool ll_network_post(struct ll *ll, uint32_t group, uint32_t message, uint64_t now_ps);
void ll_network_flag(struct ll *ll, uint32_t group, uint64_t now_ps);
void ll_network_turn(struct ll *ll, uint32_t rank, uint64_t now_ps);
void ll_network_arrive(struct ll *ll, uint32_t train, uint64_t now_ps);
uint32_t ll_network_credit(struct ll *ll, uint32_t group, uint64_t now_ps); /* Posted, or NONE. */

/* sim/ll_publish.c: when a rank's kernel is at its first instruction; a group's count or flag goes
 * out at at_ps, now or later. now: for the event alone that ll_publish asks for. */
uint64_t ll_launch_ps(const struct ll *ll, uint32_t rank);
void ll_publish(struct ll *ll, uint32_t group, uint64_t at_ps);
void ll_publish_now(struct ll *ll, uint32_t group, uint64_t at_ps);

/* sim/ll_dispatch.c, sim/ll_combine.c: the send halves. unstalled: a row got its slot. */
void ll_dispatch_event(struct ll *ll, const struct sim_event *event);
void ll_dispatch_unstalled(struct ll *ll, uint32_t message, uint64_t now_ps);
void ll_dispatch_gather(struct ll *ll);
void ll_combine_event(struct ll *ll, const struct sim_event *event);
void ll_combine_unstalled(struct ll *ll, uint32_t group, uint64_t now_ps);

/* sim/ll_receive.c: a count or flag is there; the receive half, once all are; blocks of a rank's
 * combine. */
void ll_flag_landed(struct ll *ll, uint32_t src, uint32_t dst, uint32_t rows, uint64_t land_ps);
void ll_receive(struct ll *ll, uint32_t rank);
struct ll_copy ll_copy_of(const struct ll *ll, uint32_t rows); /* rows above 0. */
uint64_t ll_combine_grid(const struct ll *ll, uint32_t rank);

#endif
