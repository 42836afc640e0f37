/* tests/test_readme.c - the README's questions get the right answers.
 *
 * A run of one step, two layers, EP8 on two nodes of four, 128 tokens per rank, 16 experts of
 * which rank r holds 2r and 2r + 1; hidden 2048. A row on the wire is 16 + 2048 + 4 * 16 = 2128
 * bytes to its expert and 2 * 2048 = 4096 bytes back, together 6224.
 *
 * Layer 0: every token chooses its own rank's two experts, but for
 *     2 of rank 5, which choose expert 13 (rank 6, the same node) in place of 11;
 *     1 of rank 2, which chooses expert 13 (the other node) in place of 5.
 * Layer 1: the same, but for
 *     64 of rank 1, which choose expert 0 (rank 0, the same node) in place of 3;
 *     all 128 of rank 7, which choose experts 0 and 1 (the other node) in place of its own.
 *
 * So expert 13 gets 128 + 2 + 1 rows in layer 0, and expert 0 128 + 64 + 128 in layer 1. The
 * longest wait is that of rank 7 for its 256 rows back from rank 0: 4096 bytes each take 21 us
 * at 50 GB/s; the way there takes half of that, and every other row or flag far less. Nobody
 * can wait for a rank that is late from it, as nothing follows. */
#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include "tests/support.h"
#include "traces/npy.h"

enum { RANKS = 8, BATCH = 128, LAYERS = 2, TOPK = 2 };

static const char *write_trace(const char *folder)
{
    static uint8_t ids[RANKS * BATCH][LAYERS][TOPK];
    for (uint32_t t = 0; t < RANKS * BATCH; t++) {
        const uint32_t rank = t / BATCH, slot = t % BATCH;
        for (uint32_t l = 0; l < LAYERS; l++) {
            ids[t][l][0] = (uint8_t)(2 * rank);
            ids[t][l][1] = (uint8_t)(2 * rank + 1);
        }
        if (rank == 5 && slot < 2) ids[t][0][1] = 13;
        if (rank == 2 && slot < 1) ids[t][0][1] = 13;
        if (rank == 1 && slot < 64) ids[t][1][1] = 0;
        if (rank == 7) ids[t][1][0] = 0;
        if (rank == 7) ids[t][1][1] = 1;
    }
    const uint64_t shape[3] = {RANKS * BATCH, LAYERS, TOPK};
    const char *path = test_join(folder, "ids.npy");
    char err[256];
    ck_assert_int_eq(trace_npy_write(path, TRACE_U8, shape, 3, ids, err, sizeof(err)), 0);
    return path;
}

/* toy-16x2 with two layers. */
static const char *write_model(const char *folder)
{
    char *text = test_read(test_tree_path("sim/models/toy-16x2.yaml"), NULL);
    char *layers = strstr(text, "\nlayers: 1\n");
    ck_assert_ptr_nonnull(layers);
    layers[strlen("\nlayers: ")] = '2';
    return test_write_text(folder, "two.yaml", text);
}

static sqlite3 *replay(void)
{
    const char *folder = test_temp_dir(), *db_path = test_join(folder, "run.db");
    struct test_output output;
    TEST_EPSIM(&output, "replay", write_trace(folder), "--weights", "none", "--model",
               write_model(folder), "--machine", "toy-2x4", "--ep", "8", "--mode", "ll", "--batch",
               "128", "--steps", "1", "--db", db_path);
    ck_assert_msg(output.status == 0, "%s%s", output.out, output.err);
    sqlite3 *db = NULL;
    ck_assert_int_eq(sqlite3_open_v2(db_path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    return db;
}

/* The README's question number index as it stands there, with another layer in place of 7. */
static const char *question(int index, char layer)
{
    char *text = test_read(test_tree_path("README.md"), NULL);
    char *start = text;
    for (int i = 0; i <= index; i++) {
        start = strstr(start, "\n```sql\n");
        ck_assert_msg(start != NULL, "README.md has fewer than %d questions", index + 1);
        start += strlen("\n```sql\n");
    }
    char *end = strstr(start, "\n```\n");
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    char *seven = strstr(start, "layer = 7");
    if (seven != NULL) seven[strlen("layer = ")] = layer;
    return start;
}

/* All rows as "a|b|c" lines, the way the sqlite3 shell prints them, of the first columns. */
static const char *ask(sqlite3 *db, const char *sql, int columns)
{
    static char answer[1024];
    size_t bytes = 0;
    sqlite3_stmt *statement = NULL;
    const char *tail = "";
    ck_assert_msg(sqlite3_prepare_v2(db, sql, -1, &statement, &tail) == SQLITE_OK, "%s: %s", sql,
                  sqlite3_errmsg(db));
    ck_assert_msg(strspn(tail, " \n") == strlen(tail), "more than one statement: %s", sql);
    answer[0] = '\0';
    while (sqlite3_step(statement) == SQLITE_ROW)
        for (int i = 0; i < columns; i++)
            bytes += (size_t)snprintf(answer + bytes, sizeof(answer) - bytes, "%s%s",
                                      (const char *)sqlite3_column_text(statement, i),
                                      i + 1 < columns ? "|" : "\n");
    sqlite3_finalize(statement);
    return answer;
}

START_TEST(the_hottest_expert_of_a_layer)
{
    sqlite3 *db = replay();
    ck_assert_str_eq(ask(db, question(0, '0'), 2), "13|131\n");
    ck_assert_str_eq(ask(db, question(0, '1'), 2), "0|320\n");
    sqlite3_close(db);
}
END_TEST

START_TEST(bytes_on_nvlink_and_nic_per_layer)
{
    sqlite3 *db = replay();
    ck_assert_str_eq(ask(db, question(1, '0'), 3), "0|12448|6224\n" /* 2 rows and 1 */
                                                   "1|398336|1593344\n" /* 64 and 256 rows */);
    sqlite3_close(db);
}
END_TEST

START_TEST(who_waited_longest_for_whom)
{
    sqlite3 *db = replay();
    ck_assert_str_eq(ask(db, question(2, '0'), 2), "7|0\n");
    sqlite3_close(db);
}
END_TEST

START_TEST(the_busiest_resource)
{
    /* Five rows; the busiest of two nodes are the NICs of combine, whose rows are the largest. */
    sqlite3 *db = replay();
    const char *answer = ask(db, question(3, '0'), 3);
    int rows = 0;
    for (const char *at = answer; (at = strchr(at, '\n')) != NULL; at++) rows++;
    ck_assert_int_eq(rows, 5);
    ck_assert_msg(strncmp(answer, "combine|nic|rank", strlen("combine|nic|rank")) == 0, "%s",
                  answer);
    sqlite3_close(db);
}
END_TEST

START_TEST(there_are_four_questions)
{
    const char *text = test_read(test_tree_path("README.md"), NULL);
    int count = 0;
    for (const char *at = text; (at = strstr(at, "\n```sql\n")) != NULL; at++) count++;
    ck_assert_int_eq(count, 4);
}
END_TEST

Suite *readme_suite(void)
{
    TCase *tcase = tcase_create("readme");
    tcase_add_test(tcase, the_hottest_expert_of_a_layer);
    tcase_add_test(tcase, bytes_on_nvlink_and_nic_per_layer);
    tcase_add_test(tcase, who_waited_longest_for_whom);
    tcase_add_test(tcase, the_busiest_resource);
    tcase_add_test(tcase, there_are_four_questions);
    Suite *suite = suite_create("readme");
    suite_add_tcase(suite, tcase);
    return suite;
}
