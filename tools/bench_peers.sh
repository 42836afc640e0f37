#!/bin/sh
# tools/bench_peers.sh - the same all-to-all here, by arithmetic, on SimGrid and on ns-3.
#
# usage: tools/bench_peers.sh [BUILD]      (default: build, where epsim is; drivers are put there)
#
# 32 hosts, 1 MiB to every other over ports of 400 Gb/s, hops of half a microsecond: by arithmetic
# 31 x 256 packets of 81.92 ns and two hops. The other simulators are Debian packages and optional:
# one that is not installed is skipped, aloud. Seconds are of one core, set-up left out.
set -u
build=${1:-build}
row='%-36s %12s %10s %8s\n'
hosts=32 packets=7936

skip() # skip NAME PACKAGES
{
    echo "SKIPPED, $1 is not compared: apt-get install --no-install-recommends $2"
}

# shellcheck disable=SC2059  # the format is a format
line() { printf "$row" "$@"; }

command -v pkg-config >/dev/null || skip 'anything else' pkg-config
mkdir -p "$build"
line simulator us packets seconds
line 'arithmetic' 651.117 253952 -
"$build/epsim" bench engine >"$build/peers.txt" || exit 3
# Name (six words), hosts, packets, closed form, us, events, seconds, and so on.
awk '/^1 MiB to each of 31 / { print $8, $10, $12 }' "$build/peers.txt" | {
    read -r moved us seconds
    line 'epsim, packets of 4 KiB' "$us" "$moved" "$seconds"
}

if pkg-config --exists simgrid 2>/dev/null; then
    ${CC:-gcc} -O2 -std=c11 -D_GNU_SOURCE -o "$build/peers_simgrid" tools/peers_simgrid.c \
        -lsimgrid || exit 3
    # BYTES WINDOW: whole messages as flows that share ports, then packets, 62 at a time.
    for shape in '31 1048576 31' "$packets 4096 62"; do
        # shellcheck disable=SC2086  # three numbers
        found=$("$build/peers_simgrid" $hosts $shape) || exit 3
        # shellcheck disable=SC2086
        set -- $shape $found
        line "SimGrid, $2 bytes, $3 at a time" "$4" "$5" "$6"
    done
else
    skip SimGrid libsimgrid-dev
fi

if pkg-config --exists ns3-point-to-point 2>/dev/null; then
    ${CXX:-g++} -O2 -std=c++17 -o "$build/peers_ns3" tools/peers_ns3.cc -lns3-point-to-point \
        -lns3-network -lns3-core || exit 3
    found=$("$build/peers_ns3" $hosts $packets 4096) || exit 3
    # shellcheck disable=SC2086
    set -- $found
    line 'ns-3, packets, store and forward' "$1" "$2" "$3"
else
    skip ns-3 libns3-dev
fi
