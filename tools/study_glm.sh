#!/bin/sh
# tools/study_glm.sh - EP8, EP16 or EP32 for the GLM of the article? Two sweeps and one page.
#
# usage: tools/study_glm.sh EPSIM FOLDER
#
# The article: 256 experts, top-8, hidden 6144, 78 layers, on nodes of eight H200. Decode with a
# context of 8,192 in both modes, prefill of 2,048-token prompts in normal mode; the machine has a
# price for cost only where MACHINE names one that says gpu_hour_usd.
set -eu

epsim=$1
folder=$2
machine=${MACHINE:-h200-hgx}
mkdir -p "$folder"

sweep() # sweep NAME GOAL OPTION...
{
    name=$1
    goal=$2
    shift 2
    "$epsim" sweep --model glm-5.3-article --machine "$machine" --ep 8,16,32 "$@" \
        --advise "$goal" --db "$folder/$name.db" --out "$folder/$name" >"$folder/$name.txt"
}

sweep decode throughput --mode ll,normal --phase decode --context 8192 --layers 4 \
    --tokens 8,16,32,64,128,256
sweep prefill throughput --mode normal --phase prefill --prompt 2048 --layers 4 \
    --sms 20,24 --tokens 2048,4096,8192

text() # text FILE: escaped
{
    sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g' "$1"
}

{
    cat <<'END'
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>EP8, EP16 or EP32?</title>
<style>
body { max-width: 1060px; margin: 0 auto; padding: 16px; font: 15px/1.5 system-ui, sans-serif;
       color: #1c2430; }
pre { font: 12.5px/1.4 ui-monospace, Menlo, monospace; overflow-x: auto; background: #f4f6f9;
      padding: 10px; }
img { max-width: 100%; }
</style></head><body>
<h1>EP8, EP16 or EP32 for the GLM of the article?</h1>
<p>256 routed experts and one shared, top-8, hidden 6144, 78 layers of which 3 dense; nodes of
eight GPUs, FP8 weights and dispatch, BF16 combine, uniform routing. All times are modelled; four
MoE layers were simulated and stand for all 75. A cell whose KV cache does not fit beside weights
and buffers is no advice.</p>
END
    for name in decode prefill; do
        echo "<h2>$name</h2>"
        echo "<p><a href=\"$name/index.html\">Cells, advice by every goal, plots</a></p>"
        for plot in tokens-step_us ep-tokens_per_s_per_gpu; do
            echo "<p><img src=\"$name/$plot.svg\" alt=\"$plot\"></p>"
        done
        echo "<pre>"
        text "$folder/$name.txt"
        echo "</pre>"
    done
    echo "</body></html>"
} >"$folder/index.html.new"
mv "$folder/index.html.new" "$folder/index.html"
echo "study: $folder/index.html"
