#!/usr/bin/env bash
# Installs what building, testing and the demo need and this machine lacks: Debian packages (as root, or
# through sudo) and, only where there is no cargo at all, a Rust toolchain through rustup.
# Does nothing, quickly, when all is there.
set -euo pipefail

say()  { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# command -> Debian package that brings it
declare -A package_of=(
    [gcc]=gcc [make]=make [git]=git [fusermount3]=fuse3 [getfattr]=attr [setfacl]=acl
    [mountpoint]=util-linux [setpriv]=util-linux [unshare]=util-linux [ps]=procps
    [pkg-config]=pkg-config [c++]=g++ [nm]=binutils
    [psql]=postgresql [awk]=mawk [tar]=tar [gzip]=gzip [bzip2]=bzip2 [find]=findutils
)
missing=()
for command in "${!package_of[@]}"; do
    command -v "$command" >/dev/null || missing+=("${package_of[$command]}")
done
# the C library's headers come apart from the compiler
[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)

have_cargo() { command -v cargo >/dev/null || [ -x "$HOME/.cargo/bin/cargo" ]; }
if ! have_cargo; then
    command -v curl >/dev/null || missing+=(curl)
    [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
fi

if [ ${#missing[@]} -gt 0 ]; then
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    command -v apt-get >/dev/null ||
        fail "these are missing: ${missing[*]}. Only apt-get is known here; install them by your own means."
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "these packages are missing: ${missing[*]}. Install them as root."
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -q ||
        say "apt-get update failed (no network, or a broken source?); trying with the package lists that are there"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" ||
        fail "apt-get could not install ${missing[*]}: see its message above; is a Debian mirror reachable?"
fi

if ! have_cargo; then
    say "no cargo here: fetching a Rust toolchain with rustup"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    fetch() { curl --proto '=https' --tlsv1.2 -fsS --connect-timeout 20 -o "$work/rustup-init" "$1"; }
    # the installer itself; the script at sh.rustup.rs does no more than fetch it
    fetch "https://static.rust-lang.org/rustup/dist/$(uname -m)-unknown-linux-gnu/rustup-init" ||
        fail "cannot reach static.rust-lang.org; install Rust 1.90 or newer yourself (rustup, or your distribution's packages)"
    chmod +x "$work/rustup-init"
    "$work/rustup-init" -y -q --profile minimal -c clippy -c rustfmt --no-modify-path ||
        fail "rustup failed: see its message above"
    say "Rust is in ~/.cargo/bin; put that on your PATH to use it yourself"
fi
