#!/bin/bash
# tools/tidy.sh - the rules of the source tree that a machine can check.
#
# usage: tools/tidy.sh [ROOT]      (default: the tree this script is in)
#
# Prints one line per problem, FILE:LINE: what and what is allowed, and exits 1 if there is any.
# Lists of exceptions stand right below; adding to one is a decision that a reviewer sees.
set -u
export LC_ALL=C
cd "${1:-$(dirname "$0")/..}" || exit 2

# Files of sim/ and fabric/ for statistics, fits, benchmarks: double is allowed there.
double_files='sim/accuracy.c sim/accuracy.h sim/bench_engine.c sim/bench_engine.h sim/bench_ref.c
    sim/bench_ref.h sim/calibrate.c sim/calibrate.h sim/calibrate_file.h sim/calibrate_fit.c
    sim/eplb.c sim/eplb.h sim/fit.c sim/fit.h sim/summary_json.c sim/advise.c sim/advise.h
    sim/what_if_json.c'
# Files of sim/ and fabric/ that may read the wall clock: benchmarks.
clock_files='sim/bench_engine.c sim/bench_ref.c sim/bench_sim.c'
# Memory is taken when something is opened, loaded or built, by functions whose names say so...
alloc_functions='(^|_)(open|load|create|init|read|parse|map|grow|reserve|build|alloc)(_|$)'
# ...in files that work before any event runs or after the last one...
alloc_files='sim/accuracy.c sim/bench_engine.c sim/bench_ref.c sim/bench_sim.c sim/calibrate.c
    sim/calibrate_file.c sim/calibrate_fit.c sim/capture.c sim/case_list.c sim/cause.c
    sim/evidence_check.c sim/expect.c sim/expect_ll.c
    sim/expect_normal.c sim/explain.c sim/fit.c sim/inputs.c sim/measured.c sim/predict.c
    sim/predict_exchange.c
    sim/replica.c sim/rules_routing.c sim/summary.c sim/sweep.c sim/verify.c sim/what_if.c
    traces/db_compare.c traces/db_totals.c
    traces/db_read.c traces/safetensors.c traces/safetensors_write.c'
# ...and in these functions: a pool that doubles, or what one exchange needs before its events.
alloc_exceptions='fabric/yaml.c:take sim/engine_queue.c:heap_push sim/engine_queue.c:fresh_node
    sim/normal.c:report_messages sim/normal_node.c:normal_node_run sim/normal_plan.c:list_rows
    sim/run.c:sim_run_play sim/traffic_parts.c:sim_traffic_numbers
    sim/all_to_all.c:sim_all_to_all_run'

declare -a folders=()
for folder in ref fabric traces kernels sim tools tests; do
    [ -d $folder ] && folders+=("$folder")
done
sources() # sources EXTENSION...: the files of the tree, by name
{
    local names=()
    for extension; do names+=(-o -name "*.$extension"); done
    [ ${#folders[@]} = 0 ] || find "${folders[@]}" -type f \( "${names[@]:1}" \) | sort
}

words() { echo "" "$@" ""; } # words WORD...: each between single spaces

# --- what can be seen line by line ---------------------------------------------------------------
lines()
{
    # shellcheck disable=SC2016,SC2086  # awk expands; the lists are lists of words
    sources c h cu cuh cc sh | xargs -r awk -v double_files="$(words $double_files)" \
        -v clock_files="$(words $clock_files)" -v alloc_functions="$alloc_functions" \
        -v alloc_places="$(words $alloc_files $alloc_exceptions)" '
    function problem(line, text) { print FILENAME ":" line ": " text }
    function has_word(text, words) {
        return match(text, "(^|[^A-Za-z0-9_])(" words ")([^A-Za-z0-9_]|$)")
    }
    function has_call(text, words) { return match(text, "(^|[^A-Za-z0-9_])(" words ") *[(]") }
    function listed(list, place) { return index(list, " " place " ") > 0 }

    # The line without comments and without what is inside quotes.
    function code(line,   out, rest) {
        out = ""
        while (line != "") {
            if (in_comment) {
                if (!index(line, "*/")) return out
                line = substr(line, index(line, "*/") + 2)
                in_comment = 0
                continue
            }
            if (!match(line, /"|\047|\/\*|\/\//)) return out line
            out = out substr(line, 1, RSTART - 1)
            rest = substr(line, RSTART)
            if (substr(rest, 1, 2) == "//") return out
            if (substr(rest, 1, 2) == "/*") { in_comment = 1; line = substr(rest, 3); continue }
            if (!match(rest, /^"([^"\\]|\\.)*"/) && !match(rest, /^\047([^\047\\]|\\.)*\047/))
                return out
            out = out "\"\""
            line = substr(rest, RLENGTH + 1)
        }
        return out
    }

    # tools -> sim -> the four leaves; tests see all.
    function check_include(target,   to) {
        if (!match(target, /\//)) { problem(FNR, "include by folder, not \"" target "\""); return }
        to = substr(target, 1, index(target, "/") - 1)
        if (to == folder || to == "gen" || folder == "tests" && FILENAME !~ /plugin_/) return
        if (FILENAME ~ /^tests\/plugin_/ && target == "sim/backend.h") return
        if (folder == "kernels" && target == "ref/mathfn.h") return
        if (folder == "sim" && to ~ /^(ref|fabric|traces|kernels)$/) return
        if (folder == "tools" && to ~ /^(sim|ref|fabric|traces|kernels)$/) return
        problem(FNR, folder "/ must not include \"" target "\"")
    }

    FNR == 1 {
        folder = substr(FILENAME, 1, index(FILENAME, "/") - 1)
        is_c = FILENAME !~ /\.sh$/
        modelled = folder == "sim" || folder == "fabric"
        sized = folder ~ /^(ref|fabric|traces|sim)$/
        in_comment = 0; start = 0; name = ""; double_seen = 0
    }
    length($0) > 100 { problem(FNR, "line of " length($0) " columns, at most 100") }
    /[^\t -~]/ { problem(FNR, "not ASCII") }
    FNR == 501 { problem(FNR, "file of more than 500 lines") }
    !is_c { next }
    /^ *# *include *"/ { split($0, part, "\""); check_include(part[2]) }
    {
        text = code($0)
        # A function starts where its declaration does, behind an empty line, a comment, a
        # preprocessor line or the end of something, and its body is between braces in column 1.
        if (name == "" && (text ~ /^ *$/ || text ~ /^[#}]/ || text ~ /;[ ]*$/)) start = 0
        else if (name == "" && start == 0) { start = FNR; signature = text }
        else if (name == "") signature = signature text
        if (text ~ /^\{/ && start > 0 && index(signature, "(")) {
            gsub(/__attribute__ *\(\([^)]*\)\)/, "", signature)
            match(signature, /[A-Za-z0-9_]+ *\(/)
            name = substr(signature, RSTART, RLENGTH - 1)
        }
        if (text ~ /^\}/ && name != "") {
            if (FNR - start + 1 > 70)
                problem(start, name " has " FNR - start + 1 " lines, at most 70")
            name = ""
            start = 0
        }
    }
    sized && has_call(text, "malloc|calloc|realloc|strdup|strndup|asprintf|aligned_alloc|mmap") {
        if (name !~ alloc_functions && !listed(alloc_places, FILENAME) &&
            !listed(alloc_places, FILENAME ":" name))
            problem(FNR, "allocates in " (name == "" ? "no function" : name) \
                    ", not in a function that opens or loads something")
    }
    /^REF_HOT / && !/^REF_HOT static / {
        problem(FNR, "REF_HOT on a function that is not static, which clang cannot link")
    }
    modelled && has_word(text, "double") && !double_seen++ && !listed(double_files, FILENAME) {
        problem(FNR, "double outside the files for statistics, fits and generators")
    }
    modelled && !listed(clock_files, FILENAME) &&
        has_call(text, "time|clock|clock_gettime|gettimeofday|gmtime_r|localtime_r|rand|random") {
        problem(FNR, "wall clock or libc random numbers in a model")
    }'
}

# --- what needs a tool ---------------------------------------------------------------------------
format()
{
    if ! command -v clang-format >/dev/null; then
        echo "clang-format is not installed (tools/setup.sh --all)"
        return
    fi
    # The first place of each file is enough: clang-format -i mends the whole file.
    sources c h cu cuh cc | xargs -r -n 8 -P "$(nproc)" clang-format -n 2>&1 |
        awk -F: '/: (warning|error): / && !seen[$1]++ {
            print $1 ":" $2 ": not as clang-format -i leaves it" }'
}

# A header must stand alone, for a C compiler and for a C++ one.
headers()
{
    local cxx=g++
    command -v g++ >/dev/null || cxx=clang++
    if ! command -v $cxx >/dev/null; then
        echo "there is no C++ compiler (tools/setup.sh --all)"
        return
    fi
    export cxx
    # shellcheck disable=SC2016  # the inner shell expands
    sources h | xargs -r -P "$(nproc)" -I{} sh -c '
        flags="-fsyntax-only -D_GNU_SOURCE -I. -I${BUILD:-build}"
        echo "#include \"{}\"" | "${CC:-gcc}" -std=c11 $flags -x c - >/dev/null 2>&1 ||
            echo "{}:1: does not compile alone in C"
        echo "#include \"{}\"" | $cxx -std=c++17 $flags -x c++ - >/dev/null 2>&1 ||
            echo "{}:1: does not compile alone in C++"'
}

problems=$(lines; format; headers)
if [ -n "$problems" ]; then
    echo "$problems"
    echo "tidy: $(echo "$problems" | wc -l) problems" >&2
    exit 1
fi
echo "tidy: ok, $(sources c h cu cuh cc sh | wc -l) files"
