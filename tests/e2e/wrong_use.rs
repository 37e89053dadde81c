//! Wrong use and broken volumes: a clear message, the right exit code, and never a hang or a panic.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use txfs_e2e::{Answer, Fixture, answer_of, is_root, txfs_binary, work_directory};

fn txfs(arguments: &[&str]) -> Command {
    let mut command = Command::new(txfs_binary());
    command.args(arguments);
    command
}

/// No error may look like a crash.
#[track_caller]
fn calm(answer: Answer) -> Answer {
    assert!(!answer.err.contains("panicked"), "{}", answer.err);
    answer
}

fn mount(fixture: &Fixture) -> Answer {
    calm(answer_of(fixture.txfs().args(["mount", "-f"]).arg(fixture.volume()).arg(fixture.point())))
}

fn check(fixture: &Fixture) -> Answer {
    calm(answer_of(fixture.txfs().arg("check").arg(fixture.volume())))
}

/// A volume with something in it, unmounted.
fn used(name: &str) -> Fixture {
    let mut fixture = Fixture::mounted(name);
    fixture
        .script("mkdir d; for i in $(seq 50); do head -c 20000 /dev/urandom >d/$i; done; sync")
        .expect_code(0);
    fixture.unmount();
    fixture
}

fn segments(fixture: &Fixture) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(fixture.volume())
        .expect("the volume")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("segment")))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no segments in {}", fixture.volume().display());
    found
}

#[test]
fn not_a_volume() {
    let directory = work_directory("novolume");
    let point = directory.path().join("mount");
    fs::create_dir(&point).expect("a mount point");
    fs::write(directory.path().join("file"), "").expect("a file");
    let (place, point) = (directory.path().display().to_string(), point.display().to_string());
    for command in
        [vec!["mount", "-f", &place, &point], vec!["check", &place], vec!["stat", &place], vec!["ls", &place]]
    {
        calm(answer_of(&mut txfs(&command))).expect_code(66).expect_message("not a TxFS volume");
    }
    let missing = format!("{place}/missing");
    for command in [vec!["mount", "-f", &missing, &point], vec!["check", &missing], vec!["stat", &missing]] {
        calm(answer_of(&mut txfs(&command))).expect_code(66).expect_message(&missing);
    }
}

#[test]
fn mkfs_does_not_overwrite() {
    let fixture = used("mkfs");
    let answer = calm(answer_of(fixture.txfs().arg("mkfs").arg(fixture.volume())));
    assert_ne!(answer.code, 0);
    answer.expect_message("volume");
    fixture.check();
    let other = fixture.outside("other");
    fs::create_dir(&other).expect("a directory");
    fs::write(other.join("precious"), "x").expect("a file");
    assert_ne!(calm(answer_of(fixture.txfs().arg("mkfs").arg(&other))).code, 0);
    assert!(other.join("precious").exists());
}

#[test]
fn a_newer_format_is_refused() {
    let fixture = used("newer");
    let manifest = fixture.volume().join("MANIFEST");
    let mut bytes = fs::read(&manifest).expect("the manifest");
    bytes[12..16].copy_from_slice(&1000u32.to_le_bytes());
    fs::write(&manifest, bytes).expect("the manifest");
    mount(&fixture).expect_code(76).expect_message("1000");
    check(&fixture).expect_code(76).expect_message("newer");
}

#[test]
fn an_open_volume_names_its_owner() {
    let fixture = Fixture::mounted("open");
    let owner = fixture.owner_pid().to_string();
    check(&fixture).expect_code(78).expect_message(&owner);
    let second = fixture.outside("second");
    fs::create_dir(&second).expect("a mount point");
    let answer = answer_of(fixture.txfs().args(["mount", "-f"]).arg(fixture.volume()).arg(&second));
    calm(answer).expect_code(78).expect_message(&owner);
}

#[test]
fn a_mount_point_in_use() {
    let fixture = Fixture::mounted("busy");
    let other = fixture.directory().join("volume2");
    answer_of(fixture.txfs().arg("mkfs").arg(&other)).expect_code(0);
    let answer = answer_of(fixture.txfs().args(["mount", "-f"]).arg(&other).arg(fixture.point()));
    calm(answer).expect_code(78).expect_message("mount");
    let file = fixture.outside("file");
    fs::write(&file, "").expect("a file");
    for point in [file, fixture.outside("missing")] {
        let answer = answer_of(fixture.txfs().args(["mount", "-f"]).arg(&other).arg(&point));
        assert_ne!(calm(answer.clone()).code, 0);
        answer.expect_message(&point.display().to_string());
    }
}

#[test]
fn run_outside_a_mount() {
    let fixture = Fixture::mounted("elsewhere");
    let mut command = fixture.txfs();
    command.args(["run", "--", "true"]).current_dir(fixture.outside(""));
    calm(answer_of(&mut command)).expect_code(125).expect_message("mount");
    let mut command = fixture.txfs();
    command.args(["run", "--mount", "/proc", "--", "true"]);
    calm(answer_of(&mut command)).expect_code(125).expect_message("/proc");
    calm(answer_of(fixture.txfs().args(["umount", "/proc"]))).expect_code(66).expect_message("/proc");
    // as env and timeout have it: 2 could be a command's own status
    calm(answer_of(fixture.txfs().args(["run"]))).expect_code(125);
    calm(answer_of(fixture.txfs().args(["frobnicate"]))).expect_code(2);
}

#[test]
fn no_fuse_device() {
    if !is_root() {
        println!("hiding /dev/fuse needs root: skipped");
        return;
    }
    let fixture = Fixture::new("nodevice");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-euc", "mount -t tmpfs tmpfs /dev; exec \"$0\" mount -f \"$1\" \"$2\""]);
    command.arg(txfs_binary()).arg(fixture.volume()).arg(fixture.point());
    calm(answer_of(&mut command)).expect_code(69).expect_message("/dev/fuse");
}

#[test]
fn no_fusermount3() {
    if !is_root() {
        println!("hiding fusermount3 needs root: skipped");
        return;
    }
    let fixture = Fixture::new("nofusermount");
    answer_of(Command::new("chown").args(["-R", "nobody"]).arg(fixture.directory())).expect_code(0);
    // an empty directory over the ones that hold it, for an ordinary user, who needs its help
    let script = "for place in $(which -a fusermount3 fusermount); do mount --bind /dev/null \"$place\"; done
                  chmod 666 /dev/fuse 2>/dev/null || :
                  exec setpriv --reuid nobody --clear-groups env PATH=/usr/bin:/bin \"$0\" mount -f \"$1\" \"$2\"";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-euc", script])
        .arg(copy_for_others(&fixture))
        .arg(fixture.volume())
        .arg(fixture.point());
    calm(answer_of(&mut command)).expect_code(69).expect_message("fusermount3");
}

/// A copy of the command where every user may reach it.
fn copy_for_others(fixture: &Fixture) -> PathBuf {
    let copy = fixture.directory().join("txfs");
    fs::copy(txfs_binary(), &copy).expect("a copy of the command");
    copy
}

#[test]
fn no_space() {
    if !is_root() {
        println!("a small file system needs root: skipped");
        return;
    }
    let directory = work_directory("full");
    let (host, point) = (directory.path().join("host"), directory.path().join("mount"));
    let script = "
        mkdir \"$HOST\" \"$POINT\"; mount -t tmpfs -o size=96M tmpfs \"$HOST\"
        trap '\"$TXFS\" umount \"$POINT\" || umount -l \"$POINT\"; umount -l \"$HOST\"' EXIT
        \"$TXFS\" mkfs --segment-size 4M \"$HOST/volume\"
        \"$TXFS\" mount \"$HOST/volume\" \"$POINT\"
        echo old >\"$POINT/file\"; sync \"$POINT/file\"
        if head -c 300M /dev/zero 2>/dev/null | tr '\\0' x >\"$POINT/large\" 2>/dev/null; then exit 50; fi
        if \"$TXFS\" run --mount \"$POINT\" -- sh -c 'cd \"$POINT\"; echo new >file && head -c 300M /dev/urandom >more' 2>\"$HOST.err\"; then exit 51; fi
        cat \"$POINT/file\"; [ ! -e \"$POINT/more\" ]
        rm \"$POINT/large\"
        echo after >\"$POINT/file2\"; sync \"$POINT/file2\"
        \"$TXFS\" umount \"$POINT\"
        \"$TXFS\" check \"$HOST/volume\" >&2
        \"$TXFS\" mount \"$HOST/volume\" \"$POINT\"
        cat \"$POINT/file\" \"$POINT/file2\"
    ";
    let mut command = Command::new("sh");
    command.args(["-euc", script]).env("HOST", &host).env("POINT", &point).env("TXFS", txfs_binary());
    let answer = calm(answer_of(&mut command)).expect_code(0);
    assert_eq!(answer.out, "old\nold\nafter\n");
}

#[test]
fn a_damaged_segment_is_found_and_not_served() {
    let mut fixture = used("damaged");
    let mut sums = std::collections::BTreeMap::new();
    fixture.mount(&[]);
    for number in 1..=50 {
        sums.insert(number, fs::read(fixture.path(&format!("d/{number}"))).expect("content"));
    }
    fixture.unmount();
    // one bit in the data of some file: the random contents are found again in the segment
    let (segment, place) = find_in_segments(&fixture, &sums[&25][8192..8192 + 512]);
    let file = fs::OpenOptions::new().read(true).write(true).open(&segment).expect("the segment");
    let mut byte = [0];
    file.read_exact_at(&mut byte, place + 100).expect("a byte");
    file.write_all_at(&[byte[0] ^ 4], place + 100).expect("a byte");

    let answer = check(&fixture).expect_code(65);
    assert!(
        format!("{}{}", answer.out, answer.err).contains("25"),
        "check does not name the file: {answer:?}"
    );
    fixture.mount(&[]);
    let error = fs::read(fixture.path("d/25")).expect_err("damaged data was served");
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    for (number, content) in &sums {
        if *number != 25 {
            assert!(
                fs::read(fixture.path(&format!("d/{number}"))).expect("content") == *content,
                "file {number}"
            );
        }
    }
    assert!(fixture.log().contains("d/25"), "the log does not name the file:\n{}", fixture.log());
    fixture.unmount();
}

fn find_in_segments(fixture: &Fixture, needle: &[u8]) -> (PathBuf, u64) {
    for segment in segments(fixture) {
        let bytes = fs::read(&segment).expect("the segment");
        // data lies on whole sectors
        for place in (0..bytes.len().saturating_sub(needle.len())).step_by(8) {
            if &bytes[place..place + needle.len()] == needle {
                return (segment, place as u64);
            }
        }
    }
    panic!("the data of the file is in no segment");
}

#[test]
fn a_truncated_index() {
    let fixture = used("index");
    let index = fixture.volume().join("index");
    let len = fs::metadata(&index).expect("the index").len();
    let file = fs::OpenOptions::new().write(true).open(&index).expect("the index");
    for len in [len / 2, 100, 0] {
        file.set_len(len).expect("a shorter index");
        check(&fixture).expect_code(65).expect_message("index");
        mount(&fixture).expect_code(65).expect_message("index");
    }
    drop(file);
    fs::remove_file(&index).expect("no index");
    check(&fixture).expect_code(65).expect_message("index");
    mount(&fixture).expect_code(65).expect_message("index");
}

#[test]
fn a_missing_or_damaged_manifest() {
    let fixture = used("manifest");
    let manifest = fixture.volume().join("MANIFEST");
    let whole = fs::read(&manifest).expect("the manifest");
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    for bytes in [&damaged[..], &whole[..100], b""] {
        fs::write(&manifest, bytes).expect("the manifest");
        let answer = check(&fixture);
        assert!([65, 66].contains(&answer.code), "{answer:?}");
        answer.expect_message("manifest");
        mount(&fixture).expect_message("manifest");
    }
    fs::remove_file(&manifest).expect("no manifest");
    check(&fixture).expect_code(65).expect_message("MANIFEST");
    mount(&fixture).expect_code(65).expect_message("MANIFEST");
    fs::write(&manifest, whole).expect("the manifest");
    fixture.check();
}

#[test]
fn a_segment_that_is_missing() {
    let fixture = used("segment");
    for segment in segments(&fixture) {
        fs::remove_file(segment).expect("no segment");
    }
    let answer = check(&fixture);
    assert_ne!(answer.code, 0, "{answer:?}");
    assert_ne!(mount(&fixture).code, 0);
}
