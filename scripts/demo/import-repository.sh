#!/usr/bin/env bash
# import-repository.sh POINT TARBALL ROUND RESULT: what the demo runs as one transaction: git init, add and commit of a
# few thousand files, replacing the repository that the last round left.
set -euo pipefail
point=$1 tarball=$2 round=$3 result=$4

export HOME=$point GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=demo GIT_AUTHOR_EMAIL=demo@localhost GIT_COMMITTER_NAME=demo GIT_COMMITTER_EMAIL=demo@localhost

rm -rf "$point/repository"
mkdir "$point/repository"
tar -C "$point/repository" --strip-components=1 -xf "$tarball"
echo "$round" >"$point/repository/round"
cd "$point/repository"
git init -q
# housekeeping in the background would outlive the command
git config gc.auto 0
git add .
git commit -q -m "round $round"
git fsck --no-progress >/dev/null
cd /
"$(dirname "$0")/tree-hash.sh" "$point" "$result"
