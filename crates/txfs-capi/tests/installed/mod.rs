//! libtxfs as `make install` leaves it, in a directory of its own, and programs that are compiled against nothing else.

#![allow(dead_code)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// No program of a test may take longer.
const PATIENCE_SECONDS: &str = "120";

pub struct Installed {
    directory: tempfile::TempDir,
    compiled: AtomicU32,
}

/// How a program gets the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    Shared,
    Static,
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// The directory with libtxfs.so and libtxfs.a. Cargo does not build them for a test, which cannot link them; so this does,
/// with the profile of the test.
pub fn built() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        // TARGET/PROFILE/deps/TEST
        let test = std::env::current_exe().unwrap();
        let directory = test.ancestors().nth(2).unwrap().to_path_buf();
        let profile = directory.file_name().and_then(OsStr::to_str).unwrap();
        let profile = if profile == "debug" { "dev" } else { profile };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "-p", "txfs-capi", "--profile", profile, "--target-dir"]);
        done(cargo.arg(directory.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR")));
        directory
    };
    BUILT.get_or_init(build).clone()
}

impl Installed {
    pub fn new() -> Installed {
        let directory = tempfile::tempdir().unwrap();
        let prefix = directory.path().join("usr");
        let mut script = Command::new(repository().join("scripts/install-library.sh"));
        // Without a DESTDIR: the paths in txfs.pc are those that are used. No LIBDIR of the caller's.
        script.arg("").arg(&prefix).arg(built()).env_remove("LIBDIR");
        done(&mut script);
        Installed { directory, compiled: AtomicU32::new(0) }
    }

    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(relative)
    }

    pub fn pkg_config(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.path("usr/lib/pkgconfig")).args(arguments).arg("txfs");
        done(&mut command)
    }

    /// Compiles a program, warnings being errors.
    pub fn compile(&self, source: &Path, linked: Linked) -> PathBuf {
        let number = self.compiled.fetch_add(1, Ordering::Relaxed);
        let stem = source.file_stem().and_then(OsStr::to_str).unwrap();
        let program = self.path(format!("{stem}-{number}"));
        let is_cxx = source.extension().is_some_and(|extension| extension == "cc");
        let mut compiler = match is_cxx {
            true => Command::new("c++"),
            false => Command::new("cc"),
        };
        compiler.arg(if is_cxx { "-std=c++17" } else { "-std=gnu11" });
        compiler.args(["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        compiler.args(self.pkg_config(&["--cflags"]).split_whitespace());
        compiler.arg(source).arg("-o").arg(&program);
        match linked {
            Linked::Shared => {
                compiler.args(self.pkg_config(&["--libs"]).split_whitespace());
                compiler.arg(format!("-Wl,-rpath,{}", self.path("usr/lib").display()));
            }
            Linked::Static => {
                for word in self.pkg_config(&["--static", "--libs"]).split_whitespace() {
                    compiler.arg(if word == "-ltxfs" { "-l:libtxfs.a" } else { word });
                }
            }
        }
        done(&mut compiler);
        program
    }

    /// Compiles one of the programs beside the tests.
    pub fn program(&self, name: &str, linked: Linked) -> PathBuf {
        self.compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name), linked)
    }
}

/// A program with a limit to its time.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", PATIENCE_SECONDS]).arg(program);
    command
}

/// Runs a command that has to succeed; what it printed.
pub fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}
