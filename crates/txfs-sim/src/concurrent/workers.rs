//! Worker threads that carry out one command at a time, and a way to see that all of them wait.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A command; its answer comes back through [`Workers::take_answers`].
pub(super) type Command<A> = Box<dyn FnOnce() -> A + Send>;

struct Desk<A> {
    commands: Vec<Option<Command<A>>>,
    answers: VecDeque<(usize, A)>,
    busy: Vec<bool>,
    threads: Vec<Option<u32>>,
    closing: bool,
}

/// Threads that wait for commands.
pub(super) struct Workers<A> {
    desk: Arc<(Mutex<Desk<A>>, Condvar)>,
    handles: Vec<JoinHandle<()>>,
}

impl<A: Send + 'static> Workers<A> {
    pub(super) fn start(count: usize) -> Workers<A> {
        let desk = Desk {
            commands: (0..count).map(|_| None).collect(),
            answers: VecDeque::new(),
            busy: vec![false; count],
            threads: vec![None; count],
            closing: false,
        };
        let desk = Arc::new((Mutex::new(desk), Condvar::new()));
        let handles = (0..count)
            .map(|worker| {
                let desk = desk.clone();
                std::thread::spawn(move || serve(&desk, worker))
            })
            .collect();
        Workers { desk, handles }
    }

    /// Workers without a command.
    pub(super) fn idle(&self) -> Vec<usize> {
        let desk = self.desk.0.lock();
        (0..desk.busy.len()).filter(|worker| !desk.busy[*worker]).collect()
    }

    /// Gives an idle worker a command.
    pub(super) fn give(&self, worker: usize, command: Command<A>) {
        let mut desk = self.desk.0.lock();
        desk.busy[worker] = true;
        desk.commands[worker] = Some(command);
        drop(desk);
        self.desk.1.notify_all();
    }

    pub(super) fn take_answers(&self) -> Vec<(usize, A)> {
        self.desk.0.lock().answers.drain(..).collect()
    }

    /// Waits until every worker is idle or sleeps: then nothing happens any more until the caller does something.
    /// A worker that sleeps may still be about to be woken by one that runs; so all must have been asleep twice,
    /// without having been woken in between. False when that takes longer than `timeout`.
    pub(super) fn settle(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        let mut before = None;
        loop {
            let (busy, threads): (Vec<bool>, Vec<Option<u32>>) = {
                let desk = self.desk.0.lock();
                (desk.busy.clone(), desk.threads.clone())
            };
            let asleep: Option<Vec<u64>> = busy
                .iter()
                .zip(threads)
                .map(|(busy, thread)| if *busy { sleeping(thread?) } else { Some(0) })
                .collect();
            let now = asleep.map(|wakeups| (busy, wakeups));
            if now.is_some() && now == before {
                return true;
            }
            before = now;
            if Instant::now() > end {
                return false;
            }
            if before.is_none() {
                std::thread::yield_now();
            }
        }
    }

    /// Ends the threads, all of which must be idle or about to be.
    pub(super) fn join(self) {
        self.desk.0.lock().closing = true;
        self.desk.1.notify_all();
        for handle in self.handles {
            // A panic in a command shows as a worker that never answers.
            let _ = handle.join();
        }
    }
}

fn serve<A>(desk: &(Mutex<Desk<A>>, Condvar), worker: usize) {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    desk.0.lock().threads[worker] = u32::try_from(thread).ok();
    loop {
        let command = {
            let mut guard = desk.0.lock();
            loop {
                if let Some(command) = guard.commands[worker].take() {
                    break command;
                }
                if guard.closing {
                    return;
                }
                desk.1.wait(&mut guard);
            }
        };
        let answer = command();
        let mut guard = desk.0.lock();
        guard.answers.push_back((worker, answer));
        guard.busy[worker] = false;
    }
}

/// How often a thread of this process has gone to sleep by itself, if it sleeps now.
fn sleeping(thread: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if !field("State:")?.starts_with('S') {
        return None;
    }
    field("voluntary_ctxt_switches:")?.parse().ok()
}
