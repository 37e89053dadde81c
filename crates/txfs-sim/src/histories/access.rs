//! What clients do to a volume, whatever the way that they reach it.

use crate::history::Value;

/// Why an operation did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The transaction has a conflict.
    Conflict,
    /// What the tree looks like forbids it: there is no such name, or there is one, or the file is gone.
    Refused,
    /// Something that must not happen.
    Wrong(String),
}

/// Result of an operation.
pub type Outcome<T> = Result<T, Failure>;

/// The file system as a client has it: inside of a transaction, or outside.
///
/// Files that stay, and directories, are named by inode number; names by their number in the directory.
pub trait Access {
    /// The bytes of a page, fewer at the end of the file.
    fn read(&self, file: u64, page: u64) -> Outcome<Vec<u8>>;
    /// Writes from the beginning of a page.
    fn write(&self, file: u64, page: u64, data: &[u8]) -> Outcome<()>;
    /// The file's owner.
    fn owner(&self, file: u64) -> Outcome<u64>;
    /// Changes it.
    fn set_owner(&self, file: u64, owner: u64) -> Outcome<()>;
    /// The file's size. In a transaction this is no read of a growing file's end.
    fn size(&self, file: u64) -> Outcome<u64>;
    /// Cuts or stretches.
    fn set_size(&self, file: u64, size: u64) -> Outcome<()>;
    /// Where the file ends, found out by reading there.
    fn end(&self, file: u64) -> Outcome<u64>;
    /// Writes 8 bytes at an offset behind the end.
    fn grow(&self, file: u64, offset: u64) -> Outcome<()>;
    /// Appends 8 bytes; returns where they went, if that is known.
    fn append(&self, file: u64) -> Outcome<Option<u64>>;
    /// Value of an attribute.
    fn attribute(&self, file: u64, name: u64) -> Outcome<Option<Value>>;
    /// Sets it or removes it; `Refused` when there is none to remove.
    fn set_attribute(&self, file: u64, name: u64, value: Option<Value>) -> Outcome<()>;
    /// The numbers of all attributes.
    fn attributes(&self, file: u64) -> Outcome<Vec<u64>>;
    /// The file under a name.
    fn find(&self, directory: u64, name: u64) -> Outcome<Option<u64>>;
    /// All names and their files.
    fn list(&self, directory: u64) -> Outcome<Vec<(u64, u64)>>;
    /// Makes an empty file; `Refused` when there is one. Returns its number.
    fn create(&self, directory: u64, name: u64) -> Outcome<u64>;
    /// Removes a name; `Refused` when there is none.
    fn remove(&self, directory: u64, name: u64) -> Outcome<()>;
    /// Renames, and replaces what is there.
    fn rename(&self, from: (u64, u64), to: (u64, u64)) -> Outcome<()>;
    /// The bytes of the file under a name.
    fn read_named(&self, directory: u64, name: u64, file: u64) -> Outcome<Vec<u8>>;
    /// Writes to the beginning of the file under a name.
    fn write_named(&self, directory: u64, name: u64, file: u64, data: &[u8]) -> Outcome<()>;
    /// Makes a file elsewhere and renames it over a name, which is one step; returns its number.
    fn replace(&self, directory: u64, name: u64, unique: u64) -> Outcome<u64>;
}
