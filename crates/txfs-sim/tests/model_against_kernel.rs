//! Validates the reference model itself: the same random operations on the model and on a file system of the
//! kernel must return the same and leave the same tree.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, SeekFrom};
use txfs_sim::compare::agrees;
use txfs_sim::generator::{Action, Generator, profile};
use txfs_sim::model::tree::Body;
use txfs_sim::model::{History, Tree};
use txfs_sim::operation::{
    Allocation, Attributes, Ino, Kind, Name, Operation, Outcome, ROOT_INO, Renaming, fill_bytes,
};

/// The kernel's side: a directory, and paths of inodes taken from the model.
struct Kernel<'a> {
    root: &'a Path,
    tree: &'a Tree,
    next_ino: Ino,
}

fn path_of(tree: &Tree, wanted: Ino, from: Ino, path: &Path) -> Option<PathBuf> {
    if wanted == from {
        return Some(path.to_path_buf());
    }
    let Some(Body::Directory { entries, .. }) = tree.node(from).map(|node| &node.body) else { return None };
    entries.iter().find_map(|(name, child)| path_of(tree, wanted, *child, &path.join(text(name))))
}

fn text(name: &Name) -> String {
    String::from_utf8(name.0.clone()).expect("names in scenarios are text")
}

impl Kernel<'_> {
    fn path(&self, ino: Ino) -> io::Result<PathBuf> {
        path_of(self.tree, ino, ROOT_INO, self.root).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }

    fn entry(&self, parent: Ino, name: &Name) -> io::Result<PathBuf> {
        Ok(self.path(parent)?.join(text(name)))
    }

    fn stat(&self, path: &Path, ino: Ino) -> io::Result<Outcome> {
        let found = fs::symlink_metadata(path)?;
        let kind = match found.file_type() {
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_symlink() => Kind::Symlink,
            kind if kind.is_file() => Kind::File,
            _ => Kind::Fifo,
        };
        Ok(Outcome::Attributes(Attributes {
            ino,
            kind,
            mode: found.mode() & 0o7777,
            nlink: found.nlink() as u32,
            uid: found.uid(),
            gid: found.gid(),
            size: if matches!(kind, Kind::File | Kind::Symlink) { found.size() } else { 0 },
        }))
    }

    fn open(&self, ino: Ino) -> io::Result<fs::File> {
        fs::OpenOptions::new().read(true).write(true).open(self.path(ino)?)
    }

    fn chmod(path: &Path, mode: u32) -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    fn run(&self, operation: &Operation) -> io::Result<Outcome> {
        use Operation as O;
        Ok(match operation {
            O::Lookup { parent, name } => {
                let path = self.entry(*parent, name)?;
                let entries = self.tree.node(*parent).map(|node| &node.body);
                let known = match entries {
                    Some(Body::Directory { entries, .. }) => entries.get(name).copied(),
                    _ => None,
                };
                self.stat(&path, known.unwrap_or(0))?
            }
            O::Attributes { ino } => self.stat(&self.path(*ino)?, *ino)?,
            O::SetMode { ino, mode } => {
                Self::chmod(&self.path(*ino)?, *mode)?;
                self.stat(&self.path(*ino)?, *ino)?
            }
            O::SetOwner { ino, uid, gid } => {
                std::os::unix::fs::lchown(self.path(*ino)?, Some(*uid), Some(*gid))?;
                self.stat(&self.path(*ino)?, *ino)?
            }
            O::Truncate { ino, size } => {
                self.open(*ino)?.set_len(*size)?;
                Outcome::Done
            }
            O::MakeFile { parent, name, mode } => {
                let path = self.entry(*parent, name)?;
                fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
                Self::chmod(&path, *mode)?;
                self.stat(&path, self.next_ino)?
            }
            O::MakeDirectory { parent, name, mode } => {
                let path = self.entry(*parent, name)?;
                fs::create_dir(&path)?;
                Self::chmod(&path, *mode)?;
                self.stat(&path, self.next_ino)?
            }
            O::MakeSymlink { parent, name, target } => {
                let path = self.entry(*parent, name)?;
                std::os::unix::fs::symlink(std::str::from_utf8(target).expect("targets are text"), &path)?;
                self.stat(&path, self.next_ino)?
            }
            O::MakeFifo { parent, name, mode } => {
                let path = self.entry(*parent, name)?;
                rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
                Self::chmod(&path, *mode)?;
                self.stat(&path, self.next_ino)?
            }
            O::ReadLink { ino } => {
                Outcome::Bytes(fs::read_link(self.path(*ino)?)?.into_os_string().into_encoded_bytes())
            }
            O::Unlink { parent, name } => {
                fs::remove_file(self.entry(*parent, name)?)?;
                Outcome::Done
            }
            O::RemoveDirectory { parent, name } => {
                fs::remove_dir(self.entry(*parent, name)?)?;
                Outcome::Done
            }
            O::Rename { parent, name, new_parent, new_name, renaming } => {
                let flags = match renaming {
                    Renaming::Replace => RenameFlags::empty(),
                    Renaming::NoReplace => RenameFlags::NOREPLACE,
                    Renaming::Exchange => RenameFlags::EXCHANGE,
                };
                let (from, to) = (self.entry(*parent, name)?, self.entry(*new_parent, new_name)?);
                rustix::fs::renameat_with(CWD, &from, CWD, &to, flags)?;
                Outcome::Done
            }
            O::Link { ino, parent, name } => {
                let path = self.entry(*parent, name)?;
                rustix::fs::linkat(CWD, self.path(*ino)?, CWD, &path, AtFlags::empty())?;
                self.stat(&path, *ino)?
            }
            O::Read { ino, offset, len } => {
                let mut bytes = vec![0; *len as usize];
                let count = self.open(*ino)?.read_at(&mut bytes, *offset)?;
                bytes.truncate(count);
                Outcome::Bytes(bytes)
            }
            O::Write { ino, offset, len, fill } => {
                self.open(*ino)?.write_all_at(&fill_bytes(*fill, *len), *offset)?;
                Outcome::Number(*len)
            }
            O::Append { ino, len, fill } => {
                let file = self.open(*ino)?;
                let offset = file.metadata()?.len();
                file.write_all_at(&fill_bytes(*fill, *len), offset)?;
                Outcome::Number(offset)
            }
            O::Allocate { ino, allocation, offset, len } => {
                let flags = match allocation {
                    Allocation::Reserve { keep_size: false } => FallocateFlags::empty(),
                    Allocation::Reserve { keep_size: true } => FallocateFlags::KEEP_SIZE,
                    Allocation::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Allocation::ZeroRange { .. } => unreachable!("left out: not on every file system"),
                };
                rustix::fs::fallocate(self.open(*ino)?, flags, *offset, *len)?;
                Outcome::Done
            }
            O::SeekData { ino, offset } => {
                Outcome::Number(rustix::fs::seek(self.open(*ino)?, SeekFrom::Data(*offset))?)
            }
            O::SeekHole { ino, offset } => {
                Outcome::Number(rustix::fs::seek(self.open(*ino)?, SeekFrom::Hole(*offset))?)
            }
            O::ReadDirectory { ino } => {
                let Some(Body::Directory { entries, .. }) = self.tree.node(*ino).map(|node| &node.body)
                else {
                    return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
                };
                let mut found = Vec::new();
                for entry in fs::read_dir(self.path(*ino)?)? {
                    let name = Name(entry?.file_name().into_encoded_bytes());
                    let child = entries.get(&name).copied().unwrap_or(0);
                    let kind = self.stat(&self.entry(*ino, &name)?, child)?;
                    let Outcome::Attributes(attributes) = kind else { unreachable!() };
                    found.push((name, child, attributes.kind));
                }
                found.sort();
                Outcome::Entries(found)
            }
            O::CopyRange { from, from_offset, to, to_offset, len } => {
                let (source, target) = (self.open(*from)?, self.open(*to)?);
                let (mut source_at, mut target_at) = (*from_offset, *to_offset);
                let mut copied = 0;
                while copied < *len {
                    let rest = (*len - copied) as usize;
                    let count = rustix::fs::copy_file_range(
                        &source,
                        Some(&mut source_at),
                        &target,
                        Some(&mut target_at),
                        rest,
                    )?;
                    if count == 0 {
                        break;
                    }
                    copied += count as u64;
                }
                Outcome::Number(copied)
            }
            O::GetXattr { .. } | O::SetXattr { .. } | O::ListXattrs { .. } | O::RemoveXattr { .. } => {
                unreachable!("left out: not on every file system")
            }
        })
    }
}

fn left_out(operation: &Operation, tree: &Tree) -> bool {
    use Operation as O;
    let symlink = |ino: Ino| tree.kind(ino) == Some(Kind::Symlink);
    match operation {
        O::GetXattr { .. } | O::SetXattr { .. } | O::ListXattrs { .. } | O::RemoveXattr { .. } => true,
        O::Allocate { allocation: Allocation::ZeroRange { .. }, .. } => true,
        O::SetMode { ino, .. } => symlink(*ino),
        // With paths the order of checks differs: the kernel resolves the source path before it looks at the target.
        O::Link { ino, .. } => tree.node(*ino).is_none(),
        _ => false,
    }
}

fn compare_run(seed: u64, profile_name: &str) {
    let base = if Path::new("/dev/shm").is_dir() { Path::new("/dev/shm") } else { Path::new("/tmp") };
    let directory = tempfile::tempdir_in(base).expect("a temporary directory");
    Kernel::chmod(directory.path(), 0o755).expect("chmod of our own directory");
    let mut generator = Generator::new(seed, profile(profile_name).expect("a known profile"));
    let mut history = History::default();
    for step in 0..400 {
        let Action::Base(operation) = generator.next(&history, &[]) else { continue };
        if left_out(&operation, history.current()) {
            continue;
        }
        let before = history.current().clone();
        let kernel = Kernel { root: directory.path(), tree: &before, next_ino: 100 + step };
        let actual = kernel.run(&operation).unwrap_or_else(|error| {
            Outcome::Failed(error.raw_os_error().unwrap_or_else(|| panic!("{operation:?}: {error}")))
        });
        let expected = history.run(&operation, &actual, step as usize);
        assert!(
            agrees(&operation, &expected, &actual, &before),
            "seed {seed} step {step}: {operation:?}\n  kernel {actual:?}\n  model  {expected:?}"
        );
    }
}

#[test]
fn the_model_does_what_the_kernel_does() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: changing owners needs root");
        return;
    }
    for seed in 0..60 {
        for name in ["small", "namespace", "many-commits"] {
            compare_run(seed, name);
        }
    }
}
