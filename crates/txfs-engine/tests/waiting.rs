//! Commits wait for nothing that they need not wait for: not for the flushes of a checkpoint, even when they go on to another
//! segment and look how much space the checkpoint may still take; and when they are to be durable, not for flushes that
//! could have been made before.

mod common;

use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use common::*;
use txfs_disk::{AlignedBuffer, Capabilities, Disk, DiskFile, LockOutcome};
use txfs_engine::{Durability, Engine, EngineOptions};

const PATIENCE: Duration = Duration::from_secs(60);

/// Flushes of the index wait while it is closed.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    closed: bool,
    waiting: u32,
}

impl Gate {
    fn set_closed(&self, closed: bool) {
        self.state.lock().unwrap().closed = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.closed).unwrap();
        state.waiting -= 1;
    }

    fn wait_for_somebody(&self) {
        let state = self.state.lock().unwrap();
        let (_state, waited) =
            self.changed.wait_timeout_while(state, PATIENCE, |state| state.waiting == 0).unwrap();
        assert!(!waited.timed_out(), "no checkpoint flushes the index");
    }
}

/// Lets the flushes go when a test ends early, so that the threads can.
struct Opens(Arc<Gate>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.set_closed(false);
    }
}

/// Memory whose index file has the gate.
#[derive(Debug)]
struct GatedDisk(Arc<dyn Disk>, Arc<Gate>);

#[derive(Debug)]
struct GatedFile(Arc<dyn DiskFile>, Arc<Gate>);

impl GatedDisk {
    fn gated(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        if name == "index" { Arc::new(GatedFile(file, self.1.clone())) } else { file }
    }
}

impl Disk for GatedDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.gated(name, self.0.open(name)?))
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.gated(name, self.0.create(name)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn sync_directory(&self) -> io::Result<()> {
        self.0.sync_directory()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn try_lock(&self, name: &str, note: &str) -> io::Result<LockOutcome> {
        self.0.try_lock(name, note)
    }
}

impl DiskFile for GatedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
    fn write_log_vectored(&self, offset: u64, data: &[&AlignedBuffer], durable: bool) -> io::Result<()> {
        self.0.write_log_vectored(offset, data, durable)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.pass();
        self.0.sync()
    }
}

#[test]
fn commits_go_on_to_other_segments_while_a_checkpoint_flushes_the_index() {
    let gate = Arc::new(Gate::default());
    let disk: Arc<dyn Disk> = Arc::new(GatedDisk(sim(1).as_disk(), gate.clone()));
    let engine = Arc::new(create(&disk));
    let put = |number: u8, durability| put_blob(&engine, "blob", &[number; 200_000], durability);
    put(0, Durability::Durable).expect("commit");

    let _opens = Opens(gate.clone());
    gate.set_closed(true);
    let other = engine.clone();
    let checkpoint = std::thread::spawn(move || other.checkpoint());
    gate.wait_for_somebody();
    let (sender, receiver) = channel();
    let other = engine.clone();
    let committer = std::thread::spawn(move || {
        for number in 1..=10 {
            let outcome = put_blob(&other, "blob", &[number; 200_000], Durability::Durable);
            sender.send(outcome.map(drop)).expect("somebody listens");
        }
    });
    for number in 1..=10 {
        let outcome = receiver.recv_timeout(PATIENCE);
        outcome.unwrap_or_else(|_| panic!("commit {number} waits for the checkpoint")).expect("commit");
    }
    assert!(engine.stat().expect("stat").segments >= 4, "they took more than one segment");
    assert!(!checkpoint.is_finished());
    gate.set_closed(false);
    committer.join().expect("committer");
    checkpoint.join().expect("thread").expect("checkpoint");
    assert_eq!(get_blob(&engine, "blob").expect("read"), [10; 200_000]);
    sound(&engine);
}

#[test]
fn segments_that_the_log_has_left_behind_are_flushed_before_anybody_asks() {
    let disk = sim(2).as_disk();
    Engine::create(&disk, &format_options(), &[]).expect("create");
    let options = EngineOptions { background: true, flush_interval: PATIENCE * 10, ..options() };
    let engine = Engine::open(disk, options).expect("open");
    let flushes = || engine.stat().expect("stat").flushes;
    let before = flushes();
    put_blob(&engine, "blob", &[1; 900_000], Durability::Ordered).expect("commit");
    let begun = Instant::now();
    while flushes() == before {
        assert!(begun.elapsed() < PATIENCE, "nobody flushes them");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(engine.stat().expect("stat").checkpoints, 0, "a checkpoint would have done it as well");
    assert_eq!(get_blob(&engine, "blob").expect("read"), [1; 900_000]);
    engine.sync().expect("sync");
}
