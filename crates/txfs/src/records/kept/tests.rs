//! Encoding and decoding what is stored of kept transactions.

use txfs_engine::{Clash, ConflictRange, ConflictSet, Opponent, Origin, TransactionOrigin};

use super::*;
use crate::records::{Bucket, Dirent, InodeRecord};
use crate::transaction::overlay::{InodeState, NameState, PageRanges, TimeIntent};
use crate::types::NodeKind;

fn header() -> Header {
    Header {
        stage: Stage::Prepared,
        recorded: true,
        time: Timestamp::new(-5, 7),
        process: 4711,
        snapshot: 9,
        nodes: 3,
        names: 1 << 40,
        data_bytes: u64::MAX,
        meta_bytes: 300,
        name: "order 7".into(),
        command: "make install".into(),
        message: "grüße".into(),
    }
}

fn inode() -> InodeState {
    let record = InodeRecord {
        kind: NodeKind::File,
        mode: 0o644,
        uid: 1,
        gid: 2,
        nlink: 1,
        size: 5000,
        pages: 9,
        parent: 1,
        rdev: 0,
        atime: Timestamp::new(1, 2),
        mtime: Timestamp::new(3, 4),
        ctime: Timestamp::new(5, 6),
        btime: Timestamp::new(7, 8),
    };
    InodeState {
        original: Some(InodeRecord { size: 9000, ..record.clone() }),
        permissions: true,
        renamed: true,
        mtime: TimeIntent::Touched,
        atime: TimeIntent::Set,
        link_delta: -1,
        cut: Some(0),
        shadow: Some(77),
        target: Some(b"there".to_vec()),
        ..InodeState::created(record)
    }
}

fn name() -> NameState {
    let dirent = Dirent { ino: 7, kind: NodeKind::File, slot: 1, name: b"a".to_vec() };
    NameState { original: Bucket::default(), current: Bucket(vec![dirent]) }
}

fn clash() -> Clash {
    let transaction = TransactionOrigin { number: 3, command: "cp".into(), label: "x".into() };
    let origin = Origin { process: 5, time: (6, 7), transaction: Some(transaction.into()) };
    let range = ConflictRange { space: 1, object: 2, first: 3, last: u64::MAX };
    Clash { range, written: true, with: Opponent::Commit { sequence: 99, origin } }
}

#[test]
fn what_is_encoded_decodes() {
    assert_eq!(Header::decode(&header().encode()), Ok(header()));
    let (state, found) = (inode(), decode_inode(&encode_inode(&inode(), 77)).expect("it decodes"));
    let pages_cut = InodeRecord { pages: 2, ..state.record.clone() };
    assert_eq!(
        (found.record, found.original),
        (pages_cut, Some(super::changes::storable(&state.original.expect("set"))))
    );
    assert_eq!((found.cut, found.link_delta, found.shadow), (Some(0), -1, Some(77)));
    assert_eq!((found.atime, found.mtime, found.ctime), (state.atime, state.mtime, state.ctime));
    assert_eq!((found.permissions, found.moved, found.renamed), (true, false, true));
    assert_eq!(found.target, state.target);
    let found = decode_name(&encode_name(&name())).expect("it decodes");
    assert_eq!((found.original, found.current), (name().original, name().current));
    assert_eq!(decode_conflict(99, &encode_conflict(&clash())), Ok(clash()));
}

#[test]
fn long_lists_take_several_values() {
    let (mut set, mut pages) = (ConflictSet::new(), PageRanges::default());
    for number in 0..2 * RANGES_MAX as u64 + 1 {
        set.insert(1, number % 7, number * 2, number * 2);
        pages.insert(number * 2, number * 2);
    }
    pages.insert(1 << 40, u64::MAX);
    let (values, page_values) = (encode_ranges(&set), encode_pages(&pages));
    assert!(values.len() == 3 && page_values.len() == 3);
    let (mut found, mut found_pages) = (ConflictSet::new(), PageRanges::default());
    values.iter().for_each(|value| decode_ranges(value, &mut found).expect("it decodes"));
    page_values.iter().for_each(|value| decode_pages(value, &mut found_pages).expect("it decodes"));
    assert!(found.iter().eq(set.iter()) && found_pages == pages);
}

#[test]
fn broken_bytes_are_errors_and_never_panic() {
    let mut set = ConflictSet::new();
    set.insert(1, 2, 3, 400);
    let values = [
        header().encode(),
        encode_inode(&inode(), 77),
        encode_name(&name()),
        encode_conflict(&clash()),
        encode_ranges(&set).remove(0),
    ];
    let decode = |bytes: &[u8]| {
        [
            Header::decode(bytes).is_err(),
            decode_inode(bytes).is_err(),
            decode_name(bytes).is_err(),
            decode_conflict(1, bytes).is_err(),
            decode_ranges(bytes, &mut ConflictSet::new()).is_err(),
            decode_pages(bytes, &mut PageRanges::default()).is_err(),
        ]
    };
    for (kind, bytes) in values.iter().enumerate() {
        for len in 0..bytes.len() {
            let errors = decode(&bytes[..len]);
            // A shorter list of ranges is one, too.
            assert!(errors[kind] || (kind == 4 && len == 1), "kind {kind}, {len} bytes");
        }
        for at in 0..bytes.len() {
            for flip in [0xff, 0x80, 1] {
                let mut broken = bytes.clone();
                broken[at] ^= flip;
                decode(&broken);
            }
        }
        assert!(decode(&[&bytes[..], &[0x80]].concat())[kind]);
    }
}
