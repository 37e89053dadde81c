#!/usr/bin/env bash
# install.sh DESTDIR PREFIX: the command, mount.txfs for fstab, the library for C, man pages, completions. `make install` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

destination=$1 prefix=$2
binary=${CARGO_TARGET_DIR:-target}/release/txfs
[ -x "$binary" ] || { echo "install: $binary is not there; run 'make build' first" >&2; exit 1; }
root=$destination$prefix

install -D -m 755 "$binary" "$root/bin/txfs"
install -d "$root/sbin"
ln -sf ../bin/txfs "$root/sbin/mount.txfs"

install -d "$root/share/man/man1"
"$binary" man --out "$root/share/man/man1"

install -d "$root/share/bash-completion/completions" "$root/share/zsh/site-functions" \
    "$root/share/fish/vendor_completions.d"
"$binary" completions bash >"$root/share/bash-completion/completions/txfs"
"$binary" completions zsh >"$root/share/zsh/site-functions/_txfs"
"$binary" completions fish >"$root/share/fish/vendor_completions.d/txfs.fish"
scripts/install-library.sh "$destination" "$prefix"
echo "installed below $root"
# mount(8) looks for its helpers in /sbin and /usr/sbin only
case $prefix in
/usr | /) ;;
*) echo "for volumes in /etc/fstab: ln -s $prefix/bin/txfs /sbin/mount.txfs" ;;
esac
