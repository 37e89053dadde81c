//! A commit is refused for lack of space only where none can come: that what comes free is taken by somebody else, who
//! gains more with it, is no reason.

mod common;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use common::watched::{Gate, Opens, Watch, WatchedDisk};
use common::*;
use txfs_disk::Disk;
use txfs_engine::{CleanOptions, Durability, Engine, EngineError, EngineOptions, FormatOptions};

const SEGMENTS: u64 = 10;
const PAGE: usize = 4096;
/// How long it takes at most to see that a thread waits for another one.
const MOMENT: Duration = Duration::from_millis(150);

thread_local! {
    /// How many questions for free space this thread has left before it stops at one.
    static QUESTIONS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

#[derive(Debug, Default)]
struct Stops {
    question: Arc<Gate>,
    index_flush: Arc<Gate>,
}

impl Watch for Stops {
    fn index_flush(&self) {
        self.index_flush.pass();
    }

    fn free_space(&self) {
        match QUESTIONS_LEFT.get() {
            Some(0) => {
                QUESTIONS_LEFT.set(None);
                self.question.pass();
            }
            left => QUESTIONS_LEFT.set(left.map(|left| left - 1)),
        }
    }
}

/// A volume with a size limit that is so full, in per cent; and its pages.
fn filled(disk: Arc<dyn Disk>, options: EngineOptions, percent: u64) -> (Engine, u64) {
    let format = FormatOptions { size_bytes_max: Some(SEGMENTS * SEGMENT_BYTES), ..format_options() };
    Engine::create(&disk, &format, &[]).expect("create");
    let engine = Engine::open(disk, options).expect("open");
    let pages = engine.space().expect("space").total_bytes * percent / 100 / PAGE as u64;
    for page in 0..pages {
        write(&engine, page, 1).expect("fill");
    }
    (engine, pages)
}

fn write(engine: &Engine, page: u64, content: u8) -> Result<(), EngineError> {
    put_blob(engine, &format!("page {page:04}"), &[content; PAGE], Durability::Ordered).map(drop)
}

/// Overwrites pages here and there until a segment more would have to be cleaned for the next one.
fn write_until_short(engine: &Engine, pages: u64) {
    let mut random = fastrand::Rng::with_seed(5);
    let cleaned = || engine.stat().expect("stat").segments_cleaned;
    let before = cleaned();
    while cleaned() == before {
        write(engine, random.u64(0..pages), 2).expect("overwrite");
    }
}

/// The reader that holds the space ends, and another cleans with it: at each moment at which the writer asks for space.
#[test]
fn nobody_is_refused_while_another_cleans_with_what_came_free() {
    for question in 0.. {
        let stops = Arc::new(Stops::default());
        let (at_question, at_flush) = (&stops.question, &stops.index_flush);
        let disk = WatchedDisk(sim(1).as_disk(), stops.clone());
        let options = EngineOptions { reader_patience: Duration::from_secs(2), ..options() };
        let (engine, pages) = filled(Arc::new(disk), options, 97);
        write_until_short(&engine, pages);
        let engine = &engine;
        let _opens = (Opens(at_question.clone()), Opens(at_flush.clone()));
        at_question.set_closed(true);
        let came_that_far = std::thread::scope(|scope| {
            let reader = engine.snapshot();
            let writer = scope.spawn(move || {
                QUESTIONS_LEFT.set(Some(question));
                let mut random = fastrand::Rng::with_seed(6);
                (0..100).try_for_each(|_| write(engine, random.u64(0..pages), 3))
            });
            while !at_question.somebody_within(Duration::from_millis(1)) {
                if writer.is_finished() {
                    // The reader is still there, and was waited for.
                    let outcome = writer.join().expect("no panic");
                    assert!(matches!(outcome, Err(EngineError::SpaceHeld { .. })), "{outcome:?}");
                    return false;
                }
            }
            at_flush.set_closed(true);
            drop(reader);
            let cleaner = scope.spawn(move || {
                let options =
                    CleanOptions { live_percent_max: 99, give_back: false, ..CleanOptions::default() };
                engine.clean(&options, &mut |_, _| {})
            });
            // Where the writer holds a lock, the cleaner does not come that far.
            at_flush.somebody_within(MOMENT);
            at_question.set_closed(false);
            // Time to be refused.
            std::thread::sleep(MOMENT);
            at_flush.set_closed(false);
            cleaner.join().expect("no panic").expect("clean");
            let outcome = writer.join().expect("no panic");
            outcome.unwrap_or_else(|error| {
                panic!("stopped at question {question}: {error}\n{:?}", engine.stat().expect("stat"))
            });
            true
        });
        sound(engine);
        if !came_that_far {
            assert!(question > 5, "only {question} questions");
            return;
        }
    }
}

/// Of what is gained, little is left for each: those who find nothing left are not refused while others are served.
#[test]
fn of_a_crowd_of_writers_nobody_is_refused() {
    let reader_patience = EngineOptions::default().reader_patience;
    let options = EngineOptions { background: true, reader_patience, ..options() };
    let (engine, pages) = filled(sim(2).as_disk(), options, 99);
    let engine = &engine;
    std::thread::scope(|scope| {
        for seed in 0..64 {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for round in 0..40 {
                    write(engine, random.u64(0..pages), 2).unwrap_or_else(|error| {
                        panic!("writer {seed}, write {round}: {error}\n{:?}", engine.stat())
                    });
                }
            });
        }
    });
    sound(engine);
}
