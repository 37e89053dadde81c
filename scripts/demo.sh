#!/usr/bin/env bash
# The demo: a real program's build and install, and a git import of a few thousand files, each as one transaction,
# killed again and again at random moments; after each kill the tree is either exactly the old one or exactly the new
# one. Ends with a table of what it saw. SEED=... repeats the same choices; KILLS=... sets their number per scenario.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

SEED=${SEED:-1}
KILLS=${KILLS:-16}
RANDOM=$SEED

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' dim=$'\e[2m' plain=$'\e[0m'
else
    bold='' green='' red='' dim='' plain=''
fi
title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
note()  { printf '  %s\n' "$*"; }
shown() { printf '  %s$ %s%s\n' "$dim" "$*" "$plain"; }
seconds() { printf '%d.%02d s' $(($1 / 1000)) $(($1 % 1000 / 10)); }

started_ms=$(now_ms)
make_work demo
sources=${DEMO_SOURCES:-${CARGO_TARGET_DIR:-target}/demo-sources}
volume=$WORK/volume point=$WORK/mount
mkdir "$point"

title "1. Sources from Debian, a volume, a mount"
scripts/fetch-sources.sh "$sources"
lua=$(realpath "$sources"/lua5.4_*.orig.tar.gz) musl=$(realpath "$sources"/musl_*.orig.tar.gz)
note "$(basename "$lua"), to be built and installed; $(basename "$musl"), $(tar -tf "$musl" | grep -c '[^/]$') files for git"
shown "txfs mkfs $volume && txfs mount $volume $point"
"$TXFS" mkfs "$volume"
mount_volume "$volume" "$point"

runs=0

# Processes below PID, deepest last.
descendants() {
    local child
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null || true); do
        echo "$child"
        descendants "$child"
    done
}

start_run() { # SCRIPT TARBALL ROUND: starts it in the background as one transaction; sets RUN_PID and result
    # each run writes its hash to a file of its own: what an earlier one left behind can't pass for it
    runs=$((runs + 1))
    result=$WORK/result.$runs
    : >"$WORK/run.log"
    start run "$TXFS" run --mount "$point" -- "$PWD/scripts/demo/$1" "$point" "$2" "$3" "$result"
    RUN_PID=$STARTED_PID
}

check_volume() {
    "$TXFS" check "$volume" >"$WORK/check.log" 2>&1 || { cat "$WORK/check.log" >&2; return 1; }
}

all_gone() { local pid; for pid; do gone "$pid" || return 1; done; }

no_transactions() { [ -z "$("$TXFS" tx list --json "$point" | tr -d '[]{} \n')" ]; }

remount_ms_max=0
remount() { # unmounts, checks, mounts again, and keeps the longest time that a mount took
    local begun
    if [ -n "$MOUNT_PID" ]; then unmount_volume "$point"; fi
    if [ "${1:-}" = timed ]; then
        begun=$(now_ms)
        mount_volume "$volume" "$point"
        REMOUNT_MS=$(($(now_ms) - begun))
        if [ "$REMOUNT_MS" -gt "$remount_ms_max" ]; then remount_ms_max=$REMOUNT_MS; fi
        unmount_volume "$point"
    fi
    check_volume || violation "txfs check found damage"
    mount_volume "$volume" "$point"
}

violations=0
violation() {
    violations=$((violations + 1))
    printf '  %sVIOLATION%s %s\n' "$red" "$plain" "$*"
}

declare -A count  # "scenario|kill|outcome" -> how often

# One whole run without a kill, to learn how long it takes and that all of it arrives.
whole_run() { # SCENARIO SCRIPT TARBALL
    local begun written end status
    begun=$(now_ms)
    start_run "$2" "$3" 0
    wait_until 300 result_or_end || fail "the run did not end in 300 s"
    written=$(now_ms)
    status=$(status_of run)
    [ "$status" -eq 0 ] || { cat "$WORK/run.log" >&2; fail "the run failed with status $status; its output is above"; }
    end=$(now_ms)
    RUN_MS=$((written - begun)) COMMIT_MS=$((end - written))
    old=$(tree_hash "$point")
    [ "$old" = "$(cat "$result")" ] || violation "$1: committed, but not the tree that the transaction saw"
    remount
    [ "$(tree_hash "$point")" = "$old" ] || violation "$1: not the same tree after a remount"
    note "ran to its end: $(seconds "$RUN_MS"), commit $COMMIT_MS ms, $(find "$point" | wc -l) files; after a remount the tree is the same"
}
result_or_end() { [ -e "$result" ] || ended run; }

kill_once() { # SCENARIO SCRIPT TARBALL ROUND WHAT MOMENT_MS: MOMENT_MS counts from the start, or, as +MS, from the commit
    local scenario=$1 what=$5 moment=$6 status outcome now later victims where below
    start_run "$2" "$3" "$4"
    if [[ $moment == +* ]]; then
        wait_until 300 result_or_end || fail "the run did not end in 300 s"
        where="commit $moment ms"
    else
        where="at $(seconds "$moment")"
    fi
    sleep "$(printf '%d.%03d' $((${moment#+} / 1000)) $((${moment#+} % 1000)))"

    case $what in
    command)
        # the first process below `txfs run` that runs our script
        victims=$(for pid in $(descendants "$RUN_PID"); do
            if tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q "^[^ ]*bash [^ ]*$2"; then echo "$pid"; break; fi
        done) ;;
    run)     victims=$RUN_PID ;;
    mount)   victims=$MOUNT_PID ;;
    all)     victims="$MOUNT_PID $RUN_PID $(descendants "$RUN_PID" | tr '\n' ' ')" ;;
    esac
    below=$(descendants "$RUN_PID")
    # shellcheck disable=SC2086
    kill -9 $victims 2>/dev/null || true
    status=$(status_of run)
    # the command must not outlive its transaction
    if ! wait_until 10 all_gone $below; then
        violation "$scenario, $what $where: processes of the command were still there 10 s later"
        # shellcheck disable=SC2086
        kill -9 $below 2>/dev/null || true
    fi

    REMOUNT_MS=
    case $what in
    mount | all)
        bury_mount "$point"
        remount timed
        now=$(tree_hash "$point") ;;
    *)
        # whoever was killed after it had asked for the commit may still get it
        wait_until 60 no_transactions || violation "$scenario, $what $where: the transaction did not end"
        now=$(tree_hash "$point")
        remount
        later=$(tree_hash "$point")
        [ "$now" = "$later" ] || violation "$scenario, $what $where: the tree changed with a remount" ;;
    esac

    if [ "$now" = "$old" ]; then
        outcome=old
        [ "$status" -ne 0 ] || violation "$scenario, $what $where: txfs run reported success, the tree is the old one"
    elif [ -e "$result" ] && [ "$now" = "$(cat "$result")" ]; then
        outcome=new old=$now
    else
        outcome=neither
        violation "$scenario, $what $where: the tree is neither the old one nor the new one"
        tree_listing "$point" >"$WORK/neither" || true
        old=$now
    fi
    count[$scenario|$what|$outcome]=$((${count[$scenario|$what|$outcome]:-0} + 1))
    printf '  %-8s killed %-14s -> %s%s%s\n' "$what" "$where" "$green" "$outcome" "$plain${REMOUNT_MS:+, mounted again in $REMOUNT_MS ms}"
}

scenario() { # NAME SCRIPT TARBALL
    local i fraction what moment kinds=(command mount all run)
    whole_run "$@"
    for ((i = 0; i < KILLS; i++)); do
        what=${kinds[i % 4]}
        # The moments cover the whole run evenly, with a random place in each interval; every other kill of the mount
        # and of everything waits for the commit instead.
        fraction=$((i * 1000 / KILLS + RANDOM % (1000 / KILLS)))
        moment=$((RUN_MS * fraction / 1000))
        if [ "$what" != command ] && [ $((i / 4 % 2)) -eq 1 ]; then
            moment=+$((RANDOM % (COMMIT_MS + COMMIT_MS / 4 + 2)))
        fi
        kill_once "$1" "$2" "$3" $((i + 1)) "$what" "$moment"
    done
}

title "2. txfs run -- build and install Lua, killed $KILLS times"
shown "txfs run --mount $point -- scripts/demo/build-program.sh ..."
scenario build build-program.sh "$lua"

title "3. txfs run -- git init, add, commit, killed $KILLS times"
shown "txfs run --mount $point -- scripts/demo/import-repository.sh ..."
scenario git import-repository.sh "$musl"

title "4. What is there now works"
note "$("$point/usr/bin/lua" -v)"
note "git: $(HOME=$point git -c safe.directory='*' -C "$point/repository" log --oneline | head -n 1), $(HOME=$point git -c safe.directory='*' -C "$point/repository" status --porcelain | wc -l) files differ"
unmount_volume "$point"
check_volume || violation "txfs check found damage at the end"

title "What it showed (seed $SEED)"
printf '  %-10s %-34s %6s %6s %6s %8s\n' scenario 'killed with SIGKILL' kills old new neither
total=0
declare -A meaning=([command]='the command' [run]='txfs run' [mount]='the mount process' [all]='mount, txfs run and command at once')
for name in build git; do
    for what in command run mount all; do
        o=${count[$name|$what|old]:-0} n=${count[$name|$what|new]:-0} x=${count[$name|$what|neither]:-0}
        printf '  %-10s %-34s %6d %6d %6d %8d\n' "$name" "${meaning[$what]}" $((o + n + x)) "$o" "$n" "$x"
        total=$((total + o + n + x))
    done
done
printf '\n  %d kills; longest mount after a kill %d ms; txfs check clean each time: %s; demo took %s\n' "$total" \
    "$remount_ms_max" "$([ "$violations" -eq 0 ] && echo yes || echo 'see above')" "$(seconds $(($(now_ms) - started_ms)))"
if [ "$violations" -gt 0 ]; then
    printf '  %s%d violations%s\n' "$red" "$violations" "$plain"
    exit 1
fi
printf '  %severy tree was exactly the old one or exactly the new one%s\n' "$green" "$plain"
