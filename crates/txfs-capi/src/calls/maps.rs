//! Files mapped into memory: in the transaction they are the view's, and after it the base view's.
//!
//! `/proc/self/maps` is only read if something of the view was mapped.

use super::system::{Fd, Node, numbers, openat, status_of};
use super::{Action, Call, Decided, descriptor, descriptors};
use crate::kernel::Errno;
use crate::transaction::{Binding, View};
use std::sync::atomic::Ordering;

pub fn decide(binding: &mut Binding, call: &Call) -> Option<Decided> {
    match call.number as libc::c_long {
        libc::SYS_mmap => Some(map(binding, call)),
        _ => None,
    }
}

fn map(binding: &mut Binding, call: &Call) -> Decided {
    let mut arguments = call.arguments;
    if arguments[3] as i32 & libc::MAP_ANONYMOUS != 0 {
        return Ok(Action::Make);
    }
    let class = descriptors::class(binding, descriptor(arguments[4]))?;
    let Some(number) = class.number() else { return Ok(Action::Make) };
    if let Some(shared) = binding.known() {
        shared.mapped.store(true, Ordering::Relaxed);
    }
    arguments[4] = number as usize;
    Ok(Action::MakeWith(arguments))
}

/// A stretch of memory that shows a file of the view.
#[derive(Debug)]
pub struct Leaving {
    start: usize,
    end: usize,
    protection: i32,
    shared: bool,
    offset: u64,
    ino: u64,
    /// Below the volume's root.
    rest: Vec<u8>,
}

/// All of them, as long as the view knows names. Private memory that can be written gets its pages here.
pub fn leaving(view: &View) -> Vec<Leaving> {
    let Ok(text) = read_maps() else { return Vec::new() };
    let found: Vec<Leaving> =
        text.split(|byte| *byte == b'\n').filter_map(|line| parse(view, line)).collect();
    for map in &found {
        if !map.shared && map.protection & libc::PROT_WRITE != 0 {
            let arguments = [map.start, map.end - map.start, libc::MADV_POPULATE_WRITE as usize, 0, 0, 0];
            // Beyond the file's end there is nothing to keep.
            let _ = numbers(libc::SYS_madvise, arguments);
        }
    }
    found
}

/// Maps the same files of the base view in their place. Private writable memory has become memory of its own.
pub fn replace(view: &View, all: Vec<Leaving>) {
    for map in all {
        if !map.shared && map.protection & libc::PROT_WRITE != 0 {
            continue;
        }
        let Ok(fd) = base_file(view, &map) else { continue };
        let kind = if map.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let arguments = [
            map.start,
            map.end - map.start,
            map.protection as usize,
            (kind | libc::MAP_FIXED) as usize,
            fd.number() as usize,
            map.offset as usize,
        ];
        let _ = numbers(libc::SYS_mmap, arguments);
    }
}

fn base_file(view: &View, map: &Leaving) -> Result<Fd, Errno> {
    // A map that may be made writable later needs a descriptor that can be; not all files can be opened so.
    let fd = match view.open_base(&map.rest, libc::O_RDWR | libc::O_CLOEXEC) {
        Ok(fd) => fd,
        Err(_) => view.open_base(&map.rest, libc::O_RDONLY | libc::O_CLOEXEC)?,
    };
    let expected = Node { device: view.root_node().device, ino: map.ino };
    if status_of(fd.number())?.node == expected { Ok(fd) } else { Err(Errno(libc::ESTALE)) }
}

fn read_maps() -> Result<Vec<u8>, Errno> {
    let file = openat(libc::AT_FDCWD, c"/proc/self/maps", libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
    let mut text = Vec::new();
    let mut chunk = vec![0u8; 64 << 10];
    loop {
        let at = chunk.as_mut_ptr() as usize;
        match numbers(libc::SYS_read, [file.number() as usize, at, chunk.len(), 0, 0, 0])? {
            0 => return Ok(text),
            len => text.extend(&chunk[..len]),
        }
    }
}

/// `7f00-7f01 rw-s 00001000 00:32 12    /mnt/.txfs/tx/3-ab/file`
fn parse(view: &View, line: &[u8]) -> Option<Leaving> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = text()?.split_once('-')?;
    let permissions = text()?;
    let offset = u64::from_str_radix(text()?, 16).ok()?;
    text()?;
    let ino = text()?.parse().ok()?;
    let path = fields.next()?;
    let path = &path[path.iter().position(|byte| *byte != b' ')?..];
    let rest = view.relative(&unescaped(path))?.to_vec();
    let has = |letter: char| permissions.contains(letter);
    let mut protection = libc::PROT_NONE;
    for (letter, bit) in [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)] {
        if has(letter) {
            protection |= bit;
        }
    }
    Some(Leaving {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        protection,
        shared: has('s'),
        offset,
        ino,
        rest,
    })
}

/// Only a newline is escaped here.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b"\\012") {
            found.push(b'\n');
            rest = tail;
        } else {
            found.push(*first);
            rest = tail;
        }
    }
    found
}
