//! Requests that no kernel sends: whatever the bytes, the answer is an error or a reply, never a panic.

use super::*;
use crate::wire::device::Device;
use std::os::fd::OwnedFd;
use txfs::Volume;

fn filesystem(volume: &Volume) -> FileSystem {
    let views = Arc::new(Views::new(volume.clone(), None));
    let nowhere = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    let device = Arc::new(Device::new(OwnedFd::from(nowhere)));
    let invalidator = Invalidator::new(device, views.clone());
    let (tokens, groups) = Default::default();
    FileSystem { views, counts: MessageCounts::new(), invalidator, tokens, groups, owner: (0, 0) }
}

fn body(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..random.usize(..12) {
        let word = match random.u8(..8) {
            0 => random.u64(..),
            1 => u64::MAX - random.u64(..3),
            2 => u64::from(random.u32(..)) << 32,
            3 => 1 << random.u32(..64),
            _ => random.u64(..10_000),
        };
        body.extend(word.to_ne_bytes());
    }
    for _ in 0..random.usize(..3) {
        let names: [&[u8]; 9] = [b"", b".", b"..", b"a", b"b", b"c/d", b".txfs", b"user.x", &[0xff; 300]];
        body.extend(random.choice(names).unwrap());
        body.extend(random.bool().then_some(0));
    }
    body
}

#[test]
fn any_request_gets_an_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    Volume::create(&path).unwrap();
    let volume = Volume::open(&path).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let filesystem = filesystem(&volume);
    let beginner = crate::views::Beginner { pid: 1, uid: 0, command: String::new() };
    // Snapshots of the files that there are; requests outside doom it now and then, and then the next one begins.
    let begin = || filesystem.views.open(volume.begin(), beginner.clone(), None).unwrap();
    let base = filesystem.views.base().view().unwrap();
    base.make_file(txfs::ROOT_INO, b"a", 0o755, 0, 0).unwrap();
    base.make_directory(txfs::ROOT_INO, b"b", 0o755, 0, 0).unwrap();
    let mut open = begin();
    let mut doomed = 0;
    let mut reply = ReplyBuffer::new();
    let mut answered = 0;
    for _ in 0..20_000 {
        let body = body(&mut random);
        let opcode = match random.u8(..10) {
            0 => random.u32(..70),
            _ => *random.choice(Opcode::ALL).unwrap() as u32,
        };
        let transaction = &open.transaction().unwrap().transaction;
        if transaction.conflict().is_some() {
            transaction.abort();
            filesystem.views.end(&open);
            open = begin();
            doomed += 1;
        }
        let view = random.choice([0, open.index, open.index, open.index + 1, MOUNT_VIEW]).unwrap();
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode,
            unique: 1,
            node: NodeId::join(view, random.u64(..8)).0,
            ..Default::default()
        };
        let bytes = [bytemuck::bytes_of(&header), &body].concat();
        let request = Request::parse(&bytes).unwrap();
        reply.clear();
        let _unversioned = filesystem.unversioned(&request);
        match filesystem.serve(&request, &mut reply) {
            Ok(_) => answered += 1,
            Err(Errno(number)) => assert!((1..4096).contains(&number), "{header:?}: {number}"),
        }
        reply.finish(1, 0);
    }
    assert!(answered > 1000 && doomed > 0, "{answered} answered, {doomed} doomed");
    assert!(volume.check().unwrap().problems.is_empty());
    filesystem.views.forget_all();
    volume.close().unwrap();
}
