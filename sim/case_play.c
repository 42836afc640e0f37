/* sim/case_play.c - plays a named case on the reference and on a backend, and compares. */
#include "sim/case_play.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gen/config.h"
#include "ref/digest.h"
#include "sim/backends.h"
#include "sim/datapath_check.h"
#include "sim/explain.h"
#include "sim/received.h"
#include "sim/rng.h"
#include "sim/transport.h"
#if EPSIM_CUDA
#include "sim/backend_cuda.h"
#endif

enum { PURPOSE_LANDING = 15 };

/* One case on its way. */
struct job {
    struct sim_case_player *player;
    const struct sim_table_case *table_case;
    struct sim_case_verdict *verdict;
    struct sim_case_inputs inputs;
    void *reference_state;
    struct sim_results expected, actual;
    struct sim_layer_results expected_view, actual_view;
    uint64_t path_digest; /* Of the path compared last. */
    char *err;
    size_t err_len;
};

static uint64_t low_latency_rows(const struct sim_layer_input *input,
                                 const struct sim_layer_results *results)
{
    const struct sim_row_shape shape = sim_row_shape(input);
    const struct sim_received *received = &results->received;
    const uint8_t *scales = sim_received_scales(received);
    const uint64_t hidden_bytes = 2 * (uint64_t)input->hidden;
    const uint64_t *start = input->traffic->block_start;
    uint64_t digest = 0;

    assert(start[shape.blocks] == input->traffic->received_rows);
    for (uint64_t block = 0; block < shape.blocks; block++) {
        uint64_t sum = 0;
        for (uint64_t row = start[block]; row < start[block + 1]; row++) {
            uint64_t one = (uint64_t)(uint32_t)received->src_token[row];
            one = ref_digest_mix(one, ref_digest(received->payload + row * shape.payload_bytes,
                                                 shape.payload_bytes));
            if (scales != NULL)
                one = ref_digest_mix(
                    one, ref_digest(scales + row * shape.scale_bytes, shape.scale_bytes));
            one = ref_digest_mix(
                one, ref_digest(results->expert_out + row * input->hidden, hidden_bytes));
            sum += ref_digest_scramble(one);
        }
        if (start[block + 1] > start[block]) digest = ref_digest_mix(digest, sum);
    }
    return digest;
}

static uint64_t normal_rows(const struct sim_layer_input *input,
                            const struct sim_layer_results *results)
{
    const struct sim_row_shape shape = sim_row_shape(input);
    const struct sim_received *received = &results->received;
    const void *scales = sim_received_scales(received);
    const uint64_t rows = input->traffic->received_rows, topk = input->routing->topk;
    uint64_t digest = ref_digest(received->src_token, rows * sizeof(int32_t));

    digest = ref_digest_mix(digest, ref_digest(received->payload, rows * shape.payload_bytes));
    if (scales != NULL)
        digest = ref_digest_mix(digest, ref_digest(scales, rows * shape.scale_bytes));
    digest = ref_digest_mix(digest, ref_digest(received->topk_idx, rows * topk * sizeof(int64_t)));
    digest =
        ref_digest_mix(digest, ref_digest(received->topk_weights, rows * topk * sizeof(float)));
    return ref_digest_mix(digest,
                          ref_digest(results->expert_out, rows * 2 * (uint64_t)input->hidden));
}

uint64_t sim_case_digest(const struct sim_layer_input *input,
                         const struct sim_layer_results *results)
{
    const bool ll = input->traffic->mode == SIM_MODE_LL;
    const uint64_t tokens = ref_token_count(input->routing);
    uint64_t digest =
        ref_digest(results->received.counts, sim_row_shape(input).blocks * sizeof(int32_t));

    digest =
        ref_digest_mix(digest, ll ? low_latency_rows(input, results) : normal_rows(input, results));
    digest = ref_digest_mix(digest,
                            ref_digest(results->combined.x, tokens * 2 * (uint64_t)input->hidden));
    if (ll) return digest;
    return ref_digest_mix(digest, ref_digest(results->combined.topk_weights,
                                             tokens * input->routing->topk * sizeof(float)));
}

/* The first difference of a path, as verify reports it. */
static void note(struct job *job, const char *path, const struct sim_check *check)
{
    struct sim_mismatch *first = &job->verdict->first;
    const size_t name = strcspn(check->cause, ":");
    struct sim_check explained = *check;

    assert(check->mismatch_count > 0 && check->rank < job->inputs.layer.routing->ranks);
    memset(first, 0, sizeof *first);
    (void)sim_explain_row(&job->inputs.layer, &job->expected_view, &job->actual_view, check,
                          explained.cause);
    first->stage = sim_stage_name(check->stage);
    snprintf(first->tensor, sizeof first->tensor, "%.*s (%s path)", (int)(name < 24 ? name : 24),
             check->cause, path);
    first->rank = check->rank;
    first->expert = check->expert;
    first->src_rank = check->src_rank;
    first->src_token = check->src_token;
    first->channel = check->channel;
    snprintf(first->expected, sizeof first->expected, "%s", check->expected_hex);
    snprintf(first->actual, sizeof first->actual, "%s", check->actual_hex);
    snprintf(first->cause, sizeof first->cause, "%s", explained.cause);
}

/* Every stage of every rank; the results' digest goes into the output's. */
static void compare(struct job *job, const char *path)
{
    const struct sim_layer_input *input = &job->inputs.layer;
    struct sim_case_verdict *verdict = job->verdict;

    for (uint32_t stage = 0; stage < SIM_STAGES; stage++)
        for (uint32_t r = 0; r < input->routing->ranks; r++) {
            struct sim_check check;
            sim_datapath_check(input, &job->expected_view, &job->actual_view, (enum sim_stage)stage,
                               r, &check, NULL);
            verdict->compared_bytes += check.bytes;
            if (check.mismatch_count > 0 && verdict->mismatches == 0) note(job, path, &check);
            verdict->mismatches += check.mismatch_count;
        }
    job->path_digest = sim_case_digest(input, &job->actual_view);
    verdict->output_digest = ref_digest_mix(verdict->output_digest, job->path_digest);
    if (verdict->mismatches > 0) verdict->outcome = SIM_CASE_FAILED;
}

/* Group operations into poisoned arrays. 0, or what the backend said. */
static int play_group(struct job *job, const struct sim_backend_ops *ops, void *state,
                      struct sim_results *results, struct sim_layer_results *view)
{
    const struct sim_layer_input *input = &job->inputs.layer;
    int status = sim_results_reserve(results, input, job->err, job->err_len);

    assert(ops->dispatch != NULL && ops->expert != NULL && ops->combine != NULL);
    if (status != 0) return status;
    sim_results_poison(results);
    status = ops->dispatch(state, input, &results->received, job->err, job->err_len);
    if (status == 0)
        status = ops->expert(state, input, &results->received, results->expert_out, job->err,
                             job->err_len);
    if (status == 0)
        status = ops->combine(state, input, results->expert_out, results->received.topk_weights,
                              &results->combined, job->err, job->err_len);
    *view = (struct sim_layer_results){results->received, results->expert_out, results->combined};
    return status;
}

/* A backend that wrote past the last row of an array is wrong whatever the rows hold. */
static void check_overrun(struct job *job, const struct sim_results *results)
{
    struct sim_mismatch *first = &job->verdict->first;
    const char *name = sim_results_overrun(results, &job->inputs.layer);

    if (name == NULL) return;
    if (job->verdict->mismatches++ == 0) {
        memset(first, 0, sizeof *first);
        first->stage = "dispatch";
        snprintf(first->tensor, sizeof first->tensor, "%s (group path)", name);
        first->expert = first->src_rank = first->src_token = first->channel = -1;
        snprintf(first->expected, sizeof first->expected, "poison");
        snprintf(first->actual, sizeof first->actual, "written");
        snprintf(first->cause, sizeof first->cause, "%s: written past its last row", name);
    }
    job->verdict->outcome = SIM_CASE_FAILED;
}

/* Messages of one direction, hop by hop in an order drawn from the case, as calls. */
static int schedule_open(const struct job *job, enum sim_direction direction,
                         struct sim_schedule *schedule)
{
    const struct sim_traffic *traffic = &job->inputs.traffic;
    const uint64_t count = traffic->message_count[direction];
    struct sim_rng rng =
        sim_rng_stream(job->inputs.digest, PURPOSE_LANDING, (uint64_t)direction, 0, 0);
    struct sim_timing timing = {0};

    if (sim_timing_open(&timing, traffic->ranks, count, job->err, job->err_len) != 0) return -1;
    for (uint64_t m = 0; m < count; m++) timing.land_ps[m] = sim_rng_next(&rng) >> 32;
    const int status = sim_schedule_build(traffic, direction, &timing, NULL, 0, 0, schedule,
                                          job->err, job->err_len);
    sim_timing_close(&timing);
    return status;
}

static int play_phases(struct job *job, const struct sim_backend_ops *ops, void *state)
{
    const struct sim_layer_input *input = &job->inputs.layer;
    struct sim_schedule schedules[SIM_DIRECTIONS];
    struct sim_layer_results *view = &job->actual_view;
    int status = -1;

    memset(schedules, 0, sizeof schedules);
    if (schedule_open(job, SIM_DISPATCH, &schedules[SIM_DISPATCH]) == 0 &&
        schedule_open(job, SIM_COMBINE, &schedules[SIM_COMBINE]) == 0)
        status = sim_datapath_phases(ops, state, input, schedules, view, job->err, job->err_len);
    for (int d = 0; d < SIM_DIRECTIONS; d++) sim_schedule_free(&schedules[d]);
    return status;
}

static uint64_t kernel_ns(const struct sim_backend_ops *ops, void *state)
{
#if EPSIM_CUDA
    if (ops == sim_backend_cuda()) return sim_backend_cuda_kernel_ns(state);
#endif
    (void)ops;
    (void)state;
    return 0;
}

static bool is_direct(const struct sim_case_player *player)
{
    return player->place != NULL && player->place->transport == SIM_TRANSPORT_DIRECT;
}

/* Both paths of somebody else's backend, whose lock is held. 0, or what it said. */
static int play_backend(struct job *job)
{
    const struct sim_backend_ops *ops = job->player->backend;
    void *state = job->player->state;
    struct sim_case_verdict *verdict = job->verdict;
    int status = 0;

    (void)kernel_ns(ops, state); /* What came before is not this case's. */
    status = play_group(job, ops, state, &job->actual, &job->actual_view);
    if (status != 0) return status;
    verdict->kernel_ns = kernel_ns(ops, state);
    compare(job, "group");
    check_overrun(job, &job->actual);
    sim_results_free(&job->actual);
    if (ops->begin == NULL || is_direct(job->player)) { /* The one path counts for both. */
        verdict->output_digest = ref_digest_mix(verdict->output_digest, job->path_digest);
        return 0;
    }
    status = play_phases(job, ops, state);
    if (status == 0) compare(job, "phase");
    return status;
}

/* The backend in its turn. One that fails is closed, and opened anew for the next case. */
static int take_turn(struct job *job)
{
    struct sim_case_player *player = job->player;
    struct sim_case_verdict *verdict = job->verdict;
    int status = 0;

    pthread_mutex_lock(&player->lock);
    if (player->state == NULL)
        status = sim_backend_open(player->backend, player->place, &player->state, job->err,
                                  job->err_len);
    if (status == 0) {
        status = play_backend(job);
        if (status == SIM_BACKEND_UNSUPPORTED) {
            verdict->outcome = SIM_CASE_SKIPPED;
            status = 0;
        }
        if (status != 0) {
            verdict->outcome = SIM_CASE_BROKEN;
            snprintf(verdict->broken, sizeof verdict->broken, "%s", job->err);
            player->backend->close(player->state);
            player->state = NULL;
            status = 0;
        }
    }
    pthread_mutex_unlock(&player->lock);
    return status;
}

static bool direct_takes(const struct job *job)
{
    const struct sim_transport_shape shape = sim_transport_shape(&job->inputs.layer);
    char why[192];

    if (!is_direct(job->player)) return true;
    return sim_transport_takes(&shape, job->player->place->gpus, why, sizeof why) == 0;
}

static int play(struct job *job)
{
    const struct sim_backend_ops *reference = sim_backend_ref();
    struct sim_case_verdict *verdict = job->verdict;

    if (!direct_takes(job)) {
        verdict->outcome = SIM_CASE_SKIPPED;
        return 0;
    }
    if (play_group(job, reference, job->reference_state, &job->expected, &job->expected_view) != 0)
        return -1;
    assert(sim_results_overrun(&job->expected, &job->inputs.layer) == NULL);
    const uint64_t once = sim_case_digest(&job->inputs.layer, &job->expected_view);
    verdict->expected_digest = ref_digest_mix(ref_digest_mix(0, once), once);
    if (job->player->reference) {
        verdict->output_digest = verdict->expected_digest;
        return 0;
    }
    if (job->player->backend != NULL) return take_turn(job);
    verdict->output_digest = ref_digest_mix(0, once);
    if (play_phases(job, reference, job->reference_state) != 0) return -1;
    compare(job, "phase");
    return 0;
}

int sim_case_player_open(struct sim_case_player *player, const struct sim_backend_ops *backend,
                         const struct sim_backend_place *place, bool reference, char *err,
                         size_t err_len)
{
    memset(player, 0, sizeof *player);
    pthread_mutex_init(&player->lock, NULL);
    player->place = place;
    player->reference = reference;
    if (reference || backend == sim_backend_ref()) return 0;
    player->backend = backend;
    if (backend == NULL) return 0;
    return sim_backend_open(backend, place, &player->state, err, err_len);
}

void sim_case_player_close(struct sim_case_player *player)
{
    if (player->state != NULL) player->backend->close(player->state);
    pthread_mutex_destroy(&player->lock);
    memset(player, 0, sizeof *player);
}

int sim_case_play(struct sim_case_player *player, const struct sim_table_case *table_case,
                  struct sim_case_verdict *verdict, char *err, size_t err_len)
{
    const struct sim_backend_ops *reference = sim_backend_ref();
    struct job job = {.player = player,
                      .table_case = table_case,
                      .verdict = verdict,
                      .err = err,
                      .err_len = err_len};

    memset(verdict, 0, sizeof *verdict);
    int status = sim_case_inputs_open(table_case, &job.inputs, err, err_len);
    if (status != 0) return status;
    verdict->input_digest = job.inputs.digest;
    verdict->bytes = job.inputs.bytes;
    status = reference->open(reference, &job.reference_state, err, err_len);
    if (status == 0) status = play(&job);
    reference->close(job.reference_state);
    sim_results_free(&job.expected);
    sim_results_free(&job.actual);
    sim_case_inputs_free(&job.inputs);
    return status;
}
