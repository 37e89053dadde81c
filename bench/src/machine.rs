//! What the figures were measured on.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::contestants::{Place, Places};
use crate::device::{Mount, mounts};

/// The machine, the places and the commit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Day of the run, UTC.
    pub date: String,
    /// Commit of the sources, with a plus when they were changed.
    pub commit: String,
    /// Model of the processor.
    pub processor: String,
    /// Processors that the run could use.
    pub processors: usize,
    /// Memory, in GiB.
    pub memory_gib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Each place with its device and mount options.
    pub places: Vec<String>,
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path).ok().and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or_default()
}

/// Value of `name: value` in a file of such lines.
fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    found.unwrap_or_default()
}

/// What a command prints, without the last newline; nothing when it fails.
fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Type, device and options of the mount that holds a path.
fn mount_of(path: &Path) -> Option<String> {
    let mounts = mounts().ok()?.into_iter().filter(|mount| path.starts_with(&mount.at));
    let Mount { source, kind, options, .. } = mounts.max_by_key(|mount| mount.at.len())?;
    let device = source.rsplit('/').next()?;
    let backing = first_line(&format!("/sys/block/{device}/loop/backing_file"));
    let direct = first_line(&format!("/sys/block/{device}/loop/dio"));
    let under = match (backing.is_empty(), direct.as_str()) {
        (true, _) => device.to_owned(),
        (false, "1") => "a loop device with direct I/O".to_owned(),
        (false, _) => "a loop device without direct I/O".to_owned(),
    };
    Some(format!("{kind} on {under} ({options})"))
}

impl Machine {
    /// This one.
    pub fn look(places: &Places) -> Machine {
        let describe = |place: &Place| {
            format!("{}: {}", place.kind, mount_of(&place.directory).unwrap_or_else(|| "unknown".to_owned()))
        };
        let kib: u64 =
            field("/proc/meminfo", "MemTotal").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        Machine {
            date: printed("date", &["-u", "+%Y-%m-%d"]).unwrap_or_default(),
            commit: printed("git", &["describe", "--always", "--dirty=+"]).unwrap_or_default(),
            processor: field("/proc/cpuinfo", "model name"),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: kib.div_ceil(1 << 20),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            places: std::iter::once(&places.txfs).chain(&places.plain).map(describe).collect(),
        }
    }
}
