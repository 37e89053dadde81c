//! The update protocols of figure 1 of the TxFS paper, as unmodified system calls between `fs_tx_begin` and
//! `fs_tx_commit`, struck at each of their calls: all or nothing, and no temporary file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use txfs_e2e::{Answer, Fixture, answer_of, c_program};

const PAGE_BYTES: usize = 4096;

/// 128 + SIGKILL.
const KILLED: i32 = 137;
/// The program's, when one of its calls or its commit has failed.
const FAILED: i32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Rename,
    Logging,
    Mail,
}

use Protocol::{Logging, Mail, Rename};

/// What a file holds at a version, as protocols.c has it.
fn content(name: &str, version: usize) -> String {
    format!("{name:<20}{version:>11}\n").repeat(3 * PAGE_BYTES / 32)
}

fn attachment(number: usize) -> String {
    format!("attachment-{number}")
}

/// The database with so many messages.
fn database(messages: usize) -> Vec<u8> {
    let pages = std::iter::once(messages.to_string()).chain((1..=messages).map(attachment));
    let padded = pages.flat_map(|text| {
        let mut page = text.into_bytes();
        page.resize(PAGE_BYTES, 0);
        page
    });
    padded.collect()
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Rename => "rename",
            Logging => "logging",
            Mail => "mail",
        }
    }

    /// All that is in its directory at a version.
    fn files(self, version: usize) -> Vec<(String, Vec<u8>)> {
        let file = |name: &str| (name.to_owned(), content(name, version).into_bytes());
        match self {
            Rename => vec![file("first"), file("second")],
            Logging => vec![file("original")],
            Mail => {
                let attachments = (1..=version)
                    .map(|number| (attachment(number), content("attachment", number).into_bytes()));
                std::iter::once(("database".to_owned(), database(version))).chain(attachments).collect()
            }
        }
    }

    /// Whether the directory is exactly as at a version; else what differs.
    fn compare(self, directory: &Path, version: usize) -> Result<(), String> {
        let wanted = self.files(version);
        let names: BTreeSet<String> = wanted.iter().map(|(name, _)| name.clone()).collect();
        let found: BTreeSet<String> = fs::read_dir(directory)
            .expect("the directory")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        if found != names {
            return Err(format!("{found:?} instead of {names:?}"));
        }
        for (name, bytes) in wanted {
            if fs::read(directory.join(&name)).expect("a file") != bytes {
                return Err(format!("{name} differs from version {version}"));
            }
        }
        Ok(())
    }
}

/// A protocol's directory on a mount, and the version that it is at.
struct Updated {
    protocol: Protocol,
    fixture: Fixture,
    version: usize,
    /// System calls of the protocol.
    steps: usize,
}

impl Updated {
    /// At version 1, after an update that nothing disturbed.
    #[track_caller]
    fn new(protocol: Protocol) -> Updated {
        let fixture = Fixture::mounted(&format!("capi-{}", protocol.name()));
        let directory = fixture.path(protocol.name());
        fs::create_dir(&directory).expect("a directory");
        for (name, bytes) in protocol.files(0) {
            fs::write(directory.join(name), bytes).expect("a file");
        }
        let mut updated = Updated { protocol, fixture, version: 0, steps: 0 };
        let answer = updated.update("through", 0, &[]).expect_code(0);
        updated.expect(1, "after an update");
        let number = |what: &str| {
            let line = answer.out.lines().find_map(|line| line.strip_prefix(what)).expect("a line");
            line.trim().parse::<usize>().expect("a number")
        };
        assert_eq!(number("outside"), 0, "calls outside of the transaction were intercepted");
        updated.steps = number("steps");
        assert!(updated.steps > 8, "the protocol has {} system calls", updated.steps);
        updated
    }

    /// Runs the program, which is to make the next version.
    #[track_caller]
    fn update(&self, how: &str, step: usize, more: &[String]) -> Answer {
        let mut command = Command::new(c_program("protocols"));
        command.arg(self.protocol.name()).arg(self.fixture.path(self.protocol.name()));
        command.arg((self.version + 1).to_string()).arg(how).arg(step.to_string()).args(more);
        answer_of(&mut command)
    }

    fn compare(&self, version: usize) -> Result<(), String> {
        self.protocol.compare(&self.fixture.path(self.protocol.name()), version)
    }

    #[track_caller]
    fn expect(&mut self, version: usize, when: &str) {
        if let Err(difference) = self.compare(version) {
            panic!("{:?}, {when}: {difference}\n{}", self.protocol, self.fixture.log());
        }
        self.version = version;
    }

    /// As [`Updated::expect`], and either the version before or the next one is right.
    #[track_caller]
    fn expect_either(&mut self, when: &str) -> bool {
        let new = self.compare(self.version + 1).is_ok();
        self.expect(self.version + usize::from(new), when);
        new
    }

    /// The volume of an owner that was killed: clean before the recovery, and mounted again.
    #[track_caller]
    fn mount_again(&mut self) {
        self.fixture.kill_mount();
        self.fixture.check();
        self.fixture.mount(&[]);
    }
}

/// The program is killed before each of its calls, before its commit and after it.
fn program_is_killed(protocol: Protocol) {
    let mut updated = Updated::new(protocol);
    let steps = updated.steps;
    for step in 1..=steps + 1 {
        let answer = updated.update("self", step, &[]).expect_code(KILLED);
        assert_eq!(answer.out, "");
        updated.expect(updated.version, &format!("program killed before call {step} of {steps}"));
    }
    let answer = updated.update("self", steps + 2, &[]).expect_code(KILLED);
    assert_eq!(answer.out, "committed\n");
    updated.expect(updated.version + 1, "program killed after its commit");
    updated.fixture.remount();
    updated.expect(updated.version, "after a remount");
    println!("e2e: {}: program killed at each of {} steps", protocol.name(), steps + 2);
}

/// The mount process is killed before each of the program's calls, before the commit and after it.
fn owner_is_killed(protocol: Protocol) {
    let mut updated = Updated::new(protocol);
    let steps = updated.steps;
    for step in 1..=steps + 1 {
        let owner = updated.fixture.owner_pid().to_string();
        let answer = updated.update("owner", step, &[owner]).expect_code(FAILED);
        assert!(answer.out.starts_with("failed at"), "step {step}: {}", answer.out);
        updated.mount_again();
        updated.expect(updated.version, &format!("owner killed before call {step} of {steps}"));
    }
    let owner = updated.fixture.owner_pid().to_string();
    let answer = updated.update("owner", steps + 2, &[owner]).expect_code(0);
    assert!(answer.out.starts_with("committed\n"), "{}", answer.out);
    updated.mount_again();
    updated.expect(updated.version + 1, "owner killed after a durable commit");
    updated.update("through", 0, &[]).expect_code(0);
    updated.expect(updated.version + 1, "an update after all this");
    println!("e2e: {}: owner killed at each of {} steps", protocol.name(), steps + 2);
}

/// The mount process is killed at moments of the commit: what the commit has said decides.
fn owner_is_killed_in_the_commit(protocol: Protocol) {
    let mut updated = Updated::new(protocol);
    let (mut committed, mut there) = (0, 0);
    let delays_us = [0, 10, 20, 40, 60, 80, 100, 150, 200, 300, 500, 1000, 3000, 10_000, 30_000];
    for delay_us in delays_us {
        let owner = updated.fixture.owner_pid().to_string();
        let answer = updated.update("commit", 0, &[owner, delay_us.to_string()]);
        updated.mount_again();
        let when = format!("owner killed {delay_us} us after the begin of the commit");
        let new = updated.expect_either(&when);
        let said = answer.out.starts_with("committed\n");
        answer.expect_code(if said { 0 } else { FAILED });
        assert!(new || !said, "{when}: a durable commit is not there");
        committed += usize::from(said);
        there += usize::from(new);
    }
    println!(
        "e2e: {}: owner killed in {} commits, {committed} acknowledged, {there} there",
        protocol.name(),
        delays_us.len()
    );
}

#[test]
fn rename_protocol_of_a_killed_program_is_all_or_nothing() {
    program_is_killed(Rename);
}

#[test]
fn logging_protocol_of_a_killed_program_is_all_or_nothing() {
    program_is_killed(Logging);
}

#[test]
fn mail_protocol_of_a_killed_program_is_all_or_nothing() {
    program_is_killed(Mail);
}

#[test]
fn rename_protocol_is_all_or_nothing_when_the_owner_dies() {
    owner_is_killed(Rename);
}

#[test]
fn logging_protocol_is_all_or_nothing_when_the_owner_dies() {
    owner_is_killed(Logging);
}

#[test]
fn mail_protocol_is_all_or_nothing_when_the_owner_dies() {
    owner_is_killed(Mail);
}

#[test]
fn protocols_are_all_or_nothing_when_the_owner_dies_in_the_commit() {
    for protocol in [Rename, Logging, Mail] {
        owner_is_killed_in_the_commit(protocol);
    }
}

/// What the tests above would see if there were no transaction.
#[test]
fn without_a_transaction_the_protocols_leave_traces() {
    for protocol in [Rename, Logging, Mail] {
        let updated = Updated::new(protocol);
        let middle = updated.steps / 2;
        updated.update("bare", middle, &[]).expect_code(KILLED);
        assert!(updated.compare(updated.version).is_err(), "{protocol:?}: nothing is left of half an update");
    }
}
