//! Dear flushes for the whole run: the preloaded library `txfs-flush-delay`, its delay and its counts.
//!
//! A library is preloaded when a program starts, so the benchmark starts itself once more, with the library in front of
//! the C library and with a control file, both of which all its children inherit. Without the library beside the
//! program, or on request, everything runs as the disk is.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use txfs::{Durability, Paths, Volume};

use crate::Result;

#[allow(dead_code)] // the library's part of it
#[path = "../flush-delay/src/layout.rs"]
mod layout;

use layout::{CONTROL_BYTES, CONTROL_VARIABLE, COUNTS_OFFSET, Call, DELAY_OFFSET, PROGRAMS_OFFSET};

/// Process that made the control file, and removes it.
const OWNER_VARIABLE: &str = "TXFS_BENCH_FLUSH_OWNER";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
const LIBRARY: &str = "libtxfs_flush_delay.so";

/// The control file, where there is one.
#[derive(Debug)]
pub struct FlushDelay {
    control: Option<File>,
    /// Removed at the end.
    owned: Option<PathBuf>,
}

impl FlushDelay {
    /// Takes up the control file that this program was started with. Where there is none but the library is there, starts
    /// the program again with both, and does not return.
    pub fn start() -> Result<FlushDelay> {
        let Some(path) = std::env::var_os(CONTROL_VARIABLE).map(PathBuf::from) else {
            return FlushDelay::start_again();
        };
        let control =
            File::options().read(true).write(true).open(&path).map_err(|error| {
                format!("{}: {error}; is {CONTROL_VARIABLE} set by hand?", path.display())
            })?;
        let owner = std::env::var(OWNER_VARIABLE).ok().and_then(|text| text.parse().ok());
        let owned = (owner == Some(std::process::id())).then_some(path);
        let delay = FlushDelay { control: Some(control), owned };
        if delay.word(PROGRAMS_OFFSET)? == 0 {
            // it counts itself at its first flush, which may not have been yet
            tempfile::tempfile()?.sync_all()?;
        }
        if delay.word(PROGRAMS_OFFSET)? == 0 {
            return Err(format!("{LIBRARY} is not preloaded although {CONTROL_VARIABLE} is set").into());
        }
        Ok(delay)
    }

    fn start_again() -> Result<FlushDelay> {
        let program = std::env::current_exe()?;
        let library = program.with_file_name(LIBRARY);
        if !library.exists() {
            return Ok(FlushDelay::none());
        }
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let path = directory.join(format!("txfs-bench-flush-delay.{}", std::process::id()));
        fs::write(&path, [0; CONTROL_BYTES]).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut preload = library.into_os_string();
        if let Some(others) = std::env::var_os(PRELOAD_VARIABLE).filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let error = Command::new(&program)
            .args(arguments)
            .env(PRELOAD_VARIABLE, preload)
            .env(CONTROL_VARIABLE, &path)
            .env(OWNER_VARIABLE, std::process::id().to_string())
            .exec();
        let _ = fs::remove_file(&path);
        Err(format!("{}: {error}", program.display()).into())
    }

    /// As the disk is.
    pub fn none() -> FlushDelay {
        FlushDelay { control: None, owned: None }
    }

    /// Whether flushes can be made dearer.
    pub fn is_there(&self) -> bool {
        self.control.is_some()
    }

    /// From now on each flush of this program and of its children takes this much longer.
    pub fn set_us(&self, delay_us: u64) -> Result<()> {
        match &self.control {
            Some(control) => Ok(control.write_all_at(&(delay_us * 1000).to_le_bytes(), DELAY_OFFSET as u64)?),
            None if delay_us == 0 => Ok(()),
            None => Err(format!("no {LIBRARY} beside this program: flushes cannot be made dearer").into()),
        }
    }

    /// Flushes that this program and its children have made so far; nothing without the library.
    pub fn flushes(&self) -> Result<Option<u64>> {
        if self.control.is_none() {
            return Ok(None);
        }
        let mut total = 0;
        for call in Call::ALL {
            total += self.word(COUNTS_OFFSET + 8 * call as usize)?;
        }
        Ok(Some(total))
    }

    /// Fails when TxFS's own flushes go past the library, since every comparison would then be wrong.
    pub fn check(&self, directory: &Path) -> Result<()> {
        let Some(before) = self.flushes()? else { return Ok(()) };
        let scratch = tempfile::tempdir_in(directory)?;
        let path = scratch.path().join("volume");
        Volume::create(&path)?;
        let volume = Volume::open(&path)?;
        let begun = self.flushes()?.unwrap_or(before);
        for content in 0..3_u8 {
            let transaction = volume.begin();
            transaction.write_file("file", &[content; 4096])?;
            transaction.commit(Durability::Durable)?;
        }
        let seen = self.flushes()?.unwrap_or(before) - begun;
        volume.close()?;
        if seen < 3 {
            return Err(format!(
                "{LIBRARY} saw {seen} flushes of 3 durable transactions: build with --features preload, so that \
                 TxFS's system calls go through the C library (make bench does)"
            )
            .into());
        }
        Ok(())
    }

    fn word(&self, offset: usize) -> Result<u64> {
        let mut word = [0; 8];
        if let Some(control) = &self.control {
            control.read_exact_at(&mut word, offset as u64)?;
        }
        Ok(u64::from_le_bytes(word))
    }
}

impl Drop for FlushDelay {
    fn drop(&mut self) {
        if let Some(path) = &self.owned {
            let _ = fs::remove_file(path);
        }
    }
}
