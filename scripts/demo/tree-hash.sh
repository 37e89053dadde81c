#!/usr/bin/env bash
# tree-hash.sh DIRECTORY FILE: writes the hash of a tree into FILE, all at once, so that a reader sees it whole.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"
tree_hash "$1" >"$2.part"
mv "$2.part" "$2"
