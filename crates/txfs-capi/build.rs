//! How the shared library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Its name for the dynamic linker changes when a function or structure changes in a way that breaks programs that were
    // built with the one before.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtxfs.so.0");
    // Handlers, and functions that libc calls at forks and ends of threads, point into it: dlclose must not unmap it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
