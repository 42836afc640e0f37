/* sim/network.c - from words to a shape, and when a word does nothing. */
#include "sim/network.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "fabric/units.h"

enum { RATE_BYTES = 32 };

/* "GBPS", "GBPS:shared" or "GBPS:own". */
static int read_background(const char *text, struct fabric_network_shape *shape, char *err,
                           size_t err_len)
{
    static const struct fabric_unit GBITS = {1000000000, 8};
    const size_t span = strcspn(text, ":");
    const char *lane = text + span;
    char rate[RATE_BYTES] = "";
    const bool own = strcmp(lane, ":own") == 0;

    if (span < sizeof rate) memcpy(rate, text, span);
    if ((lane[0] != '\0' && !own && strcmp(lane, ":shared") != 0) ||
        fabric_decimal_parse(rate, GBITS, &shape->background_bytes_per_s) != FABRIC_DECIMAL_OK) {
        snprintf(err, err_len,
                 "--background: %.32s: must be Gb/s, and :shared or :own for its virtual lane",
                 text);
        return -1;
    }
    shape->own_lane = own;
    return 0;
}

int sim_network_read(const struct sim_settings *settings, const struct fabric_machine *machine,
                     struct fabric_network_shape *shape, char *err, size_t err_len)
{
    struct fabric_network_shape read = {.seed = settings->seed};
    const char *routing = settings->fabric_routing, *control = settings->congestion_control;
    read.routing = strcmp(routing, "static") == 0     ? FABRIC_ROUTING_STATIC
                   : strcmp(routing, "adaptive") == 0 ? FABRIC_ROUTING_ADAPTIVE
                                                      : FABRIC_ROUTING_IDEAL;
    read.control = strcmp(control, "on") == 0    ? FABRIC_CONTROL_ON
                   : strcmp(control, "off") == 0 ? FABRIC_CONTROL_OFF
                                                 : FABRIC_CONTROL_IDEAL;
    if (read_background(settings->background, &read, err, err_len) != 0) return -1;
    if (machine->nic_goodput_bytes_per_s > 0 &&
        fabric_network_check(&read, machine, err, err_len) != 0)
        return -1;
    *shape = read;
    return 0;
}

/* Do messages leave their leaf switches? Normal mode with NVLink keeps to its rails. */
static bool over_spines(const struct sim_plan *plan)
{
    const bool rails = plan->mode == SIM_MODE_NORMAL && plan->machine.nvlink_bytes_per_s > 0;
    assert(plan->nodes > 0 && plan->ranks_per_node > 0 && plan->machine.leaf_nodes > 0);
    return plan->nodes > plan->machine.leaf_nodes || (!rails && plan->ranks_per_node > 1);
}

void sim_network_note(const struct sim_plan *plan, char *text, size_t text_len)
{
    const struct fabric_network_shape *shape = &plan->network;
    const struct fabric_machine *machine = &plan->machine;
    const bool by_nic = plan->nodes > 1 || machine->nvlink_bytes_per_s == 0;
    const bool routed = shape->routing != FABRIC_ROUTING_IDEAL;

    text[0] = '\0';
    const bool control = shape->control != FABRIC_CONTROL_IDEAL;
    const bool background = shape->background_bytes_per_s > 0;
    if (!by_nic && fabric_network_asked(shape))
        snprintf(text, text_len, "%s%s%schange%s nothing: on one node NVLink carries everything",
                 routed ? "--fabric-routing " : "", control ? "--congestion-control " : "",
                 background ? "--background " : "", routed + control + background == 1 ? "s" : "");
    else if (by_nic && routed && !over_spines(plan))
        snprintf(text, text_len,
                 "--fabric-routing changes nothing: every message stays on its rail, and the nodes "
                 "share their leaf switches (leaf_nodes: %u)",
                 machine->leaf_nodes);
    else if (by_nic && !routed && over_spines(plan) && machine->leaf_uplinks < machine->leaf_nodes)
        snprintf(text, text_len,
                 "the machine's leaf switches have %u uplinks for %u nodes: without "
                 "--fabric-routing static or adaptive that costs nothing",
                 machine->leaf_uplinks, machine->leaf_nodes);
}
