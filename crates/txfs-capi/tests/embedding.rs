//! The C API for embedding, used by C and C++ programs that know the installed files only, on real volumes.

mod installed;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use installed::{Installed, Linked, command, done};

fn run(program: &Path, arguments: &[&str], volume: &Path) -> String {
    done(command(program).args(arguments).arg(volume))
}

#[test]
fn every_function_works_from_c() {
    let installed = Installed::new();
    for linked in [Linked::Shared, Linked::Static] {
        let program = installed.program("embedding/tour.c", linked);
        let said = run(&program, &[], &installed.path(format!("volume-{linked:?}")));
        assert_eq!(said, "tour: all well\n");
    }
}

#[test]
fn cxx_programs_use_the_same_header() {
    let installed = Installed::new();
    let program = installed.program("embedding/tour.cc", Linked::Shared);
    assert_eq!(run(&program, &[], &installed.path("volume")), "tour: all well\n");
}

#[test]
fn of_two_conflicting_threads_one_is_told_the_path() {
    let installed = Installed::new();
    let program = installed.program("embedding/conflict.c", Linked::Shared);
    assert_eq!(run(&program, &[], &installed.path("volume")), "conflict: all well\n");
}

#[test]
fn handles_are_shared_by_threads() {
    let installed = Installed::new();
    let program = installed.program("embedding/threads.c", Linked::Shared);
    assert_eq!(run(&program, &[], &installed.path("volume")), "threads: all well\n");
}

#[test]
fn wrong_arguments_are_refused_with_a_message() {
    let installed = Installed::new();
    let program = installed.program("embedding/arguments.c", Linked::Shared);
    assert_eq!(run(&program, &[], &installed.path("volume")), "arguments: all well\n");
}

#[test]
fn a_volume_belongs_to_one_process() {
    let installed = Installed::new();
    let program = installed.program("embedding/crash.c", Linked::Shared);
    let volume = installed.path("volume");
    let mut owner = Command::new(&program).arg("write").arg(&volume).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    // Kept: it goes on to write.
    let mut lines = BufReader::new(owner.stdout.take().unwrap());
    lines.read_line(&mut first).unwrap();
    let second = command(&program).arg("verify").arg(&volume).arg("0").output().unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("already open"), "{said}");
    assert!(said.contains(&owner.id().to_string()), "{said}");
}

#[test]
fn a_killed_program_leaves_whole_transactions() {
    let installed = Installed::new();
    let program = installed.program("embedding/crash.c", Linked::Shared);
    let volume = installed.path("volume");
    let mut acknowledged = 0;
    for round in 0..15 {
        let mut writer =
            Command::new(&program).arg("write").arg(&volume).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(writer.stdout.take().unwrap());
        let reader = std::thread::spawn(move || lines.lines().map_while(Result::ok).last());
        std::thread::sleep(Duration::from_millis(40 + 23 * round));
        writer.kill().unwrap();
        writer.wait().unwrap();
        // The last line may be cut by the kill; it is not acknowledged then, but one before is a smaller number anyway.
        if let Some(number) = reader.join().unwrap().and_then(|line| line.parse::<u64>().ok()) {
            acknowledged = acknowledged.max(number);
        }
        let mut verify = command(&program);
        let said = done(verify.arg("verify").arg(&volume).arg(acknowledged.to_string()));
        acknowledged = said.trim().parse().unwrap();
    }
    assert!(acknowledged > 0, "no transaction was ever committed");
}

#[test]
fn damage_is_an_error_with_a_message() {
    let installed = Installed::new();
    let program = installed.program("embedding/damaged.c", Linked::Shared);
    let volume = installed.path("volume");
    run(&program, &["write"], &volume);
    let mut damaged = 0;
    for entry in fs::read_dir(&volume).unwrap().map(Result::unwrap) {
        if !entry.file_name().to_string_lossy().starts_with("segment") {
            continue;
        }
        let content = fs::read(entry.path()).unwrap();
        let pages = content.windows(4096).step_by(512).position(|page| page.iter().all(|byte| *byte == b'P'));
        if let Some(at) = pages {
            let file = fs::File::options().write(true).open(entry.path()).unwrap();
            file.write_all_at(b"Q", at as u64 * 512 + 5000).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "the data was not found in the segments");
    let said = run(&program, &["read"], &volume);
    assert!(said.contains("precious") && said.contains("damaged"), "{said}");

    let index = fs::File::options().write(true).open(volume.join("index")).unwrap();
    let length = index.metadata().unwrap().len();
    index.write_all_at(&vec![0x5a; length as usize], 0).unwrap();
    let said = run(&program, &["open"], &volume);
    assert!(said.contains("volume"), "{said}");
}

/// Where there is valgrind: no invalid access, and nothing that is lost.
#[test]
fn nothing_leaks() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("skipped: valgrind is not installed");
        return;
    }
    let installed = Installed::new();
    for name in ["embedding/tour.c", "embedding/conflict.c", "embedding/arguments.c"] {
        let program = installed.program(name, Linked::Shared);
        let mut checked = command(Path::new("valgrind"));
        checked.args([
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ]);
        done(checked.arg(program).arg(installed.path(name.replace('/', "-"))));
    }
}
