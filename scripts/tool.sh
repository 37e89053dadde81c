#!/usr/bin/env bash
# tool.sh NAME VERSION: prints the path of a crates.io tool at exactly this version, installing it first where
# the machine does not have it. Installed tools live under $TOOLS (default: target/tools).
set -euo pipefail

name=$1 version=$2
tools=${TOOLS:-${CARGO_TARGET_DIR:-target}/tools}
export PATH="$PATH:$HOME/.cargo/bin"

found() { [ -x "$1" ] && "$1" --version 2>/dev/null | grep -qF " $version"; }
for candidate in "$tools/bin/$name" "$(command -v "$name" || true)"; do
    if [ -n "$candidate" ] && found "$candidate"; then
        realpath "$candidate"
        exit 0
    fi
done

echo "tool: installing $name $version into $tools" >&2
# Built faster than it would run at its best: a tool runs for seconds.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
if ! cargo install --locked --quiet --root "$tools" --target-dir "$tools/build" "$name@$version" >&2; then
    echo "tool: cargo could not install $name $version; is crates.io reachable?" >&2
    exit 1
fi
rm -rf "$tools/build"
realpath "$tools/bin/$name"
