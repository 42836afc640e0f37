#!/bin/sh
# tools/same_digests.sh - gcc and clang, -O0 and -O3, one thread and several: the same digests.
#
# usage: tools/same_digests.sh [BUILD]     (default: build; each build goes into a folder of it)
#
# Builds epsim four times and runs a few small jobs with each: both protocols, data moved and
# checked by the reference, skewed routing, a fabric that is not ideal. Prints each job's digest.
# Exit status: 0 one digest per job, 1 builds or thread counts differ, 3 a build or a run failed.
set -u
build=${1:-build}
make=${MAKE:-make}
programs=

for compiler in gcc clang; do
    if ! command -v $compiler >/dev/null; then
        echo "SKIPPED, builds of $compiler are not compared: it is not installed"
        continue
    fi
    for level in O0 O3; do
        own=$build/$compiler-$level
        $make --no-print-directory -j"$(nproc)" CC=$compiler BUILD="$own" CUDA=0 CFLAGS=-$level \
            "$own/epsim" >/dev/null || exit 3
        programs="$programs $own/epsim"
    done
done

differ=0
while read -r job; do
    first=
    for program in $programs; do
        for threads in 1 3; do
            # shellcheck disable=SC2086  # a job is words
            out=$("$program" run $job --threads $threads) || exit 3
            digest=$(printf '%s\n' "$out" | sed -n 's/^digest  *//p')
            first=${first:-$digest}
            [ -n "$digest" ] && [ "$digest" = "$first" ] && continue
            echo "$program, $threads threads: $digest, others $first"
            differ=1
        done
    done
    echo "$first  $job"
done <<'END'
--machine h200-hgx --model gpt-oss-20b --ep 8 --mode ll --tokens 16 --layers 2 --backend ref
--machine h100-hgx --model gpt-oss-20b --ep 16 --mode normal --tokens 64 --layers 1 --backend ref
--machine h100-hgx --ep 32 --mode ll --layers 1 --routing lognormal:1.0
--machine h800-hgx --ep 16 --mode normal --tokens 512 --layers 1 --routing limited:2
--machine h100-hgx --ep 32 --mode ll --layers 1 --fabric-routing static --congestion-control on
--machine h100-hgx --ep 16 --mode normal --tokens 256 --layers 1 --background 100:shared
END
exit $differ
