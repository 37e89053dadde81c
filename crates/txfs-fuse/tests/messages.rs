//! How many messages operations cost: a round trip costs more than the work it asks for.

mod common;

use common::{Fixture, eventually, names, read, write};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Opens, reads, closes and stats a file, and one that is absent, and lists a directory.
fn use_cached(root: &Path) {
    let mut content = String::new();
    File::open(root.join("d/file")).unwrap().read_to_string(&mut content).unwrap();
    assert_eq!(content.len(), 10_000);
    assert_eq!(fs::metadata(root.join("d/file")).unwrap().len(), 10_000);
    assert!(fs::metadata(root.join("d/absent")).is_err());
    assert_eq!(fs::read_link(root.join("d/symlink")).unwrap(), Path::new("file"));
    assert_eq!(names(&root.join("d")).len(), 2);
}

#[test]
fn what_is_cached_costs_no_message() {
    let Some(fixture) = Fixture::new() else { return };
    fs::create_dir(fixture.path("d")).unwrap();
    write(&fixture.path("d/file"), &"x".repeat(10_000));
    std::os::unix::fs::symlink("file", fixture.path("d/symlink")).unwrap();
    let open = fixture.begin();
    for root in [&fixture.root, &open.view] {
        for _ in 0..3 {
            use_cached(root);
        }
        let before = fixture.messages(&[]);
        for _ in 0..100 {
            use_cached(root);
        }
        assert_eq!(fixture.messages(&[]) - before, 0, "in {}", root.display());
    }
    open.abort();
    fixture.finish();
}

#[test]
fn opening_never_costs_a_message_again() {
    let Some(fixture) = Fixture::new() else { return };
    for i in 0..100 {
        write(&fixture.path(&format!("file-{i}")), "x");
        read(&fixture.path(&format!("file-{i}")));
    }
    assert!(fixture.messages(&["Open"]) <= 1);
    assert!(fixture.messages(&["Flush"]) <= 1);
    assert!(fixture.messages(&["Opendir", "Releasedir"]) <= 2);
    assert_eq!(fixture.messages(&["Release"]), 0);
    fixture.finish();
}

#[test]
fn a_new_small_file_costs_five_messages() {
    let Some(fixture) = Fixture::new() else { return };
    let open = fixture.begin();
    // Each its own names: the transaction is to have no conflict.
    for (root, own) in [(&fixture.root, "base"), (&open.view, "view")] {
        write(&root.join(format!("{own}-warm")), "up");
        let before = fixture.messages(&[]);
        for i in 0..100 {
            write(&root.join(format!("{own}-{i}")), "content");
        }
        let messages = fixture.messages(&[]) - before;
        // LOOKUP, CREATE, GETXATTR (whether the file has capabilities that a write takes away), WRITE, and GETATTR
        // (the kernel forgets the directory's permissions together with its times).
        let stat = fixture.client().stat().unwrap();
        assert_eq!(messages, 500, "in {}: {}", root.display(), stat["mount"]["messages"]);
    }
    open.abort();
    fixture.finish();
}

#[test]
fn a_stat_after_a_listing_costs_nothing() {
    let Some(fixture) = Fixture::new() else { return };
    fs::create_dir(fixture.path("d")).unwrap();
    for i in 0..500 {
        write(&fixture.path(&format!("d/file-{i}")), "x");
    }
    let open = fixture.begin();
    let before = fixture.messages(&[]);
    for entry in fs::read_dir(open.path("d")).unwrap() {
        entry.unwrap().metadata().unwrap();
    }
    let messages = fixture.messages(&[]) - before;
    assert!(messages < 100, "{messages} messages for 500 files");
    open.abort();
    fixture.finish();
}

#[test]
fn writing_asks_for_no_attributes() {
    use std::io::Write;
    let Some(fixture) = Fixture::new() else { return };
    let mut file = File::create(fixture.path("file")).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    let before = fixture.messages(&[]);
    for _ in 0..100 {
        file.write_all(&[1; 4096]).unwrap();
    }
    assert_eq!(fixture.messages(&[]) - before, 100);
    assert_eq!(fixture.messages(&["Getxattr"]), 1, "only at the first write to a file");
    drop(file);
    fixture.finish();
}

#[test]
fn removing_and_renaming_cost_what_the_kernel_asks_for() {
    let Some(fixture) = Fixture::new() else { return };
    let open = fixture.begin();
    for (root, own) in [(&fixture.root, "base"), (&open.view, "view")] {
        let name = |what: &str, i: usize| root.join(format!("{own}-{what}-{i}"));
        for i in 0..100 {
            write(&name("file", i), "content");
        }
        let asked = ["Lookup", "Getattr", "Rename", "Rename2", "Unlink"];
        let before = fixture.messages(&asked);
        for i in 0..100 {
            fs::rename(name("file", i), name("renamed", i)).unwrap();
        }
        // LOOKUP of the new name, RENAME, and GETATTR (the directory's permissions, see above).
        assert_eq!(fixture.messages(&asked) - before, 300, "renaming in {}", root.display());
        let before = fixture.messages(&asked);
        for i in 0..100 {
            fs::remove_file(name("renamed", i)).unwrap();
        }
        // UNLINK and GETATTR; the FORGET that follows is waited for by nobody.
        assert_eq!(fixture.messages(&asked) - before, 200, "removing in {}", root.display());
    }
    open.abort();
    fixture.finish();
}

#[test]
fn removed_files_go_together() {
    let Some(fixture) = Fixture::new() else { return };
    let names: Vec<_> = (0..500).map(|i| fixture.path(&format!("file-{i}"))).collect();
    let open: Vec<_> = names
        .iter()
        .map(|name| {
            write(name, "content");
            let file = File::open(name).unwrap();
            fs::remove_file(name).unwrap();
            file
        })
        .collect();
    let stat = || fixture.volume.stat().unwrap();
    let before = stat();
    assert!(before.nodes_in_use >= names.len(), "they are open");
    drop(open);
    eventually("the kernel forgets them", || stat().nodes_in_use < 10);
    eventually("they are removed", || stat().sequence > before.sequence);
    let commits = stat().sequence - before.sequence;
    assert!((1..100).contains(&commits), "{commits} commits");
    fixture.finish();
}
