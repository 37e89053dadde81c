#!/usr/bin/env bash
# Documents may only name tests that exist, and link to files that exist.
set -euo pipefail
cd "$(dirname "$0")/.."

wrong=0
complain() { echo "docs: $*" >&2; wrong=1; }

# tests are named in backticks, in words joined by underscores, in the last column of a table
known=$(grep -rhoE 'fn [a-z0-9_]+\(' crates tests --include='*.rs' | sed 's/^fn //; s/($//' | sort -u)
while read -r name; do
    grep -qx "$name" <<<"$known" || complain "docs/SEMANTICS.md names the test $name, which does not exist"
done < <(awk -F '|' '/^\|/ { print $(NF - 1) }' docs/SEMANTICS.md | grep -oE '`[a-z0-9]+(_[a-z0-9]+){2,}`' | tr -d '`' | sort -u)

while IFS=: read -r file link; do
    target=${link#*](}
    target=${target%)}
    case $target in http*) continue ;; esac
    [ -e "$(dirname "$file")/${target%%#*}" ] || complain "$file links to $target, which does not exist"
done < <(grep -oHE '\]\([^)]+\)' README.md docs/*.md docs/decisions/*.md)

[ "$wrong" -eq 0 ] && echo "docs: tests and links that they name exist"
exit "$wrong"
