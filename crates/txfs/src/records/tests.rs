//! The worked examples of `docs/FORMAT.md`, and arbitrary bytes for every decoder.

use super::{Bucket, Dirent, InodeRecord, NameHasher, key, small};
use crate::types::{NodeKind, Timestamp};

const FORMAT: &str = include_str!("../../../../docs/FORMAT.md");

/// The bytes of the example with this name.
fn example(name: &str) -> Vec<u8> {
    let (_, rest) = FORMAT.split_once(&format!("<!-- example: {name} -->\n```\n")).unwrap();
    let (hex, _) = rest.split_once("```").unwrap();
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn the_documented_bytes_are_what_is_written() {
    let time = |seconds| Timestamp::new(seconds, 5);
    let record = InodeRecord {
        kind: NodeKind::File,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        nlink: 1,
        size: 5000,
        pages: 2,
        parent: 1,
        rdev: 0,
        atime: time(1),
        mtime: time(2),
        ctime: time(3),
        btime: time(4),
    };
    assert_eq!(record.encode(), example("inode"));
    assert_eq!(key::inode(2).to_vec(), example("inode key"));
    let hash = NameHasher::new([9; 16]).hash(b"notes.txt");
    let bucket = Bucket(vec![Dirent { ino: 2, kind: NodeKind::File, slot: 0, name: b"notes.txt".to_vec() }]);
    assert_eq!(bucket.encode(), example("entry"));
    assert_eq!(key::dirent(1, hash).to_vec(), example("entry key"));
    assert_eq!(key::extent(2, 1).to_vec(), example("extent key"));
    assert_eq!(small::encode_number(1027), example("next inode number"));
}

#[test]
fn arbitrary_bytes_never_panic_and_what_decodes_is_canonical() {
    let mut random = fastrand::Rng::with_seed(1);
    let valid = [example("inode"), example("entry"), example("next inode number")];
    for _ in 0..50_000 {
        let mut bytes = random.choice(&valid).unwrap().clone();
        for _ in 0..random.usize(0..4) {
            let at = random.usize(0..bytes.len());
            bytes[at] = random.u8(..);
        }
        if random.u8(0..4) == 0 {
            bytes.truncate(random.usize(0..=bytes.len()));
        }
        if let Ok(bucket) = Bucket::decode(&bytes) {
            assert_eq!(bucket.encode(), bytes);
        }
        if let Ok(record) = InodeRecord::decode(&bytes) {
            assert_eq!(record.encode(), bytes);
        }
        let _ = small::decode_number(&bytes);
        let _ = (key::ino_of(&bytes), key::second_of(&bytes), key::xattr_name(&bytes));
    }
}
