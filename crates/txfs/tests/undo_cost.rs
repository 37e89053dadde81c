//! What recording costs a large commit, and undoing it. Not a test of speed: run it to see figures.
//!
//! `cargo test --release -p txfs --test undo_cost -- --ignored --nocapture`, with `FILES=1000000` for more.

use std::time::Instant;

use txfs::{Durability, OpenOptions, Paths, ROOT_INO, TransactionOptions, View, Volume};

fn begin(volume: &Volume, recorded: bool) -> txfs::Transaction {
    volume.begin_with(TransactionOptions { recorded, ..TransactionOptions::default() })
}

fn commit(what: &str, tx: &txfs::Transaction) -> u64 {
    let begun = Instant::now();
    let sequence = tx.commit(Durability::Durable).unwrap().sequence;
    println!("  {what}: {:.2} s", begun.elapsed().as_secs_f64());
    sequence
}

#[test]
#[ignore = "prints timings and asserts nothing: a timed test proves nothing on a shared machine"]
fn a_large_commit_with_and_without_recording() {
    let files: u64 = std::env::var("FILES").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    for recorded in [false, true] {
        println!("{files} files of 100 bytes, recorded: {recorded}");
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("volume");
        Volume::create(&path).unwrap();
        let options = OpenOptions { history_bytes_max: Some(1 << 40), ..OpenOptions::default() };
        let volume = Volume::open_with(&path, &options).unwrap();
        let make = begin(&volume, recorded);
        for number in 0..files {
            let name = format!("file-{number}");
            let ino = make.make_file(ROOT_INO, name.as_bytes(), 0o644, 0, 0).unwrap().ino;
            make.write(ino, 0, &[number as u8; 100]).unwrap();
        }
        let made = commit("making", &make);
        let index = |volume: &Volume| {
            volume.checkpoint().unwrap();
            let stat = volume.stat().unwrap();
            println!(
                "    index {} KiB, history {} KiB",
                stat.engine.index_bytes >> 10,
                stat.history_bytes >> 10
            );
        };
        index(&volume);
        let remove = begin(&volume, recorded);
        for number in 0..files {
            remove.unlink(ROOT_INO, format!("file-{number}").as_bytes()).unwrap();
        }
        let removed = commit("removing", &remove);
        index(&volume);
        if recorded {
            for (what, sequence) in [("undoing that", removed), ("undoing the making", made)] {
                let begun = Instant::now();
                let tx = volume.begin_undo(sequence, TransactionOptions::default()).unwrap();
                println!("  {what}, preparation: {:.2} s", begun.elapsed().as_secs_f64());
                commit(&format!("{what}, commit"), &tx);
            }
            index(&volume);
            let begun = Instant::now();
            volume.set_history_bytes_max(Some(0));
            println!("  removing what was kept, first part: {:.2} s", begun.elapsed().as_secs_f64());
        }
        assert!(volume.base().read_dir("").unwrap().len() <= files as usize);
        volume.close().unwrap();
    }
}
