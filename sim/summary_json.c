/* sim/summary_json.c - the summary as the document that other programs read: microseconds as
 * decimals, bytes as integers. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "sim/summary.h"

static json_t *microseconds(uint64_t ps)
{
    return json_real((double)ps / 1e6);
}

static json_t *distribution(const struct sim_distribution *times)
{
    json_t *json = json_object();
    json_object_set_new(json, "mean", microseconds(times->mean_ps));
    json_object_set_new(json, "p50", microseconds(times->p50_ps));
    json_object_set_new(json, "p99", microseconds(times->p99_ps));
    json_object_set_new(json, "max", microseconds(times->max_ps));
    return json;
}

static json_t *bytes_json(const struct sim_bytes *bytes)
{
    static const char *const CLASSES[SIM_LINK_CLASSES] = {"local", "nvlink", "nic"};
    json_t *json = json_object();
    json_object_set_new(json, "formula", json_integer((json_int_t)bytes->formula));
    json_object_set_new(json, "distinct_rank", json_integer((json_int_t)bytes->distinct_rank));
    for (int c = 0; c < SIM_LINK_CLASSES; c++)
        json_object_set_new(json, CLASSES[c], json_integer((json_int_t)bytes->wire[c]));
    return json;
}

static json_t *imbalance(uint64_t expert_ppm, uint64_t rank_ppm, uint64_t cells)
{
    const double scale = cells > 0 ? 1e-6 / (double)cells : 0.0;
    json_t *json = json_object();
    json_object_set_new(json, "expert_max_over_mean", json_real((double)expert_ppm * scale));
    json_object_set_new(json, "rank_max_over_mean", json_real((double)rank_ppm * scale));
    return json;
}

static json_t *layer_json(const struct sim_summary *summary, uint32_t index)
{
    const struct sim_layer_summary *layer = &summary->layers[index];
    const struct sim_distribution dispatch = sim_summary_times(summary, index, SIM_DISPATCH);
    const struct sim_distribution combine = sim_summary_times(summary, index, SIM_COMBINE);
    json_t *json = json_object(), *floor = json_object();

    assert(index < summary->layer_count);
    json_object_set_new(json, "layer", json_integer(layer->layer));
    json_object_set_new(json, "dispatch_us", distribution(&dispatch));
    json_object_set_new(json, "combine_us", distribution(&combine));
    json_object_set_new(floor, "dispatch",
                        microseconds(sim_summary_floors(summary, index, SIM_DISPATCH).p50_ps));
    json_object_set_new(floor, "combine",
                        microseconds(sim_summary_floors(summary, index, SIM_COMBINE).p50_ps));
    json_object_set_new(json, "floor_us", floor);
    json_object_set_new(json, "bytes", bytes_json(&layer->bytes));
    json_object_set_new(json, "imbalance",
                        imbalance(layer->expert_ratio_ppm, layer->rank_ratio_ppm, summary->steps));
    return json;
}

static json_t *mismatch_json(const struct sim_summary *summary)
{
    const struct sim_check *check = &summary->first;
    json_t *json = json_object();
    assert(summary->mismatches > 0);
    json_object_set_new(json, "step", json_integer((json_int_t)summary->first_step));
    json_object_set_new(json, "layer", json_integer(summary->first_layer));
    json_object_set_new(json, "stage", json_string(sim_stage_name(check->stage)));
    json_object_set_new(json, "rank", json_integer(check->rank));
    json_object_set_new(json, "expert",
                        check->expert < 0 ? json_null() : json_integer(check->expert));
    json_object_set_new(json, "src_rank", json_integer(check->src_rank));
    json_object_set_new(json, "src_token", json_integer(check->src_token));
    json_object_set_new(json, "channel",
                        check->channel < 0 ? json_null() : json_integer(check->channel));
    json_object_set_new(json, "expected", json_string(check->expected_hex));
    json_object_set_new(json, "actual", json_string(check->actual_hex));
    json_object_set_new(json, "cause", json_string(check->cause));
    return json;
}

/* As far as the list goes; the digest is over all. */
static json_t *wrong_json(const struct sim_wrong_rows *wrong)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < sim_wrong_rows_listed(wrong); i++) {
        const struct sim_wrong_row *row = &wrong->rows[i];
        json_t *json = json_object();
        json_object_set_new(json, "step", json_integer((json_int_t)row->step));
        json_object_set_new(json, "layer", json_integer(row->layer));
        json_object_set_new(json, "stage", json_string(sim_stage_name((enum sim_stage)row->stage)));
        json_object_set_new(json, "rank", json_integer(row->rank));
        json_object_set_new(json, "expert",
                            row->expert < 0 ? json_null() : json_integer(row->expert));
        json_object_set_new(json, "src_rank", json_integer(row->src_rank));
        json_object_set_new(json, "src_token",
                            row->src_token < 0 ? json_null() : json_integer(row->src_token));
        json_array_append_new(list, json);
    }
    return list;
}

json_t *sim_summary_json(const struct sim_summary *summary, const struct sim_plan *plan)
{
    json_t *json = json_object(), *layers = json_array(), *checks = json_object();
    json_t *notes = json_array();
    struct sim_bytes bytes;
    uint64_t expert_ppm = 0, rank_ppm = 0;
    char digest[17];

    assert(plan->note_count <= SIM_NOTES_MAX);
    for (uint32_t l = 0; l < summary->layer_count; l++) {
        json_array_append_new(layers, layer_json(summary, l));
        expert_ppm += summary->layers[l].expert_ratio_ppm;
        rank_ppm += summary->layers[l].rank_ratio_ppm;
    }
    for (uint32_t n = 0; n < plan->note_count; n++)
        json_array_append_new(notes, json_string(plan->notes[n]));
    sim_summary_bytes(summary, &bytes);
    snprintf(digest, sizeof digest, "%016" PRIx64, summary->digest);
    json_object_set_new(json, "seed", json_integer((json_int_t)plan->settings.seed));
    json_object_set_new(json, "digest", json_string(digest));
    json_object_set_new(json, "steps", json_integer((json_int_t)summary->steps));
    json_object_set_new(json, "notes", notes);
    json_object_set_new(json, "layers", layers);
    json_object_set_new(json, "bytes", bytes_json(&bytes));
    json_object_set_new(json, "imbalance",
                        imbalance(expert_ppm, rank_ppm, summary->steps * summary->layer_count));
    json_object_set_new(checks, "compared_bytes",
                        json_integer((json_int_t)summary->compared_bytes));
    json_object_set_new(checks, "mismatches", json_integer((json_int_t)summary->mismatches));
    if (summary->mismatches > 0) {
        char wrong[17];
        snprintf(wrong, sizeof wrong, "%016" PRIx64, summary->wrong.digest);
        json_object_set_new(checks, "first_mismatch", mismatch_json(summary));
        json_object_set_new(checks, "wrong_rows", wrong_json(&summary->wrong));
        json_object_set_new(checks, "wrong_rows_digest", json_string(wrong));
    }
    json_object_set_new(json, "checks", checks);
    json_object_set_new(json, "end_us", microseconds(summary->end_ps));
    json_object_set_new(json, "events", json_integer((json_int_t)summary->events));
    if (summary->run > 0) json_object_set_new(json, "run", json_integer((json_int_t)summary->run));
    json_object_set_new(json, "settings", sim_settings_json(&plan->settings));
    return json;
}
