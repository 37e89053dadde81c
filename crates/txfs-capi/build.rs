//! The shared library's name for the dynamic linker. It changes when a function or structure changes in a way that breaks
//! programs that were built with the one before.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtxfs.so.0");
}
