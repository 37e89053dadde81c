//! Access through the library.

use txfs::{Error, NewNode, RenameMode, SetAttributes, View, XattrMode};

use super::access::{Access, Failure, Outcome};
use super::layout::PAGE_BYTES;
use crate::history::Value;

/// A view of an open volume. `temporary` is the directory for files that replace others.
pub struct Embedded<'a> {
    /// A transaction or the base view.
    pub view: &'a dyn View,
    /// A directory that no checked name is in.
    pub temporary: u64,
}

fn outcome<T>(result: txfs::Result<T>) -> Outcome<T> {
    result.map_err(|error| match error {
        error if error.is_conflict() => Failure::Conflict,
        Error::NotFound | Error::Exists | Error::NoAttribute | Error::Stale { .. } => Failure::Refused,
        error => Failure::Wrong(error.to_string()),
    })
}

fn name_of(name: u64) -> Vec<u8> {
    format!("name{name}").into_bytes()
}

fn number_of(name: &[u8], prefix: &str) -> Outcome<u64> {
    let number = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix(prefix)?.parse().ok());
    number.ok_or_else(|| Failure::Wrong(format!("a name that nobody gave: {name:?}")))
}

fn attribute_of(name: u64) -> Vec<u8> {
    format!("user.a{name}").into_bytes()
}

/// None instead of a refusal.
fn if_any<T>(outcome: Outcome<T>) -> Outcome<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(Failure::Refused) => Ok(None),
        Err(failure) => Err(failure),
    }
}

impl Embedded<'_> {
    fn set(&self, file: u64, set: &SetAttributes) -> Outcome<()> {
        outcome(self.view.set_attributes(file, set)).map(drop)
    }
}

impl Access for Embedded<'_> {
    fn read(&self, file: u64, page: u64) -> Outcome<Vec<u8>> {
        outcome(self.view.read(file, page * PAGE_BYTES, PAGE_BYTES as usize))
    }

    fn write(&self, file: u64, page: u64, data: &[u8]) -> Outcome<()> {
        outcome(self.view.write(file, page * PAGE_BYTES, data)).map(drop)
    }

    fn owner(&self, file: u64) -> Outcome<u64> {
        Ok(u64::from(outcome(self.view.attributes(file))?.uid))
    }

    fn set_owner(&self, file: u64, owner: u64) -> Outcome<()> {
        self.set(file, &SetAttributes { uid: Some(owner as u32), ..SetAttributes::default() })
    }

    fn size(&self, file: u64) -> Outcome<u64> {
        Ok(outcome(self.view.attributes(file))?.size)
    }

    fn set_size(&self, file: u64, size: u64) -> Outcome<()> {
        self.set(file, &SetAttributes { size: Some(size), ..SetAttributes::default() })
    }

    fn end(&self, file: u64) -> Outcome<u64> {
        let from = self.size(file)? - 8;
        Ok(from + outcome(self.view.read(file, from, 16))?.len() as u64)
    }

    fn grow(&self, file: u64, offset: u64) -> Outcome<()> {
        outcome(self.view.write(file, offset, &[1; 8])).map(drop)
    }

    fn append(&self, file: u64) -> Outcome<Option<u64>> {
        outcome(self.view.append(file, &[2; 8])).map(Some)
    }

    fn attribute(&self, file: u64, name: u64) -> Outcome<Option<Value>> {
        let found = if_any(outcome(self.view.get_xattr(file, &attribute_of(name))))?;
        let value = |bytes: Vec<u8>| bytes.try_into().map(Value::from_le_bytes);
        found
            .map(value)
            .transpose()
            .map_err(|bytes| Failure::Wrong(format!("an attribute's value {bytes:?}")))
    }

    fn set_attribute(&self, file: u64, name: u64, value: Option<Value>) -> Outcome<()> {
        let name = attribute_of(name);
        outcome(match value {
            Some(value) => self.view.set_xattr(file, &name, &value.to_le_bytes(), XattrMode::Set),
            None => self.view.remove_xattr(file, &name),
        })
    }

    fn attributes(&self, file: u64) -> Outcome<Vec<u64>> {
        outcome(self.view.list_xattrs(file))?.iter().map(|name| number_of(name, "user.a")).collect()
    }

    fn find(&self, directory: u64, name: u64) -> Outcome<Option<u64>> {
        Ok(if_any(outcome(self.view.lookup(directory, &name_of(name))))?.map(|found| found.ino))
    }

    fn list(&self, directory: u64) -> Outcome<Vec<(u64, u64)>> {
        let entries = outcome(self.view.list_directory(directory))?;
        entries.iter().map(|entry| Ok((number_of(&entry.name, "name")?, entry.ino))).collect()
    }

    fn create(&self, directory: u64, name: u64) -> Outcome<u64> {
        let node = NewNode::file(0o644, 0, 0);
        Ok(outcome(self.view.make_node(directory, &name_of(name), &node))?.ino)
    }

    fn remove(&self, directory: u64, name: u64) -> Outcome<()> {
        outcome(self.view.unlink(directory, &name_of(name)))
    }

    fn rename(&self, from: (u64, u64), to: (u64, u64)) -> Outcome<()> {
        let (from_name, to_name) = (name_of(from.1), name_of(to.1));
        outcome(self.view.rename(from.0, &from_name, to.0, &to_name, RenameMode::Replace))
    }

    fn read_named(&self, _directory: u64, _name: u64, file: u64) -> Outcome<Vec<u8>> {
        self.read(file, 0)
    }

    fn write_named(&self, _directory: u64, _name: u64, file: u64, data: &[u8]) -> Outcome<()> {
        self.write(file, 0, data)
    }

    fn replace(&self, directory: u64, name: u64, unique: u64) -> Outcome<u64> {
        let new = unique.to_string().into_bytes();
        let made = outcome(self.view.make_node(self.temporary, &new, &NewNode::file(0o644, 0, 0)))?;
        let name = name_of(name);
        outcome(self.view.rename(self.temporary, &new, directory, &name, RenameMode::Replace))?;
        Ok(made.ino)
    }
}
