//! Scenarios on a disk that misbehaves: failing flushes, writes and reads, no space, damaged contents.
//!
//! What must hold: an error is reported, nothing that was acknowledged is lost, no read returns wrong data, nothing
//! panics, and a volume without space is as it was and works again when there is some.

use txfs::Volume;
use txfs_disk::sim::{Fault, SimulatedDisk};

use crate::dump::DumpEntry;
use crate::generator::Profile;
use crate::hash::derive_seed;
use crate::model::{History, Tree};
use crate::operation::{Name, Operation, ROOT_INO};
use crate::session::{Faulted, RunOptions, Runner, ScenarioReport, Session, Verdict};
use crate::verify;
use crate::violation::{Mode, ScenarioId};
use crate::volume::{self, Unreadable};

/// Runs a scenario with one kind of fault, chosen by the seed.
pub fn run_faults(profile: &'static Profile, seed: u64, options: RunOptions) -> Verdict<ScenarioReport> {
    let scenario = ScenarioId { profile: profile.name, seed, mode: Mode::Faults };
    let mut runner = Runner { profile, options, scenario, report: ScenarioReport::default() };
    let mut random = fastrand::Rng::with_seed(derive_seed(seed, 20));
    let mut session = Session::start(&runner)?;
    for _ in 0..random.usize(5..60) {
        session.act(&mut runner)?;
    }
    match random.u32(0..8) {
        0..=2 => {
            let fault = LASTING[random.usize(0..LASTING.len())];
            let nth = random.u64(1..12);
            lasting_failure(&mut runner, &mut session, &mut random, fault, nth)?;
        }
        3 => read_errors(&mut runner, &mut session, &mut random)?,
        4 => no_space(&mut runner, &mut session, &mut random)?,
        _ => damage(&mut runner, session, &mut random)?,
    }
    runner.report.sessions += 1;
    Ok(runner.report)
}

/// Lets the volume go as a killed process does.
fn end(mut session: Session) {
    session.drop_transactions();
    if let Some(volume) = session.volume.take() {
        verify::kill(&session.disk, volume);
    }
}

/// Faults after which nobody knows what the disk holds.
const LASTING: [Fault; 5] =
    [Fault::Sync, Fault::Write, Fault::SyncDirectory, Fault::Name, Fault::SetLenNoSpace];
/// Positions tried of each fault.
const POSITIONS_MAX: u64 = 40;

/// Runs a scenario once for each lasting fault and each position at which it can strike: the first fitting operation,
/// the second, the third ...
pub fn run_every_fault(profile: &'static Profile, seed: u64, options: RunOptions) -> Verdict<ScenarioReport> {
    let scenario = ScenarioId { profile: profile.name, seed, mode: Mode::EveryFault };
    let mut runner = Runner { profile, options, scenario, report: ScenarioReport::default() };
    for fault in LASTING {
        let mut missed = 0;
        for nth in 1..=POSITIONS_MAX {
            let mut random = fastrand::Rng::with_seed(derive_seed(seed, 21));
            let mut session = Session::start(&runner)?;
            for _ in 0..random.usize(5..30) {
                session.act(&mut runner)?;
            }
            let struck = lasting_failure(&mut runner, &mut session, &mut random, fault, nth)?;
            end(session);
            runner.report.sessions += 1;
            // A fault may also strike where nobody has to hear of it, as in a checkpoint that is made in passing.
            missed += u32::from(!struck);
            if missed > 3 {
                break;
            }
        }
    }
    Ok(runner.report)
}

/// A flush, a write or a change of names fails. Whatever is acknowledged afterwards is held against the volume. False
/// when no action failed.
fn lasting_failure(
    runner: &mut Runner,
    session: &mut Session,
    random: &mut fastrand::Rng,
    fault: Fault,
    nth: u64,
) -> Verdict<bool> {
    trace(runner, || format!("arming {fault:?} {nth}"));
    session.disk.fail_next(fault, nth);
    session.tolerant = true;
    for _ in 0..60 {
        session.act(runner)?;
        if session.faulted.is_some() {
            break;
        }
    }
    let faulted = session.faulted.clone();
    trace(runner, || format!("struck: {faulted:?}"));
    check_live(runner, session, faulted.as_ref())?;
    // Whoever asks again must not be told that all is well unless it is. If the failed action may be in the volume,
    // such an answer covers only what is certain.
    for _ in 0..2 {
        if session.volume().sync().is_ok() {
            trace(runner, || "a sync after the failure succeeded".to_owned());
            session.history.mark_durable();
        }
    }
    session.disk.clear_faults();
    check_poisoned(runner, session)?;
    session.drop_transactions();
    for _ in 0..6 {
        let image = session.disk.crash(random.u64(..));
        check_image(runner, session, &image, faulted.as_ref(), "after a failed write or flush")?;
    }
    Ok(faulted.is_some())
}

/// A volume that says that it takes no more changes takes none, of whatever kind, although the disk works again.
fn check_poisoned(runner: &Runner, session: &Session) -> Verdict {
    let volume = session.volume();
    let figures = volume.stat();
    let figures = figures.map_err(|error| session.fail(runner, format!("no figures: {error}")))?;
    if figures.engine.poisoned.is_none() {
        return Ok(());
    }
    let name = || Name(b"after the failure".to_vec());
    let make = Operation::MakeFile { parent: ROOT_INO, name: name(), mode: 0o600 };
    let transaction = volume.begin();
    let inside = volume::run(&transaction, &make).0.errno();
    let answers = [
        ("an operation", volume::run_on_base(volume, &make).0.errno().is_none()),
        ("a commit", inside.is_none() && transaction.commit(txfs::Durability::Ordered).is_ok()),
        ("a sync", volume.sync().is_ok()),
        ("a checkpoint", volume.checkpoint().is_ok()),
    ];
    match answers.into_iter().find(|(_, acknowledged)| *acknowledged) {
        Some((what, _)) => Err(session.fail(runner, format!("{what} was acknowledged by a poisoned volume"))),
        None => Ok(()),
    }
}

fn trace(runner: &Runner, text: impl FnOnce() -> String) {
    if runner.options.trace {
        println!("{}", text());
    }
}

/// The volume still shows the state before or after the failed action.
fn check_live(runner: &Runner, session: &Session, faulted: Option<&Faulted>) -> Verdict {
    let newest = session.history.newest();
    let result = matches_with(session.volume(), &session.history, faulted, newest);
    result.map_err(|what| session.fail(runner, format!("after a failure, while the volume is open: {what}")))
}

fn check_image(
    runner: &mut Runner,
    session: &Session,
    image: &SimulatedDisk,
    faulted: Option<&Faulted>,
    when: &str,
) -> Verdict {
    runner.report.images += 1;
    runner.report.states.insert(image.fingerprint());
    let volume = verify::open(image, runner.profile)
        .map_err(|error| session.fail(runner, format!("{when}, the volume does not open: {error}")))?;
    runner.report.recoveries += 1;
    let oldest = session.history.durable();
    matches_with(&volume, &session.history, faulted, oldest)
        .map_err(|what| session.fail(runner, format!("{when}: {what}")))?;
    verify::check(image, &volume).map_err(|what| session.fail(runner, format!("{when}: {what}")))?;
    verify::kill(image, volume);
    Ok(())
}

/// As [`verify::compare`]; the state after the failed action will do as well.
fn matches_with(
    volume: &Volume,
    history: &History,
    faulted: Option<&Faulted>,
    oldest: usize,
) -> Result<(), String> {
    let problem = match compare(volume, history, oldest) {
        Ok(()) => return Ok(()),
        Err(problem) => problem,
    };
    let mut after = history.clone();
    match faulted {
        Some(Faulted::Operation(operation)) => {
            // The number of an inode that it made is only known to the volume.
            let outcome = match operation {
                Operation::MakeFile { parent, name, .. }
                | Operation::MakeDirectory { parent, name, .. }
                | Operation::MakeSymlink { parent, name, .. }
                | Operation::MakeFifo { parent, name, .. } => {
                    crate::volume::run(
                        &volume.base(),
                        &Operation::Lookup { parent: *parent, name: name.clone() },
                    )
                    .0
                }
                _ => crate::operation::Outcome::Done,
            };
            after.run(operation, &outcome, 0);
        }
        Some(Faulted::Commit(transaction)) => {
            // One that should have conflicted cannot be there.
            let _ = after.commit(transaction.clone(), 0, 0);
        }
        Some(Faulted::Undo(commit)) => {
            let _ = after.undone(*commit, 0, 0);
        }
        Some(Faulted::Nothing) | None => return Err(problem),
    }
    compare(volume, &after, after.newest()).map_err(|second| format!("{problem}\nand {second}"))
}

/// As [`verify::compare`] with all states from `oldest` on. What a failed write or flush took away may be missing, if the
/// volume says so: then all the rest must be that of the newest state.
fn compare(volume: &Volume, history: &History, oldest: usize) -> Result<(), String> {
    let newest = history.newest();
    let (found, unreadable) = crate::volume::dump(&volume.base());
    if unreadable.is_empty() || unreadable.iter().any(|unreadable| !unreadable.lost) {
        return verify::compare(volume, history, oldest, newest).map(|_| ());
    }
    let mut expected = history.commits()[newest].tree.dump();
    expected.entries.retain(|entry| unreadable.iter().all(|unreadable| unreadable.path != entry.path));
    match found.first_difference(&expected) {
        None => Ok(()),
        Some(difference) => Err(format!("beside what was lost: {difference}")),
    }
}

/// Reads fail now and then: errors, but no wrong data, and afterwards all is well.
fn read_errors(runner: &mut Runner, session: &mut Session, random: &mut fastrand::Rng) -> Verdict {
    session.tolerant = true;
    for _ in 0..40 {
        session.disk.fail_next(Fault::Read, random.u64(1..6));
        session.act(runner)?;
        session.disk.clear_faults();
        if let Some(faulted) = session.faulted.take() {
            check_live(runner, session, Some(&faulted))?;
            // The state after the failed action would be a change nobody acknowledged.
            if matches!(faulted, Faulted::Operation(_) | Faulted::Commit(_) | Faulted::Undo(_)) {
                check_live(runner, session, None)?;
            }
        }
    }
    session.drop_transactions();
    check_live(runner, session, None)?;
    if session.volume().sync().is_err() {
        return poisoned(runner, session, random);
    }
    session.history.mark_durable();
    session.tolerant = false;
    for _ in 0..10 {
        session.act(runner)?;
    }
    session.finish(runner)
}

/// A volume that takes no more changes: only opening it again helps, and shows all that was acknowledged.
fn poisoned(runner: &mut Runner, session: &Session, random: &mut fastrand::Rng) -> Verdict {
    for _ in 0..4 {
        let image = session.disk.crash(random.u64(..));
        check_image(runner, session, &image, None, "after the volume stopped taking changes")?;
    }
    Ok(())
}

/// Space runs out: changes fail and leave no trace; with space again everything works.
fn no_space(runner: &mut Runner, session: &mut Session, random: &mut fastrand::Rng) -> Verdict {
    let used = session.disk.used_bytes();
    let left = random.u64(0..4) * runner.profile.segment_bytes / 2;
    trace(runner, || format!("capacity {used} + {left}"));
    session.disk.set_capacity(Some(used + left));
    session.tolerant = true;
    let mut failures = 0;
    for _ in 0..120 {
        session.act(runner)?;
        if let Some(faulted) = session.faulted.take() {
            failures += 1;
            trace(runner, || format!("no space: {faulted:?}"));
            let uncertain = matches!(faulted, Faulted::Nothing);
            if uncertain || session.volume().sync().is_err() {
                break;
            }
            session.history.mark_durable();
            check_live(runner, session, None)?;
        }
        if failures > 6 {
            break;
        }
    }
    session.disk.set_capacity(None);
    session.drop_transactions();
    check_live(runner, session, None)?;
    for _ in 0..4 {
        let image = session.disk.crash(random.u64(..));
        check_image(runner, session, &image, None, "after space ran out")?;
    }
    if session.volume().sync().is_err() {
        // Poisoned: only reopening helps, and the images have shown that it does.
        return Ok(());
    }
    session.history.mark_durable();
    session.tolerant = false;
    for _ in 0..20 {
        session.act(runner)?;
    }
    session.finish(runner)
}

/// Stored bytes change. Every read gives the right data or an error.
fn damage(runner: &mut Runner, mut session: Session, random: &mut fastrand::Rng) -> Verdict {
    let clean = random.bool();
    if clean {
        session.reopen(runner)?;
        if let Some(volume) = session.volume.take() {
            let closed = volume.close();
            drop(volume);
            closed.map_err(|error| session.fail(runner, format!("closing failed: {error}")))?;
        }
    }
    for _ in 0..12 {
        let image = session.disk.crash(random.u64(..));
        let seed = random.u64(..);
        let count = if random.u32(0..4) == 0 { 5 } else { 1 };
        let corruptions: Vec<_> =
            (0..count).filter_map(|index| image.corrupt(derive_seed(seed, index))).collect();
        runner.report.images += 1;
        runner.report.states.insert(image.fingerprint());
        trace(runner, || format!("damage {corruptions:?}"));
        let Ok(volume) = verify::open(&image, runner.profile) else { continue };
        runner.report.recoveries += 1;
        // Damage to the last records looks like a torn write: the state may be an older one, never a wrong one.
        check_damaged(&volume, &session.history, if clean { session.history.newest() } else { 0 })
            .map_err(|what| session.fail(runner, format!("with {corruptions:?}: {what}")))?;
        verify::kill(&image, volume);
    }
    end(session);
    Ok(())
}

fn check_damaged(volume: &Volume, history: &History, oldest: usize) -> Result<(), String> {
    let (found, unreadable) = volume::dump(&volume.base());
    if let Some(strange) = unreadable.iter().find(|unreadable| unreadable.errno != libc::EIO) {
        return Err(format!("reading {} failed: {}", strange.path.escape_ascii(), strange.message));
    }
    let states = (oldest..=history.newest()).rev().map(|index| &history.commits()[index].tree);
    let mut first_problem = None;
    for tree in states {
        match differs(&found.entries, &unreadable, tree) {
            None => {
                return match volume.check() {
                    Ok(report) if report.is_clean() && !unreadable.is_empty() => {
                        Err(format!("check finds nothing, and {unreadable:?}"))
                    }
                    Ok(_) => Ok(()),
                    // So damaged that it cannot be examined, and says so.
                    Err(error) if error.errno() == libc::EIO => Ok(()),
                    Err(error) => Err(format!("check failed: {error}")),
                };
            }
            Some(problem) => first_problem = first_problem.or(Some(problem)),
        }
    }
    Err(first_problem.unwrap_or_default())
}

/// What a damaged volume shows that the tree does not hold, or hides without an error.
fn differs(found: &[DumpEntry], unreadable: &[Unreadable], tree: &Tree) -> Option<String> {
    let expected = tree.dump().entries;
    let excused = |path: &[u8]| {
        unreadable.iter().any(|bad| path == bad.path || path.starts_with(&[&bad.path[..], b"/"].concat()))
    };
    if let Some(wrong) = found.iter().find(|entry| !expected.contains(entry)) {
        let right = expected.iter().find(|entry| entry.path == wrong.path);
        let right = right.map_or("nothing there".to_owned(), ToString::to_string);
        return Some(format!("wrong data\n  found    {wrong}\n  expected {right}"));
    }
    let hidden = expected.iter().find(|entry| !found.contains(entry) && !excused(&entry.path))?;
    Some(format!("silently missing: {hidden}"))
}
