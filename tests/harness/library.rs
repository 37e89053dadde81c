//! C programs that use libtxfs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::process::answer_of;

/// Compiles `e2e/c/NAME.c` against the header and the shared library, and answers the program.
#[track_caller]
pub fn c_program(name: &str) -> PathBuf {
    // One at a time: tests that run at once want the same program.
    static COMPILED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let Ok(mut compiled) = COMPILED.lock() else { panic!("{name}.c did not compile for another test") };
    let directory = profile_directory();
    let program = directory.join(format!("e2e-{name}"));
    if !compiled.contains(&program) {
        build_library(&directory);
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        compiler.arg("-I").arg(here.join("../crates/txfs-capi/include"));
        compiler.arg(here.join(format!("e2e/c/{name}.c"))).arg("-o").arg(&program);
        compiler.arg("-L").arg(&directory).arg("-ltxfs");
        compiler.arg(format!("-Wl,-rpath,{}", directory.display()));
        answer_of(&mut compiler).expect_code(0);
        compiled.push(program.clone());
    }
    program
}

/// TARGET/PROFILE of this test.
#[track_caller]
fn profile_directory() -> PathBuf {
    match std::env::current_exe().ok().as_deref().and_then(|test| test.ancestors().nth(2)) {
        Some(directory) => directory.to_path_buf(),
        None => panic!("a test lies in a target directory"),
    }
}

/// A test cannot depend on a library that is for C only, so nothing has built it yet.
#[track_caller]
fn build_library(directory: &Path) {
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--locked", "--quiet", "-p", "txfs-capi", "--profile", profile, "--target-dir"]);
    command.arg(directory.join("..")).current_dir(env!("CARGO_MANIFEST_DIR"));
    answer_of(&mut command).expect_code(0);
    // The name that the dynamic linker asks for.
    let link = directory.join("libtxfs.so.0");
    if let Err(error) = std::os::unix::fs::symlink("libtxfs.so", &link)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        panic!("{}: {error}", link.display());
    }
}
