//! Eager transactions, and retries in which the oldest wins.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use txfs::{
    Durability, OpenOptions, OtherState, Paths, Policy, Transaction, TransactionOptions, View, Volume,
};

fn eager(volume: &Volume) -> Transaction {
    volume.begin_with(TransactionOptions { policy: Some(Policy::Eager), ..Default::default() })
}

fn with_file() -> (Volume, u64) {
    let volume = new_volume();
    volume.base().write_file("file", &[1; 40_960]).unwrap();
    let file = volume.base().resolve("file").unwrap();
    (volume, file)
}

#[test]
fn the_second_eager_writer_fails_at_its_write() {
    let (volume, file) = with_file();
    let options = TransactionOptions {
        policy: Some(Policy::Eager),
        label: "first".into(),
        process: Some(4711),
        command: Some("./first".into()),
        ..Default::default()
    };
    let first = volume.begin_with(options);
    let (second, third, late) = (eager(&volume), eager(&volume), eager(&volume));
    first.write(file, 0, b"x").unwrap();
    first.write_file("name", b"x").unwrap();
    second.read(file, 0, 4096).unwrap();
    second.write(file, 4096, b"y").unwrap();
    let error = second.write(file, 100, b"y").unwrap_err();
    let conflict = error.conflict().expect("a conflict");
    assert_eq!((conflict.other.state, conflict.other.sequence), (OtherState::Writing, None));
    assert_eq!((conflict.other.process, conflict.other.transaction), (Some(4711), Some(first.id())));
    assert!(error.to_string().contains("being written by an open transaction"), "{error}");
    assert_eq!(errno(second.commit(Durability::Durable)), ECANCELED);
    assert_eq!(errno(third.write_file("name", b"z")), ECANCELED);
    // What the second one had claimed is free again, and so is what an aborted one has.
    late.write(file, 4096, b"z").unwrap();
    first.abort();
    late.write(file, 0, b"z").unwrap();
    late.commit(Durability::Durable).unwrap();
    assert_clean(&volume);
}

#[test]
fn eager_transactions_look_at_each_other_only() {
    let (volume, file) = with_file();
    let (one, lazy) = (eager(&volume), volume.begin());
    one.write(file, 0, b"x").unwrap();
    lazy.write(file, 0, b"y").unwrap();
    // A call outside of transactions neither waits nor fails, and dooms both.
    volume.base().write(file, 0, b"z").unwrap();
    assert_eq!(errno(one.read(file, 9000, 1)), ECANCELED);
    assert_eq!(errno(lazy.read(file, 9000, 1)), ECANCELED);
}

#[test]
fn a_volume_can_be_eager_by_itself() {
    let options = OpenOptions { policy: Policy::Eager, ..open_options() };
    let volume = Volume::open_on(new_disk().as_disk(), &options).unwrap();
    let (one, two) = (volume.begin(), volume.begin());
    let policy = Some(Policy::FirstCommitter);
    let lazy = volume.begin_with(TransactionOptions { policy, ..Default::default() });
    one.write_file("name", b"1").unwrap();
    assert_eq!(errno(two.write_file("name", b"2")), ECANCELED);
    lazy.write_file("name", b"3").unwrap();
    one.commit(Durability::Durable).unwrap();
    assert_eq!(errno(lazy.commit(Durability::Durable)), ECANCELED);
}

#[test]
fn younger_transactions_give_way_to_an_elder() {
    let (volume, file) = with_file();
    let mut attempts = volume.attempts(TransactionOptions { label: "long".into(), ..Default::default() });
    let mut last = None;
    for _ in 0..3 {
        let tx = attempts.begin();
        tx.read(file, 0, 4096).unwrap();
        tx.write_file("result", b"x").unwrap();
        let younger = volume.begin();
        younger.write(file, 0, b"y").unwrap();
        last = Some((younger.commit(Durability::Ordered), tx.commit(Durability::Ordered)));
    }
    let (younger, elder) = last.unwrap();
    elder.unwrap();
    let error = younger.unwrap_err();
    let conflict = error.conflict().expect("a conflict");
    assert_eq!(conflict.other.state, OtherState::Elder);
    assert_eq!(conflict.other.message.as_deref(), Some("long"));
    assert!(error.to_string().contains("kept for an older transaction"), "{error}");
    // Claims are kept until there are to be no more attempts, and hold up no call outside of transactions.
    volume.base().write(file, 0, b"z").unwrap();
    let younger = volume.begin();
    younger.write(file, 0, b"y").unwrap();
    assert_eq!(errno(younger.commit(Durability::Ordered)), ECANCELED);
    drop(attempts);
    let younger = volume.begin();
    younger.write(file, 0, b"y").unwrap();
    younger.commit(Durability::Ordered).unwrap();
}

#[test]
fn who_claims_everything_is_waited_for() {
    let (volume, file) = with_file();
    let mut attempts = volume.attempts(TransactionOptions::default());
    for _ in 0..5 {
        attempts.begin();
    }
    let elder = attempts.begin();
    elder.write(file, 0, b"e").unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let younger = volume.begin();
            younger.write_file("elsewhere", b"y").unwrap();
            younger.commit(Durability::Ordered).unwrap();
            assert!(ended.load(Ordering::SeqCst), "it has waited");
        });
        std::thread::sleep(Duration::from_millis(30));
        volume.base().write_file("outside", b"nobody waits here").unwrap();
        elder.commit(Durability::Ordered).unwrap();
        ended.store(true, Ordering::SeqCst);
        drop(attempts);
    });
    // Whoever is slower than it had said is not waited for for ever.
    let mut attempts = volume.attempts(TransactionOptions::default());
    for _ in 0..6 {
        attempts.begin();
    }
    let younger = volume.begin();
    younger.write_file("elsewhere", b"y").unwrap();
    younger.commit(Durability::Ordered).unwrap();
}

/// Eight threads of short transactions change files all the time; a long one reads all of them and writes some.
#[test]
fn a_long_transaction_among_many_short_ones_commits() {
    const FILES: u64 = 64;
    let volume = new_volume();
    let base = volume.base();
    for file in 0..FILES {
        base.write_file(format!("{file}"), &0u64.to_le_bytes()).unwrap();
    }
    let number = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().unwrap());
    let (stop, short) = (AtomicBool::new(false), AtomicU64::new(0));
    let attempts = std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (volume, stop, short, number) = (&volume, &stop, &short, &number);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                while !stop.load(Ordering::Relaxed) {
                    let file = random.u64(0..FILES).to_string();
                    let done = volume.transact(u32::MAX, Durability::Deferred, |tx| {
                        let value = number(tx.read_file(&file)?) + 1;
                        tx.write_file(&file, &value.to_le_bytes())
                    });
                    done.unwrap();
                    short.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while short.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        let mut attempts = 0;
        let done = volume.transact(20, Durability::Deferred, |tx| {
            attempts += 1;
            let mut sum = 0;
            for file in 0..FILES {
                sum += number(tx.read_file(file.to_string())?);
                if file % 8 == 0 {
                    tx.write_file(format!("long-{file}"), &sum.to_le_bytes())?;
                    tx.write_file(file.to_string(), &number(tx.read_file(file.to_string())?).to_le_bytes())?;
                }
                // It is slow, whatever the machine: every short one is faster.
                std::thread::sleep(Duration::from_micros(300));
            }
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        println!(
            "{attempts} attempts in {:?}, {} short ones",
            begun.elapsed(),
            short.load(Ordering::Relaxed)
        );
        done.unwrap();
        attempts
    });
    assert!(attempts <= 10, "{attempts} attempts");
    // Nothing was lost on the way.
    let sum: u64 = (0..FILES).map(|file| number(base.read_file(file.to_string()).unwrap())).sum();
    assert_eq!(sum, short.load(Ordering::Relaxed));
    assert_clean(&volume);
}
