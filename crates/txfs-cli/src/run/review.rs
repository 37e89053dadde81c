//! Shows what a transaction would change: as a list, or as a diff that a person can decide on.
//!
//! The old state is read from the mount as everybody sees it, the new one from the transaction's view.

use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use similar::{ChangeTag, TextDiff};
use txfs_protocol::{Change, ChangeKind};

use crate::output::colour::Paint;
use crate::output::format;

/// Larger files are shown by size and fingerprint only.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// How long to look for the smallest difference of one file.
const DIFF_TIME_MAX: Duration = Duration::from_secs(1);

/// Where the two states are.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    /// The root of what everybody sees.
    pub base: &'a Path,
    /// The root of the transaction's view.
    pub view: &'a Path,
}

/// A file that was replaced, as editors do it, is a new one and a removed one with the same path. People call that
/// modified.
pub fn merge(changes: Vec<Change>) -> Vec<Change> {
    let mut merged: Vec<Change> = Vec::with_capacity(changes.len());
    for change in changes {
        match merged.last_mut() {
            Some(last) if last.path == change.path && last.directory == change.directory => {
                let (created, removed) = match (last.kind, change.kind) {
                    (ChangeKind::Created, ChangeKind::Removed) => (&*last, &change),
                    (ChangeKind::Removed, ChangeKind::Created) => (&change, &*last),
                    _ => {
                        merged.push(change);
                        continue;
                    }
                };
                *last = Change {
                    kind: ChangeKind::Modified,
                    bytes_before: removed.bytes_before,
                    bytes_after: created.bytes_after,
                    ..change.clone()
                };
            }
            _ => merged.push(change),
        }
    }
    merged
}

/// The list: one line for each changed path.
pub fn list(changes: &[Change], sides: Sides<'_>, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    for change in changes {
        writeln!(out, "{}", headline(change, sides, paint))?;
    }
    writeln!(out, "{}", paint.dim(summary(changes)))
}

/// The list, with the difference below each path.
pub fn diff(changes: &[Change], sides: Sides<'_>, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    for change in changes {
        writeln!(out, "{}", headline(change, sides, paint))?;
        content(change, sides, out, paint)?;
    }
    writeln!(out, "{}", paint.bold(summary(changes)))
}

/// `3 created, 1 modified, 2 removed`.
pub fn summary(changes: &[Change]) -> String {
    let count = |kind| changes.iter().filter(|change| change.kind == kind).count();
    let parts: Vec<String> = [
        (ChangeKind::Created, "created"),
        (ChangeKind::Modified, "modified"),
        (ChangeKind::Attributes, "with other attributes"),
        (ChangeKind::Renamed, "renamed"),
        (ChangeKind::Removed, "removed"),
    ]
    .into_iter()
    .filter_map(|(kind, word)| match count(kind) {
        0 => None,
        count => Some(format!("{count} {word}")),
    })
    .collect();
    if parts.is_empty() { "no changes".into() } else { parts.join(", ") }
}

fn headline(change: &Change, sides: Sides<'_>, paint: Paint) -> String {
    let slash = if change.directory { "/" } else { "" };
    let path = format!("{}{slash}", format::name(&change.path.0));
    match change.kind {
        ChangeKind::Created => {
            let detail = match (change.directory, change.bytes_after) {
                (false, Some(bytes)) => format!(" ({})", format::bytes(bytes)),
                _ => String::new(),
            };
            format!("{} {path}{}", paint.green("created "), paint.dim(detail))
        }
        ChangeKind::Modified => {
            let detail = match (change.bytes_before, change.bytes_after) {
                (Some(before), Some(after)) if before != after => {
                    format!(" ({} -> {})", format::bytes(before), format::bytes(after))
                }
                (_, Some(after)) => format!(" ({})", format::bytes(after)),
                _ => String::new(),
            };
            format!("{} {path}{}", paint.yellow("modified"), paint.dim(detail))
        }
        ChangeKind::Attributes => {
            format!("{} {path}{}", paint.cyan("changed "), paint.dim(attributes(change, sides)))
        }
        ChangeKind::Renamed => {
            let from = change.from.as_ref().map(|from| format::name(&from.0)).unwrap_or_default();
            format!("{} {from} -> {path}", paint.blue("renamed "))
        }
        ChangeKind::Removed => format!("{} {path}", paint.red("removed ")),
    }
}

/// ` (mode -rw-r--r-- -> -rwxr-xr-x, owner 0 -> 1000)`.
fn attributes(change: &Change, sides: Sides<'_>) -> String {
    let metadata = |root: &Path| fs::symlink_metadata(root.join(change.path.as_path())).ok();
    let (Some(before), Some(after)) = (metadata(sides.base), metadata(sides.view)) else {
        return String::new();
    };
    let mut parts = Vec::new();
    if before.mode() != after.mode() {
        parts.push(format!("mode {} -> {}", format::mode(before.mode()), format::mode(after.mode())));
    }
    if before.uid() != after.uid() {
        parts.push(format!("owner {} -> {}", before.uid(), after.uid()));
    }
    if before.gid() != after.gid() {
        parts.push(format!("group {} -> {}", before.gid(), after.gid()));
    }
    if (before.mtime(), before.mtime_nsec()) != (after.mtime(), after.mtime_nsec()) {
        parts.push(format!("time {} -> {}", format::time(before.mtime()), format::time(after.mtime())));
    }
    if parts.is_empty() {
        " (extended attributes or times)".into()
    } else {
        format!(" ({})", parts.join(", "))
    }
}

/// One side of a path.
enum Side {
    Nothing,
    Text(String),
    Binary {
        bytes: u64,
        fingerprint: u64,
    },
    Link(Vec<u8>),
    /// Directories, devices ... have no content to compare.
    Other,
    Unreadable(io::Error),
}

fn read_side(path: &Path) -> Side {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Side::Nothing,
        Err(error) => return Side::Unreadable(error),
    };
    if metadata.is_symlink() {
        return match fs::read_link(path) {
            Ok(target) => Side::Link(target.as_os_str().as_bytes().to_vec()),
            Err(error) => Side::Unreadable(error),
        };
    }
    if !metadata.is_file() {
        return Side::Other;
    }
    read_file(path, &metadata).unwrap_or_else(Side::Unreadable)
}

fn read_file(path: &Path, metadata: &Metadata) -> io::Result<Side> {
    let mut file = File::open(path)?;
    if metadata.len() <= TEXT_BYTES_MAX {
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        if !content.contains(&0) {
            match String::from_utf8(content) {
                Ok(text) => return Ok(Side::Text(text)),
                Err(error) => content = error.into_bytes(),
            }
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(&content);
        return Ok(Side::Binary { bytes: content.len() as u64, fingerprint: hasher.finish() });
    }
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Side::Binary { bytes, fingerprint: hasher.finish() }),
            count => {
                hasher.write(&buffer[..count]);
                bytes += count as u64;
            }
        }
    }
}

fn content(change: &Change, sides: Sides<'_>, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    let old_path = change.from.as_ref().unwrap_or(&change.path);
    let (before, after) = match change.kind {
        ChangeKind::Attributes => return Ok(()),
        ChangeKind::Created => (Side::Nothing, read_side(&sides.view.join(change.path.as_path()))),
        ChangeKind::Removed => (read_side(&sides.base.join(change.path.as_path())), Side::Nothing),
        ChangeKind::Modified | ChangeKind::Renamed => (
            read_side(&sides.base.join(old_path.as_path())),
            read_side(&sides.view.join(change.path.as_path())),
        ),
    };
    let empty = String::new();
    match (&before, &after) {
        (Side::Unreadable(error), _) | (_, Side::Unreadable(error)) => {
            writeln!(out, "  {}", paint.dim(format_args!("cannot be shown: {error}")))
        }
        (Side::Link(old), Side::Link(new)) if old != new => {
            writeln!(out, "{}", paint.red(format_args!("-link to {}", format::name(old))))?;
            writeln!(out, "{}", paint.green(format_args!("+link to {}", format::name(new))))
        }
        (Side::Nothing, Side::Link(new)) => {
            writeln!(out, "{}", paint.green(format_args!("+link to {}", format::name(new))))
        }
        (Side::Link(old), Side::Nothing) => {
            writeln!(out, "{}", paint.red(format_args!("-link to {}", format::name(old))))
        }
        (Side::Text(old), Side::Text(new)) => text(old, new, out, paint),
        (Side::Nothing, Side::Text(new)) => text(&empty, new, out, paint),
        (Side::Text(old), Side::Nothing) => text(old, &empty, out, paint),
        _ => {
            if let Some(line) = fingerprint(&before) {
                writeln!(out, "{}", paint.red(format_args!("-{line}")))?;
            }
            if let Some(line) = fingerprint(&after) {
                writeln!(out, "{}", paint.green(format_args!("+{line}")))?;
            }
            Ok(())
        }
    }
}

fn fingerprint(side: &Side) -> Option<String> {
    match side {
        Side::Binary { bytes, fingerprint } => {
            Some(format!("binary, {}, fingerprint {fingerprint:016x}", format::bytes(*bytes)))
        }
        Side::Text(text) => Some(format!("text, {}", format::bytes(text.len() as u64))),
        Side::Link(target) => Some(format!("link to {}", format::name(target))),
        Side::Nothing | Side::Other | Side::Unreadable(_) => None,
    }
}

/// A unified diff, without its two header lines: the headline has said which file.
fn text(old: &str, new: &str, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    // Past the deadline the diff is no longer the smallest one, but still right.
    let diff = TextDiff::configure().timeout(DIFF_TIME_MAX).diff_lines(old, new);
    for hunk in diff.unified_diff().context_radius(CONTEXT_LINES).iter_hunks() {
        writeln!(out, "{}", paint.cyan(hunk.header()))?;
        for change in hunk.iter_changes() {
            // Whatever a file holds must not drive the terminal.
            let line = format::line(change.value());
            match change.tag() {
                ChangeTag::Equal => writeln!(out, " {line}")?,
                ChangeTag::Delete => writeln!(out, "{}", paint.red(format_args!("-{line}")))?,
                ChangeTag::Insert => writeln!(out, "{}", paint.green(format_args!("+{line}")))?,
            }
            if change.missing_newline() {
                writeln!(out, "{}", paint.dim("\\ No newline at end of file"))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(kind: ChangeKind, path: &str) -> Change {
        Change {
            path: path.into(),
            from: None,
            kind,
            directory: false,
            bytes_before: None,
            bytes_after: None,
        }
    }

    #[test]
    fn every_kind_of_difference_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let (base, view) = (directory.path().join("base"), directory.path().join("view"));
        for side in [&base, &view] {
            fs::create_dir(side).unwrap();
        }
        fs::write(base.join("text"), "one\ntwo\nthree\n").unwrap();
        fs::write(view.join("text"), "one\n2\x1b[31m\nthree").unwrap();
        fs::write(base.join("binary"), b"\0one").unwrap();
        fs::write(view.join("binary"), b"\0two!").unwrap();
        fs::write(view.join("new"), "fresh\n").unwrap();
        fs::write(base.join("old"), "gone\n").unwrap();
        std::os::unix::fs::symlink("here", base.join("link")).unwrap();
        std::os::unix::fs::symlink("there", view.join("link")).unwrap();
        let changes = [
            change(ChangeKind::Modified, "binary"),
            change(ChangeKind::Modified, "link"),
            change(ChangeKind::Created, "new"),
            change(ChangeKind::Removed, "old"),
            change(ChangeKind::Modified, "text"),
        ];
        let mut out = Vec::new();
        let sides = Sides { base: &base, view: &view };
        diff(&changes, sides, &mut out, Paint::plain()).unwrap();
        let out = String::from_utf8(out).unwrap();
        let expected =
            ["+fresh", "-gone", "-link to here", "+link to there", "-two", "+2\\u{1b}[31m", " one"];
        for line in expected {
            assert!(out.lines().any(|found| found == line), "no {line:?} in\n{out}");
        }
        assert!(out.contains("-binary, 4 B") && out.contains("+binary, 5 B"), "{out}");
        assert!(out.contains("\\ No newline at end of file"), "{out}");
        assert!(out.ends_with("1 created, 3 modified, 1 removed\n"), "{out}");
        assert!(!out.contains('\x1b'));
    }
}
