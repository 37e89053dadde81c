#!/usr/bin/env bash
# build-program.sh POINT TARBALL ROUND RESULT: what the demo runs as one transaction: unpack Lua, build it, install it,
# try it, replace what the last round left. Its last act is to write down the hash of the tree as the transaction
# sees it, outside the volume.
set -euo pipefail
point=$1 tarball=$2 round=$3 result=$4

rm -rf "$point/build"
mkdir "$point/build"
tar -C "$point/build" --strip-components=1 -xf "$tarball"
make -s -C "$point/build" -j2 MYCFLAGS="-DDEMO_ROUND=$round" linux
make -s -C "$point/build" install INSTALL_TOP="$point/usr"
"$point/usr/bin/lua" -e 'assert(_VERSION == "Lua 5.4")'
echo "$round" >"$point/usr/round"
"$(dirname "$0")/tree-hash.sh" "$point" "$result"
