/* sim/breakdown_json.c - the breakdown as other programs read it. */
#include <assert.h>

#include "sim/breakdown.h"

static const char *const OPS[SIM_DIRECTIONS] = {"dispatch", "combine"};

static json_t *whole(uint64_t value)
{
    assert(value <= INT64_MAX);
    return json_integer((json_int_t)value);
}

/* Every part, those of 0 too. */
static json_t *sum_json(const struct sim_breakdown_sum *sum)
{
    json_t *json = json_object(), *parts = json_object();
    for (int part = 0; part < SIM_PARTS; part++)
        json_object_set_new(parts, sim_part_name((enum sim_part)part),
                            json_integer(sum->part_ps[part]));
    json_object_set_new(json, "cells", whole(sum->cells));
    json_object_set_new(json, "time_ps", whole(sum->took_ps));
    json_object_set_new(json, "parts_ps", parts);
    return json;
}

static json_t *knob_json(const struct sim_breakdown *breakdown, int direction,
                         enum sim_widening knob)
{
    const uint64_t before_ps = breakdown->all[direction].took_ps;
    const uint64_t after_ps = breakdown->after_ps[direction][knob];
    const char *idle = breakdown->idle[direction][knob];
    json_t *json = json_object();
    json_object_set_new(json, "op", json_string(OPS[direction]));
    json_object_set_new(json, "knob", json_string(sim_widening_name(knob)));
    json_object_set_new(json, "text", json_string(sim_widening_text(knob)));
    json_object_set_new(json, "before_ps", whole(before_ps));
    json_object_set_new(json, "after_ps", whole(after_ps));
    json_object_set_new(json, "gain_ps",
                        json_integer((json_int_t)before_ps - (json_int_t)after_ps));
    json_object_set_new(json, "does_nothing", json_boolean(before_ps == after_ps));
    if (after_ps > before_ps) idle = sim_widening_slower();
    json_object_set_new(json, "reason", idle != NULL ? json_string(idle) : json_null());
    return json;
}

static json_t *assumptions_json(const struct sim_breakdown *breakdown)
{
    json_t *list = json_array();
    for (int i = 0; i < breakdown->assumption_count; i++) {
        const struct sim_assumption *found = &breakdown->assumptions[i];
        json_t *json = json_object();
        json_object_set_new(json, "number", json_string(found->key));
        json_object_set_new(json, "value", json_string(found->value));
        json_object_set_new(json, "kind", json_string(found->kind));
        json_object_set_new(json, "origin", json_string(found->origin));
        json_object_set_new(json, "now_ps", whole(found->now_ps));
        json_object_set_new(json, "tenth_worse_ps", whole(found->worse_ps));
        json_array_append_new(list, json);
    }
    return list;
}

json_t *sim_breakdown_json(const struct sim_breakdown *breakdown)
{
    json_t *json = json_object(), *layers = json_array(), *widen = json_array();
    json_object_set_new(json, "modelled", json_true());
    json_object_set_new(json, "of",
                        json_string("the slowest rank of each layer and step, summed; parts are "
                                    "Shapley values of counterfactual simulations"));
    for (int d = 0; d < SIM_DIRECTIONS; d++) {
        json_object_set_new(json, OPS[d], sum_json(&breakdown->all[d]));
        for (int k = 0; k < SIM_WIDENINGS; k++)
            json_array_append_new(widen, knob_json(breakdown, d, (enum sim_widening)k));
    }
    for (uint32_t l = 0; l < breakdown->layer_count; l++) {
        json_t *layer = json_object();
        json_object_set_new(layer, "layer", json_integer(breakdown->layer[l]));
        for (uint32_t d = 0; d < SIM_DIRECTIONS; d++)
            json_object_set_new(layer, OPS[d],
                                sum_json(&breakdown->by_layer[(size_t)l * SIM_DIRECTIONS + d]));
        json_array_append_new(layers, layer);
    }
    json_object_set_new(json, "layers", layers);
    json_object_set_new(json, "widen", widen);
    json_object_set_new(json, "assumptions", assumptions_json(breakdown));
    return json;
}
