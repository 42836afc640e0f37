/* sim/plan_notes.c - what a plan says of itself: options that were set and do nothing. */
#include "sim/plan_notes.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void plan_note(struct sim_plan *plan, const char *format, ...)
{
    va_list arguments;
    assert(plan->note_count < SIM_NOTES_MAX);
    va_start(arguments, format);
    vsnprintf(plan->notes[plan->note_count++], sizeof plan->notes[0], format, arguments);
    va_end(arguments);
}

void plan_note_idle(struct sim_plan *plan, bool from_trace)
{
    const struct sim_settings *settings = &plan->settings;
    struct sim_settings usual;
    sim_settings_default(&usual);
    const bool nic = plan->nodes > 1 || plan->machine.nvlink_bytes_per_s == 0;
    const bool deep = strcmp(settings->qp_depth, usual.qp_depth) != 0;
    const struct {
        const char *option, *without;
        bool idle;
    } lone[] = {
        {"eplb-weights", "--eplb", settings->eplb == 0 && settings->eplb_weights[0] != '\0'},
        {"eplb-groups", "--eplb", settings->eplb == 0 && settings->eplb_groups != 1},
        {"replica", "--eplb", settings->eplb == 0 && strcmp(settings->replica, usual.replica) != 0},
        {"weights", "a trace", !from_trace && strcmp(settings->weights, usual.weights) != 0},
        {"offsets", "a trace", !from_trace && settings->offsets[0] != '\0'},
    };
    if (plan->note_count + 3 + sizeof lone / sizeof lone[0] > SIM_NOTES_MAX) return;
    for (size_t i = 0; i < sizeof lone / sizeof lone[0]; i++)
        if (lone[i].idle)
            plan_note(plan, "--%s does nothing without %s", lone[i].option, lone[i].without);
    if (plan->mode == SIM_MODE_LL && settings->sms != usual.sms)
        plan_note(plan, "--sms %" PRIu32 " does nothing: low latency takes a grid of its own",
                  settings->sms);
    if (plan->mode == SIM_MODE_NORMAL && plan->machine.nvlink_bytes_per_s == 0)
        plan_note(plan, "%s has no NVLink: hops within a node go by NIC too", plan->machine.name);
    if (deep && plan->mode == SIM_MODE_NORMAL)
        plan_note(plan, "--qp-depth %s does nothing: normal mode's chunks never fill a ring",
                  settings->qp_depth);
    else if (deep && !nic)
        plan_note(plan, "--qp-depth %s does nothing: no row goes by NIC", settings->qp_depth);
}

/* Do messages leave their leaf switches? Normal mode with NVLink keeps to its rails. */
static bool over_spines(const struct sim_plan *plan)
{
    const bool rails = plan->mode == SIM_MODE_NORMAL && plan->machine.nvlink_bytes_per_s > 0;
    assert(plan->nodes > 0 && plan->ranks_per_node > 0 && plan->machine.leaf_nodes > 0);
    return plan->nodes > plan->machine.leaf_nodes || (!rails && plan->ranks_per_node > 1);
}

/* One line about options of the network that change nothing here, or about what the machine's file
 * says and nobody asked for; "" when there is nothing to say. */
static void say_network(const struct sim_plan *plan, char *text, size_t text_len)
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

void plan_note_network(struct sim_plan *plan)
{
    char text[sizeof plan->notes[0]];

    say_network(plan, text, sizeof text);
    if (text[0] != '\0' && plan->note_count < SIM_NOTES_MAX) plan_note(plan, "%s", text);
}
