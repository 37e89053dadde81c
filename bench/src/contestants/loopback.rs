//! Devices of a workload's own, over images in the directory that the user gave for them. Needs root.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::contestants::Kind;

/// Runs a program; what it printed, or what it complained about.
fn command(program: &str, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} {}: {}", arguments.join(" "), complaint.trim()).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether this process may make devices, and has a directory for their images.
pub fn possible(images: Option<&Path>) -> bool {
    images.is_some() && rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
}

/// An image, removed at the end.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
}

impl Image {
    /// An image that is written in full.
    pub fn create(directory: &Path, name: &str, bytes: u64) -> Result<Image> {
        let path = directory.join(format!("{name}.image"));
        let mut file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let image = Image { path };
        let zeros = vec![0; 4 << 20];
        let mut left = bytes;
        while left > 0 {
            let len = left.min(zeros.len() as u64);
            file.write_all(&zeros[..len as usize])?;
            left -= len;
        }
        file.sync_all()?;
        image.forget()?;
        Ok(image)
    }

    /// The image as it is now, as a crash at this moment would leave the device.
    pub fn copy(&self, name: &str) -> Result<Image> {
        let path = self.path.with_file_name(format!("{name}.image"));
        let copy = Image { path };
        fs::copy(&self.path, &copy.path)?;
        File::open(&copy.path)?.sync_all()?;
        self.forget()?;
        copy.forget()?;
        Ok(copy)
    }

    /// The kernel gives up what it caches of the image: it would be in the way of direct I/O, and make a mount too fast.
    fn forget(&self) -> Result<()> {
        Ok(rustix::fs::fadvise(File::open(&self.path)?, 0, None, rustix::fs::Advice::DontNeed)?)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A loop device over an image, detached at the end.
#[derive(Debug)]
pub struct LoopDevice {
    path: String,
}

impl LoopDevice {
    /// Direct I/O on, discards off, not rotational.
    pub fn attach(image: &Image) -> Result<LoopDevice> {
        let image = image.path.to_string_lossy();
        let path = command("losetup", &["--find", "--show", "--direct-io=on", &image])?;
        let device = LoopDevice { path };
        let queue = format!("/sys/block/{}/queue", device.path.trim_start_matches("/dev/"));
        for setting in ["discard_max_bytes", "rotational"] {
            // where the kernel does not let it be set, the figures are what they are
            let _ = fs::write(format!("{queue}/{setting}"), "0");
        }
        Ok(device)
    }

    /// Makes a file system on it.
    pub fn format(&self, kind: Kind) -> Result<()> {
        let extended = ["-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", &self.path];
        match kind {
            Kind::Ext4 => command("mkfs.ext4", &extended),
            Kind::Xfs => command("mkfs.xfs", &["-q", "-K", &self.path]),
            Kind::Btrfs => command("mkfs.btrfs", &["-q", "-K", &self.path]),
            Kind::Txfs | Kind::Mount | Kind::Other => {
                Err(format!("{kind} cannot be made on a device").into())
            }
        }
        .map(drop)
    }

    /// Mounts it, which recovers it where needed. Nothing but the system call, so that it can be timed.
    pub fn mount(&self, kind: Kind, at: &Path) -> Result<Mounted> {
        let flags = rustix::mount::MountFlags::NOATIME;
        rustix::mount::mount(self.path.as_str(), at, kind.to_string(), flags, None)
            .map_err(|error| format!("mounting {} on {}: {error}", self.path, at.display()))?;
        Ok(Mounted { at: at.to_path_buf() })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = command("losetup", &["--detach", &self.path]) {
            eprintln!("txfs-bench: {error}");
        }
    }
}

/// A mount, undone at the end.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::empty()) {
            eprintln!("txfs-bench: unmounting {}: {error}", self.at.display());
        }
    }
}
