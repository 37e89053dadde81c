//! Help, completions and man pages.

mod common;

use std::fs;

use common::{Sandbox, User};

#[test]
fn every_subcommand_explains_itself() {
    let sandbox = Sandbox::new(User::Same);
    let help = sandbox.txfs(["--help"]).done().expect(0).stdout;
    for words in ["Examples:", "Exit codes:", "125", "75", "NO_COLOR"] {
        assert!(help.contains(words), "{words} is not in\n{help}");
    }
    assert!(!help.contains("__exec"));
    for command in [
        "mkfs",
        "mount",
        "umount",
        "run",
        "ls",
        "cat",
        "put",
        "get",
        "check",
        "stat",
        "log",
        "diff",
        "undo",
        "completions",
        "man",
    ] {
        let help = sandbox.txfs([command, "--help"]).done().expect(0).stdout;
        assert!(help.contains("Examples:"), "{command}");
        assert!(!help.contains('\x1b'), "colours without a terminal");
    }
    assert!(sandbox.txfs(["--version"]).done().expect(0).stdout.starts_with("txfs "));
    sandbox.txfs(["no-such-command"]).done().expect(2);
    sandbox.txfs(["run"]).done().expect(125);
}

#[test]
fn completions_for_every_shell() {
    let sandbox = Sandbox::new(User::Same);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = sandbox.txfs(["completions", shell]).done().expect(0).stdout;
        assert!(script.contains("txfs") && script.contains("umount"), "{shell}");
    }
    let script = sandbox.txfs(["completions", "bash"]).done().expect(0).stdout;
    let path = sandbox.path("home/completion");
    fs::write(&path, script).unwrap();
    sandbox.command("bash").arg("-n").arg(path).done().expect(0);
}

#[test]
fn man_pages_for_every_subcommand() {
    let sandbox = Sandbox::new(User::Same);
    let page = sandbox.txfs(["man"]).done().expect(0).stdout;
    assert!(page.contains(".TH txfs 1") || page.contains(".TH TXFS 1"), "{page}");
    let directory = sandbox.path("home/man");
    sandbox.txfs(["man", "--out"]).arg(&directory).done().expect(0);
    let mut names: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for name in ["txfs.1", "txfs-run.1", "txfs-mount.1", "txfs-tx-list.1"] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("__exec") || name.contains("help")), "{names:?}");
    let run = fs::read_to_string(directory.join("txfs-run.1")).unwrap();
    assert!(
        run.contains("txfs\\-run") && run.contains(".SH EXAMPLES") && run.contains(".SH EXIT STATUS"),
        "{run}"
    );
}
