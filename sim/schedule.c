/* sim/schedule.c - landing times in, backend calls out; the only place where faults touch a
 * message. */
#include "sim/schedule.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct landing {
    uint64_t time_ps;
    uint64_t message;
    uint32_t hop;
};

/* First hops before second hops: a hop that reads a row comes after the one that wrote it. */
static int compare_landings(const void *left, const void *right)
{
    const struct landing *a = (const struct landing *)left;
    const struct landing *b = (const struct landing *)right;
    if (a->hop != b->hop) return a->hop < b->hop ? -1 : 1;
    if (a->time_ps != b->time_ps) return a->time_ps < b->time_ps ? -1 : 1;
    return a->message < b->message ? -1 : a->message > b->message;
}

static int reserve(struct sim_schedule *schedule, uint64_t messages, uint64_t calls, char *err,
                   size_t err_len)
{
    if (messages > schedule->message_max || schedule->messages == NULL) {
        free(schedule->messages);
        schedule->messages =
            (struct sim_message *)malloc((messages + 1) * sizeof(struct sim_message));
        schedule->message_max = schedule->messages != NULL ? messages : 0;
    }
    if (calls > schedule->call_max || schedule->calls == NULL) {
        free(schedule->calls);
        schedule->calls = (struct sim_call *)malloc((calls + 1) * sizeof(struct sim_call));
        schedule->call_max = schedule->calls != NULL ? calls : 0;
    }
    if (schedule->messages != NULL && schedule->calls != NULL) return 0;
    snprintf(err, err_len, "schedule of %" PRIu64 " messages: out of memory", messages);
    return -1;
}

static int matches(const struct sim_message *message, uint32_t hop,
                   const struct sim_fault_target *target)
{
    return message->hop == hop && message->home_rank == target->source &&
           message->token == target->token &&
           (target->expert < 0 || message->expert == target->expert) &&
           (target->peer < 0 ||
            (message->home_rank == message->src_rank ? message->dst_rank : message->src_rank) ==
                (uint32_t)target->peer);
}

static struct sim_message *find(struct sim_schedule *schedule, uint32_t hop,
                                const struct sim_fault_target *target)
{
    for (uint64_t m = 0; m < schedule->message_count; m++)
        if (matches(&schedule->messages[m], hop, target)) return &schedule->messages[m];
    return NULL;
}

/* The message between the same two ranks on the same hop that lands in the next place after this
 * one's, or in the first when this is the last; NULL when there is no other. */
static struct sim_message *neighbour(struct sim_schedule *schedule,
                                     const struct sim_message *message)
{
    struct sim_message *next = NULL, *first = NULL;
    assert(message >= schedule->messages && message < schedule->messages + schedule->message_count);
    for (uint64_t m = 0; m < schedule->message_count; m++) {
        struct sim_message *other = &schedule->messages[m];
        if (other == message || other->hop != message->hop ||
            other->src_rank != message->src_rank || other->dst_rank != message->dst_rank)
            continue;
        if (first == NULL || other->dst_row < first->dst_row) first = other;
        if (other->dst_row > message->dst_row && (next == NULL || other->dst_row < next->dst_row))
            next = other;
    }
    return next != NULL ? next : first;
}

static void remove_message(struct sim_schedule *schedule, const struct sim_message *message)
{
    const uint64_t at = (uint64_t)(message - schedule->messages);
    assert(at < schedule->message_count);
    memmove(&schedule->messages[at], &schedule->messages[at + 1],
            (schedule->message_count - at - 1) * sizeof *message);
    schedule->message_count--;
}

static int fail(const struct sim_fault *fault, const char *what, char *err, size_t err_len)
{
    snprintf(err, err_len,
             "scenario: %s of token %" PRIu32 " of rank %" PRIu32 " in step %" PRIu64
             ", layer %" PRIu32 ", %s: %s",
             sim_fault_name(fault->kind), fault->target.token, fault->target.source, fault->step,
             fault->layer, fault->stage == SIM_DISPATCH ? "dispatch" : "combine", what);
    return -2;
}

/* "no such message to expert 17; the token's go to experts 3, 8": what was asked for, and what
 * there is on that hop (ranks instead of experts in normal mode). */
static void list_messages(const struct sim_schedule *schedule, const struct sim_fault *fault,
                          char *text, size_t text_len)
{
    const struct sim_fault_target *target = &fault->target;
    const struct sim_fault_target any = {target->source, target->token, -1, -1};
    int at = snprintf(text, text_len, "no such message");
    uint32_t count = 0;

    assert(text_len >= 256);
    if (target->expert >= 0) at += snprintf(text + at, 32, " to expert %" PRId32, target->expert);
    if (target->peer >= 0) at += snprintf(text + at, 32, ", peer %" PRId32, target->peer);
    if (fault->hop > 0) at += snprintf(text + at, 32, ", hop %" PRIu32, fault->hop);
    for (uint64_t m = 0; m < schedule->message_count && count < 16; m++) {
        const struct sim_message *message = &schedule->messages[m];
        if (!matches(message, fault->hop, &any)) continue;
        const uint32_t peer =
            message->home_rank == message->src_rank ? message->dst_rank : message->src_rank;
        if (message->expert >= 0)
            at += snprintf(text + at, text_len - (size_t)at, "%s %" PRId32,
                           count == 0 ? "; this token's experts:" : ",", message->expert);
        else
            at += snprintf(text + at, text_len - (size_t)at, "%s %" PRIu32,
                           count == 0 ? "; this token's peers:" : ",", peer);
        assert((size_t)at < text_len); /* 16 numbers of 11 characters at most. */
        count++;
    }
    if (count == 0) snprintf(text + at, text_len - (size_t)at, "; this token has none there");
}

/* Apply one fault; 0 or -2. Late messages go to *late, to be delivered after everything else. */
static int apply(struct sim_schedule *schedule, const struct sim_fault *fault, uint64_t row_bytes,
                 struct sim_message *late, uint64_t *late_count, char *err, size_t err_len)
{
    struct sim_message *message = find(schedule, fault->hop, &fault->target);
    struct sim_message *other = NULL;
    char what[384];

    if (message == NULL) {
        list_messages(schedule, fault, what, sizeof what);
        return fail(fault, what, err, err_len);
    }
    switch (fault->kind) {
    case SIM_FAULT_DROP: remove_message(schedule, message); return 0;
    case SIM_FAULT_LATE:
    case SIM_FAULT_OVERTAKE:
        assert(*late_count < SIM_FAULTS_MAX);
        late[(*late_count)++] = *message;
        remove_message(schedule, message);
        return 0;
    case SIM_FAULT_CORRUPT:
        if (fault->byte >= row_bytes) {
            snprintf(what, sizeof what, "byte %" PRIu32 ": its row has %" PRIu64 " bytes",
                     fault->byte, row_bytes);
            return fail(fault, what, err, err_len);
        }
        message->corrupt_byte = fault->byte;
        message->corrupt_xor = (uint8_t)fault->xor_mask;
        return 0;
    case SIM_FAULT_DOUBLE:
        other = neighbour(schedule, message);
        if (other == NULL)
            return fail(fault, "no other message between the two ranks to displace", err, err_len);
        other->src_row = message->src_row;
        return 0;
    case SIM_FAULT_SWAP:
        other = find(schedule, fault->hop, &fault->other);
        if (other == NULL || other == message)
            return fail(fault, "no such other message", err, err_len);
        const uint64_t row = message->dst_row;
        const uint32_t rank = message->dst_rank;
        message->dst_row = other->dst_row;
        message->dst_rank = other->dst_rank;
        other->dst_row = row;
        other->dst_rank = rank;
        return 0;
    case SIM_FAULT_DELAY: return 0; /* Time only: applied where ranks start. */
    }
    return 0;
}

static void add_call(struct sim_schedule *schedule, enum sim_call_kind kind, uint32_t rank,
                     uint64_t first, uint64_t count)
{
    assert(schedule->call_count < schedule->call_max);
    if (kind == SIM_CALL_DELIVER && count == 0) return;
    schedule->calls[schedule->call_count++] = (struct sim_call){kind, rank, first, count};
}

/* Calls: pack all; hop 0; when a combine has two hops, forward all; hop 1; unpack all; and what
 * came too late. A faultless run may unpack every rank after every landing: no message of a rank
 * lands after its kernel's end. */
static void add_calls(struct sim_schedule *schedule, const struct sim_traffic *traffic,
                      uint64_t late_count)
{
    const uint64_t on_time = schedule->message_count - late_count;
    uint64_t split = 0;

    assert(late_count <= schedule->message_count);
    schedule->call_count = 0;
    while (split < on_time && schedule->messages[split].hop == 0) split++;
    for (uint32_t r = 0; r < traffic->ranks; r++) add_call(schedule, SIM_CALL_PACK, r, 0, 0);
    add_call(schedule, SIM_CALL_DELIVER, 0, 0, split);
    if (schedule->direction == SIM_COMBINE && traffic->rail_rows > 0)
        for (uint32_t r = 0; r < traffic->ranks; r++) add_call(schedule, SIM_CALL_FORWARD, r, 0, 0);
    add_call(schedule, SIM_CALL_DELIVER, 0, split, on_time - split);
    for (uint32_t r = 0; r < traffic->ranks; r++) add_call(schedule, SIM_CALL_UNPACK, r, 0, 0);
    add_call(schedule, SIM_CALL_DELIVER, 0, on_time, late_count);
}

int sim_schedule_build(const struct sim_traffic *traffic, enum sim_direction direction,
                       const struct sim_timing *timing, const struct sim_scenario *scenario,
                       uint64_t step, uint32_t layer, struct sim_schedule *schedule, char *err,
                       size_t err_len)
{
    const uint64_t count = traffic->message_count[direction];
    const struct sim_message *messages = traffic->messages[direction];
    struct sim_message late[SIM_FAULTS_MAX];
    uint64_t late_count = 0;
    int status = 0;
    struct landing *landings = NULL;

    assert((unsigned)direction < SIM_DIRECTIONS && (messages != NULL || count == 0));
    assert(timing->message_max >= count);
    if (reserve(schedule, count, 3 * (uint64_t)traffic->ranks + 4, err, err_len) != 0) return -1;
    landings = (struct landing *)malloc((count + 1) * sizeof *landings);
    if (landings == NULL) {
        snprintf(err, err_len, "schedule of %" PRIu64 " messages: out of memory", count);
        return -1;
    }
    for (uint64_t m = 0; m < count; m++)
        landings[m] = (struct landing){timing->land_ps[m], m, messages[m].hop};
    qsort(landings, count, sizeof *landings, compare_landings);
    for (uint64_t m = 0; m < count; m++) schedule->messages[m] = messages[landings[m].message];
    free(landings);
    schedule->direction = direction;
    schedule->message_count = count;

    for (uint32_t f = 0; scenario != NULL && f < scenario->count; f++) {
        const struct sim_fault *fault = &scenario->faults[f];
        if (fault->step != step || fault->layer != layer || fault->stage != direction) continue;
        if (fault->kind == SIM_FAULT_DELAY) continue;
        status =
            apply(schedule, fault, traffic->row_bytes[direction], late, &late_count, err, err_len);
        if (status != 0) return status;
    }
    assert(schedule->message_count + late_count <= count);
    memcpy(&schedule->messages[schedule->message_count], late, late_count * sizeof late[0]);
    schedule->message_count += late_count;
    add_calls(schedule, traffic, late_count);
    return 0;
}

void sim_schedule_free(struct sim_schedule *schedule)
{
    free(schedule->messages);
    free(schedule->calls);
    memset(schedule, 0, sizeof *schedule);
}
