#!/usr/bin/env bash
# fetch-sources.sh DIRECTORY: fetches the upstream sources of Lua and musl from the Debian mirror that this machine
# already uses, into DIRECTORY. The system's apt configuration is read, never changed.
set -euo pipefail
fail() { printf 'sources: %s\n' "$*" >&2; exit 1; }

target=$1
mkdir -p "$target"
target=$(realpath "$target")
have_all() { compgen -G "$target/lua5.4_*.orig.tar.gz" >/dev/null && compgen -G "$target/musl_*.orig.tar.gz" >/dev/null; }
have_all && exit 0

command -v apt-get >/dev/null || fail "this needs apt-get: the demo builds programs from Debian's source packages"
apt=$(mktemp -d /var/tmp/txfs-apt.XXXXXX)
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt/lists/partial" "$apt/empty" "$target"

# the `deb` entries of the release itself, as `deb-src` entries; both forms that apt knows
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
shopt -s nullglob
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -e "$file" ] || continue
    sed -nE "s/^deb(-src)?[[:space:]]+((\[[^]]*\][[:space:]]+)?[^[:space:]]+[[:space:]]+$codename[[:space:]].*)/deb-src \2/p" "$file"
done >"$apt/sources.list"
for file in /etc/apt/sources.list.d/*.sources; do
    # a stanza ends at an empty line; comments go
    sed '/^#/d' "$file" | awk -v RS= -v codename="$codename" '
        {
            uris = suites = components = ""
            count = split($0, lines, "\n")
            for (i = 1; i <= count; i++) {
                value = lines[i]; sub(/^[^:]*:[ \t]*/, "", value)
                if (lines[i] ~ /^URIs:/) uris = value
                if (lines[i] ~ /^Suites:/) suites = value
                if (lines[i] ~ /^Components:/) components = value
                if (lines[i] ~ /^Signed-By:[ \t]*\//) signed = "[signed-by=" value "] "
            }
            if ((" " suites " ") ~ (" " codename " ")) {
                split(uris, uri, /[ \t]+/)
                print "deb-src " signed uri[1] " " codename " " components
            }
            signed = ""
        }'
done >>"$apt/sources.list"
[ -s "$apt/sources.list" ] || fail "no Debian mirror for $codename in /etc/apt/sources.list or /etc/apt/sources.list.d"

options=(-q -o "Dir::Etc::sourcelist=$apt/sources.list" -o "Dir::Etc::sourceparts=$apt/empty"
         -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt" -o APT::Sandbox::User=)
if ! apt-get "${options[@]}" update >"$apt/log" 2>&1; then
    cat "$apt/log" >&2
    fail "cannot fetch the list of source packages; is the Debian mirror reachable? (apt's message is above)"
fi
cd "$target"
if ! apt-get "${options[@]}" source --download-only --only-source lua5.4 musl >"$apt/log" 2>&1; then
    cat "$apt/log" >&2
    fail "cannot fetch the source packages (apt's message is above)"
fi
have_all || fail "apt-get brought no upstream tarballs of lua5.4 and musl: $(ls "$target")"
