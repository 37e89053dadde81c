//! Parts that are committed while the power fails, data moves, and everything happens in a random order.

use super::*;

#[test]
fn a_power_cut_leaves_all_of_it_or_the_part_committed_and_the_rest_kept() {
    let prepare = |disk: &SimulatedDisk| {
        let volume = open(disk);
        let base = volume.base();
        base.create_dir("d").unwrap();
        base.write_file("d/a", &[1; 100_000]).unwrap();
        base.write_file("d/b", &[1; 100_000]).unwrap();
        keep(&volume, |tx| {
            let a = tx.resolve("d/a").unwrap();
            tx.write(a, 50_000, &[2; 30_000]).unwrap();
            tx.create_dir("d/new").unwrap();
            tx.write_file("d/new/one", &vec![3; 600_000]).unwrap();
            tx.write_file("d/new/two", &[4; 70_000]).unwrap();
            tx.remove("d/b").unwrap();
        });
        // Something is saved of the base.
        volume.base().write_file("d/theirs", b"theirs").unwrap();
        volume.sync().unwrap();
        volume
    };
    let disk = new_disk();
    let volume = prepare(&disk);
    let steps = disk.steps();
    let (before, end) = (dump(&volume.snapshot()), ours(&volume, "x"));
    volume.commit_kept_only("x", &["d/a", "d/new/one"]).unwrap();
    let (after, base_after) = (dump(&volume.snapshot()), base(&volume, "x"));
    let last = disk.steps();
    assert!(last > steps && after != before);
    let mut seen = [0; 2];
    for step in steps..=last {
        let disk = new_disk();
        let volume = prepare(&disk);
        disk.power_off_after(step);
        let acknowledged = volume.commit_kept_only("x", &["d/a", "d/new/one"]).is_ok() && step >= last;
        drop(volume);
        for seed in 0..4 {
            let image = match seed {
                0 => disk.crash_where(|_| true),
                1 => disk.crash_where(|_| false),
                _ => disk.crash(step * 10 + seed),
            };
            let volume = open(&image);
            assert_clean(&volume);
            let strip = |tree: BTreeMap<String, Node>| -> Vec<(String, Vec<u8>, u32)> {
                tree.into_iter().map(|(path, node)| (path, node.2, node.0.4)).collect()
            };
            let now = strip(dump(&volume.snapshot()));
            let committed = now == strip(after.clone());
            assert!(committed || (now == strip(before.clone()) && !acknowledged), "step {step}");
            seen[usize::from(committed)] += 1;
            assert_eq!(strip(ours(&volume, "x")), strip(end.clone()));
            if committed {
                assert_eq!(strip(base(&volume, "x")), strip(base_after.clone()));
            }
            volume.commit_kept("x").unwrap();
            assert_clean(&volume);
            let all = strip(dump(&volume.snapshot()));
            assert_eq!(all, strip(end.clone()));
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn what_is_cleaned_in_between_is_found() {
    let volume = new_volume();
    keep(&volume, |tx| {
        tx.write_file("a", &vec![1; 3 << 20]).unwrap();
        tx.write_file("b", &vec![2; 3 << 20]).unwrap();
    });
    let end = ours(&volume, "x");
    let clean = || {
        volume.base().write_file("garbage", &vec![3; 6 << 20]).unwrap();
        volume.base().remove("garbage").unwrap();
        volume.checkpoint().unwrap();
        let cleaned = volume.clean(&txfs::CleanOptions::default(), &mut |_, _| {}).unwrap();
        assert!(cleaned.bytes_moved > 0);
    };
    clean();
    assert!(volume.commit_kept_only("x", &["b"]).unwrap().remains);
    clean();
    assert!(!volume.commit_kept_only("x", &["a"]).unwrap().remains);
    let now = dump(&volume.snapshot());
    assert!(now["a"] == end["a"] && now["b"] == end["b"] && now.len() == end.len());
    assert_clean(&volume);
}

/// A generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn path(&mut self) -> String {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let parts = 1 + self.below(3);
        (0..parts).map(|_| NAMES[self.below(4)]).collect::<Vec<_>>().join("/")
    }

    /// One change, which may fail.
    fn change(&mut self, view: &impl Paths) {
        let (path, other) = (self.path(), self.path());
        let fill = self.below(250) as u8;
        let ino = view.resolve(&path);
        let _ = match self.below(12) {
            0..=2 => view.create_dir(&path).map(drop),
            3 | 4 => view.write_file(&path, &vec![fill; self.below(30_000)]),
            5 => view.remove(&path),
            6 => view.remove_all(&path),
            7 | 8 => view.rename_path(&path, &other),
            9 => view.hard_link(&path, &other),
            10 => ino.and_then(|ino| view.write(ino, self.below(40_000) as u64, &[fill; 5000])).map(drop),
            _ => ino.and_then(|ino| {
                view.set_xattr(ino, b"user.x", &[fill], XattrMode::Set)?;
                view.set_attributes(ino, &SetAttributes { mode: Some(0o700), ..Default::default() })?;
                if self.below(3) == 0 {
                    view.set_attributes(ino, &SetAttributes { size: Some(777), ..Default::default() })?;
                }
                Ok(())
            }),
        };
    }
}

#[test]
fn whatever_part_is_committed_the_whole_stays_what_it_was() {
    let rounds: u64 = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let first: u64 = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (mut parts, mut inseparable) = (0, 0);
    for seed in first..first + rounds {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let disk = new_disk();
        let mut volume = open(&disk);
        for _ in 0..25 {
            random.change(&volume.base());
        }
        let tx = volume.begin();
        for _ in 0..4 + random.below(20) {
            random.change(&tx);
        }
        if tx.changes().unwrap().is_empty() {
            continue;
        }
        tx.keep("x").unwrap();
        let end = ours(&volume, "x");
        for _ in 0..12 {
            let mut paths = changed(&volume, "x");
            let theirs = volume.kept_view("x", KeptSide::Ours).unwrap();
            for change in theirs.changes().unwrap() {
                if let txfs::ChangeKind::Renamed { from, .. } = change.kind {
                    paths.push(from.to_str().unwrap().to_owned());
                }
            }
            drop(theirs);
            if paths.is_empty() {
                break;
            }
            let mut chosen = Vec::new();
            for _ in 0..1 + random.below(3) {
                chosen.push(paths[random.below(paths.len())].clone());
            }
            let before = dump(&volume.snapshot());
            match volume.commit_kept_only("x", &chosen) {
                Ok(part) => {
                    parts += 1;
                    assert_clean(&volume);
                    assert_ne!(dump(&volume.snapshot()), before, "seed {seed}");
                    if !part.remains {
                        assert_eq!(dump(&volume.snapshot()), end, "seed {seed}");
                        break;
                    }
                    if random.below(4) == 0 {
                        volume = reopen(volume, &disk);
                    }
                    assert_eq!(ours(&volume, "x"), end, "seed {seed}: {chosen:?}");
                    assert_eq!(base(&volume, "x"), dump(&volume.snapshot()), "seed {seed}: {chosen:?}");
                }
                Err(Error::NotSeparable { other, .. }) => {
                    inseparable += 1;
                    // What it asks for leads to the end.
                    chosen.push(other.to_str().unwrap().to_owned());
                    for _ in 0..40 {
                        match volume.commit_kept_only("x", &chosen) {
                            Ok(_) => break,
                            Err(Error::NotSeparable { other, .. }) => {
                                let other = other.to_str().unwrap().to_owned();
                                assert!(!chosen.contains(&other), "seed {seed}: {other} in {chosen:?}");
                                chosen.push(other);
                            }
                            Err(error) => panic!("seed {seed}: {chosen:?}: {error}"),
                        }
                    }
                    assert_clean(&volume);
                    if volume.kept().unwrap().is_empty() {
                        assert_eq!(dump(&volume.snapshot()), end, "seed {seed}");
                        break;
                    }
                    assert_eq!(ours(&volume, "x"), end, "seed {seed}: {chosen:?}");
                    assert_eq!(base(&volume, "x"), dump(&volume.snapshot()), "seed {seed}: {chosen:?}");
                }
                Err(error) => panic!("seed {seed}: {chosen:?}: {error}"),
            }
        }
        if !volume.kept().unwrap().is_empty() {
            volume.commit_kept("x").unwrap();
        }
        assert_eq!(dump(&volume.snapshot()), end, "seed {seed}");
        assert_clean(&volume);
        assert_eq!(dump(&reopen(volume, &disk).snapshot()), end, "seed {seed}");
    }
    println!("{parts} parts, {inseparable} inseparable");
    assert!(parts > rounds / 2 && inseparable > 0);
}
