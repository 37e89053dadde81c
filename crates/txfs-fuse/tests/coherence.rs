//! The kernel's caches against many threads: whoever has committed sees what it committed, at once, whatever the
//! others do to the same directory and files meanwhile.

mod common;

use common::{Fixture, Open, read};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use txfs_protocol::{CommitOutcome, Isolation};

const ROUNDS: u64 = 150;

/// Content whose length, first and last bytes tell the round.
fn content(writer: u64, round: u64) -> String {
    let len = 10 + (round * 7919 + writer * 31) % 20_000;
    let mark = char::from(b'a' + (round % 26) as u8);
    let mut text = format!("{round:010}");
    text.extend(std::iter::repeat_n(mark, len as usize));
    text
}

/// Changes a file of its own and a name of its own in every transaction, and looks at them right after the commit.
fn write_and_look(fixture: &Fixture, writer: u64) {
    let name = format!("d/writer-{writer}");
    let toggled = format!("d/toggled-{writer}");
    for round in 0..ROUNDS {
        let expected = content(writer, round);
        loop {
            let open: Open = fixture.begin_as(Isolation::Snapshot);
            fs::write(open.path(&name), &expected).unwrap();
            if round % 2 == 0 {
                File::create(open.path(&toggled)).unwrap();
            } else {
                fs::remove_file(open.path(&toggled)).unwrap();
            }
            if let CommitOutcome::Committed { .. } = open.try_commit() {
                break;
            }
        }
        let path = fixture.path(&name);
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            expected.len() as u64,
            "writer {writer}, round {round}"
        );
        let seen = read(&path);
        let same = seen.bytes().zip(expected.bytes()).take_while(|(seen, expected)| seen == expected).count();
        assert!(
            seen == expected,
            "writer {writer}, round {round}: {} bytes for {}, different from byte {same} on",
            seen.len(),
            expected.len()
        );
        assert_eq!(fixture.path(&toggled).exists(), round % 2 == 0, "writer {writer}, round {round}");
        let listed = fs::read_dir(fixture.path("d")).unwrap().any(|entry| {
            entry.unwrap().file_name().as_encoded_bytes() == format!("toggled-{writer}").as_bytes()
        });
        assert_eq!(listed, round % 2 == 0, "writer {writer}, round {round}, listing");
    }
}

/// Uses the same files and directory through the base view, with no transaction.
fn disturb(root: &Path, stop: &AtomicBool, number: u64) {
    let mut round = 0u32;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let own = root.join(format!("d/noise-{number}"));
        fs::write(&own, "noise").unwrap();
        for writer in 0..3 {
            let path = root.join(format!("d/writer-{writer}"));
            // It exists from its first round on.
            if let Ok(metadata) = fs::metadata(&path) {
                let mode = if round.is_multiple_of(2) { 0o644 } else { 0o600 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                assert!(metadata.ino() > 1);
                let text = fs::read(&path).unwrap();
                assert!(text.is_empty() || text.len() >= 10);
            }
            let _ = root.join(format!("d/toggled-{writer}")).exists();
        }
        assert!(fs::read_dir(root.join("d")).unwrap().count() >= 1);
        fs::remove_file(&own).unwrap();
    }
}

#[test]
fn who_commits_sees_it_at_once() {
    let Some(fixture) = Fixture::new() else { return };
    fs::create_dir(fixture.path("d")).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let noise: Vec<_> = (0..2)
            .map(|number| {
                let (root, stop) = (&fixture.root, &stop);
                scope.spawn(move || disturb(root, stop, number))
            })
            .collect();
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let fixture = &fixture;
                scope.spawn(move || write_and_look(fixture, writer))
            })
            .collect();
        let failed = writers.into_iter().map(|writer| writer.join()).filter(Result::is_err).count();
        stop.store(true, Ordering::Relaxed);
        let failed = failed + noise.into_iter().map(|noise| noise.join()).filter(Result::is_err).count();
        assert_eq!(failed, 0, "threads failed");
    });
    fixture.finish();
}

/// A line that lies within one page wherever it is appended: the kernel may split a write at a page's end, and a commit
/// may then come in between.
fn line(text: &str) -> String {
    format!("{text:63}\n")
}

#[test]
fn appends_from_inside_and_outside_are_all_there() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("log");
    File::create(&path).unwrap();
    thread::scope(|scope| {
        for writer in 0..2 {
            let path = &path;
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).open(path).unwrap();
                for round in 0..200 {
                    log.write_all(line(&format!("outside {writer} {round}")).as_bytes()).unwrap();
                }
            });
        }
        let fixture = &fixture;
        scope.spawn(move || {
            for round in 0..60 {
                loop {
                    let open = fixture.begin();
                    let appended = OpenOptions::new()
                        .append(true)
                        .open(open.path("log"))
                        .and_then(|mut log| log.write_all(line(&format!("inside {round}")).as_bytes()));
                    if appended.is_ok() && matches!(open.try_commit(), CommitOutcome::Committed { .. }) {
                        break;
                    }
                }
            }
        });
    });
    // What is stored counts here; the volume is asked itself.
    let stored = txfs::Paths::read_file(&fixture.volume.base(), "log").unwrap();
    let stored = String::from_utf8(stored).unwrap();
    let mut seen: Vec<_> = stored.lines().map(str::trim_end).collect();
    let mut expected: Vec<_> = (0..200)
        .flat_map(|round| [format!("outside 0 {round}"), format!("outside 1 {round}")])
        .chain((0..60).map(|round| format!("inside {round}")))
        .collect();
    seen.sort_unstable();
    expected.sort_unstable();
    assert!(seen == expected, "{stored}");
    common::eventually("the cache shows what is stored", || read(&path) == stored);
    fixture.finish();
}
