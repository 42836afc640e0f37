/* sim/diff.c - compares two runs. */
#include "sim/diff.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ref/digest.h"
#include "sim/datapath_check.h"
#include "sim/explain.h"
#include "sim/received.h"
#include "sim/replica.h"
#include "traces/routing.h"

static int read_settings(struct trace_reader *reader, struct sim_settings *settings, char *err,
                         size_t err_len)
{
    const struct trace_run_info *run = trace_reader_run(reader);
    json_error_t error;
    json_t *json = json_loads(run->settings_json, JSON_REJECT_DUPLICATES, &error);
    int status = -1;
    if (json == NULL) {
        snprintf(err, err_len, "%s#%" PRIu64 ": settings_json: %.100s", trace_reader_path(reader),
                 run->run, error.text);
        return -1;
    }
    status = sim_settings_from_json(json, settings, err, err_len);
    json_decref(json);
    return status;
}

/* Are the routing files what they were when the run was recorded? */
static int check_routing(struct trace_reader *reader, char *err, size_t err_len)
{
    size_t count = 0;
    const struct trace_routing_info *files = trace_reader_routing(reader, &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t digest = 0;
        if (trace_routing_digest_file(files[i].path, &digest, err, err_len) != 0) return -1;
        if (digest == files[i].file_digest) continue;
        snprintf(err, err_len,
                 "%.256s: digest %016" PRIx64 ", but the run recorded %016" PRIx64
                 ": the routing has changed since",
                 files[i].path, digest, files[i].file_digest);
        return -1;
    }
    return 0;
}

/* Execute one side's layer again; its digest of the stage must be the recorded one. */
static int replay_side(struct trace_reader *reader, const struct trace_check_key *key,
                       enum sim_stage stage, uint64_t recorded, struct sim_replica *replica,
                       char *err, size_t err_len)
{
    struct sim_settings settings;
    assert((unsigned)stage < SIM_STAGES);
    if (read_settings(reader, &settings, err, err_len) != 0) return -1;
    if (check_routing(reader, err, err_len) != 0) return -1;
    if (sim_replica_open(&settings, key->step, key->layer, replica, err, err_len) != 0) return -1;
    if (key->rank >= replica->plan->ranks) {
        snprintf(err, err_len, "%s: rank %" PRIu32 ": the run has %" PRIu32 " ranks",
                 trace_reader_path(reader), key->rank, replica->plan->ranks);
        return -1;
    }
    const uint64_t digest = replica->cell->checks[stage * replica->plan->ranks + key->rank].digest;
    if (digest == recorded) return 0;
    snprintf(err, err_len,
             "%.200s#%" PRIu64 ": executed again, backend %.16s gives digest %016" PRIx64
             " where %016" PRIx64 " is recorded: not reproducible here",
             trace_reader_path(reader), trace_reader_run(reader)->run, settings.backend, digest,
             recorded);
    return -1;
}

static int stage_of(const char *name, enum sim_stage *stage)
{
    for (int s = 0; s < SIM_STAGES; s++) {
        if (strcmp(sim_stage_name((enum sim_stage)s), name) != 0) continue;
        *stage = (enum sim_stage)s;
        return 0;
    }
    return -1;
}

/* Can rows of the two sides be laid side by side? */
static bool comparable(const struct sim_replica *a, const struct sim_replica *b, char *note,
                       size_t note_len)
{
    const struct sim_row_shape x = sim_row_shape(&a->input), y = sim_row_shape(&b->input);
    if (a->cell->routing_digest != b->cell->routing_digest || a->plan->ranks != b->plan->ranks ||
        a->plan->mode != b->plan->mode) {
        snprintf(note, note_len, "the routing, mode or number of ranks differs: rows do not match");
        return false;
    }
    if (x.payload_bytes != y.payload_bytes || x.scale_bytes != y.scale_bytes ||
        a->plan->hidden != b->plan->hidden) {
        snprintf(note, note_len,
                 "rows have other sizes: %s with hidden %" PRIu32
                 " against %s with hidden %" PRIu32,
                 ref_recipe_name(a->plan->recipe), a->plan->hidden,
                 ref_recipe_name(b->plan->recipe), b->plan->hidden);
        return false;
    }
    return true;
}

/* One line on what each side did: its recipe where they differ, and what it did wrong. */
static void explain_sides(const struct sim_replica *a, const struct sim_replica *b,
                          const struct sim_check *check, char *text, size_t text_len)
{
    const struct sim_replica *const sides[2] = {a, b};
    size_t at = 0;

    assert(check->mismatch_count > 0);
    if (a->plan->recipe != b->plan->recipe)
        at = (size_t)snprintf(text, text_len, "A quantises by %s, B by %s",
                              ref_recipe_name(a->plan->recipe), ref_recipe_name(b->plan->recipe));
    for (int s = 0; s < 2; s++) {
        char cause[SIM_CAUSE_MAX] = "";
        if (at >= text_len ||
            !sim_explain_row(&sides[s]->input, sim_datapath_expected(sides[s]->path),
                             sim_datapath_actual(sides[s]->path), check, cause))
            continue;
        at += (size_t)snprintf(text + at, text_len - at, "%s%c: %s", at > 0 ? "; " : "", "AB"[s],
                               cause);
    }
    if (at == 0) snprintf(text, text_len, "%s", check->cause);
}

/* Lay both sides' stage side by side and name the first element. */
static void name_element(const struct sim_replica *a, const struct sim_replica *b,
                         enum sim_stage stage, uint32_t rank, struct sim_diff *diff)
{
    if (!comparable(a, b, diff->element_note, sizeof diff->element_note)) return;
    sim_datapath_check(&a->input, sim_datapath_actual(a->path), sim_datapath_actual(b->path), stage,
                       rank, &diff->check, NULL);
    diff->element_found = diff->check.mismatch_count > 0;
    if (diff->element_found)
        explain_sides(a, b, &diff->check, diff->element_note, sizeof diff->element_note);
}

int sim_diff_runs(struct trace_reader *a, struct trace_reader *b, struct sim_diff *diff, char *err,
                  size_t err_len)
{
    struct sim_replica side_a = {0}, side_b = {0};
    enum sim_stage stage = SIM_STAGE_LAYOUT;

    memset(diff, 0, sizeof *diff);
    if (trace_db_first_difference(a, b, &diff->digests, err, err_len) != 0) return -1;
    if (!diff->digests.differs) return 0;
    const struct trace_check_key *key = &diff->digests.key;
    if (stage_of(key->stage, &stage) != 0) {
        snprintf(diff->element_note, sizeof diff->element_note,
                 "%s: no stage that this epsim knows", key->stage);
        return 0;
    }
    if (replay_side(a, key, stage, diff->digests.digest_a, &side_a, diff->element_note,
                    sizeof diff->element_note) == 0 &&
        replay_side(b, key, stage, diff->digests.digest_b, &side_b, diff->element_note,
                    sizeof diff->element_note) == 0)
        name_element(&side_a, &side_b, stage, key->rank, diff);
    sim_replica_close(&side_a);
    sim_replica_close(&side_b);
    return 0;
}
