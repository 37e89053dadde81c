//! What the command line asked for. Several workloads run as a process each, so that none meets the memory and the
//! threads that another left.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::arguments::RunArguments;
use crate::bench::Bench;
use crate::contestants::mounted::MountedVolume;
use crate::contestants::{Place, Places};
use crate::flush_delay::FlushDelay;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::report::{Report, page as pages, terminal};
use crate::result::Section;
use crate::workloads::{self, Workload};

/// Space of the mounted volume that is written before anything is timed.
const MOUNT_PREPARED_BYTES: u64 = 512 << 20;

/// `txfs-bench list`
pub fn list() -> Result<()> {
    for workload in workloads::ALL {
        println!("{:<22} {}{}", workload.name, workload.about, if workload.huge { " (huge)" } else { "" });
    }
    Ok(())
}

/// `txfs-bench page`
pub fn page(page: &Path) -> Result<()> {
    let results = page.with_file_name(pages::DIRECTORY).join(pages::RESULTS);
    pages::write(&Report::load(&results)?, page)
}

fn chosen(arguments: &RunArguments) -> Result<Vec<&'static Workload>> {
    if arguments.workloads.is_empty() {
        return Err("which workload? `txfs-bench list` lists them, `txfs-bench all` runs all".into());
    }
    let mut chosen = Vec::new();
    for name in &arguments.workloads {
        if name == "all" {
            chosen.extend(workloads::ALL.iter().filter(|workload| workload.huge == arguments.huge));
        } else {
            let unknown = || format!("no workload is called {name}; `txfs-bench list` lists them");
            chosen.push(workloads::find(name).ok_or_else(unknown)?);
        }
    }
    Ok(chosen)
}

fn places(arguments: &RunArguments) -> Result<Places> {
    let txfs = Place::txfs(arguments.txfs.as_ref().unwrap_or(&arguments.dir))?;
    let given = [&arguments.ext4, &arguments.xfs, &arguments.btrfs];
    let mut plain = Vec::new();
    for directory in given.into_iter().flatten() {
        plain.push(Place::plain(directory)?);
    }
    if plain.is_empty() {
        plain.push(Place::plain(&txfs.directory)?);
    }
    Ok(Places { txfs, plain })
}

fn bench(arguments: &RunArguments, flush_delay: FlushDelay, workload: &Workload) -> Result<Bench> {
    let mut places = places(arguments)?;
    flush_delay.check(&places.txfs.directory)?;
    let scale = if arguments.quick { 0.003 } else { 1.0 };
    let mut mounted = None;
    if workload.on_mount && !arguments.no_mount && MountedVolume::possible() {
        let prepared = (MOUNT_PREPARED_BYTES as f64 * scale) as u64;
        let started = MountedVolume::start(&places.txfs, prepared, &flush_delay)?;
        places.plain.push(started.place.clone());
        mounted = Some(started);
    }
    let mut flush_delays_us = vec![0];
    if flush_delay.is_there() && arguments.flush_delay_us > 0 {
        flush_delays_us.push(arguments.flush_delay_us);
    }
    let round_seconds = if arguments.quick { 0.05 } else { arguments.round_seconds };
    let day_seconds = if arguments.quick { 0.6 } else { arguments.day_seconds };
    Ok(Bench {
        places,
        mounted,
        images: arguments.images.clone(),
        flush_delays_us,
        rounds: if arguments.quick { 1 } else { arguments.rounds },
        round_duration: Duration::from_secs_f64(round_seconds),
        scale,
        day_duration: Duration::from_secs_f64(day_seconds),
        flush_delay,
        progress: Progress::new(workload.name),
    })
}

/// Runs one workload in this process.
fn run_here(arguments: &RunArguments, flush_delay: FlushDelay, workload: &Workload) -> Result<Section> {
    let bench = bench(arguments, flush_delay, workload)?;
    let begun = Instant::now();
    let mut section = (workload.run)(&bench).map_err(|error| format!("{}: {error}", workload.name))?;
    bench.flush_delay.set_us(0)?;
    section.workload = workload.name.to_owned();
    section.seconds = begun.elapsed().as_secs_f64();
    Ok(section)
}

/// Runs one workload in a process of its own, with the same arguments.
fn run_apart(workload: &Workload) -> Result<Section> {
    let mut passed = Vec::new();
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if text == "--report" {
            arguments.next();
        } else if !(text.starts_with("--report=")
            || ["all", "--json", "--strict"].contains(&&*text)
            || workloads::find(&text).is_some())
        {
            passed.push(argument);
        }
    }
    let output = Command::new(std::env::current_exe()?)
        .arg(workload.name)
        .arg("--json")
        .args(passed)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{} failed: {}", workload.name, output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// `txfs-bench WORKLOAD...`
pub fn run(arguments: &RunArguments) -> Result<()> {
    let chosen = chosen(arguments)?;
    let flush_delay = if arguments.flush_delay_us == 0 { FlushDelay::none() } else { FlushDelay::start()? };
    if let ([workload], None) = (&chosen[..], &arguments.report) {
        let section = run_here(arguments, flush_delay, workload)?;
        if arguments.json {
            println!("{}", serde_json::to_string_pretty(&section)?);
        } else {
            print!("{}", terminal::render(&section));
        }
        return judge(arguments, &[section]);
    }

    let results =
        arguments.report.as_ref().map(|page| page.with_file_name(pages::DIRECTORY).join(pages::RESULTS));
    let mut report = match &results {
        Some(results) if results.exists() => Report::load(results)?,
        _ => Report::default(),
    };
    report.machine = Machine::look(&places(arguments)?);
    report.rounds = if arguments.quick { 1 } else { arguments.rounds };
    report.round_seconds = if arguments.quick { 0.05 } else { arguments.round_seconds };
    report.command = std::env::var("TXFS_BENCH_COMMAND").unwrap_or_else(|_| "txfs-bench".to_owned());
    let names: Vec<&str> = workloads::ALL.iter().map(|workload| workload.name).collect();
    let (mut sections, mut failed) = (Vec::new(), Vec::new());
    for workload in chosen {
        match run_apart(workload) {
            Ok(section) => {
                if !arguments.json {
                    println!("{}", terminal::render(&section));
                }
                report.put(section.clone(), &names);
                sections.push(section);
            }
            Err(error) => {
                eprintln!("txfs-bench: {error}");
                failed.push(workload.name);
            }
        }
        // after each, so that a long run that is stopped leaves what it found
        if let Some(page) = &arguments.report {
            pages::write(&report, page)?;
        }
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    }
    drop(flush_delay);
    if !failed.is_empty() {
        return Err(format!("these failed: {}", failed.join(", ")).into());
    }
    judge(arguments, &sections)
}

fn judge(arguments: &RunArguments, sections: &[Section]) -> Result<()> {
    let missed: Vec<&str> = sections
        .iter()
        .flat_map(|section| &section.goals)
        .filter(|goal| goal.reached() != Some(true))
        .map(|goal| goal.figure.as_str())
        .collect();
    if arguments.strict && !missed.is_empty() {
        return Err(format!("not reached: {}", missed.join("; ")).into());
    }
    Ok(())
}
