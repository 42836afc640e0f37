/* fabric/spine.h - a rail-optimised fabric of leaf and spine switches.
 *
 * A rail is one NIC of every node: GPU g of each. leaf_nodes nodes share a leaf switch per rail,
 * so a message that stays on its rail among them crosses one switch. Any other goes up one of
 * its leaf's uplinks to a spine switch and down to the receiver's leaf, which its n-th port joins
 * to the same spine as every leaf's n-th: the uplink decides the whole way.
 *
 *     spine 0      spine 1  ...              static: a flow's hash picks its uplink, for good,
 *      |    \      /    |                      so flows may meet while other uplinks are idle
 *     leaf, rail 0   leaf, rail 1            adaptive: every message takes the way that is free
 *      |   |   |      |   |   |                first, and pays adaptive_ps for it
 *      n0  n1  n2     n0  n1  n2
 *
 * Ports are serial servers at the NIC's rate, cut through. Switches hold whatever waits here;
 * what a full receiver does to its senders is fabric/congestion.h. */
#ifndef FABRIC_SPINE_H
#define FABRIC_SPINE_H

#include <stdbool.h>
#include <stdint.h>
#include "fabric/link.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fabric_spine {
    uint32_t rails;      /* NICs of a node. */
    uint32_t leaf_nodes; /* Nodes that share a leaf switch. */
    uint32_t uplinks;    /* Of a leaf. */
    uint32_t leaves;     /* Leaf switches in all: rails for every leaf_nodes nodes. */
    uint64_t adaptive_ps;
    uint64_t seed;
    bool adaptive;
    struct fabric_link *up, *down; /* [leaves x uplinks], borrowed. */
    uint64_t messages, waited;     /* Over the spine so far, and those that met another. */
};

/* Leaf switches of so many nodes; leaf_nodes and rails at least 1. */
uint32_t fabric_spine_leaves(uint32_t nodes, uint32_t rails, uint32_t leaf_nodes);

/* spine's first seven members are the caller's to set; up and down have room for leaves x
 * uplinks. Empties every port. hop_ps: a switch and its cable, of which a way over the spine has
 * two more than one over a leaf. */
void fabric_spine_reset(struct fabric_spine *spine, uint64_t port_bytes_per_s, uint64_t hop_ps);

/* Do two ranks (node x rails + rail) meet on a leaf switch? */
bool fabric_spine_same_leaf(const struct fabric_spine *spine, uint32_t src, uint32_t dst);

/* A message of bytes leaves src's NIC from first_ps to last_ps: how much later than over one leaf
 * switch does it come to dst's NIC? flow names the queue pair. 0 for ranks on one leaf.
 *
 * Ports serve in call order. A NIC may have been given work ahead, so that first_ps lies after
 * now_ps, the instant of the call: then a port takes its turn from now_ps on, or what others send
 * meanwhile would wait for a port that idles; nothing is through before the NIC has sent it. */
uint64_t fabric_spine_cross(struct fabric_spine *spine, uint32_t src, uint32_t dst, uint32_t flow,
                            uint64_t now_ps, uint64_t first_ps, uint64_t last_ps, uint64_t bytes);

/* The uplink that static routing gives a flow. */
uint32_t fabric_spine_hash(const struct fabric_spine *spine, uint32_t src, uint32_t dst,
                           uint32_t flow);

#ifdef __cplusplus
}
#endif

#endif
