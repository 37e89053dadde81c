//! What a transaction has changed so far: intents, not copies of global structures.
//!
//! Every inode that the transaction changes has an [`InodeState`]: the record as the transaction sees it, and the
//! intents that led there. At commit the intents are applied to the inode as it is *then*: a link count by its
//! difference, times by the later one, a size that only grew by the larger one. That is why such changes never
//! conflict.
//!
//! Invariants
//! * A page is in at most one of `pages` and `placed`; both go before `masked`, and `masked` before what is stored.
//! * No page in `pages` or `placed` lies behind the end of the file, and a buffered page is zero behind the end.
//! * `buffered_bytes` is the number of bytes in all `pages`.

use std::collections::BTreeMap;
use std::sync::Arc;

use txfs_engine::Extent;

use crate::records::{Bucket, InodeRecord};
use crate::types::{Ino, Timestamp};

/// All changes of a transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    pub(crate) inodes: BTreeMap<Ino, InodeState>,
    /// Changed directory entries by directory and hash.
    pub(crate) names: BTreeMap<(Ino, u64), NameState>,
    /// Bytes of data held in memory.
    pub(crate) buffered_bytes: usize,
    /// The transaction has been over its memory budget.
    pub(crate) spilled: bool,
}

/// A changed directory entry.
#[derive(Clone, Debug)]
pub(crate) struct NameState {
    /// As the snapshot has it.
    pub(crate) original: Bucket,
    /// As the transaction has it.
    pub(crate) current: Bucket,
}

/// What happened to a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TimeIntent {
    /// Nothing.
    #[default]
    Keep,
    /// An operation moved it on: merges with what others did.
    Touched,
    /// It was set: holds whatever others did.
    Set,
}

/// A changed inode.
#[derive(Clone, Debug)]
pub(crate) struct InodeState {
    /// As the transaction sees it.
    pub(crate) record: InodeRecord,
    /// As the snapshot has it; `None` for an inode made here.
    pub(crate) original: Option<InodeRecord>,
    /// Mode, owner or group were set.
    pub(crate) permissions: bool,
    pub(crate) atime: TimeIntent,
    pub(crate) mtime: TimeIntent,
    pub(crate) ctime: TimeIntent,
    /// Names added less names removed.
    pub(crate) link_delta: i64,
    /// A directory got another parent (for other nodes: the hint changed).
    pub(crate) moved: bool,
    /// It got another name, in whatever directory.
    pub(crate) renamed: bool,
    /// The size was set; nothing from here on stays as it was.
    pub(crate) cut: Option<u64>,
    pub(crate) data: FileData,
    /// Extended attributes set (`Some`) or removed (`None`).
    pub(crate) xattrs: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Target of a symlink made here.
    pub(crate) target: Option<Vec<u8>>,
    /// Of a kept transaction: the inode number under which its new data stands. That of a node made here is its own.
    pub(crate) shadow: Option<Ino>,
}

impl InodeState {
    pub(crate) fn existing(record: InodeRecord) -> InodeState {
        InodeState { original: Some(record.clone()), ..InodeState::created(record) }
    }

    pub(crate) fn created(record: InodeRecord) -> InodeState {
        InodeState {
            record,
            original: None,
            permissions: false,
            atime: TimeIntent::Keep,
            mtime: TimeIntent::Keep,
            ctime: TimeIntent::Keep,
            link_delta: 0,
            moved: false,
            renamed: false,
            cut: None,
            data: FileData::default(),
            xattrs: BTreeMap::new(),
            target: None,
            shadow: None,
        }
    }

    /// False when the inode was only looked at to be changed, and then was not.
    pub(crate) fn is_changed(&self) -> bool {
        let times = [self.atime, self.mtime, self.ctime];
        self.is_created()
            || self.permissions
            || times.iter().any(|time| *time != TimeIntent::Keep)
            || self.link_delta != 0
            || self.moved
            || self.cut.is_some()
            || !self.xattrs.is_empty()
            || !self.data.is_empty()
    }

    /// True when nothing but times moved on, as operations on a directory's names do.
    pub(crate) fn is_only_touched(&self) -> bool {
        let set = [self.atime, self.mtime, self.ctime].contains(&TimeIntent::Set);
        !self.is_created()
            && !set
            && !self.permissions
            && self.link_delta == 0
            && !self.moved
            && !self.renamed
            && self.cut.is_none()
            && self.xattrs.is_empty()
            && self.data.is_empty()
    }

    pub(crate) fn is_created(&self) -> bool {
        self.original.is_none()
    }

    /// The node changed.
    pub(crate) fn touch_node(&mut self, now: Timestamp) {
        self.record.ctime = now;
        self.ctime = TimeIntent::Touched;
    }

    /// The content changed, and so did the node.
    pub(crate) fn touch_content(&mut self, now: Timestamp) {
        self.record.mtime = now;
        self.mtime = TimeIntent::Touched;
        self.touch_node(now);
    }

    pub(crate) fn add_links(&mut self, delta: i64) {
        self.link_delta += delta;
        self.record.nlink = add_links(self.record.nlink, delta);
    }
}

/// A link count changed by a difference; never below zero or above the type's range.
pub(crate) fn add_links(nlink: u32, delta: i64) -> u32 {
    u32::try_from((i64::from(nlink) + delta).max(0)).unwrap_or(u32::MAX)
}

/// Changed data of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileData {
    /// Whole pages in memory.
    pub(crate) pages: BTreeMap<u64, Arc<[u8]>>,
    /// Runs of pages written to the log ahead of the commit, by their first page.
    pub(crate) placed: BTreeMap<u64, Extent>,
    /// Ranges of pages whose stored content is gone, first to last.
    pub(crate) masked: PageRanges,
}

/// Where a page's content is.
pub(crate) enum PageSource<'a> {
    Buffered(&'a Arc<[u8]>),
    /// Page `index` of the extent.
    Placed {
        extent: &'a Extent,
        index: u32,
    },
    /// Reads as zeros.
    Masked,
    /// As in the snapshot.
    Stored,
}

impl FileData {
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.placed.is_empty() && self.masked.is_empty()
    }

    pub(crate) fn page(&self, page: u64) -> PageSource<'_> {
        if let Some(buffer) = self.pages.get(&page) {
            return PageSource::Buffered(buffer);
        }
        if let Some((first, extent)) = self.placed.range(..=page).next_back()
            && page - first < u64::from(extent.pages())
        {
            return PageSource::Placed { extent, index: (page - first) as u32 };
        }
        if self.masked.contains(page) { PageSource::Masked } else { PageSource::Stored }
    }

    /// True when the stored content of a page is not what the transaction sees.
    pub(crate) fn hides(&self, page: u64) -> bool {
        !matches!(self.page(page), PageSource::Stored)
    }

    /// True when the transaction itself holds content for the page.
    pub(crate) fn holds(&self, page: u64) -> bool {
        matches!(self.page(page), PageSource::Buffered(_) | PageSource::Placed { .. })
    }

    /// The first page at or after `page` for which the transaction holds content.
    pub(crate) fn next_held(&self, page: u64) -> Option<u64> {
        if self.holds(page) {
            return Some(page);
        }
        let buffered = self.pages.range(page..).next().map(|(&page, _)| page);
        let placed = self.placed.range(page..).next().map(|(&page, _)| page);
        match (buffered, placed) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Puts a whole page; returns by how many bytes the memory grew.
    pub(crate) fn put_page(&mut self, page: u64, content: Arc<[u8]>) -> usize {
        let len = content.len();
        match self.pages.insert(page, content) {
            Some(_) => 0,
            None => {
                self.drop_placed(page, page);
                len
            }
        }
    }

    /// Makes pages read as zeros; returns by how many bytes the memory shrank.
    pub(crate) fn mask(&mut self, first: u64, last: u64) -> usize {
        let freed = self.drop_buffered(first, last);
        self.drop_placed(first, last);
        self.masked.insert(first, last);
        freed
    }

    /// Remembers that a run of buffered pages now lies in the log.
    pub(crate) fn put_placed(&mut self, first: u64, extent: Extent) -> usize {
        let last = first + u64::from(extent.pages()) - 1;
        let freed = self.drop_buffered(first, last);
        self.drop_placed(first, last);
        self.placed.insert(first, extent);
        freed
    }

    fn drop_buffered(&mut self, first: u64, last: u64) -> usize {
        if self.pages.range(first..=last).next().is_none() {
            return 0;
        }
        let mut inside = self.pages.split_off(&first);
        if let Some(behind) = last.checked_add(1) {
            let mut after = inside.split_off(&behind);
            self.pages.append(&mut after);
        }
        inside.values().map(|content| content.len()).sum()
    }

    fn drop_placed(&mut self, first: u64, last: u64) {
        while let Some((&start, extent)) = self.placed.range(..=last).next_back() {
            let pages = u64::from(extent.pages());
            if start + pages <= first {
                // Runs do not overlap, so none further left can reach the range.
                break;
            }
            let head = first.saturating_sub(start);
            let tail_start = last.saturating_add(1);
            let left = (head > 0).then(|| extent.slice_pages(0, head as u32));
            let right = (tail_start < start + pages).then(|| {
                extent.slice_pages((tail_start - start) as u32, (start + pages - tail_start) as u32)
            });
            self.placed.remove(&start);
            if let Some(right) = right {
                self.placed.insert(tail_start, right);
            }
            if let Some(left) = left {
                self.placed.insert(start, left);
                break;
            }
        }
    }
}

/// A set of page numbers as ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageRanges(BTreeMap<u64, u64>);

impl PageRanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, page: u64) -> bool {
        self.0.range(..=page).next_back().is_some_and(|(_, &last)| last >= page)
    }

    /// Adds `first..=last`.
    pub(crate) fn insert(&mut self, mut first: u64, mut last: u64) {
        while let Some((&start, &end)) = self.0.range(..=last.saturating_add(1)).next_back() {
            if end < first.saturating_sub(1) {
                break;
            }
            if start <= first && end >= last {
                return;
            }
            first = first.min(start);
            last = last.max(end);
            self.0.remove(&start);
        }
        self.0.insert(first, last);
    }

    /// The ranges in order, first and last page.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(&first, &last)| (first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(pages: u32) -> Extent {
        Extent { segment: 1, offset: 0, len: pages * 4096, page_checksums: vec![0; pages as usize] }
    }

    #[test]
    fn ranges_merge() {
        let mut ranges = PageRanges::default();
        ranges.insert(10, 20);
        ranges.insert(30, 40);
        ranges.insert(21, 29);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(10, 40)]);
        ranges.insert(0, 3);
        ranges.insert(5, u64::MAX);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 3), (5, u64::MAX)]);
        assert!(ranges.contains(0) && !ranges.contains(4) && ranges.contains(u64::MAX));
    }

    #[test]
    fn placed_runs_are_cut() {
        let mut data = FileData::default();
        data.put_placed(0, extent(10));
        data.put_placed(10, extent(10));
        data.mask(8, 11);
        data.put_page(5, vec![1; 4096].into());
        let runs: Vec<_> = data.placed.iter().map(|(&first, extent)| (first, extent.pages())).collect();
        assert_eq!(runs, [(0, 5), (6, 2), (12, 8)]);
        assert!(data.holds(5) && data.holds(7) && !data.holds(8) && data.hides(8) && !data.hides(20));
        assert_eq!(data.next_held(8), Some(12));
        assert_eq!(data.mask(0, u64::MAX), 4096);
        assert!(data.placed.is_empty() && data.pages.is_empty());
    }
}
