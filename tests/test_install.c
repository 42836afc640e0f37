/* tests/test_install.c - what `make install` leaves is enough for a C program and for Python. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "tests/installed.h"
#include "tests/support.h"

/* One value of 1.0 among zeros: the largest magnitude of its group is 1, so its code is that of
 * 448 (0x7e) and the scale is 1/448 rounded to FP32 (0x3b124925). */
static const char *const right_answer = "7e 00 3b124925\n";

static const char *const c_program =
    "#include <ref/quantise.h>\n"
    "#include <stdio.h>\n"
    "#include <string.h>\n"
    "int main(void)\n"
    "{\n"
    "    enum ref_recipe recipe;\n"
    "    uint16_t x[128] = {0x3f80};\n"
    "    uint8_t codes[128];\n"
    "    float scale;\n"
    "    uint32_t bits;\n"
    "    if (!ref_recipe_parse(\"ll\", &recipe)) return 1;\n"
    "    ref_quantise(recipe, x, 1, 128, codes, &scale);\n"
    "    memcpy(&bits, &scale, sizeof(bits));\n"
    "    printf(\"%02x %02x %08x\\n\", codes[0], codes[1], (unsigned)bits);\n"
    "    return 0;\n"
    "}\n";

static const char *const python_program =
    "import ctypes, struct, sys\n"
    "ref = ctypes.CDLL(sys.argv[1])\n"
    "recipe = ctypes.c_int()\n"
    "ref.ref_recipe_parse.restype = ctypes.c_bool\n"
    "assert ref.ref_recipe_parse(b'll', ctypes.byref(recipe))\n"
    "x = (ctypes.c_uint16 * 128)(0x3f80)\n"
    "codes = (ctypes.c_uint8 * 128)()\n"
    "scale = ctypes.c_float()\n"
    "ref.ref_quantise(recipe, x, ctypes.c_uint64(1), ctypes.c_uint32(128), codes,\n"
    "                 ctypes.byref(scale))\n"
    "print('%02x %02x %08x' % (codes[0], codes[1],\n"
    "                          struct.unpack('<I', struct.pack('<f', scale.value))[0]))\n";

static const char *const install_script =
    "make -s -C \"$T\" install-files BUILD=\"${E%/epsim}\" PREFIX=\"$D/usr\"";

START_TEST(a_c_program_finds_it_through_pkg_config)
{
    if (cannot_run(__func__)) return;
    const char *folder = test_temp_dir();
    shell(folder, install_script);
    test_write_text(folder, "main.c", c_program);
    const char *answer =
        shell(folder, "export PKG_CONFIG_PATH=\"$D/usr/lib/pkgconfig\"\n"
                      "gcc -std=c11 -Wall -Werror \"$D/main.c\" -o \"$D/main\" \\\n"
                      "    $(pkg-config --cflags --libs epsim_ref)\n"
                      "LD_LIBRARY_PATH=\"$D/usr/lib\" \"$D/main\"\n");
    ck_assert_str_eq(answer, right_answer);
}
END_TEST

START_TEST(a_c_program_links_the_archive)
{
    if (cannot_run(__func__)) return;
    const char *folder = test_temp_dir();
    shell(folder, install_script);
    test_write_text(folder, "main.c", c_program);
    const char *answer = shell(folder, "gcc -std=c11 -I\"$D/usr/include/epsim\" \"$D/main.c\" \\\n"
                                       "    -o \"$D/main\" \"$D/usr/lib/libepsim_ref.a\" -lm\n"
                                       "\"$D/main\"\n");
    ck_assert_str_eq(answer, right_answer);
}
END_TEST

START_TEST(python_calls_it_through_ctypes)
{
    if (cannot_run(__func__)) return;
    if (!test_has_program("python3")) {
        test_skip("no python3");
        return;
    }
    const char *folder = test_temp_dir();
    shell(folder, install_script);
    test_write_text(folder, "main.py", python_program);
    ck_assert_str_eq(shell(folder, "python3 \"$D/main.py\" \"$D/usr/lib/libepsim_ref.so\""),
                     right_answer);
}
END_TEST

START_TEST(the_installed_program_runs)
{
    if (cannot_run(__func__)) return;
    const char *folder = test_temp_dir();
    shell(folder, install_script);
    const char *version = shell(folder, "\"$D/usr/bin/epsim\" --version");
    ck_assert_msg(strncmp(version, "epsim ", 6) == 0, "%s", version);
}
END_TEST

START_TEST(destdir_holds_everything_and_stays_out_of_the_files)
{
    if (cannot_run(__func__)) return;
    const char *folder = test_temp_dir();
    shell(folder, "make -s -C \"$T\" install-files BUILD=\"${E%/epsim}\" PREFIX=/opt/epsim \\\n"
                  "    DESTDIR=\"$D/stage\"");
    ck_assert_str_eq(shell(folder, "cd \"$D\" && find . -name 'epsim*' -o -name 'lib*ref*' | sort"),
                     "./stage/opt/epsim\n"
                     "./stage/opt/epsim/bin/epsim\n"
                     "./stage/opt/epsim/include/epsim\n"
                     "./stage/opt/epsim/lib/libepsim_ref.a\n"
                     "./stage/opt/epsim/lib/libepsim_ref.so\n"
                     "./stage/opt/epsim/lib/libepsim_ref.so.0\n"
                     "./stage/opt/epsim/lib/pkgconfig/epsim_ref.pc\n"
                     "./stage/opt/epsim/share/epsim\n");
    shell(folder, "grep -qx prefix=/opt/epsim \"$D/stage/opt/epsim/lib/pkgconfig/epsim_ref.pc\"");
    shell(folder, "! grep -q \"$D\" \"$D/stage/opt/epsim/lib/pkgconfig/epsim_ref.pc\"");
}
END_TEST

Suite *install_suite(void)
{
    TCase *tcase = tcase_create("install");
    tcase_add_test(tcase, a_c_program_finds_it_through_pkg_config);
    tcase_add_test(tcase, a_c_program_links_the_archive);
    tcase_add_test(tcase, python_calls_it_through_ctypes);
    tcase_add_test(tcase, the_installed_program_runs);
    tcase_add_test(tcase, destdir_holds_everything_and_stays_out_of_the_files);
    Suite *suite = suite_create("install");
    suite_add_tcase(suite, tcase);
    return suite;
}
