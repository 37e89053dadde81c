//! Real threads on one volume: what they did must be explainable by some order of their transactions.

use std::sync::Arc;

use txfs::{
    CreateOptions, Durability, Isolation, OpenOptions, Paths, Transaction, TransactionOptions, Volume,
};
use txfs_disk::sim::{SimOptions, SimulatedDisk};

const THREADS: usize = 4;
const ROUNDS: usize = 40;
const ACCOUNTS: usize = 5;

fn volume() -> (SimulatedDisk, Volume) {
    let disk = SimulatedDisk::new(SimOptions::default());
    let options = CreateOptions { segment_bytes: 1 << 20, ..CreateOptions::default() };
    Volume::create_on(Arc::new(disk.clone()), &options).expect("create");
    let volume = Volume::open_on(Arc::new(disk.clone()), &OpenOptions::default()).expect("open");
    (disk, volume)
}

fn number(transaction: &Transaction, path: &str) -> txfs::Result<i64> {
    let bytes = transaction.read_file(path)?;
    Ok(String::from_utf8_lossy(&bytes).trim().parse().expect("a number"))
}

/// Runs `work` in transactions until one commits.
fn until_committed(volume: &Volume, durability: Durability, work: impl Fn(&Transaction) -> txfs::Result<()>) {
    until_committed_with(volume, Isolation::Serializable, durability, work);
}

fn until_committed_with(
    volume: &Volume,
    isolation: Isolation,
    durability: Durability,
    work: impl Fn(&Transaction) -> txfs::Result<()>,
) {
    loop {
        let transaction = volume.begin_with(TransactionOptions { isolation, ..Default::default() });
        match work(&transaction).and_then(|()| transaction.commit(durability).map(|_| ())) {
            Ok(()) => return,
            Err(error) if error.is_conflict() => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn in_threads(work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
}

#[test]
fn no_increment_is_lost() {
    let (disk, volume) = volume();
    volume.base().write_file("counter", b"0").expect("write");
    in_threads(|thread| {
        let durability = if thread == 0 { Durability::Durable } else { Durability::Ordered };
        for _ in 0..ROUNDS {
            until_committed(&volume, durability, |transaction| {
                let value = number(transaction, "counter")?;
                transaction.write_file("counter", (value + 1).to_string().as_bytes())
            });
        }
    });
    volume.sync().expect("sync");
    let crashed = disk.crash(1);
    for volume in [volume, Volume::open_on(Arc::new(crashed), &OpenOptions::default()).expect("reopen")] {
        let value = number(&volume.begin(), "counter").expect("read");
        assert_eq!(value, (THREADS * ROUNDS) as i64);
    }
}

#[test]
fn transfers_keep_the_sum_and_readers_always_see_it() {
    let (_disk, volume) = volume();
    for account in 0..ACCOUNTS {
        volume.base().write_file(format!("account-{account}"), b"100").expect("write");
    }
    let sum = |transaction: &Transaction| -> txfs::Result<i64> {
        (0..ACCOUNTS).map(|account| number(transaction, &format!("account-{account}"))).sum()
    };
    in_threads(|thread| {
        let mut random = fastrand::Rng::with_seed(thread as u64);
        for _ in 0..ROUNDS {
            if thread == 0 {
                assert_eq!(sum(&volume.begin()).expect("read"), 100 * ACCOUNTS as i64);
                continue;
            }
            let (from, to) = (random.usize(0..ACCOUNTS), random.usize(0..ACCOUNTS));
            if from == to {
                continue;
            }
            until_committed(&volume, Durability::Ordered, |transaction| {
                for (account, change) in [(from, -7), (to, 7)] {
                    let path = format!("account-{account}");
                    let value = number(transaction, &path)? + change;
                    transaction.write_file(&path, value.to_string().as_bytes())?;
                }
                Ok(())
            });
        }
    });
    assert_eq!(sum(&volume.begin()).expect("read"), 100 * ACCOUNTS as i64);
}

/// Each of two doctors may leave as long as the other one stays: serializable transactions never let both go.
#[test]
fn write_skew_does_not_happen() {
    let (_disk, volume) = volume();
    for round in 0..ROUNDS {
        for doctor in ["on-call-0", "on-call-1"] {
            volume.base().write_file(doctor, b"1").expect("write");
        }
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for mine in 0..2 {
                let (volume, barrier) = (&volume, &barrier);
                scope.spawn(move || {
                    let transaction = volume.begin();
                    let other = number(&transaction, &format!("on-call-{}", 1 - mine)).expect("read");
                    barrier.wait();
                    // The one who is too late is told at the write or at the commit.
                    let written = match other {
                        1 => transaction.write_file(format!("on-call-{mine}"), b"0"),
                        _ => Ok(()),
                    };
                    match written.and_then(|()| transaction.commit(Durability::Ordered).map(drop)) {
                        Ok(()) => {}
                        Err(error) => assert!(error.is_conflict(), "{error}"),
                    }
                });
            }
        });
        let view = volume.begin();
        let left = number(&view, "on-call-0").expect("read") + number(&view, "on-call-1").expect("read");
        assert_eq!(left, 1, "round {round}");
    }
}

/// Snapshot isolation validates no reads, but what a transaction writes nobody else may have written since its snapshot.
#[test]
fn snapshot_isolation_loses_no_update_and_reads_one_moment() {
    let (disk, volume) = volume();
    for account in 0..ACCOUNTS {
        volume.base().write_file(format!("account-{account}"), b"100").expect("write");
    }
    volume.base().write_file("counter", b"0").expect("write");
    in_threads(|thread| {
        let mut random = fastrand::Rng::with_seed(50 + thread as u64);
        for _ in 0..ROUNDS {
            let durability = if random.u32(0..8) == 0 { Durability::Durable } else { Durability::Deferred };
            let (from, to) = (random.usize(0..ACCOUNTS), random.usize(0..ACCOUNTS));
            until_committed_with(&volume, Isolation::Snapshot, durability, |transaction| {
                let sum: txfs::Result<i64> =
                    (0..ACCOUNTS).map(|account| number(transaction, &format!("account-{account}"))).sum();
                assert_eq!(sum?, 100 * ACCOUNTS as i64);
                for (account, change) in [(from, -7), (to, 7)] {
                    let path = format!("account-{account}");
                    let value = number(transaction, &path)? + change;
                    transaction.write_file(&path, value.to_string().as_bytes())?;
                }
                let count = number(transaction, "counter")? + 1;
                transaction.write_file("counter", count.to_string().as_bytes())
            });
        }
    });
    volume.sync().expect("sync");
    let crashed = disk.crash(1);
    for volume in [volume, Volume::open_on(Arc::new(crashed), &OpenOptions::default()).expect("reopen")] {
        let view = volume.begin();
        assert_eq!(number(&view, "counter").expect("read"), (THREADS * ROUNDS) as i64);
        let sum: i64 =
            (0..ACCOUNTS).map(|account| number(&view, &format!("account-{account}")).expect("read")).sum();
        assert_eq!(sum, 100 * ACCOUNTS as i64);
    }
}

/// Under snapshot isolation both doctors may leave: that it is not stronger than it says keeps the tests above honest.
#[test]
fn snapshot_isolation_permits_write_skew() {
    let (_disk, volume) = volume();
    for doctor in ["on-call-0", "on-call-1"] {
        volume.base().write_file(doctor, b"1").expect("write");
    }
    let options = || TransactionOptions { isolation: Isolation::Snapshot, ..Default::default() };
    let transactions = [volume.begin_with(options()), volume.begin_with(options())];
    for (mine, transaction) in transactions.iter().enumerate() {
        assert_eq!(number(transaction, &format!("on-call-{}", 1 - mine)).expect("read"), 1);
        transaction.write_file(format!("on-call-{mine}"), b"0").expect("write");
    }
    for transaction in transactions {
        transaction.commit(Durability::Ordered).expect("snapshot isolation validates no reads");
    }
}
