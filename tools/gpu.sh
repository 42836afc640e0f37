#!/bin/bash
# tools/gpu.sh - build, verify and time everything that needs a GPU, in one call on its machine.
#
# usage: tools/gpu.sh pack DIR       here: build with STATIC=1, copy programs and data into DIR
#        tools/gpu.sh run DIR [OUT]  there: run what DIR holds; records and logs go to OUT
#
# The GPU's machine need not have what the build needs. Every program runs under a time limit; the
# exit status is 1 if any step failed, and the last lines list the steps with their seconds.
set -u
cd "$(dirname "$0")/.." || exit 2
mode=${1:-} dir=${2:-}
if [ -z "$dir" ] || { [ "$mode" != pack ] && [ "$mode" != run ]; }; then
    sed -n '4,5s/^# //p' "$0" >&2
    exit 2
fi

if [ "$mode" = pack ]; then
    data=${EPSIM_DATA:?EPSIM_DATA names the folder with golden/ and traces/}
    make "-j$(nproc)" STATIC=1 all build/test-gpu || exit 1
    mkdir -p "$dir/lib" "$dir/traces"
    cp -r "$data/golden" "$dir/"
    cp "$data"/traces/gptoss20b_{topk_ids,offsets}.npy "$dir/traces/"
    strip -o "$dir/epsim" build/epsim && strip -o "$dir/test-gpu" build/test-gpu || exit 1
    ldd "$dir/test-gpu" | sed -n 's/.*libsubunit.* => \([^ ]*\) .*/\1/p' |
        xargs -rI{} cp {} "$dir/lib/"
    cp tests/golden/gpu_*.csv "$dir/" 2>/dev/null
    du -sh "$dir"
    exit 0
fi

out=${3:-$dir/out}
mkdir -p "$out"
export LD_LIBRARY_PATH="$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
epsim=$dir/epsim
failed=0
times=()

step() # step NAME SECONDS COMMAND...: run it, keep its output in OUT/NAME.log, show the end
{
    local name=$1 limit_s=$2 before_s=$SECONDS status
    shift 2
    echo "=== $name: $*"
    timeout -k 10 "$limit_s" "$@" >"$out/$name.log" 2>&1
    status=$?
    tail -n "${show:-4}" "$out/$name.log"
    times+=("gpu: $name $((SECONDS - before_s)) s, status $status")
    [ $status = 0 ] || failed=1
}

digest_of() { sed -n 's/^digest *//p' "$out/$1.log"; }
same() # same NAME NAME...: the steps printed one digest
{
    local first
    first=$(digest_of "$1")
    for name; do
        [ -n "$first" ] && [ "$(digest_of "$name")" = "$first" ] && continue
        times+=("gpu: digest of $name is '$(digest_of "$name")', that of $1 '$first': FAILED")
        failed=1
    done
}

trace=("$dir/traces/gptoss20b_topk_ids.npy" --offsets "$dir/traces/gptoss20b_offsets.npy"
    --weights none --model gpt-oss-20b --machine h200-hgx --batch 64 --steps 4)
main_job() # main_job NAME BACKEND OPTION...
{
    step "$1" 300 "$epsim" replay "${trace[@]}" --backend "$2" "${@:3}"
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
step tests 300 "$dir/test-gpu"
step golden 120 "$epsim" verify --golden "$dir/golden" --backend cuda
for mode in ll normal; do
    main_job "$mode-ref" ref --ep 8 --mode $mode
    main_job "$mode-cuda" cuda --ep 8 --mode $mode
    same "$mode-ref" "$mode-cuda"
done
if [ "$gpus" -gt 1 ]; then
    for map in blocks round-robin; do
        main_job "ll-$map" cuda --ep 8 --mode ll --gpus "$gpus" --mapping $map
        same ll-ref "ll-$map"
    done
fi
show=80 step bench 300 "$epsim" bench kernels
if [ "${SANITIZE:-0}" = 1 ]; then
    for suite in quantise layout router expert; do
        step "memcheck-$suite" 120 compute-sanitizer --error-exitcode 9 "$dir/test-gpu" $suite
        step "racecheck-$suite" 120 compute-sanitizer --tool racecheck --error-exitcode 9 \
            "$dir/test-gpu" $suite
    done
fi
printf '%s\n' "${times[@]}"
exit $failed
