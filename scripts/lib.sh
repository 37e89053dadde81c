# Sourced by the demo, the end-to-end tests and the POSIX suites: one place that knows how to make, mount, kill,
# unmount and check a volume from a shell. Needs `set -euo pipefail` in its caller.
#
# Variables it sets: TXFS (the command), WORK (a directory of this run, removed at exit), MOUNT_PID (of the mount process,
# empty when there is none).

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TXFS=${TXFS:-${CARGO_TARGET_DIR:-$ROOT/target}/release/txfs}
MOUNT_PID=
STARTED=()

fail() { printf '%s\n' "$*" >&2; exit 1; }

# A fresh directory for volumes, mount points and logs. Not under /tmp, which may be in memory.
make_work() {
    [ -x "$TXFS" ] || fail "$TXFS is not there; run 'make build' first"
    WORK=$(mktemp -d "${TXFS_WORK:-/var/tmp}/txfs-$1.XXXXXX")
    chmod 755 "$WORK"
    trap clean_work EXIT
    trap 'exit 130' INT TERM
}

clean_work() {
    local status=$? point pid
    set +e
    for pid in "${STARTED[@]}"; do kill -9 "$pid" 2>/dev/null; done
    wait 2>/dev/null
    while read -r point; do detach "$point"; done < <(mounts_below "$WORK")
    if [ -n "${KEEP:-}" ] || { [ "$status" -ne 0 ] && [ -n "${KEEP_ON_FAILURE:-}" ]; }; then
        echo "left in place: $WORK" >&2
    else
        rm -rf --one-file-system "$WORK"
    fi
    exit "$status"
}

mounts_below() { awk -v below="$1/" 'index($2, below) == 1 { print $2 }' /proc/self/mounts; }
is_mounted() { awk -v point="$1" '$2 == point { found = 1 } END { exit !found }' /proc/self/mounts; }

detach() {
    if [ "$(id -u)" -eq 0 ]; then umount -l "$1"; else fusermount3 -u -z "$1"; fi
}

now_ms() { echo $(( ${EPOCHREALTIME/[.,]/} / 1000 )); }

# wait_until SECONDS COMMAND...: polls; fails when the time is over.
wait_until() {
    local deadline=$(( $(now_ms) + $1 * 1000 ))
    shift
    until "$@"; do
        [ "$(now_ms)" -lt "$deadline" ] || return 1
        sleep 0.005
    done
}

# gone PID: a zombie counts as gone.
gone() { [ "$(awk '{ print $3 }' "/proc/$1/stat" 2>/dev/null || echo Z)" = Z ]; }

# start NAME COMMAND...: starts a command in the background; its output goes to $WORK/NAME.log, its process id into
# STARTED_PID. A shell in between waits for it, so that its death by a signal is no news for this one's standard error.
start() {
    local name=$1
    shift
    rm -f "$WORK/$name.pid" "$WORK/$name.status"
    (
        status=0
        "$@" >>"$WORK/$name.log" 2>&1 &
        echo $! >"$WORK/$name.pid.part"
        mv "$WORK/$name.pid.part" "$WORK/$name.pid"
        wait $! || status=$?
        echo "$status" >"$WORK/$name.status.part"
        mv "$WORK/$name.status.part" "$WORK/$name.status"
    ) 2>/dev/null &
    wait_until 10 test -e "$WORK/$name.pid" || fail "cannot start $*"
    STARTED_PID=$(cat "$WORK/$name.pid")
    STARTED=("$STARTED_PID" "${STARTED[@]:0:1}")
}

# ended NAME: whether it has. status_of NAME: waits for that, up to two minutes; prints its exit status.
ended() { [ -e "$WORK/$1.status" ]; }
status_of() {
    wait_until 120 ended "$1" || fail "$1 did not end in two minutes"
    cat "$WORK/$1.status"
}

# mount_volume VOLUME POINT [ARGUMENTS...]: in the foreground of a background job, so that its pid is known: MOUNT_PID.
mount_volume() {
    local volume=$1 point=$2
    shift 2
    start mount "$TXFS" mount -f "$@" "$volume" "$point"
    MOUNT_PID=$STARTED_PID
    mount_settled() { is_mounted "$point" || ended mount; }
    wait_until 60 mount_settled || fail "no mount at $point after 60 s; see $WORK/mount.log"
    if ended mount; then
        tail -n 20 "$WORK/mount.log" >&2
        fail "the mount process ended at once; its log is above"
    fi
    # the mount answers once the volume has recovered
    stat "$point/." >/dev/null
}

# unmount_volume POINT: an orderly end; waits until the owner has gone.
unmount_volume() {
    local status
    "$TXFS" umount "$1"
    if [ -n "$MOUNT_PID" ]; then
        status=$(status_of mount)
        [ "$status" -eq 0 ] || fail "the mount process ended with status $status; see $WORK/mount.log"
        MOUNT_PID=
    fi
}

# What kill -9 of the mount process leaves is a dead mount point: detach it.
bury_mount() {
    status_of mount >/dev/null
    MOUNT_PID=
    if is_mounted "$1"; then detach "$1"; fi
}

# One line for each thing in a tree: kind, mode, owner, links, size, inode, time, path, target; then contents and
# extended attributes. Directory sizes and device numbers of the file system say nothing and are left out.
tree_listing() {
    (
        cd "$1"
        export LC_ALL=C
        # a dead mount must not pass for an empty tree
        set -o pipefail
        find . \( -type d -printf '%y %m %U:%G %n - %i %T@ %p\n' \) -o -printf '%y %m %U:%G %n %s %i %T@ %p %l\n' | sort
        find . -type f -print0 | sort -z | xargs -0 -r sha256sum
        getfattr -R -d -h -m - . 2>/dev/null | cat
    )
}

tree_hash() { tree_listing "$1" | sha256sum | cut -c 1-16; }
