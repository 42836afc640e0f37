/* tests/test_options.c - a complaint names the option that the user typed.
 *
 * Some commands take a run's option by another name: --batch for --tokens, eplb's --replicas for
 * --eplb, an argument for --routing. Right values: the words typed. */
#include <check.h>
#include <string.h>
#include "tests/support.h"

Suite *options_suite(void);

enum { WORDS_MAX = 12 };

static const struct {
    const char *words[WORDS_MAX];
    const char *want; /* The beginning of the line. */
} WRONG[] = {
    {{"run", "--tokens", "1,2"}, "epsim run: --tokens: 2 numbers for 8 ranks"},
    {{"run", "--batch", "1,2"}, "epsim run: --batch: 2 numbers for 8 ranks"},
    {{"run", "--tokens", "8", "--batch=x"}, "epsim run: --batch: x: must be N or"},
    {{"run", "--batch", "8", "--tokens=x"}, "epsim run: --tokens: x: must be N or"},
    {{"check", "--batch", "x"}, "epsim check: --batch: x: must be N or"},
    {{"sweep", "--batch", "1,1"}, "epsim sweep: --batch: 1: stands twice"},
    {{"explore", "skew", "--batch", "x"}, "epsim explore skew: --batch: x: must be"},
    {{"replay", "hot:x"}, "epsim replay: TRACE: hot:x: must be uniform"},
    {{"imbalance", "hot:x"}, "epsim imbalance: TRACE: hot:x: must be uniform"},
    {{"imbalance", "--routing", "hot:x"}, "epsim imbalance: --routing: hot:x: must be uniform"},
    {{"eplb", "--trace", "hot:x", "--replicas", "288"}, "epsim eplb: --trace: hot:x: must be"},
    {{"check", "--offsets", "o.npy"}, "epsim check: --offsets: needs --routing TRACE"},
    {{"check", "--weights", "w.npy"}, "epsim check: --weights: needs --routing TRACE"},
    {{"check", "--eplb-groups", "8"}, "epsim check: --eplb-groups: needs --eplb"},
    {{"ledger", "--offsets", "o.npy"}, "epsim ledger: --offsets: needs --routing TRACE"},
    {{"eplb", "--routing", "uniform", "--replicas", "288", "--offsets", "o.npy"},
     "epsim eplb: --offsets: needs --trace FILE"},
    {{"sweep", "--offsets", "o.npy"}, "epsim sweep: --offsets: needs --routing TRACE"},
    {{"sweep", "--eplb-weights", "w.json"}, "epsim sweep: --eplb-weights: needs --eplb"},
    {{"sweep", "--eplb", "0", "--eplb-groups", "8"}, "epsim sweep: --eplb-groups: needs --eplb"},
    {{"verify", "--golden", "DIR", "--routing", "ids.npy"},
     "epsim verify: --routing: needs --recorded"},
    {{"verify", "--cases", "--offsets", "o.npy"}, "epsim verify: --offsets: needs --recorded"},
    {{"report", "run.db", "-o", "x.html", "--layer", "x"},
     "epsim report: --layer: x: must be a whole number from 0"},
    {{"report", "run.db", "-o", "x.html", "--step=-1"},
     "epsim report: --step: -1: must be a whole number from 0"},
    {{"run", "--context", "64", "--detail", "message"},
     "epsim run: --detail message: a whole step has no times of messages"},
    {{"run", "--db="}, "epsim run: --db=: needs a value"},
    {{"export", "--perfetto", "run.db", "-o", ""}, "epsim export: -o: needs a value"},
    {{"verify", "--backend", "nope"},
     "epsim verify: --backend: nope: must be ref, cuda or PATH.so"},
    {{"run", "--backend", "nope"},
     "epsim run: --backend: nope: must be none, ref, cuda or PATH.so"},
    {{"run", "--eplb", "287"}, "epsim run: --eplb: 287: must be at least the 256 experts"},
    {{"run", "--eplb", "288", "--eplb-groups", "7"},
     "epsim run: --eplb-groups: 7: must be a divisor of the experts, 256"},
    {{"run", "--eplb", "288", "--eplb-groups", "0"}, "epsim run: --eplb-groups: 0: must be"},
    {{"eplb", "--routing", "uniform", "--replicas", "287"},
     "epsim eplb: --replicas: 287: must be at least the 256 experts of deepseek-v3 and a multiple "
     "of --ep 8"},
    {{"eplb", "--routing", "uniform", "--replicas", "288", "--groups", "7"},
     "epsim eplb: --groups: 7: must be a divisor of the experts, 256"},
    {{"eplb", "--weights", "WEIGHTS", "--replicas", "4", "--groups", "3", "--gpus", "2"},
     "epsim eplb: --groups: 3: must be a divisor of the experts, 2"},
    {{"eplb", "--weights", "WEIGHTS", "--replicas", "3", "--gpus", "2"},
     "epsim eplb: --replicas: 3: must be a multiple of --gpus 2"},
    {{"eplb", "--weights", "WEIGHTS", "--replicas", "4", "--gpus", "2", "--nodes", "3"},
     "epsim eplb: --gpus: 2: must be a multiple of --nodes 3"},
    {{"eplb", "--weights", "WEIGHTS", "--replicas", "4", "--ep", "2"},
     "epsim eplb: --ep: needs --trace or --routing"},
    {{"eplb", "--routing", "uniform", "--replicas", "288", "--weights", "WEIGHTS"},
     "epsim eplb: --weights: "},
    {{"run", "--machine", "h100-hgx", "--ep", "16", "--background", "400:shared"},
     "epsim run: --background: 400:shared: must be below the 376 Gb/s that a NIC of h100-hgx"},
    {{"sweep", "--background", "100,200"}, "epsim sweep: --background: 100,200: is no axis"},
    {{"sweep", "--hook=1,2"}, "epsim sweep: --hook: 1,2: is no axis"},
    {{"sweep", "--layers", "1", "--advise", "cost"},
     "epsim sweep: --advise: cost: no machine here has a price: give --machine a file with "
     "'inherits: h200-hgx' and 'gpu_hour_usd: N'"},
    {{"explore"}, "epsim explore: sentinel|qp|buffers|skew: one of these must be named"},
    {{"verify", "--golden", "DIR", "one"}, "epsim verify: one: one argument too many"},
    {{"run", "--ep", "12"},
     "epsim run: refused: experts_divide: 256 experts on 12 ranks: 256 % 12 = 4, not 0; "
     "local_ranks: 12 ranks: more than 8 and not a multiple of 8; --ep 8 or --ep 16 passes\n"},
    {{"run", "--ep", "8", "--machine", "h200-pair"},
     "epsim run: refused: node_count: 4 nodes, but the machine has no NIC; --ep 2 passes, or a "
     "--machine with NICs\n"},
    {{"run", "--tokens", "2000", "--mode", "ll"},
     "epsim run: refused: max_tokens_1024: capacity 2048 is above the frameworks' guard of 1024 "
     "(FINISHED_SUM_TAG): send fewer tokens, use --mode normal, or lift it with --allow "
     "max_tokens_1024\n"},
};

START_TEST(a_complaint_names_what_was_typed)
{
    const char *weights = test_write_text(test_temp_dir(), "w.json", "[[1, 2]]");
    const char *argv[WORDS_MAX + 2] = {test_epsim()};
    struct test_output output;
    for (size_t i = 0; i < WORDS_MAX && WRONG[_i].words[i] != NULL; i++)
        argv[i + 1] = strcmp(WRONG[_i].words[i], "WEIGHTS") == 0 ? weights : WRONG[_i].words[i];
    test_run(argv, &output);
    ck_assert_int_eq(output.status, 2);
    ck_assert_str_eq(output.out, "");
    ck_assert_msg(strncmp(output.err, WRONG[_i].want, strlen(WRONG[_i].want)) == 0, "%s",
                  output.err);
    ck_assert_ptr_eq(strchr(output.err, '\n'), output.err + output.err_bytes - 1);
}
END_TEST

Suite *options_suite(void)
{
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("options");
    tcase_add_loop_test(tcase, a_complaint_names_what_was_typed, 0,
                        (int)(sizeof WRONG / sizeof WRONG[0]));
    suite_add_tcase(suite, tcase);
    return suite;
}
