#!/bin/sh
# tools/setup.sh - install the Debian packages that building and testing need.
#
# usage: tools/setup.sh           what `make` and `make test` need
#        tools/setup.sh --all     also what tidy, clang builds and optional tests need
#        tools/setup.sh --check   install nothing: name what plain `make` lacks, exit 1 if any
#
# Silent when nothing is missing. Exit status: 0 all there, 1 (--check) something missing,
# 2 usage, 3 the packages could not be installed (the line to type as root is printed).
# A library counts as there when the compiler finds its header, whoever installed it.
set -u

CC=${CC:-gcc}
missing=

usage()
{
    echo "usage: tools/setup.sh [--all | --check]" >&2
    exit 2
}

need() # need PACKAGE: it is missing
{
    case " $missing " in *" $1 "*) ;; *) missing="${missing:+$missing }$1" ;; esac
}

has()
{
    command -v "$1" >/dev/null 2>&1
}

# preprocess HEADER...: does the compiler find them all?
preprocess()
{
    for header; do echo "#include <$header>"; done | $CC -E -x c - -o /dev/null 2>/dev/null
}

# headers HEADER:PACKAGE...: one look when all is well, one look at each when not
headers()
{
    # shellcheck disable=SC2046  # the names hold no spaces
    preprocess $(for pair; do echo "${pair%%:*}"; done) && return
    for pair; do preprocess "${pair%%:*}" || need "${pair#*:}"; done
}

build_packages()
{
    if ! has "${CC%% *}"; then
        compiler=${CC%% *}
        need "${compiler##*/}"
        CC=gcc
    fi
    if has "${CC%% *}"; then
        headers stdio.h:libc6-dev sqlite3.h:libsqlite3-dev jansson.h:libjansson-dev \
            yaml.h:libyaml-dev
    else # Nothing to look with: ask for everything, apt skips what is there.
        for package in libc6-dev libsqlite3-dev libjansson-dev libyaml-dev; do
            need $package
        done
    fi
}

test_packages()
{
    if has "${CC%% *}"; then headers check.h:check; else need check; fi
    has pkg-config || need pkg-config
    has git || need git
    has sqlite3 || need sqlite3 # for the README's questions to a database
}

all_packages()
{
    for pair in clang:clang clang-format:clang-format g++:g++ gnuplot:gnuplot-nox \
        chromium:chromium python3:python3; do
        has "${pair%%:*}" || need "${pair#*:}"
    done
    echo 'int main(void) { return 0; }' |
        clang -fsanitize=address,fuzzer-no-link -x c - -o /dev/null 2>/dev/null ||
        need libclang-rt-dev
}

case $# in
0) want="test" ;;
1) case $1 in
    --all) want=all ;;
    --check) want=check ;;
    *) usage ;;
    esac ;;
*) usage ;;
esac

build_packages
if [ $want = check ]; then
    [ -z "$missing" ] && exit 0
    echo "missing packages: $missing (tools/setup.sh installs them)" >&2
    exit 1
fi
test_packages
[ $want = all ] && all_packages
[ -z "$missing" ] && exit 0

line="apt-get install -y --no-install-recommends $missing"
quiet="env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120"
if ! has apt-get; then
    echo "missing packages, by their Debian names: $missing; this machine has no apt-get" >&2
    exit 3
fi
if [ "$(id -u)" = 0 ]; then
    sudo=
elif has sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    sudo=sudo
else
    echo "not root and no sudo; as root, run: apt-get update && $line" >&2
    exit 3
fi
echo "setup: installing $missing"
log=$(mktemp) || exit 3
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086  # lists of words
if ! { $sudo $quiet update && $sudo $quiet ${line#apt-get }; } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    echo "setup: apt failed; as root, run: apt-get update && $line" >&2
    exit 3
fi
echo "setup: done"
