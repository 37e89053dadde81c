//! Reads back what a kept transaction has changed.

use txfs_engine::Read;

use super::each;
use crate::error::Result;
use crate::records::kept::{self, Header};
use crate::records::{key, small};
use crate::transaction::overlay::Overlay;
use crate::transaction::session::{PAGE_MAX, visit_extents};

/// What one has changed, its data where it lies in this state.
pub(crate) fn overlay(read: &dyn Read, id: u64) -> Result<Overlay> {
    let mut overlay = Overlay::default();
    each(read, id, key::kept::NAME, &mut |rest, value| {
        let place = key::long_at(rest, 0).zip(key::long_at(rest, 8)).filter(|_| rest.len() == 16);
        overlay.names.insert(place.ok_or("a name's key has the wrong length")?, kept::decode_name(value)?);
        Ok(())
    })?;
    each(read, id, key::kept::INODE, &mut |rest, value| {
        let ino =
            key::long_at(rest, 0).filter(|_| rest.len() == 8).ok_or("a node's key has the wrong length")?;
        overlay.inodes.insert(ino, kept::decode_inode(value)?);
        Ok(())
    })?;
    each(read, id, key::kept::MASK, &mut |rest, value| {
        let state = key::long_at(rest, 0).and_then(|ino| overlay.inodes.get_mut(&ino));
        kept::decode_pages(value, &mut state.ok_or("pages of a node that it does not change")?.data.masked)
    })?;
    each(read, id, key::kept::XATTR, &mut |rest, value| {
        let state = key::long_at(rest, 0).and_then(|ino| overlay.inodes.get_mut(&ino));
        let state = state.ok_or("an extended attribute of a node that it does not change")?;
        let value = match small::decode_bytes(value)?.split_first() {
            Some((0, [])) => None,
            Some((1, value)) => Some(value.to_vec()),
            _ => return Err("an extended attribute that does not decode"),
        };
        state.xattrs.insert(rest[8..].to_vec(), value);
        Ok(())
    })?;
    for state in overlay.inodes.values_mut() {
        if let Some(shadow) = state.shadow {
            visit_extents(read, shadow, 0, PAGE_MAX, &mut |first, extent| {
                state.data.placed.insert(first, extent);
                true
            })?;
        }
    }
    Ok(overlay)
}

/// Its header.
pub(crate) fn header(read: &dyn Read, id: u64) -> Result<Header> {
    let value = read.get(&key::kept(id, key::kept::HEADER, &[]))?;
    let value = value.ok_or_else(|| super::corrupt(id, "it has no header"))?;
    Header::decode(&value).map_err(|detail| super::corrupt(id, detail))
}
