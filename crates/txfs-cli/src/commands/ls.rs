//! `txfs ls`.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use txfs_protocol::PathText;

use super::printed;
use crate::cli::Ls;
use crate::error::Error;
use crate::output::colour::{self, Paint};
use crate::output::format;
use crate::place::{self, Access, Place};
use crate::tree::host::HostTree;
use crate::tree::volume::VolumeTree;
use crate::tree::{Kind, Node, Source};

/// Lists a directory, or says what is known about a file.
pub fn run(arguments: Ls) -> Result<(), Error> {
    let place = Place::parse_optional_path(&arguments.place)?;
    match place::open(&place.volume)? {
        Access::Mounted { mountpoint, .. } => list(&HostTree::new(&mountpoint), &place, &arguments),
        Access::Embedded(volume) => {
            let listed = list(&VolumeTree::new(&volume.snapshot()), &place, &arguments);
            let closed = volume.close().map_err(|source| Error::volume(&place.volume, source));
            listed.and(closed)
        }
    }
}

/// One entry as JSON.
#[derive(Serialize)]
struct Entry {
    path: PathText,
    kind: &'static str,
    mode: String,
    uid: u32,
    gid: u32,
    size: u64,
    links: u64,
    modified_seconds: i64,
    modified_nanoseconds: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<PathText>,
}

struct Printer<'a, S: Source> {
    tree: &'a S,
    arguments: &'a Ls,
    out: BufWriter<StdoutLock<'static>>,
    paint: Paint,
}

fn list<S: Source>(tree: &S, place: &Place, arguments: &Ls) -> Result<(), Error> {
    let failed = |source| Error::io("list", Path::new(&place.display()), source);
    // As ls has it: a link named on the command line is followed, unless it is to be shown itself.
    let id = tree.resolve(&place.path, !arguments.long).map_err(failed)?;
    let node = tree.node(&id).map_err(failed)?;
    let mut printer =
        Printer { tree, arguments, out: BufWriter::new(io::stdout().lock()), paint: colour::stdout() };
    if !node.is_directory() {
        let name = place.path.clone();
        printer.entry(&name, &name, &id, &node)?;
        return printed(printer.out.flush());
    }
    let mut directories = vec![(place.path.clone(), id)];
    let mut first = true;
    while let Some((path, id)) = directories.pop() {
        if arguments.recursive && !arguments.json {
            let separator = if first { "" } else { "\n" };
            let heading = format!("/{}:", format::name(path.as_os_str().as_bytes()));
            printed(writeln!(printer.out, "{separator}{}", printer.paint.bold(heading)))?;
        }
        first = false;
        let below = printer.directory(&path, &id)?;
        if arguments.recursive {
            directories.extend(below.into_iter().rev());
        }
    }
    printed(printer.out.flush())
}

impl<S: Source> Printer<'_, S> {
    /// Prints what is in a directory; returns the directories in it.
    fn directory(&mut self, path: &Path, id: &S::Id) -> Result<Vec<(PathBuf, S::Id)>, Error> {
        let failed = |source| Error::io("list", path, source);
        let mut below = Vec::new();
        for (name, child) in self.tree.children(id).map_err(failed)? {
            let child_path = path.join(&name);
            let node = self.tree.node(&child).map_err(|source| Error::io("look at", &child_path, source))?;
            self.entry(Path::new(&name), &child_path, &child, &node)?;
            if node.is_directory() {
                below.push((child_path, child));
            }
        }
        Ok(below)
    }

    fn entry(&mut self, name: &Path, path: &Path, id: &S::Id, node: &Node) -> Result<(), Error> {
        let target = match node.kind {
            Kind::Symlink if self.arguments.long || self.arguments.json => {
                Some(self.tree.link_target(id).map_err(|source| Error::io("read the link", path, source))?)
            }
            _ => None,
        };
        if self.arguments.json {
            let entry = Entry {
                path: path.into(),
                kind: node.kind.word(),
                mode: format!("{:04o}", node.permissions),
                uid: node.uid,
                gid: node.gid,
                size: node.size,
                links: node.links,
                modified_seconds: node.modified.seconds,
                modified_nanoseconds: node.modified.nanoseconds,
                target: target.map(|target| Path::new(&target).into()),
            };
            let line = serde_json::to_string(&entry).map_err(io::Error::from);
            return printed(line.and_then(|line| writeln!(self.out, "{line}")));
        }
        let shown = self.name(name, node);
        if !self.arguments.long {
            return printed(writeln!(self.out, "{shown}"));
        }
        let arrow = match target {
            Some(target) => format!(" -> {}", format::name(target.as_bytes())),
            None => String::new(),
        };
        printed(writeln!(
            self.out,
            "{} {:>3} {:>5} {:>5} {:>12} {} {shown}{arrow}",
            format::mode(node.mode()),
            node.links,
            node.uid,
            node.gid,
            node.size,
            format::time(node.modified.seconds),
        ))
    }

    fn name(&self, name: &Path, node: &Node) -> String {
        let name = format::name(name.as_os_str().as_bytes());
        match node.kind {
            Kind::Directory => self.paint.blue(name),
            Kind::Symlink => self.paint.cyan(name),
            Kind::File if node.permissions & 0o111 != 0 => self.paint.green(name),
            Kind::File => name,
            _ => self.paint.yellow(name),
        }
    }
}
