#!/usr/bin/env bash
# Licences, sources and bans of the dependencies; advisories as well where their database can be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."

deny=$(scripts/tool.sh cargo-deny 0.20.2)
"$deny" --workspace --log-level error check bans licenses sources

# The advisory database is a git repository on the network. Without it there is nothing to check against.
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
if ! timeout 120 "$deny" --workspace --log-level error check advisories >"$answer" 2>&1; then
    if grep -q 'failed to fetch advisory database' "$answer"; then
        echo "deny: the advisory database cannot be fetched here; advisories are NOT checked"
    else
        cat "$answer" >&2
        exit 1
    fi
else
    cat "$answer"
fi
