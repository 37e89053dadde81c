//! Checks everything that the engine itself can judge: that the index file is whole, that every extent lies inside a
//! segment that exists, that no two overlap (but for saved values), that every page of file data matches its checksum, and that the space
//! accounting agrees.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::format::saved::{extent_of, split_saved_key};
use crate::format::segment::SEGMENT_HEADER_BYTES;
use crate::format::{EXTENT_KEY_TAG, Extent, SAVED_KEY_TAGS, SegmentHeader};
use crate::index::{IndexError, Read};
use crate::log::Segment;
use crate::named::check_deltas;

/// More problems of what is saved for snapshots are not listed.
const DELTA_PROBLEMS_MAX: usize = 100;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckProblem {
    /// The index key of the extent concerned, where there is one; the file system can name its file.
    pub key: Option<Vec<u8>>,
    /// The segment concerned, where there is one.
    pub segment: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Extents looked at.
    pub extents: u64,
    /// Bytes of file data read and compared with their checksums.
    pub data_bytes: u64,
    /// Segments looked at.
    pub segments: u64,
    /// What is wrong; empty for a sound volume.
    pub problems: Vec<CheckProblem>,
}

impl Engine {
    /// Reads all file data and compares it with its checksums; `progress` is told the bytes read so far and in all.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        self.check_parts(true, progress)
    }

    /// As [`Engine::check`], but takes the pages of the index file as whole: for a caller who knows that a file of
    /// exactly these bytes has passed before.
    pub fn check_but_index_file(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        self.check_parts(false, progress)
    }

    fn check_parts(&self, index_file: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        let shared = &*self.shared;
        let (snapshot, live) = {
            let mut sequencer = shared.sequencer.lock();
            shared.seal(&mut sequencer)?;
            (self.snapshot(), sequencer.live.clone())
        };
        let mut report = CheckReport::default();
        let verified = if index_file { shared.index.verify().map(|_| ()) } else { Ok(()) };
        match verified {
            Ok(()) => {}
            // What else there is to check is found through the index.
            Err(error @ IndexError::Corrupt { .. }) => {
                report.add(None, None, error.to_string());
                return Ok(report);
            }
            Err(error) => return Err(error.into()),
        }
        let mut extents: Vec<(Extent, Vec<u8>)> = Vec::new();
        for tag in SAVED_KEY_TAGS.iter().chain([&EXTENT_KEY_TAG]) {
            snapshot.scan(&[*tag], &[*tag + 1], &mut |key, value| {
                match extent_of(key, value) {
                    Ok(Some(extent)) => extents.push((extent, key.to_vec())),
                    Ok(None) => {}
                    Err(error) => report.add(Some(key), None, error.to_string()),
                }
                ControlFlow::Continue(())
            })?;
        }
        match check_deltas(&snapshot, DELTA_PROBLEMS_MAX) {
            Ok(problems) => problems.iter().for_each(|(key, what)| report.add(Some(key), None, what.clone())),
            Err(error @ EngineError::Corrupt { .. }) => report.add(None, None, error.to_string()),
            Err(error) => return Err(error),
        }
        extents.sort_by_key(|(extent, _)| (extent.segment, extent.offset));
        self.check_segments(&mut report)?;
        check_overlap(&extents, &mut report);
        let total: u64 = extents.iter().map(|(extent, _)| u64::from(extent.len)).sum();
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        let mut buffer = Vec::new();
        for (extent, key) in &extents {
            *found.entry(extent.segment).or_default() += u64::from(extent.len);
            buffer.resize(extent.len as usize, 0);
            match shared.read(extent, 0, &mut buffer) {
                Ok(()) => {}
                Err(error @ (EngineError::Corrupt { .. } | EngineError::Io { .. })) => {
                    report.add(Some(key), Some(extent.segment), error.to_string());
                }
                Err(error) => return Err(error),
            }
            report.extents += 1;
            report.data_bytes += u64::from(extent.len);
            progress(report.data_bytes, total);
        }
        let counted: BTreeMap<u64, u64> = live.to_list().into_iter().collect();
        for id in found.keys().chain(counted.keys()).collect::<std::collections::BTreeSet<_>>() {
            let (found, counted) =
                (found.get(id).copied().unwrap_or(0), counted.get(id).copied().unwrap_or(0));
            if found != counted {
                let what = format!("{counted} live bytes are accounted for, and {found} are referred to");
                report.add(None, Some(*id), what);
            }
        }
        Ok(report)
    }

    fn check_segments(&self, report: &mut CheckReport) -> Result<()> {
        for segment in self.shared.pool.in_use() {
            report.segments += 1;
            let mut bytes = vec![0; SEGMENT_HEADER_BYTES];
            if let Err(error) = segment.file.read_at(0, &mut bytes) {
                report.add(None, Some(segment.id), format!("its header cannot be read: {error}"));
                continue;
            }
            // A segment that was just taken may not have its header yet.
            let pending = bytes.iter().all(|byte| *byte == 0);
            match SegmentHeader::decode(&bytes) {
                Ok(header) if header.volume_id != self.shared.manifest.volume_id => {
                    report.add(None, Some(segment.id), "it belongs to another volume".into());
                }
                Ok(header) if header.segment != segment.id => {
                    report.add(
                        None,
                        Some(segment.id),
                        format!("it says that it is segment {}", header.segment),
                    );
                }
                Ok(_) => {}
                Err(_) if pending => {}
                Err(error) => report.add(None, Some(segment.id), error.to_string()),
            }
        }
        Ok(())
    }
}

/// Saved values share data with others as a matter of course.
fn check_overlap(extents: &[(Extent, Vec<u8>)], report: &mut CheckReport) {
    let mut last: Option<&Extent> = None;
    for (after, key) in extents.iter().filter(|(_, key)| split_saved_key(key).is_none()) {
        let Some(before) = last.replace(after) else { continue };
        if before.segment == after.segment && before.offset + before.len > after.offset {
            report.add(Some(key), Some(after.segment), "its data overlaps that of another extent".into());
        }
    }
}

impl CheckReport {
    fn add(&mut self, key: Option<&[u8]>, segment: Option<u64>, what: String) {
        let what = match segment {
            Some(id) => format!("{}: {what}", Segment::file_name(id)),
            None => what,
        };
        self.problems.push(CheckProblem { key: key.map(<[u8]>::to_vec), segment, what });
    }
}
