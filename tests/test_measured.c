/* tests/test_measured.c - rows of dispatch and combine that people wrote: which are answered, and
 * what is said of those that are not.
 *
 * Method: a table of single rows, each with what stands in the line of its refusal, or with nothing
 * where the model must answer: shapes that no library has, machines that nobody timed. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "sim/predict.h"
#include "tests/json.h"
#include "tests/support.h"

Suite *measured_suite(void);

#define HEAD                                                                                       \
    "id,machine,nodes,gpus_per_node,mode,op,ep,tokens_per_rank,hidden,topk,experts,"               \
    "dispatch_dtype,comm_sms,us\n"

static const struct {
    const char *row;
    const char *want; /* Behind "FILE:2: "; NULL: it is answered. */
} rows[] = {
    {"h200-hgx,1,8,normal,dispatch,8,128,7168,8,256,fp8,,40",
     "comm_sms: '': 2 to 132 in mode normal: the SMs that its kernels were given"},
    {"h200-hgx,1,8,normal,combine_notify,8,128,7168,8,256,fp8,1,40", "comm_sms: '1': 2 to 132"},
    {"h200-hgx,1,8,normal,dispatch,8,128,7168,8,256,fp8,4294967295,40",
     "comm_sms: '4294967295': 2 to 132"},
    {"h200-pair,2,2,ll,dispatch,4,128,7168,8,256,fp8,,40", "nodes: '2': 1, as h200-pair has no"},
    {"h200-pair,2,2,normal,combine,4,128,7168,8,256,fp8,20,40", "nodes: '2': 1, as h200-pair has"},
    {"h200-hgx,3,8,ll,dispatch,16,128,7168,8,256,fp8,,40",
     "ep: '16': 24, as nodes x gpus_per_node is 3 x 8"},
    {"h200-hgx,1,8,ll,dispatch,16,128,7168,8,256,fp8,,40",
     "ep: '16': at most 8, as nodes x gpus_per_node is 1 x 8"},
    {"h200-hgx,2,8,ll,dispatch,8,128,7168,8,256,fp8,,40", "ep: '8': 16, as nodes x gpus_per_node"},
    {"h200-hgx,4294967295,8,ll,dispatch,8,128,7168,8,256,fp8,,40", "nodes: '4294967295': 1 to ep"},
    {"h200-hgx,0,8,ll,dispatch,8,128,7168,8,256,fp8,,40", "nodes: '0': 1 to ep, 8"},
    {"h200-hgx,1,16,ll,dispatch,16,128,7168,8,256,fp8,,40",
     "gpus_per_node: '16': 1 to 8, which a node of h200-hgx has"},
    {"h200-hgx,1,4294967295,ll,dispatch,8,128,7168,8,256,fp8,,40", "gpus_per_node: '4294967295':"},
    {"h200-hgx,1,0,ll,dispatch,8,128,7168,8,256,fp8,,40", "gpus_per_node: '0': 1 to 8"},
    {"h200-hgx,1,8,ll,dispatch,0,128,7168,8,256,fp8,,40", "ep: '0': 1 to 1024"},
    {"h200-hgx,256,8,ll,dispatch,2048,1,7168,8,2048,fp8,,40", "ep: '2048': 1 to 1024"},
    {"h200-hgx,1,8,ll,dispatch,8,128,0,8,256,fp8,,40", "hidden: '0': a multiple of 128 up to"},
    {"h200-hgx,1,8,ll,dispatch,8,128,7169,8,256,fp8,,40", "hidden: '7169': a multiple of 128"},
    {"h200-hgx,1,8,ll,dispatch,8,128,65664,8,256,fp8,,40", "hidden: '65664': a multiple of 128"},
    {"h200-hgx,1,8,ll,dispatch,8,128,7168,8,250,fp8,,40", "experts: '250': a multiple of ep, 8"},
    {"h200-hgx,1,8,ll,dispatch,8,128,7168,8,8192,fp8,,40", "experts: '8192': a multiple of ep, 8"},
    {"h200-hgx,1,8,ll,dispatch,8,128,7168,8,0,fp8,,40", "experts: '0': a multiple of ep, 8"},
    {"h200-hgx,1,8,ll,dispatch,8,128,7168,0,256,fp8,,40", "topk: '0': 1 to 32"},
    {"h200-hgx,1,8,ll,dispatch,8,128,7168,32,16,fp8,,40", "topk: '32': 1 to 16"},
    {"h200-hgx,1,8,ll,dispatch,8,65537,7168,8,256,fp8,,40", "tokens_per_rank: '65537': at most"},
    {"h200-hgx,128,8,ll,dispatch,1024,65536,7168,8,1024,fp8,,40",
     "tokens_per_rank: '65536': at most 16384 on each of 1024 ranks"},
    {"h200-hgx,1,8,ll,dispatch,8,128,7168,8,256,int8,,40", "dispatch_dtype: 'int8': fp8 or bf16"},
    {"h200-hgx,1,8,LL,dispatch,8,128,7168,8,256,fp8,,40", "mode: 'LL': ll or normal"},
    {"h200-hgx,1,8,ll,reduce,8,128,7168,8,256,fp8,,40", "op: 'reduce': of mode ll: dispatch or"},
    {"h200-hgx,1,8,normal,combine_recv,8,128,7168,8,256,fp8,20,40", "op: 'combine_recv': of mode"},
    {"h200-hgx,1,8,ll,dispatch,8,128,7168,8,256,fp8,,99999999999999", "us: '99999999999999': a"},
    {"h200-hgx,1,8,ll,dispatch,8,128,7168,8,256,fp8,,nan", "us: 'nan': a number of microseconds"},
    /* Answered, though no kernel of the library has them. */
    {"h200-hgx,1,8,ll,dispatch,8,0,7168,8,256,fp8,,40", NULL},
    {"h200-hgx,2,8,normal,combine,16,0,7168,8,256,fp8,20,40", NULL},
    {"h200-hgx,1,1,ll,dispatch,1,8,7168,8,256,fp8,,40", NULL},
    {"h200-hgx,1,4,ll,dispatch,4,8,7168,8,256,fp8,,40", NULL},
    {"h200-hgx,1,8,ll,dispatch,6,8,7168,6,252,fp8,,40", NULL},
    {"h200-hgx,2,5,normal,combine,10,8,1408,32,250,bf16,3,40", NULL},
    {"h800-hgx,8,8,ll,dispatch,64,8,7168,8,256,fp8,,173", NULL},
    {"h800-hgx-nonvl,2,8,normal,dispatch,16,8,7168,8,256,fp8,132,173", NULL},
    {"gb200-nvl72,1,64,ll,dispatch,64,8,7168,8,256,fp8,,40", NULL},
    {"h200-pair,1,2,normal,dispatch_notify,2,8,7168,8,256,fp8,20,40", NULL},
    {"h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,0.000001", NULL},
    {"h200-hgx,1,8,ll,dispatch,8,8,7168,8,256,fp8,,9223372036854", NULL},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

START_TEST(a_row_is_answered_or_refused_by_its_column) /* Loop: rows. */
{
    struct test_output output;
    const char *path =
        test_write_text(test_temp_dir(), "a.csv", test_format("%sx,%s\n", HEAD, rows[_i].row));
    TEST_EPSIM(&output, "accuracy", "--measured", path);
    if (rows[_i].want == NULL) {
        ck_assert_msg(output.status == 0, "%s: %s", rows[_i].row, output.err);
        return;
    }
    ck_assert_msg(output.status == 2, "%s: status %d", rows[_i].row, output.status);
    TEST_SAYS(output.err, test_format("%s:2: %s", path, rows[_i].want));
    ck_assert_ptr_eq(strchr(output.err, '\n'), output.err + output.err_bytes - 1);
}
END_TEST

/* A column that only normal mode needs may be missing as long as no row is of it. */
START_TEST(low_latency_rows_need_no_sms)
{
    static const char head[] = "machine,nodes,gpus_per_node,mode,op,ep,tokens_per_rank,hidden,topk,"
                               "experts,dispatch_dtype,us\n";
    const char *folder = test_temp_dir();
    struct test_output output;
    const char *path = test_write_text(
        folder, "ll.csv", test_format("%sh200-hgx,1,8,ll,combine,8,8,7168,8,256,fp8,14\n", head));
    ck_assert_int_eq(TEST_EPSIM(&output, "accuracy", "--measured", path), 0);
    path =
        test_write_text(folder, "n.csv",
                        test_format("%sh200-hgx,1,8,normal,combine,8,8,7168,8,256,fp8,14\n", head));
    ck_assert_int_eq(TEST_EPSIM(&output, "accuracy", "--measured", path), 2);
    TEST_SAYS(output.err, ":2: comm_sms: '': 2 to 132 in mode normal");
}
END_TEST

Suite *measured_suite(void)
{
    Suite *suite = suite_create("measured");
    TCase *tests = tcase_create("measured");
    tcase_add_loop_test(tests, a_row_is_answered_or_refused_by_its_column, 0, ROWS);
    tcase_add_test(tests, low_latency_rows_need_no_sms);
    suite_add_tcase(suite, tests);
    return suite;
}
