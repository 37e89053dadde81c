#!/usr/bin/env bash
# bench.sh ARGUMENTS of txfs-bench: gives TxFS, ext4, xfs and btrfs a loop device each, runs the benchmark on them and
# removes them again. Each image is written in full, direct I/O is on, discards are off, the devices say that they do not
# rotate, and the holes that mkfs punches are filled (bench/README.md says why each of these).
#
# Needs root and loop devices. Without them, or where the arguments name directories (--dir, --txfs, --ext4, ...), it runs
# there as it is: other programs' writes to the same disk are then counted too.
#
# IMAGE_MIB (default 4096) is the size of an image, TXFS_IMAGE_MIB that of the one under TxFS's volume, BENCH_DIR
# (default /var/tmp) where they lie.
set -euo pipefail
cd "$(dirname "$0")/.."

bench=${CARGO_TARGET_DIR:-target}/measured/release/txfs-bench
say() { printf 'bench: %s\n' "$*" >&2; }

for argument; do
    case $argument in
    --dir* | --txfs* | --ext4* | --xfs* | --btrfs* | list | page | alone | --help | -h) exec "$bench" "$@" ;;
    esac
done
if [ "$(id -u)" -ne 0 ] || ! command -v losetup >/dev/null || ! [ -e /dev/loop-control ]; then
    say "no root or no loop devices: measuring in ${BENCH_DIR:-/var/tmp}, beside plain files on the same file system"
    exec "$bench" --dir "${BENCH_DIR:-/var/tmp}" "$@"
fi

# xfs_io, from xfsprogs, also shuts ext4 and xfs down as a crash would
missing=()
command -v mkfs.xfs >/dev/null || missing+=(xfsprogs)
command -v mkfs.btrfs >/dev/null || missing+=(btrfs-progs)
command -v mkfs.ext4 >/dev/null || missing+=(e2fsprogs)
if [ ${#missing[@]} -gt 0 ] && command -v apt-get >/dev/null; then
    say "installing ${missing[*]}"
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } \
        >/dev/null || say "could not install ${missing[*]}: those file systems are left out"
fi

work=$(mktemp -d "${BENCH_DIR:-/var/tmp}/txfs-bench.XXXXXX")
cleanup() {
    local place device
    # what a workload made there too, if it was stopped
    awk -v work="$work/" 'index($2, work) == 1 { print $2 }' /proc/self/mounts | sort -r | while read -r place; do
        umount "$place" || umount -l "$place" || true
    done
    losetup --list --noheadings --output NAME,BACK-FILE | awk -v work="$work/" 'index($2, work) == 1 { print $1 }' |
        while read -r device; do losetup -d "$device" || true; done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

device() { # NAME MIB MKFS...: makes the device and mounts it at $work/NAME
    local name=$1 mib=$2 image=$work/$1.image loop
    shift 2
    dd if=/dev/zero of="$image" bs=1M count="$mib" oflag=direct conv=fsync status=none
    loop=$(losetup --find --show --direct-io=on "$image")
    echo 0 >"/sys/block/${loop#/dev/}/queue/discard_max_bytes" || true
    echo 0 >"/sys/block/${loop#/dev/}/queue/rotational" || true
    "$@" "$loop" >/dev/null 2>&1
    "$bench" fill-holes "$image" >/dev/null
    mkdir "$work/$name"
    mount -o noatime "$loop" "$work/$name"
}

ext4=(mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0)
mib=${IMAGE_MIB:-4096}
say "making devices of $mib MiB in $work"
device txfs "${TXFS_IMAGE_MIB:-$mib}" "${ext4[@]}"
device ext4 "$mib" "${ext4[@]}"
places=(--txfs "$work/txfs" --ext4 "$work/ext4" --images "$work")
if command -v mkfs.xfs >/dev/null && device xfs "$mib" mkfs.xfs -q -K; then places+=(--xfs "$work/xfs"); fi
if command -v mkfs.btrfs >/dev/null && device btrfs "$mib" mkfs.btrfs -q -K; then places+=(--btrfs "$work/btrfs"); fi
"$bench" "${places[@]}" "$@"
