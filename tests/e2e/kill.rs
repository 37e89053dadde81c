//! `kill -9` of the mount process, of clients and of transactions' processes: after a remount the volume is clean, all
//! that was acknowledged is there, and nothing is there by half.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use txfs_e2e::{Background, Fixture, contents, signal, sleep_ms, wait_for};

const PAGE_BYTES: usize = 4096;

/// Kind and number of every writer.
const LOAD: [(&str, u64); 9] = [
    ("files", 0),
    ("files", 1),
    ("pages", 0),
    ("pages", 1),
    ("pages", 2),
    ("names", 0),
    ("careless", 0),
    ("transactions", 0),
    ("transactions", 1),
];

fn acknowledged(fixture: &Fixture, kind: &str, worker: u64) -> PathBuf {
    fixture.outside(&format!("{kind}-{worker}"))
}

fn lines(fixture: &Fixture, kind: &str, worker: u64) -> Vec<String> {
    let text = fs::read_to_string(acknowledged(fixture, kind, worker)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The content that `txfs-e2e-load` gives to a version, read back: worker and version, whole.
#[track_caller]
fn version_of(text: &str, worker: u64) -> u64 {
    let first = text.lines().next().unwrap_or_default();
    let version: u64 = match first.split_once(' ') {
        Some((by, version)) if by == worker.to_string() => version.parse().unwrap_or(0),
        _ => panic!("starts with {first:?}"),
    };
    assert!(
        text == format!("{worker} {version}\n").repeat(1 + (version as usize * 37) % 2000),
        "version {version} is torn"
    );
    version
}

#[track_caller]
fn last(fixture: &Fixture, kind: &str, worker: u64) -> u64 {
    lines(fixture, kind, worker).last().map_or(0, |line| line.parse().unwrap_or(0))
}

fn verify_files(fixture: &Fixture, worker: u64) -> usize {
    let acknowledged = lines(fixture, "files", worker);
    for number in &acknowledged {
        let text = fixture.text(&format!("files-{worker}/{number}"));
        assert_eq!(version_of(&text, worker).to_string(), *number);
    }
    acknowledged.len()
}

fn verify_pages(fixture: &Fixture, worker: u64) -> usize {
    let acknowledged = lines(fixture, "pages", worker);
    let mut newest = BTreeMap::new();
    for line in &acknowledged {
        let (page, version) = line.split_once(' ').expect("page and version");
        newest.insert(page.parse::<usize>().expect("a page"), version.parse::<u64>().expect("a version"));
    }
    let file = fs::read(fixture.path("pages")).expect("the shared file");
    for (page, version) in newest {
        let page = &file[page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
        let found = u64::from_le_bytes(page[..8].try_into().expect("eight bytes"));
        assert!(found >= version, "page holds version {found}, {version} was acknowledged");
        assert!(page.chunks(8).all(|chunk| chunk == found.to_le_bytes()), "a page is torn");
    }
    acknowledged.len()
}

fn verify_transactions(fixture: &Fixture, worker: u64) -> usize {
    use std::os::unix::fs::PermissionsExt;
    let directory = fixture.path(&format!("transactions-{worker}"));
    let acknowledged = last(fixture, "transactions", worker);
    if acknowledged == 0 && !directory.exists() {
        return 0;
    }
    let number: u64 = contents(directory.join("first")).trim().parse().expect("a number");
    assert!(number >= acknowledged, "transaction {number} is there, {acknowledged} was acknowledged");
    assert_eq!(contents(directory.join("second")).trim(), number.to_string());
    let states: Vec<_> = fs::read_dir(&directory)
        .expect("the directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .filter(|name| name.starts_with("state-"))
        .collect();
    assert_eq!(states, [format!("state-{number}")]);
    let mode = fs::metadata(directory.join(&states[0])).expect("the state").permissions().mode();
    assert_eq!(u64::from(mode & 0o777), number % 512);
    acknowledged as usize
}

#[test]
fn mount_process_killed_under_load() {
    let mut fixture = Fixture::new("kill");
    let mut random = fastrand::Rng::with_seed(1);
    let mut acknowledged_total = 0;
    for round in 0..8 {
        fixture.mount(&[]);
        let load: Vec<Background> = LOAD
            .iter()
            .map(|(kind, worker)| {
                let mut command = Command::new(env!("CARGO_BIN_EXE_txfs-e2e-load"));
                command.arg(kind).arg(fixture.point()).arg(acknowledged(&fixture, kind, *worker));
                Background::start(command.arg(worker.to_string()).env("TXFS", txfs_e2e::txfs_binary()))
            })
            .collect();
        sleep_ms(random.u64(300..2500));
        fixture.kill_mount();
        let ended: Vec<String> = load.into_iter().map(|writer| writer.finish_soon().err).collect();

        // once before anything else has opened the volume, once after the recovery that the mount does
        if round % 2 == 0 {
            fixture.check();
        }
        fixture.mount(&[]);
        let mut acknowledged = 0;
        for (kind, worker) in LOAD {
            acknowledged += match kind {
                "files" => verify_files(&fixture, worker),
                "pages" => verify_pages(&fixture, worker),
                "transactions" => verify_transactions(&fixture, worker),
                _ => {
                    let path = fixture.path(&format!("{kind}-{worker}/current"));
                    let version = if path.exists() { version_of(&contents(path), worker) } else { 0 };
                    let least = last(&fixture, kind, worker);
                    assert!(version >= least, "{kind}: version {version}, {least} was acknowledged");
                    least as usize
                }
            };
        }
        assert!(
            acknowledged > acknowledged_total,
            "round {round}: nothing was acknowledged: {ended:?}\n{}",
            fixture.log()
        );
        acknowledged_total = acknowledged;
        fixture.unmount();
        fixture.check();
    }
    println!(
        "e2e: 8 kills of the mount process under load, {acknowledged_total} acknowledged changes, all there"
    );
}

#[test]
fn killed_client_leaves_no_trace() {
    let mut fixture = Fixture::mounted("client");
    fixture.script("echo old >file").expect_code(0);
    let transaction = fixture.start_script("client", "echo new >file; mkdir made; pause");
    fixture.wait_paused("client");
    signal(transaction.pid(), Signal::KILL);
    transaction.finish();
    wait_for("the transaction to be aborted", || {
        let list = txfs_e2e::answer_of(fixture.txfs().args(["tx", "list", "--json"]).arg(fixture.point()));
        !list.out.contains("pause")
    });
    assert_eq!(fixture.text("file"), "old\n");
    assert!(!fixture.path("made").exists());
    fixture.remount();
    assert_eq!(fixture.text("file"), "old\n");
    assert!(!fixture.path("made").exists());
}

#[test]
fn killed_command_leaves_no_trace() {
    let mut fixture = Fixture::mounted("command");
    fixture.script("echo old >file").expect_code(0);
    let answer = txfs_e2e::answer_of(&mut fixture.run_script("echo new >file; kill -9 $$"));
    answer.expect_code(128 + 9);
    assert_eq!(fixture.text("file"), "old\n");
    fixture.remount();
    assert_eq!(fixture.text("file"), "old\n");
}

#[test]
fn open_transactions_die_with_the_mount() {
    let mut fixture = Fixture::mounted("open");
    fixture.script("echo old >file").expect_code(0);
    // large enough that its data is in the log long before a commit
    let script = "head -c 200M /dev/zero >large; echo new >file; pause; echo committed >file";
    let transaction = fixture.start_script("open", script);
    fixture.wait_paused("open");
    fixture.kill_mount();
    fixture.let_go("open");
    let answer = transaction.finish_soon();
    assert_ne!(answer.code, 0, "the transaction cannot have been committed");
    fixture.check();
    fixture.mount(&[]);
    assert_eq!(fixture.text("file"), "old\n");
    assert!(!fixture.path("large").exists());
    fixture.unmount();
}
