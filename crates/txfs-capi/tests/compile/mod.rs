//! Builds the library as a user has it, and C programs that are linked with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// How a program has the library.
#[derive(Clone, Copy, Debug)]
pub enum Linked {
    /// With libtxfs.so.
    Shared,
    /// Everything static, the C library too.
    Static,
}

/// Compiles `programs/NAME.c` and has it run one of its cases, which must succeed.
pub fn run(name: &str, case: &str, linked: Linked) {
    let output = Command::new(compiled(name, linked)).arg(case).output().expect("the program runs");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {case} ({linked:?}): {}\n{errors}", output.status);
}

/// The directory of the profile that this test was built with, which has the library too.
fn profile_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let test = std::env::current_exe().expect("the path of this test");
        // TARGET/PROFILE/deps/TEST
        let directory = test.ancestors().nth(2).expect("a test lies in a target directory").to_path_buf();
        let profile = match directory.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        // Tests cannot depend on a library that is for C only, so nothing has built it yet.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--locked",
            "--quiet",
            "--package",
            "txfs-capi",
            "--profile",
            profile,
            "--target-dir",
        ]);
        cargo.arg(directory.parent().expect("a profile's directory lies in a target directory"));
        assert!(cargo.status().expect("cargo runs").success(), "the library builds");
        // The name that the dynamic linker asks for.
        let link = directory.join("libtxfs.so.0");
        if let Err(error) = std::os::unix::fs::symlink("libtxfs.so", &link) {
            assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{}: {error}", link.display());
        }
        directory
    })
}

fn compiled(name: &str, linked: Linked) -> PathBuf {
    // One at a time: tests that run at once want the same program.
    static COMPILED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let directory = profile_directory();
    let program = directory.join(format!("capi-{name}-{linked:?}"));
    let mut compiled = COMPILED.lock().expect("no test panics while it compiles");
    if !compiled.contains(&program) {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fexceptions", "-o"]).arg(&program);
        cc.arg(sources.join(format!("{name}.c")));
        match linked {
            Linked::Shared => {
                cc.arg(format!("-DLIBRARY=\"{}\"", directory.join("libtxfs.so").display()));
                // A program that loads the library by itself is not linked with it.
                if name != "loaded" {
                    cc.arg("-L").arg(directory).arg("-ltxfs");
                    cc.arg(format!("-Wl,-rpath,{}", directory.display()));
                }
            }
            Linked::Static => {
                cc.arg("-static").arg(directory.join("libtxfs.a"));
            }
        }
        cc.args(["-pthread", "-ldl", "-lm"]);
        let output = cc.output().expect("cc runs");
        assert!(output.status.success(), "{name}.c compiles: {}", String::from_utf8_lossy(&output.stderr));
        compiled.push(program.clone());
    }
    program
}
