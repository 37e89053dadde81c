//! Nodes of the base view that the kernel has forgotten, on their way to being released.
//!
//! A file that is removed goes when the kernel forgets it, which it does right after the removal, file by file. So
//! what has been forgotten gathers for a moment and is released together, by a thread of its own: one commit for many
//! files, and none of it on a thread that a program waits for.
//! Locks: `state` is a leaf.

use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use txfs::{Ino, Volume};

/// How long forgotten nodes gather.
const GATHER: Duration = Duration::from_millis(5);

/// What waits to be released.
#[derive(Default)]
pub(crate) struct Forgotten {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    inos: Vec<Ino>,
    /// The thread is giving up what it took from `inos`.
    releasing: bool,
    /// Empty while nothing gathers: before `start`, and from `stop` on.
    thread: Option<JoinHandle<()>>,
}

impl Forgotten {
    /// Starts the thread that releases.
    pub(crate) fn start(self: &Arc<Self>, volume: Volume) -> io::Result<()> {
        let mut state = self.state.lock();
        let forgotten = self.clone();
        let body = move || forgotten.release_until_stopped(&volume);
        state.thread = Some(thread::Builder::new().name("txfs-forget".into()).spawn(body)?);
        Ok(())
    }

    /// Takes one reference to be given up soon; false when nothing gathers, then the caller gives it up.
    pub(crate) fn add(&self, ino: Ino) -> bool {
        let mut state = self.state.lock();
        if state.thread.is_none() {
            return false;
        }
        state.inos.push(ino);
        if state.inos.len() == 1 {
            self.changed.notify_all();
        }
        true
    }

    /// Releases what has gathered now, and returns when nothing is under way any more; false when there was nothing.
    pub(crate) fn settle(&self, volume: &Volume) -> bool {
        let mut state = self.state.lock();
        let inos = std::mem::take(&mut state.inos);
        let some = state.releasing || !inos.is_empty();
        while state.releasing {
            self.changed.wait(&mut state);
        }
        drop(state);
        volume.release_all(&inos);
        some
    }

    /// Ends the thread, when everything has been released.
    pub(crate) fn stop(&self) {
        let thread = self.state.lock().thread.take();
        self.changed.notify_all();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            log::error!("releasing forgotten files panicked; what has no name goes at the next opening");
        }
    }

    fn release_until_stopped(&self, volume: &Volume) {
        loop {
            let mut state = self.state.lock();
            while state.inos.is_empty() {
                if state.thread.is_none() {
                    return;
                }
                self.changed.wait(&mut state);
            }
            if state.thread.is_some() {
                drop(state);
                thread::sleep(GATHER);
                state = self.state.lock();
            }
            let inos = std::mem::take(&mut state.inos);
            state.releasing = true;
            drop(state);
            volume.release_all(&inos);
            self.state.lock().releasing = false;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use txfs::View;

    fn volume() -> (tempfile::TempDir, Volume) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("volume");
        Volume::create(&path).unwrap();
        let volume = Volume::open(&path).unwrap();
        (directory, volume)
    }

    /// Files that the kernel still uses and that have no name any more.
    fn nameless(volume: &Volume, count: usize) -> Vec<Ino> {
        let base = volume.base();
        let make = |i: usize| {
            let name = format!("nameless-{i}");
            let ino = base.make_file(txfs::ROOT_INO, name.as_bytes(), 0o644, 0, 0).unwrap().ino;
            volume.retain(ino).unwrap();
            base.unlink(txfs::ROOT_INO, name.as_bytes()).unwrap();
            ino
        };
        (0..count).map(make).collect()
    }

    #[test]
    fn settling_releases_what_has_gathered_and_says_whether_there_was_any() {
        let (_directory, volume) = volume();
        let forgotten = Arc::new(Forgotten::default());
        assert!(!forgotten.settle(&volume), "nothing gathers yet");
        forgotten.start(volume.clone()).unwrap();
        assert!(!forgotten.settle(&volume), "nothing has been forgotten");
        for _ in 0..20 {
            let nodes = nameless(&volume, 20);
            nodes.iter().for_each(|&ino| assert!(forgotten.add(ino)));
            // The thread may have released all of them meanwhile; what counts is that afterwards none is left.
            forgotten.settle(&volume);
            assert_eq!(volume.stat().unwrap().nodes_in_use, 0);
            assert!(nodes.iter().all(|&ino| volume.base().attributes(ino).is_err()));
        }
        assert!(!forgotten.settle(&volume));
        forgotten.stop();
        volume.close().unwrap();
    }

    /// The thread's part is played by the test, so that the moments are certain.
    #[test]
    fn settling_waits_for_what_is_being_released() {
        let (_directory, volume) = volume();
        let forgotten = Forgotten::default();
        let nodes = nameless(&volume, 2);
        *forgotten.state.lock() = State { inos: vec![nodes[0]], releasing: true, thread: None };
        thread::scope(|scope| {
            let settled = scope.spawn(|| forgotten.settle(&volume));
            while !forgotten.state.lock().inos.is_empty() {
                thread::yield_now();
            }
            // It has taken what had gathered; until the others are released it must neither return nor release.
            thread::sleep(Duration::from_millis(20));
            assert!(!settled.is_finished());
            assert!(volume.base().attributes(nodes[0]).is_ok());
            volume.release_all(&nodes[1..]);
            forgotten.state.lock().releasing = false;
            forgotten.changed.notify_all();
            assert!(settled.join().unwrap());
        });
        assert_eq!(volume.stat().unwrap().nodes_in_use, 0);
        volume.close().unwrap();
    }

    #[test]
    fn what_is_forgotten_is_released_at_the_latest_by_stopping() {
        let (_directory, volume) = volume();
        let base = volume.base();
        let forgotten = Arc::new(Forgotten::default());
        assert!(!forgotten.add(1), "nothing gathers yet");
        forgotten.start(volume.clone()).unwrap();
        let nodes: Vec<_> = (0..600)
            .map(|i| base.make_file(txfs::ROOT_INO, format!("{i}").as_bytes(), 0o644, 0, 0).unwrap().ino)
            .collect();
        nodes.iter().for_each(|&ino| volume.retain(ino).unwrap());
        (0..300).for_each(|i| base.unlink(txfs::ROOT_INO, format!("{i}").as_bytes()).unwrap());
        assert!(base.attributes(nodes[0]).is_ok(), "it is in use");
        nodes.iter().for_each(|&ino| assert!(forgotten.add(ino)));
        forgotten.stop();
        assert_eq!(volume.stat().unwrap().nodes_in_use, 0);
        assert!(nodes[..300].iter().all(|&ino| base.attributes(ino).is_err()));
        assert!(nodes[300..].iter().all(|&ino| base.attributes(ino).is_ok()));
        assert!(!forgotten.add(nodes[300]));
        volume.close().unwrap();
    }
}
