/* sim/explore_words.c - a schedule's steps in words. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "sim/explore_walk.h"

enum { RANGE_BYTES = 64 };

/* "row 5" or "rows 5 to 9". */
static const char *range(const char *what, uint64_t first, uint64_t last, char text[RANGE_BYTES])
{
    assert(first <= last);
    if (first == last)
        snprintf(text, RANGE_BYTES, "%s %" PRIu64, what, first);
    else
        snprintf(text, RANGE_BYTES, "%ss %" PRIu64 " to %" PRIu64, what, first, last);
    return text;
}

static void say_sentinel(const struct sim_explore_ask *ask, uint8_t move, uint64_t count,
                         const uint64_t after[4], char *text, size_t text_len)
{
    const uint64_t sent = after[SENTINEL_SEND];
    const int64_t counter =
        sim_explore_counter(ask, after[SENTINEL_TAG] > 0, after[SENTINEL_COUNT] > 0, sent);
    char tokens[RANGE_BYTES];

    switch (move) {
    case SENTINEL_TAG:
        snprintf(text, text_len, "A adds the tag, %" PRIu32 ": counter %" PRId64, ask->tag,
                 counter);
        return;
    case SENTINEL_COUNT:
        snprintf(text, text_len, "B adds tag - n = %" PRId64 ": counter %" PRId64,
                 (int64_t)ask->tag - (int64_t)ask->tokens, counter);
        return;
    case SENTINEL_SEND:
        snprintf(text, text_len, "C adds 1 after the send of %s: counter %" PRId64,
                 range("token", sent - count, sent - 1, tokens), counter);
        return;
    default:
        assert(counter == 2 * (int64_t)ask->tag);
        snprintf(text, text_len,
                 "the poller sees %" PRId64 ", twice the tag, after %" PRIu64 " of %" PRIu32
                 " sends: the receiver reads",
                 counter, sent, ask->tokens);
    }
}

/* Request p of the queue pair: which kernel's, and which row of it; row M is the flag. */
struct request {
    const char *kernel;
    uint64_t row;
};

static struct request request_of(const struct sim_explore_ask *ask, uint64_t p)
{
    const uint64_t requests = (uint64_t)ask->tokens + 1;
    return (struct request){p / requests % 2 == 0 ? "dispatch" : "combine", p % requests};
}

static const char *name_rows(const struct sim_explore_ask *ask, uint64_t first, uint64_t count,
                             char text[RANGE_BYTES])
{
    const struct request at = request_of(ask, first);
    char rows[RANGE_BYTES];
    if (at.row == ask->tokens)
        snprintf(rows, sizeof rows, "flag");
    else
        range("row", at.row, at.row + count - 1, rows);
    snprintf(text, RANGE_BYTES, "%s %.40s", at.kernel, rows);
    return text;
}

static void say_qp(const struct sim_explore_ask *ask, uint8_t move, uint64_t count,
                   const uint64_t after[4], char *text, size_t text_len)
{
    const uint64_t first = after[move] - count, last = after[move] - 1;
    char rows[RANGE_BYTES], slots[RANGE_BYTES], lost[RANGE_BYTES];

    if (move == QP_TAKE) {
        snprintf(text, text_len, "the NIC takes %s", name_rows(ask, first, count, rows));
        return;
    }
    const int written =
        snprintf(text, text_len, "the sender posts %s into %s", name_rows(ask, first, count, rows),
                 range("slot", first % ask->depth, last % ask->depth, slots));
    if (after[QP_POST] - after[QP_TAKE] <= ask->depth || (size_t)written >= text_len) return;
    snprintf(text + written, text_len - (size_t)written, ", over %s, which the NIC has not taken",
             name_rows(ask, last - ask->depth, 1, lost));
}

static void say_buffers(uint8_t move, const uint64_t after[4], char *text, size_t text_len)
{
    if (move == BUFFERS_READ) {
        const uint64_t result = after[BUFFERS_READ] - 1;
        snprintf(text, text_len, "result %" PRIu64 " is read from buffer %" PRIu64, result,
                 result % 2);
        return;
    }
    const uint64_t call = after[BUFFERS_CALL] - 1;
    const uint64_t before = call - 2; /* The call that used the same buffer. */
    const int written =
        snprintf(text, text_len, "call %" PRIu64 " lands in buffer %" PRIu64, call, call % 2);
    if (call < 2 || after[BUFFERS_READ] > before || (size_t)written >= text_len) return;
    snprintf(text + written, text_len - (size_t)written,
             ", over result %" PRIu64 ", which is unread", before);
}

/* Steps from first on that one line can say: equal moves, up to the last step of the schedule,
 * which stands alone; and of a queue pair, rows of one kernel. */
static uint64_t steps_alike(const struct sim_exploration *exploration, uint64_t first,
                            uint64_t done)
{
    const struct sim_explore_ask *ask = &exploration->ask;
    const bool qp = ask->protocol == SIM_EXPLORE_QP;
    uint64_t count = 1;

    if (ask->protocol == SIM_EXPLORE_BUFFERS) return 1;
    while (first + count + 1 < exploration->step_count &&
           exploration->steps[first + count] == exploration->steps[first] &&
           (!qp || request_of(ask, done + count).row % ask->tokens != 0))
        count++;
    return count;
}

bool sim_explore_line(const struct sim_exploration *exploration, struct sim_explore_reader *reader,
                      bool for_people, char *text, size_t text_len)
{
    if (reader->at == exploration->step_count) return false;
    const uint8_t move = exploration->steps[reader->at];
    assert(reader->at < exploration->step_count && move < 4);
    const uint64_t count =
        for_people ? steps_alike(exploration, reader->at, reader->done[move]) : 1;

    reader->at += count;
    reader->done[move] += count;
    switch (exploration->ask.protocol) {
    case SIM_EXPLORE_SENTINEL:
        say_sentinel(&exploration->ask, move, count, reader->done, text, text_len);
        break;
    case SIM_EXPLORE_QP:
        say_qp(&exploration->ask, move, count, reader->done, text, text_len);
        break;
    case SIM_EXPLORE_BUFFERS: say_buffers(move, reader->done, text, text_len); break;
    }
    return true;
}
