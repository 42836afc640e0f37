/* fabric/qp.c - the window and its doorbell. */
#include "fabric/qp.h"
#include <assert.h>
#include <stddef.h>

void fabric_qp_init(struct fabric_qp *qp, uint64_t *done_ps, uint32_t depth, uint32_t batch)
{
    assert(done_ps != NULL && depth >= 1 && batch >= 1);
    *qp = (struct fabric_qp){
        .done_ps = done_ps, .depth = depth, .batch = batch < depth ? batch : depth};
}

struct fabric_post fabric_qp_post(struct fabric_qp *qp, uint64_t now_ps, bool ring)
{
    /* Held requests are among the last batch - 1 <= depth - 1 posts, so the one whose slot is
     * wanted, depth posts back, was released, and its end is known. */
    assert(qp->known == qp->released);
    assert(qp->posted - qp->released < qp->batch);

    struct fabric_post post = {.at_ps = now_ps, .released = 0};
    if (post.at_ps < qp->last_post_ps) post.at_ps = qp->last_post_ps;
    if (qp->posted >= qp->depth) {
        const uint64_t free_ps = qp->done_ps[qp->posted % qp->depth];
        if (post.at_ps < free_ps) post.at_ps = free_ps;
    }
    qp->use.stall_ps += post.at_ps - now_ps;
    qp->last_post_ps = post.at_ps;
    while (qp->retired < qp->known && qp->done_ps[qp->retired % qp->depth] <= post.at_ps)
        qp->retired++;
    qp->posted++;
    if (qp->posted - qp->retired > qp->use.queue_peak)
        qp->use.queue_peak = qp->posted - qp->retired;
    assert(qp->posted - qp->retired <= qp->depth);

    if (ring || qp->posted - qp->released == qp->batch) {
        post.released = (uint32_t)(qp->posted - qp->released);
        qp->released = qp->posted;
    }
    return post;
}

void fabric_qp_done(struct fabric_qp *qp, uint64_t done_ps)
{
    assert(qp->known < qp->released);
    if (done_ps < qp->last_done_ps) done_ps = qp->last_done_ps;
    qp->done_ps[qp->known % qp->depth] = done_ps;
    qp->last_done_ps = done_ps;
    qp->known++;
}

uint64_t fabric_qp_drained_ps(const struct fabric_qp *qp)
{
    assert(qp->known == qp->posted);
    return qp->last_done_ps;
}
