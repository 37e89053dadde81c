//! Cleaning: what is live moves and stays as it was, for the newest state, for old snapshots and for transactions that
//! are under way; a volume that is full to its limit goes on working; power cuts at every step.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::*;
use txfs_disk::sim::SimulatedDisk;
use txfs_engine::{
    Applied, Chunk, CleanOptions, Commit, ConflictSet, Durability, Engine, EngineError, EngineOptions,
    Extent, ExtentKey, FormatOptions, Mutation, MutationList, PAGE_BYTES, Read, Snapshot,
};

const SEGMENTS: u64 = 16;

fn create_limited(disk: &SimulatedDisk) -> Engine {
    let format = FormatOptions { size_bytes_max: Some(SEGMENTS * SEGMENT_BYTES), ..format_options() };
    Engine::create(&disk.as_disk(), &format, &[]).expect("create");
    Engine::open(disk.as_disk(), options()).expect("open")
}

fn page_key(object: u64, page: u64) -> ExtentKey {
    let mut key = [b'e'; 17];
    key[1..9].copy_from_slice(&object.to_be_bytes());
    key[9..].copy_from_slice(&page.to_be_bytes());
    key
}

fn page_bytes(fill: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(fill);
    (0..PAGE_BYTES).map(|_| random.u8(..)).collect()
}

/// Writes one page, cutting whatever extent held it, as the file system does.
fn write_page(
    engine: &Engine,
    object: u64,
    page: u64,
    bytes: Vec<u8>,
    durability: Durability,
) -> Result<(), EngineError> {
    let empty = ConflictSet::new();
    engine.commit(Commit {
        snapshot: &engine.snapshot(),
        reads: &empty,
        writes: &empty,
        data: vec![Chunk::from(bytes)],
        prepared: &MutationList::new(),
        durability,
        apply: &|read, places| {
            let mut mutations = BTreeMap::new();
            cut(read, object, page, &mut mutations)?;
            mutations.insert(page_key(object, page), Some(places[0].encode()));
            Ok(applied(mutations))
        },
    })?;
    Ok(())
}

fn applied(mutations: BTreeMap<ExtentKey, Option<Vec<u8>>>) -> Applied {
    let mutation = |(key, value): (ExtentKey, Option<Vec<u8>>)| match value {
        Some(value) => Mutation::Put { key: key.to_vec(), value },
        None => Mutation::Delete { key: key.to_vec() },
    };
    Applied { mutations: mutations.into_iter().map(mutation).collect(), ..Applied::default() }
}

/// Takes one page out of the extent that holds it.
fn cut(
    read: &dyn Read,
    object: u64,
    page: u64,
    mutations: &mut BTreeMap<ExtentKey, Option<Vec<u8>>>,
) -> Result<(), EngineError> {
    let Some((first, extent)) = extent_at(read, object, page)? else { return Ok(()) };
    mutations.insert(page_key(object, first), None);
    let before = (page - first) as u32;
    if before > 0 {
        mutations.insert(page_key(object, first), Some(extent.slice_pages(0, before).encode()));
    }
    let behind = extent.pages() - before - 1;
    if behind > 0 {
        let value = extent.slice_pages(before + 1, behind).encode();
        mutations.insert(page_key(object, page + 1), Some(value));
    }
    Ok(())
}

fn extent_at(read: &dyn Read, object: u64, page: u64) -> Result<Option<(u64, Extent)>, EngineError> {
    let mut found = None;
    read.scan_back(&page_key(object, 0), &page_key(object, page + 1), &mut |key, value| {
        let mut first = [0; 8];
        first.copy_from_slice(&key[9..]);
        found = Some((u64::from_be_bytes(first), Extent::decode(value).expect("extent")));
        std::ops::ControlFlow::Break(())
    })?;
    Ok(found.filter(|(first, extent)| page < first + u64::from(extent.pages())))
}

fn read_page(engine: &Engine, snapshot: &Snapshot, object: u64, page: u64) -> Result<Vec<u8>, EngineError> {
    let Some((first, extent)) = extent_at(snapshot, object, page)? else { return Ok(Vec::new()) };
    let mut bytes = vec![0; PAGE_BYTES];
    engine.read(&extent, (page - first) * PAGE_BYTES as u64, &mut bytes)?;
    Ok(bytes)
}

fn clean_all(engine: &Engine) -> txfs_engine::CleanReport {
    let options = CleanOptions { live_percent_max: 99, ..CleanOptions::default() };
    engine.clean(&options, &mut |_, _| {}).expect("clean")
}

/// Object 1 gets so many pages, each with its own content.
fn fill(engine: &Engine, pages: u64) -> Vec<u64> {
    for page in 0..pages {
        write_page(engine, 1, page, page_bytes(page), Durability::Ordered).expect("fill");
    }
    (0..pages).collect()
}

fn compare(engine: &Engine, snapshot: &Snapshot, model: &[u64]) {
    for (page, content) in model.iter().enumerate() {
        let found = read_page(engine, snapshot, 1, page as u64).expect("read");
        assert!(found == page_bytes(*content), "page {page}");
    }
}

#[test]
fn a_full_volume_can_be_overwritten_for_ever() {
    for percent in [50, 80, 90, 99] {
        let disk = sim(1);
        let engine = create_limited(&disk);
        let pages = engine.space().expect("space").total_bytes * percent / 100 / PAGE_BYTES as u64;
        let mut model = fill(&engine, pages);
        let mut random = fastrand::Rng::with_seed(percent);
        let before = engine.stat().expect("stat");
        let writes = 5000;
        for round in 0..writes {
            let page = random.u64(0..pages);
            let durability = if random.u8(0..10) == 0 { Durability::Durable } else { Durability::Ordered };
            write_page(&engine, 1, page, page_bytes(pages + round), durability)
                .unwrap_or_else(|error| panic!("{percent} %, write {round}: {error}"));
            model[page as usize] = pages + round;
        }
        let after = engine.stat().expect("stat");
        assert!(after.segments <= SEGMENTS, "{} segments", after.segments);
        println!(
            "{percent} % full: {:.2} bytes to the log for each byte of data",
            (after.log_bytes - before.log_bytes) as f64 / (writes * PAGE_BYTES as u64) as f64
        );
        compare(&engine, &engine.snapshot(), &model);
        sound(&engine);
        drop(engine);
        let engine = Engine::open(disk.as_disk(), options()).expect("open");
        compare(&engine, &engine.snapshot(), &model);
        sound(&engine);
    }
}

#[test]
fn a_full_volume_refuses_data_and_takes_deletions() {
    let engine = create_limited(&sim(2));
    let mut pages = 0;
    let refused = loop {
        match write_page(&engine, 1, pages, page_bytes(pages), Durability::Ordered) {
            Ok(()) => pages += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, EngineError::NoSpace { .. }), "{refused}");
    let space = engine.space().expect("space");
    assert!(space.free_bytes < PAGE_BYTES as u64 && pages * PAGE_BYTES as u64 <= space.total_bytes);
    // As full as the accounting says, not less.
    assert!(pages * PAGE_BYTES as u64 + PAGE_BYTES as u64 > space.total_bytes);
    compare(&engine, &engine.snapshot(), &(0..pages).collect::<Vec<_>>());
    for round in 0..2000 {
        write_page(&engine, 1, round * 7 % pages, page_bytes(round * 7 % pages), Durability::Durable)
            .expect("overwriting needs no more space");
    }
    commit(&engine, &[put("name", "value")], Durability::Durable).expect("a change of names");
    let all: Vec<Mutation> =
        (0..pages).map(|page| Mutation::Delete { key: page_key(1, page).to_vec() }).collect();
    let (first, rest) = all.split_at(all.len() / 2);
    commit(&engine, first, Durability::Durable).expect("delete");
    for page in 0..pages / 4 {
        write_page(&engine, 2, page, page_bytes(page), Durability::Ordered).expect("space came free");
    }
    commit(&engine, rest, Durability::Durable).expect("delete");
    // Cleaning joined some pages: what is left of those goes with its extent.
    sound(&engine);
}

#[test]
fn writers_faster_than_the_cleaner_leave_it_its_reserve() {
    for seed in 0..4 {
        let disk = sim(seed);
        let format = FormatOptions { size_bytes_max: Some(10 * SEGMENT_BYTES), ..format_options() };
        Engine::create(&disk.as_disk(), &format, &[]).expect("create");
        // The cleaner reads through snapshots too: on a busy machine they last longer than the patience of other tests.
        let reader_patience = EngineOptions::default().reader_patience;
        let with_threads = EngineOptions { background: true, reader_patience, ..options() };
        let engine = Engine::open(disk.as_disk(), with_threads).expect("open");
        let pages = engine.space().expect("space").total_bytes * 97 / 100 / PAGE_BYTES as u64;
        fill(&engine, pages);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let engine = &engine;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed * 10 + thread);
                    for round in 0..800 {
                        let page = random.u64(0..pages);
                        write_page(engine, 1, page, page_bytes(page), Durability::Ordered).unwrap_or_else(
                            |error| panic!("seed {seed}, write {round}: {error}\n{:?}", engine.stat()),
                        );
                    }
                });
            }
        });
        compare(&engine, &engine.snapshot(), &(0..pages).collect::<Vec<_>>());
        sound(&engine);
    }
}

#[test]
fn who_keeps_a_snapshot_open_hears_of_it_in_time() {
    let disk = sim(7);
    let format = FormatOptions { size_bytes_max: Some(SEGMENTS * SEGMENT_BYTES), ..format_options() };
    Engine::create(&disk.as_disk(), &format, &[]).expect("create");
    for background in [false, true] {
        let reader_patience = Duration::from_millis(1500);
        let patient = EngineOptions { background, reader_patience, ..options() };
        let engine = Engine::open(disk.as_disk(), patient).expect("open");
        let pages = engine.space().expect("space").total_bytes / 2 / PAGE_BYTES as u64;
        let model = fill(&engine, pages);
        // The same thread holds it: waiting for it cannot help.
        let held = engine.snapshot();
        let write =
            |round: u64| write_page(&engine, 1, round % pages, page_bytes(round), Durability::Ordered);
        let refused = |begun: Instant, error: EngineError| {
            assert!(matches!(error, EngineError::SpaceHeld { .. }), "{error}");
            assert!(error.to_string().contains("1.5 s"), "{error}");
            begun.elapsed()
        };
        let (waited, round) = (0..)
            .find_map(|round| {
                let begun = Instant::now();
                write(round).err().map(|error| (refused(begun, error), round))
            })
            .expect("space runs out");
        assert!(waited >= reader_patience, "{waited:?}");
        assert!(waited < Duration::from_secs(20), "{waited:?}");
        // Nobody waits for the same snapshot again. (The engine's own threads may just have found some more space.)
        let again = (round..)
            .find_map(|round| {
                let begun = Instant::now();
                write(round).err().map(|error| refused(begun, error))
            })
            .expect("space runs out");
        assert!(again < reader_patience, "{again:?}");
        compare(&engine, &held, &model);
        drop(held);
        write(round).expect("there is space again");
        sound(&engine);
    }
}

#[test]
fn old_snapshots_and_open_transactions_are_not_touched() {
    let disk = sim(3);
    let engine = create_limited(&disk);
    let old_model = fill(&engine, 300);
    let old = engine.snapshot();
    // A transaction that has read and placed something, and commits after the cleaning.
    let open = engine.snapshot();
    let placed =
        engine.place(None, vec![Chunk(page_bytes(9000).into(), Some(page_key(1, 7)))]).expect("place");
    let mut model = old_model.clone();
    for page in (0..300).filter(|page| page % 3 != 0) {
        write_page(&engine, 1, page, page_bytes(1000 + page), Durability::Ordered).expect("write");
        model[page as usize] = 1000 + page;
    }
    let report = clean_all(&engine);
    assert!(report.segments > 0 && report.bytes_moved > 0, "{report:?}");
    compare(&engine, &engine.snapshot(), &model);
    compare(&engine, &old, &old_model);
    compare(&engine, &open, &old_model);
    // Page 9 was only moved: whoever read it before, and writes it now, has no conflict.
    let mut touched = ConflictSet::new();
    touched.insert_point(1, 1, 9);
    engine
        .commit(Commit {
            snapshot: &open,
            reads: &touched,
            writes: &touched,
            data: Vec::new(),
            prepared: &MutationList::new(),
            durability: Durability::Durable,
            apply: &|read, _| {
                let mut mutations = BTreeMap::new();
                cut(read, 1, 9, &mut mutations)?;
                mutations.insert(page_key(1, 9), Some(placed.extents()[0].encode()));
                Ok(applied(mutations))
            },
        })
        .expect("no conflict with cleaning");
    model[9] = 9000;
    drop(placed);
    drop(open);
    clean_all(&engine);
    compare(&engine, &old, &old_model);
    drop(old);
    engine.checkpoint().expect("checkpoint");
    clean_all(&engine);
    compare(&engine, &engine.snapshot(), &model);
    sound(&engine);
    let stat = engine.stat().expect("stat");
    assert_eq!(stat.segments_retired, 0);
    let used = stat.segments - stat.segments_spare;
    assert!(used * SEGMENT_BYTES < stat.live_bytes + 3 * SEGMENT_BYTES, "{used} segments in use");
}

#[test]
fn what_cannot_be_read_stays_where_it_is() {
    let disk = sim(4);
    let engine = create_limited(&disk);
    fill(&engine, 150);
    for page in 0..120 {
        write_page(&engine, 1, page, page_bytes(5000), Durability::Ordered).expect("write");
    }
    engine.sync().expect("sync");
    let (_, extent) = extent_at(&engine.snapshot(), 1, 125).expect("read").expect("there");
    let file = disk.as_disk().open(&format!("segment-{:010}", extent.segment)).expect("segment");
    file.write_at(u64::from(extent.offset) + 100, b"rot").expect("damage");
    let report = clean_all(&engine);
    assert_eq!(report.segments_damaged, 1);
    let read = read_page(&engine, &engine.snapshot(), 1, 125);
    assert!(matches!(read, Err(EngineError::Corrupt { .. })), "{read:?}");
    assert_eq!(engine.check(&mut |_, _| {}).expect("check").problems.len(), 1);
    assert_eq!(clean_all(&engine).segments_damaged, 0, "it is not tried again and again");
    assert_eq!(read_page(&engine, &engine.snapshot(), 1, 126).expect("its neighbour"), page_bytes(126));
}

#[test]
fn space_is_given_back_but_for_what_was_preallocated() {
    for preallocated in [0, 6] {
        let disk = sim(5);
        let format = FormatOptions { preallocate_bytes: preallocated * SEGMENT_BYTES, ..format_options() };
        Engine::create(&disk.as_disk(), &format, &[]).expect("create");
        let engine = Engine::open(disk.as_disk(), options()).expect("open");
        assert_eq!(engine.stat().expect("stat").segments, preallocated.max(1));
        fill(&engine, 1200);
        assert!(engine.stat().expect("stat").segments > 8);
        for page in 0..1200 {
            let key = page_key(1, page).to_vec();
            commit(&engine, &[Mutation::Delete { key }], Durability::Ordered).expect("delete");
        }
        let report = clean_all(&engine);
        assert!(report.segments_removed > 3, "{report:?}");
        let stat = engine.stat().expect("stat");
        assert!(stat.segments <= preallocated.max(4), "{} segments", stat.segments);
        drop(engine);
        sound(&Engine::open(disk.as_disk(), options()).expect("open"));
    }
}

/// The model of the crash test: content of each page, by commit.
struct Run {
    disk: SimulatedDisk,
    history: Vec<Vec<u64>>,
    durable: usize,
    cleaned: u64,
}

const CRASH_PAGES: u64 = 900;

/// Overwrites pages of a volume that is nearly full until the power goes out.
fn work(engine: &Engine, run: &mut Run, random: &mut fastrand::Rng, commits: usize) {
    let mut held: Vec<(Snapshot, usize)> = Vec::new();
    for _ in 0..commits {
        let mut next = run.history.last().cloned().unwrap_or_default();
        let page = random.u64(0..CRASH_PAGES);
        let content = random.u64(..);
        next[page as usize] = content;
        run.history.push(next);
        let durability = [Durability::Durable, Durability::Ordered][random.usize(0..2)];
        if write_page(engine, 1, page, page_bytes(content), durability).is_err() {
            return;
        }
        if durability == Durability::Durable {
            run.durable = run.history.len() - 1;
        }
        match random.u8(0..40) {
            0..=3 => {
                let segments_max = random.u64(1..4);
                let options = CleanOptions {
                    segments_max,
                    live_percent_max: 99,
                    give_back: random.bool(),
                    gentle: random.bool(),
                };
                match engine.clean(&options, &mut |_, _| {}) {
                    Ok(report) => run.cleaned += report.segments,
                    Err(_) => return,
                }
            }
            4 => held.push((engine.snapshot(), run.history.len() - 1)),
            5..=7 => held.clear(),
            _ => {}
        }
        for (snapshot, index) in &held {
            let page = random.u64(0..CRASH_PAGES);
            let content = run.history[*index][page as usize];
            match read_page(engine, snapshot, 1, page) {
                Ok(found) => assert!(found == page_bytes(content), "an old snapshot, page {page}"),
                Err(error) => assert!(run.disk.power_lost(), "{error}"),
            }
        }
    }
}

#[test]
fn power_cuts_while_cleaning() {
    let disk = sim(6);
    let engine = create_limited(&disk);
    let model = fill(&engine, CRASH_PAGES);
    engine.close().expect("close");
    drop(engine);
    let base = disk;
    let mut cleaned = 0;
    for seed in 0..120 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut run = Run { disk: base.crash(seed), history: vec![model.clone()], durable: 0, cleaned: 0 };
        for generation in 0..3 {
            let context = format!("seed {seed} generation {generation}");
            let engine = Engine::open(run.disk.as_disk(), options()).expect("open");
            run.disk.power_off_after(run.disk.steps() + random.u64(1..400));
            work(&engine, &mut run, &mut random, 120);
            cleaned += run.cleaned;
            drop(engine);
            let disk = run.disk.crash(random.u64(..));
            let engine =
                Engine::open(disk.as_disk(), options()).unwrap_or_else(|error| panic!("{context}: {error}"));
            sound(&engine);
            let snapshot = engine.snapshot();
            let found = (run.durable..run.history.len()).rev().find(|index| {
                let state = &run.history[*index];
                (0..CRASH_PAGES).all(|page| {
                    let found = read_page(&engine, &snapshot, 1, page).expect("read");
                    found == page_bytes(state[page as usize])
                })
            });
            let Some(found) = found else { panic!("{context}: no commit since {} fits", run.durable) };
            drop(snapshot);
            engine.sync().expect("sync");
            drop(engine);
            run = Run { disk, history: vec![run.history[found].clone()], durable: 0, cleaned: 0 };
        }
    }
    assert!(cleaned > 100, "{cleaned} segments were cleaned");
}
