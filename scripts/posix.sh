#!/usr/bin/env bash
# pjdfstest and fsx on a TxFS mount, each outside transactions and inside one.
#
#   posix.sh [--on DIRECTORY] [--operations N] [--seeds "1 2 3"] [pjdfstest|fsx ...]
#
# --on DIRECTORY tests another file system instead (to see what the suites say about ext4, for example).
# What is excluded stands in tests/posix/pjdfstest.toml, each with its reason.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

directory='' operations=${FSX_OPERATIONS:-20000} seeds=${FSX_SEEDS:-1 2 3} suites=()
while [ $# -gt 0 ]; do
    case $1 in
    --on)         directory=$2; shift 2 ;;
    --operations) operations=$2; shift 2 ;;
    --seeds)      seeds=$2; shift 2 ;;
    pjdfstest | fsx) suites+=("$1"); shift ;;
    *) fail "posix: unknown argument $1" ;;
    esac
done
[ ${#suites[@]} -gt 0 ] || suites=(pjdfstest fsx)
configurations=(mixed small large aligned)

pjdfstest=$(scripts/tool.sh pjdfstest 0.2.2)
fsx=$(scripts/tool.sh fsx 0.3.2)

failures=0
failed() { failures=$((failures + 1)); echo "posix: FAILED: $*"; }

if [ -n "$directory" ]; then
    TXFS=/bin/true make_work posix
    # the exit handler must not touch what is not ours
    point=$(mktemp -d "$directory/posix.XXXXXX")
else
    make_work posix
    point=$WORK/mount
    mkdir "$point"
    "$TXFS" mkfs "$WORK/volume"
    if [ "$(id -u)" -eq 0 ]; then
        mount_volume "$WORK/volume" "$point" --allow-other
    else
        mount_volume "$WORK/volume" "$point"
    fi
fi
chmod 755 "$point"

run_pjdfstest() { # PLACE COMMAND...
    # short, since a socket's path has room for 107 bytes and the suite's own names are long
    local place=$1 secondary=$WORK/secondary below=$point/${1:0:1} log=$WORK/pjdfstest-$1.log status=0
    shift
    if [ "$(id -u)" -ne 0 ]; then
        echo "posix: pjdfstest: skipped, it switches users and so needs root"
        return
    fi
    mkdir -p "$secondary" "$below"
    # tests create files as other users
    chmod 777 "$secondary" "$below"
    mount -t tmpfs tmpfs "$secondary"
    RUST_BACKTRACE=0 timeout 900 "$@" "$pjdfstest" -c "$PWD/tests/posix/pjdfstest.toml" -p "$below" \
        -s "$secondary" >"$log" 2>&1 || status=$?
    umount "$secondary"
    grep -A 3 -E '(FAILED|failed)$' "$log" || true
    awk -v place="$place" '/skipped$/ { name = $1; getline; sub(/^[ \t]+/, ""); reason[$0] = reason[$0] " " name }
         END { for (why in reason) print "posix: pjdfstest, " place ": skipped:" reason[why] ": " why }' "$log"
    if [ "$status" -ne 0 ]; then
        failed "pjdfstest, $place (status $status)"
        tail -n 3 "$log"
    fi
    echo "posix: pjdfstest, $place: $(grep '^Summary' "$log" || echo 'no summary, it did not end')"
}

run_fsx() { # CONFIGURATION SEED PLACE COMMAND...
    local configuration=$1 seed=$2 place=$3 log=$WORK/fsx.log status=0 count=$operations
    shift 3
    # its operations move up to 3 MiB each
    if [ "$configuration" = large ]; then count=$((operations / 10)); fi
    timeout 900 "$@" "$fsx" -f "$PWD/tests/posix/fsx-$configuration.toml" -S "$seed" -N "$count" -P "$WORK" \
        "$point/fsx-$configuration-$seed-$place" >"$log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then
        tail -n 40 "$log"
        failed "fsx $configuration, seed $seed, $place (status $status)"
    else
        fsx_operations=$((fsx_operations + count))
    fi
}

for suite in "${suites[@]}"; do
    case $suite in
    pjdfstest)
        run_pjdfstest outside env
        if [ -z "$directory" ]; then
            run_pjdfstest transaction "$TXFS" run --mount "$point" --
        fi ;;
    fsx)
        fsx_operations=0
        for configuration in "${configurations[@]}"; do
            for seed in $seeds; do
                run_fsx "$configuration" "$seed" outside env
                if [ -z "$directory" ]; then
                    run_fsx "$configuration" "$seed" transaction "$TXFS" run --mount "$point" --
                fi
            done
        done
        echo "posix: fsx: $fsx_operations operations passed, configurations ${configurations[*]}, seeds $seeds" ;;
    esac
done

if [ -n "$directory" ]; then
    rm -rf "$point"
else
    unmount_volume "$point"
    "$TXFS" check "$WORK/volume" >"$WORK/check.log" 2>&1 || { cat "$WORK/check.log"; failed "txfs check after the suites"; }
fi
[ "$failures" -eq 0 ] || fail "posix: $failures failures"
echo "posix: all passed"
