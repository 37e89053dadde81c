//! `long-run`: a real `txfs run` that lasts for half an hour on a mount, while ordinary programs' small writes go on there,
//! each of them a commit, now and then with an fsync; in turns with the same on a mount without one. The workload `long-transaction` is the same in a
//! minute and through the library; this is the one with the clock.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::Failure;
use crate::contestants::Place;
use crate::contestants::mounted::MountedVolume;
use crate::figures::Spread;
use crate::flush_delay::FlushDelay;

const PAGE_BYTES: u64 = 4096;

/// What `long-run` does.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the two volumes are made, and removed again at the end
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// How long the transaction stays open
    #[arg(long, default_value_t = 30.0)]
    pub minutes: f64,
    /// Small commits on each of the mounts meanwhile
    #[arg(long, default_value_t = 1_000_000)]
    pub commits: u64,
    /// Turns that these are divided into; the time left between turns is slept
    #[arg(long, default_value_t = 60)]
    pub turns: u64,
    /// How many of them there are to one fsync
    #[arg(long, default_value_t = 100)]
    pub fsync_every: u64,
    /// Size of the file that they write to, in MiB
    #[arg(long, default_value_t = 64)]
    pub mib: u64,
}

/// Everything that `long-run` found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Commits on each mount.
    pub commits: u64,
    /// How long the transaction was open.
    pub open_s: f64,
    /// Commits a second beside the transaction, of all turns.
    pub with: Spread,
    /// The same without it.
    pub without: Spread,
    /// Ratios, turn by turn.
    pub ratio: Spread,
    /// Those of the last quarter of the turns.
    pub ratio_at_the_end: Spread,
    /// Size of the volume with it, without it: before the transaction ended, and cleaned after that, MiB.
    pub open_mib: [f64; 2],
    /// Afterwards.
    pub ended_mib: [f64; 2],
}

struct Side {
    /// Before the mount: closed before that goes.
    file: File,
    mounted: MountedVolume,
    rates: Vec<f64>,
}

impl Side {
    fn new(place: &Place, bytes: u64, delay: &FlushDelay) -> Result<Side, Failure> {
        let mounted = MountedVolume::start(place, 0, delay)?;
        let root = &mounted.place.directory;
        fs::write(root.join("database"), vec![1; bytes as usize])?;
        fs::create_dir(root.join("own"))?;
        fs::write(root.join("own/input"), vec![2; 1 << 20])?;
        let file = File::options().read(true).write(true).open(root.join("database"))?;
        file.sync_all()?;
        Ok(Side { file, mounted, rates: Vec::new() })
    }

    fn turn(
        &mut self,
        commits: u64,
        fsync_every: u64,
        pages: u64,
        random: &mut fastrand::Rng,
    ) -> Result<(), Failure> {
        let content = [random.u8(..); 200];
        let begun = Instant::now();
        for number in 1..=commits {
            self.file.write_all_at(&content, random.u64(0..pages) * PAGE_BYTES + random.u64(0..3800))?;
            if number % fsync_every == 0 {
                self.file.sync_data()?;
            }
        }
        self.rates.push(commits as f64 / begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn mib(&self) -> Result<f64, Failure> {
        let mut bytes = 0;
        for entry in fs::read_dir(self.mounted.volume())? {
            bytes += entry?.metadata()?.len();
        }
        Ok(bytes as f64 / f64::from(1 << 20))
    }

    fn cleaned_mib(&self) -> Result<f64, Failure> {
        self.mounted.command(&["gc"])?;
        self.mib()
    }
}

/// What runs in the transaction: it reads, lists and writes until it is told to end.
fn script(end: &Path) -> String {
    format!(
        "cat own/input > own/copy; n=0; while [ ! -e '{}' ]; do n=$((n+1)); echo $n > own/turn; ls own > /dev/null; sleep 1; \
         done; echo finished > own/result",
        end.display()
    )
}

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    let place = Place::txfs(&options.dir)?;
    let delay = FlushDelay::none();
    let bytes = options.mib << 20;
    let mut sides = [Side::new(&place, bytes, &delay)?, Side::new(&place, bytes, &delay)?];
    let control = place.scratch()?;
    let end = control.path().join("end");
    let duration = Duration::from_secs_f64(options.minutes * 60.0);
    let begun = Instant::now();
    let root = sides[0].mounted.place.directory.clone();
    let run = sides[0].mounted.run_beside(Path::new("/bin/sh"), &["-c".to_owned(), script(&end)])?;
    while !fs::exists(root.join(".txfs"))? && begun.elapsed() < Duration::from_millis(500) {
        thread::sleep(Duration::from_millis(50));
    }
    let mut random = fastrand::Rng::with_seed(3);
    let commits = options.commits / options.turns;
    for turn in 0..options.turns {
        for side in [turn % 2, 1 - turn % 2] {
            sides[side as usize].turn(
                commits,
                options.fsync_every.max(1),
                bytes / PAGE_BYTES,
                &mut random,
            )?;
        }
        let due = duration.mul_f64((turn + 1) as f64 / options.turns as f64);
        thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    let open_s = begun.elapsed().as_secs_f64();
    let open_mib = [sides[0].mib()?, sides[1].mib()?];
    File::create(&end)?;
    run.finish()?;
    if fs::read_to_string(root.join("own/result"))? != "finished\n" {
        return Err("what the transaction wrote is not there".into());
    }
    let ended_mib = [sides[0].cleaned_mib()?, sides[1].cleaned_mib()?];
    let [with, without] = &sides;
    let from = with.rates.len() - with.rates.len().div_ceil(4);
    Ok(Outcome {
        commits: commits * options.turns,
        open_s,
        with: Spread::of(&with.rates),
        without: Spread::of(&without.rates),
        ratio: Spread::of_ratios(&with.rates, &without.rates),
        ratio_at_the_end: Spread::of_ratios(&with.rates[from..], &without.rates[from..]),
        open_mib,
        ended_mib,
    })
}

impl Outcome {
    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let spread = |spread: &Spread, decimals: usize| {
            format!("{:.decimals$} ({:.decimals$}-{:.decimals$})", spread.median, spread.min, spread.max)
        };
        let _ =
            writeln!(out, "{} commits on each mount, txfs run open for {:.0} s", self.commits, self.open_s);
        let _ = writeln!(out, "  commits a second beside it {}", spread(&self.with, 0));
        let _ = writeln!(out, "  without                    {}", spread(&self.without, 0));
        let _ = writeln!(out, "  ratio                      {}", spread(&self.ratio, 2));
        let _ = writeln!(out, "  in the last quarter        {}", spread(&self.ratio_at_the_end, 2));
        let mib = |[with, without]: [f64; 2]| format!("{with:.0} MiB, without {without:.0}");
        let _ = writeln!(out, "  volume while it is open    {}", mib(self.open_mib));
        let _ = writeln!(out, "  cleaned, when it has ended {}", mib(self.ended_mib));
        out
    }
}
