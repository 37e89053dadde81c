#!/usr/bin/env bash
# install-library.sh DESTDIR PREFIX [BUILT]: libtxfs with headers, pkg-config file and man pages, as it was built in BUILT
# (the release directory, unless said otherwise). LIBDIR is PREFIX/lib. scripts/install.sh calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

destination=$1 prefix=$2 built=${3:-${CARGO_TARGET_DIR:-target}/release}
libdir=${LIBDIR:-$prefix/lib}
source=crates/txfs-capi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
for file in libtxfs.so libtxfs.a; do
    [ -e "$built/$file" ] || { echo "install: $built/$file is not there; run 'make build' first" >&2; exit 1; }
done

# programs ask for the soname (build.rs has it), the compiler for the name without numbers
install -D -m 755 "$built/libtxfs.so" "$destination$libdir/libtxfs.so.$version"
ln -sf "libtxfs.so.$version" "$destination$libdir/libtxfs.so.0"
ln -sf libtxfs.so.0 "$destination$libdir/libtxfs.so"
install -D -m 644 "$built/libtxfs.a" "$destination$libdir/libtxfs.a"

install -d "$destination$prefix/include" "$destination$libdir/pkgconfig"
install -m 644 "$source"/include/*.h "$destination$prefix/include"
sed -e "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@VERSION@|$version|" "$source/txfs.pc.in" \
    >"$destination$libdir/pkgconfig/txfs.pc"

# each function finds the page that describes it
pages=$destination$prefix/share/man/man3
install -d "$pages"
for page in "$source"/man/*.3; do
    name=$(basename "$page")
    install -m 644 "$page" "$pages/$name"
    header=$source/include/${name%.3}.h
    [ -e "$header" ] || continue
    for function in $(scripts/functions-of-header.sh "$header"); do
        [ "$function.3" = "$name" ] || echo ".so man3/$name" >"$pages/$function.3"
    done
done

# where the linker looks, it has to be told
case $destination$libdir in
/lib | /usr/lib | /usr/local/lib) [ "$(id -u)" -ne 0 ] || ldconfig ;;
esac
