/* fabric/qp.h - a queue pair: an in-order window of work requests with batched doorbells.
 *
 * A post takes the next of depth slots; the slot is free again when the work request that had
 * it last is done (acknowledged). Posted requests reach the NIC when a doorbell rings: every
 * batch-th post, or at once where the caller asks (a signal). The QP keeps no clock: the caller
 * sends what a post released, and says when each will be done.
 *
 *     posted                 released by doorbells          done, in order
 *     fabric_qp_post ------> caller: fabric_nic_send -----> fabric_qp_done */
#ifndef FABRIC_QP_H
#define FABRIC_QP_H

#include <stdbool.h>
#include <stdint.h>
#include "fabric/use.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fabric_qp {
    uint64_t *done_ps;     /* Ring [depth], borrowed: when each request in the window is done. */
    uint32_t depth;        /* At least 1. */
    uint32_t batch;        /* Posts a doorbell covers, 1..depth. */
    uint64_t posted;       /* Requests ever posted; the rest count from the same start. */
    uint64_t released;     /* ... that a doorbell covered. */
    uint64_t known;        /* ... whose done_ps the caller has said. */
    uint64_t retired;      /* ... that were done at the last post. */
    uint64_t last_post_ps; /* Posts take their slots in order. */
    uint64_t last_done_ps; /* Requests are done in order. */
    struct fabric_use use; /* stall_ps: posts waited for a slot; queue_peak: most in flight;
                              bytes and busy_ps stay 0. */
};

struct fabric_post {
    uint64_t at_ps;    /* The request has its slot (and, if it rang, the doorbell rang). */
    uint32_t released; /* Requests that the NIC now sees, this one last; 0 = held back. */
};

/* done_ps[depth] outlives the qp. A batch above depth is cut to it: a window that holds only
 * requests without a doorbell would never move. */
void fabric_qp_init(struct fabric_qp *qp, uint64_t *done_ps, uint32_t depth, uint32_t batch);

/* Post one request at now_ps; ring asks for the doorbell whatever the batch says. Every request
 * released so far must have been reported by fabric_qp_done. */
struct fabric_post fabric_qp_post(struct fabric_qp *qp, uint64_t now_ps, bool ring);

/* The oldest released request not yet reported is done at done_ps (may lie in the future). An
 * acknowledgement covers all before it, so a done_ps before the last one's counts as that. */
void fabric_qp_done(struct fabric_qp *qp, uint64_t done_ps);

/* When everything posted is done. Nothing may be held back. */
uint64_t fabric_qp_drained_ps(const struct fabric_qp *qp);

#ifdef __cplusplus
}
#endif

#endif
