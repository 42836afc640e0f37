#!/bin/sh
# tools/embed.sh - turn data files into one C array, so that the binary needs no data directory.
#
# usage: tools/embed.sh SYMBOL FILE... > SYMBOL.c      (tools/embed.sh --header > embedded.h)
#
# The array holds one entry per file, in the order given: its name (no folder, no extension),
# its text with a NUL behind it, its size without that NUL; an entry whose name is NULL ends it.
set -eu

if [ "${1-}" = --header ]; then
    cat <<'END'
/* gen/embedded.h - data files that the build put into the binary (written by tools/embed.sh). */
#ifndef GEN_EMBEDDED_H
#define GEN_EMBEDDED_H

#include <stddef.h>

struct embedded_file {
    const char *name; /* Without folder and extension; NULL behind the last file. */
    const char *text; /* A NUL follows the last byte. */
    size_t bytes;     /* Without that NUL. */
};

extern const struct embedded_file embedded_machines[]; /* fabric/machines, by name */
extern const struct embedded_file embedded_models[];   /* sim/models, by name */
extern const struct embedded_file embedded_schema[];   /* traces/schema.sql */
extern const struct embedded_file embedded_style[];    /* traces/report.css */
extern const struct embedded_file embedded_cases[];    /* sim/cases.csv */

#endif
END
    exit 0
fi

symbol=$1
shift
echo "/* Written by tools/embed.sh. */"
echo '#include "gen/embedded.h"'
index=0
for file; do
    echo "static const unsigned char file_${index}[] = {"
    od -An -v -tx1 "$file" | sed 's/ \(..\)/0x\1,/g'
    echo "0};"
    index=$((index + 1))
done
echo "const struct embedded_file ${symbol}[] = {"
index=0
for file; do
    name=${file##*/}
    echo "{\"${name%.*}\", (const char *)file_$index, sizeof(file_$index) - 1},"
    index=$((index + 1))
done
echo "{NULL, NULL, 0}};"
