#!/usr/bin/env bash
# functions-of-header.sh HEADER: the functions that a C header declares, one a line.
set -euo pipefail
# comments away, then every name that is followed by an opening parenthesis at the start of a declaration
sed -e 's|/\*.*\*/||' -e '/\/\*/,/\*\//d' -e 's|//.*||' "$1" |
    grep -oE '^[a-z][a-z0-9_ ]*[ *]+[a-z][a-z0-9_]*\(' | grep -v '^typedef' |
    grep -oE '[a-z][a-z0-9_]*\($' | tr -d '(' | sort -u
