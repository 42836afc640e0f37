#!/bin/bash
# tools/gpu.sh - build, verify and time everything that needs a GPU, in one call on its machine.
#
# usage: tools/gpu.sh pack DIR       here: build with STATIC=1, copy programs and data into DIR
#        tools/gpu.sh run DIR [OUT]  there: run what DIR holds; records and logs go to OUT
#        tools/gpu.sh plugin DIR     build the CUDA kernel of sim/plugins.md as the page says
#
# STEPS names the parts to run, of: tests golden jobs faults plugin bench record sanitize (all but
# the last). plugin builds the page's plugin there (needs gcc and nvcc) and checks it. record writes
# OUT/gpu_h200.csv, which belongs into tests/golden; on one GPU it lacks the line of the main job
# on two. sanitize takes the suites named by SUITES (all; SUITE or SUITE:CASE), each for LIMIT_S
# seconds at most (240), with EPSIM_QUICK=1, the quick set; under racecheck exchange and repeat,
# which launch thousands of kernels in it, with EPSIM_QUICK=2: every kernel once or twice.
#
# The GPU's machine need not have what the build needs. Every program runs under a time limit; the
# exit status is 1 if any step failed, and the last lines list the steps with their seconds.
set -u
cd "$(dirname "$0")/.." || exit 2
mode=${1:-} dir=${2:-}
if [ -z "$dir" ] || ! [[ "$mode" =~ ^(pack|run|plugin)$ ]]; then
    sed -n '4,6s/^# //p' tools/gpu.sh >&2
    exit 2
fi

if [ "$mode" = pack ]; then
    data=${EPSIM_DATA:?EPSIM_DATA names the folder with golden/ and traces/}
    build=${BUILD:-build} # BUILT=1: it holds a static build already.
    [ "${BUILT:-0}" = 1 ] ||
        make "-j$(nproc)" "BUILD=$build" STATIC=1 all "$build/test-gpu" || exit 1
    mkdir -p "$dir/lib"
    strip -o "$dir/epsim" "$build/epsim" || exit 1
    strip -o "$dir/test-gpu" "$build/test-gpu" || exit 1
    ldd "$dir/test-gpu" | sed -n 's/.*libsubunit.* => \([^ ]*\) .*/\1/p' |
        xargs -rI{} cp {} "$dir/lib/"
    tar -C "$data" -czf "$dir/data.tgz" golden traces/gptoss20b_{topk_ids,offsets}.npy || exit 1
    tar -C "$dir" -czf "$dir/programs.tgz" epsim test-gpu lib || exit 1
    rm -r "${dir:?}"/{epsim,test-gpu,lib} # Half the size: it has to travel.
    du -sh "$dir"
    exit 0
fi

if [ "$mode" = plugin ]; then # Word for word, in a folder with what `make install` would give.
    mkdir -p "$dir/include" && dir=$(realpath "$dir") || exit 2
    ln -sfn "$PWD" "$dir/include/epsim"
    sed -e "s|@PREFIX@|$dir|" -e 's|@VERSION@|0|' tools/epsim_ref.pc.in >"$dir/epsim_ref.pc"
    cp tests/plugin_example.c "$dir/"
    awk '/^```/ {on = $0 == "```cuda"; next} on' sim/plugins.md >"$dir/mine.cu"
    grep -e '^gcc .*-Dsim_backend_v1' -e '^nvcc .* mine\.cu' sim/plugins.md >"$dir/make.sh"
    [ "$(wc -l <"$dir/make.sh")" = 2 ] || exit 1
    # On a machine without pkg-config: what it would print.
    hash pkg-config 2>/dev/null ||
        sed -i "s|\$(pkg-config [^)]*)|-I$dir/include/epsim|" "$dir/make.sh"
    cd "$dir" && PKG_CONFIG_PATH=$dir exec bash -ex ./make.sh
fi

out=${3:-$dir/out}
mkdir -p "$out"
for part in programs data; do
    tar -C "$dir" -xzf "$dir/$part.tgz" || exit 2
done
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
    --weights none --model gpt-oss-20b --machine h200-hgx --batch 64 --ep 8)
main_job() # main_job NAME BACKEND OPTION...
{
    step "$1" 300 "$epsim" replay "${trace[@]}" --steps 4 --backend "$2" "${@:3}"
}

wrong_of() { sed -n 's/^wrong .* //p' "$out/$1.log"; }
fault() # fault KIND STAGE MODE OPTION...: both backends list the same wrong rows
{
    local name=$1-$2-$3 file=$out/$1-$2-$3.yaml backend wrong how=
    [ "$1" = corrupt ] && how=', byte: 64, xor: 0x9'
    echo "faults: [{kind: $1, layer: 1, stage: $2, source: 1, token: 5$how}]" >"$file"
    for backend in ref cuda; do
        options=("${@:4}")
        [ $backend = ref ] && options=()
        timeout 120 "$epsim" replay "${trace[@]}" --layers 2 --backend $backend --mode "$3" \
            --scenario "$file" "${options[@]}" >"$out/$name-$backend.log" 2>&1
    done
    wrong=$(wrong_of "$name-ref")
    if [ -n "$wrong" ] && [ "$(wrong_of "$name-cuda")" = "$wrong" ]; then
        echo "fault $name ${*:4}: list of wrong rows $wrong"
    else
        times+=("gpu: fault $name ${*:4}: list '$(wrong_of "$name-cuda")', not '$wrong': FAILED")
        failed=1
    fi
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
steps=${STEPS:-tests golden jobs faults bench record}
wanted() { [[ " $steps " == *" $1 "* ]]; }

wanted tests && step tests 300 "$dir/test-gpu"
if wanted golden; then
    for transport in driven direct; do
        step "golden-$transport" 120 "$epsim" verify --golden "$dir/golden" --backend cuda \
            --transport $transport --gpus "$((gpus > 2 ? 2 : gpus))"
    done
fi
if wanted jobs; then
    for mode in ll normal; do
        main_job "$mode-ref" ref --mode $mode
        for transport in driven direct; do
            main_job "$mode-$transport" cuda --mode $mode --transport $transport
            same "$mode-ref" "$mode-$transport"
            [ "$gpus" -gt 1 ] || continue
            for mapping in blocks round-robin; do
                name=$mode-$transport-$gpus-$mapping
                main_job "$name" cuda --mode $mode --transport $transport --gpus "$gpus" \
                    --mapping $mapping
                same "$mode-ref" "$name"
            done
        done
    done
fi
if wanted jobs; then # The experts themselves, sum by sum: slow on the reference, so one layer.
    small=(--model olmoe-1b-7b --ep 8 --tokens 16 --layers 1 --expert mlp)
    for mode in ll normal; do
        step "mlp-$mode-ref" 120 "$epsim" run "${small[@]}" --mode $mode --backend ref
        for transport in driven direct; do
            step "mlp-$mode-$transport" 120 "$epsim" run "${small[@]}" --mode $mode \
                --backend cuda --transport $transport --gpus "$((gpus > 2 ? 2 : gpus))"
            same "mlp-$mode-ref" "mlp-$mode-$transport"
        done
    done
    small=(--model toy-16x2 --machine toy-2x4 --ep 8 --tokens 16 --mode normal --expert mlp)
    step mlp-nodes-ref 120 "$epsim" run "${small[@]}" --backend ref
    step mlp-nodes-driven 120 "$epsim" run "${small[@]}" --backend cuda
    same mlp-nodes-ref mlp-nodes-driven
fi
if wanted faults; then
    for kind in drop double corrupt overtake; do
        for stage in dispatch combine; do
            for mode in ll normal; do
                fault $kind $stage $mode --gpus 1
                [ "$gpus" -gt 1 ] && fault $kind $stage $mode --gpus "$gpus"
            done
        done
    done
fi
if wanted bench; then
    show=80 step bench-kernels 300 "$epsim" bench kernels
    [ "$gpus" -gt 1 ] && show=80 step bench-direct 300 "$epsim" bench direct
fi
if wanted record; then
    step cases 300 "$epsim" verify --cases --backend cuda
    step cases-direct 300 "$epsim" verify --cases --backend cuda --transport direct
    step record 300 "$epsim" verify --backend cuda --record "$out/gpu_h200.csv" \
        --routing "${trace[0]}" --offsets "${trace[2]}"
    step recorded 300 "$epsim" verify --recorded "$out/gpu_h200.csv"
fi
if wanted plugin; then
    mine=$(realpath "$dir")/plugin
    show=12 step plugin-build 120 tools/gpu.sh plugin "$mine"
    for golden in tests/golden "$dir/golden"; do
        step "plugin-$(basename "$(dirname "$golden")")" 120 \
            "$epsim" verify --golden "$golden" --backend "$mine/mine.so"
    done
    step plugin-cases 300 "$epsim" verify --cases --backend "$mine/mine.so"
fi
sanitize() # sanitize SUITE[:CASE] TOOL...: in the background; the verdict goes to OUT/NAME.verdict
{
    local name=$2-${1/:/-}
    [ "$1" = "${1%:*}" ] || export CK_RUN_CASE="${1#*:}" # Of this background job alone.
    timeout -k 10 "${LIMIT_S:-240}" compute-sanitizer --tool "$2" "${@:3}" --error-exitcode 9 \
        "$dir/test-gpu" "${1%:*}" >"$out/$name.log" 2>&1
    echo "$name status $?: $(grep -h 'Checks:\|SUMMARY' "$out/$name.log" | tr '\n' ' ')" \
        >"$out/$name.verdict"
}
if wanted sanitize; then # Slow and mostly on the host: all at once.
    for suite in ${SUITES:-quantise layout internode router expert grouped exchange:group \
        exchange:direct exchange:phases faults repeat direct_ll direct_normal}; do
        # Enabling a peer a second time is an answer there, not an error.
        EPSIM_QUICK=1 sanitize "$suite" memcheck --report-api-errors no &
        quick=1
        [[ "$suite" =~ ^(exchange|repeat) ]] && quick=2
        EPSIM_QUICK=$quick sanitize "$suite" racecheck &
    done
    wait
    cat "$out"/*.verdict
    grep -L 'status 0' "$out"/*.verdict | grep -q . && failed=1
fi
printf '%s\n' "${times[@]}"
exit $failed
