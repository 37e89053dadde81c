//! A tiny key-value and blob layer over the engine, for its tests: keys are opaque, blobs are one extent each.
#![allow(dead_code)]

pub mod watched;

use std::sync::Arc;
use std::time::Duration;

use txfs_disk::Disk;
use txfs_disk::sim::{SimOptions, SimulatedDisk};
use txfs_engine::{
    Applied, Chunk, Commit, ConflictSet, Durability, Engine, EngineError, EngineOptions, Extent,
    FormatOptions, Mutation, MutationList, Read, Receipt, Snapshot,
};

pub const SEGMENT_BYTES: u64 = 512 * 1024;

pub fn options() -> EngineOptions {
    EngineOptions {
        background: false,
        recent_bytes: 0,
        index_cache_bytes: 1 << 20,
        // Who holds space is the thread that would wait for it.
        reader_patience: Duration::from_millis(20),
        ..EngineOptions::default()
    }
}

pub fn format_options() -> FormatOptions {
    FormatOptions {
        segment_bytes: SEGMENT_BYTES,
        identity: Some(([7; 16], [9; 16])),
        ..FormatOptions::default()
    }
}

pub fn sim(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(SimOptions { seed, ..SimOptions::default() })
}

pub fn create(disk: &Arc<dyn Disk>) -> Engine {
    Engine::create(disk, &format_options(), &[]).expect("create");
    Engine::open(disk.clone(), options()).expect("open")
}

pub fn put(key: &str, value: &str) -> Mutation {
    Mutation::Put { key: key.as_bytes().to_vec(), value: value.as_bytes().to_vec() }
}

pub fn point(at: u64) -> ConflictSet {
    let mut set = ConflictSet::new();
    set.insert_point(1, 1, at);
    set
}

/// Commits mutations that depend on nothing.
pub fn commit(
    engine: &Engine,
    mutations: &[Mutation],
    durability: Durability,
) -> Result<Receipt, EngineError> {
    let empty = ConflictSet::new();
    commit_at(engine, &engine.snapshot(), &empty, &empty, mutations, durability)
}

pub fn commit_at(
    engine: &Engine,
    snapshot: &Snapshot,
    reads: &ConflictSet,
    writes: &ConflictSet,
    mutations: &[Mutation],
    durability: Durability,
) -> Result<Receipt, EngineError> {
    engine.commit(Commit {
        snapshot,
        reads,
        writes,
        data: Vec::new(),
        prepared: &MutationList::new(),
        durability,
        apply: &|_, _| Ok(Applied { mutations: mutations.to_vec(), ..Applied::default() }),
    })
}

pub fn blob_key(name: &str, index: usize) -> Vec<u8> {
    let mut key = vec![b'e'];
    key.extend_from_slice(name.as_bytes());
    key.push(0);
    key.extend_from_slice(&(index as u32).to_be_bytes());
    key
}

/// Stores `bytes` under `name`, in chunks of at most 256 KiB; the same name must always get as many chunks.
pub fn put_blob(
    engine: &Engine,
    name: &str,
    bytes: &[u8],
    durability: Durability,
) -> Result<Receipt, EngineError> {
    let empty = ConflictSet::new();
    engine.commit(Commit {
        snapshot: &engine.snapshot(),
        reads: &empty,
        writes: &empty,
        data: bytes.chunks(txfs_engine::CHUNK_BYTES_MAX).map(|chunk| Chunk::from(chunk.to_vec())).collect(),
        prepared: &MutationList::new(),
        durability,
        apply: &|_, extents| {
            let mutations = extents
                .iter()
                .enumerate()
                .map(|(index, extent)| Mutation::Put { key: blob_key(name, index), value: extent.encode() })
                .collect();
            Ok(Applied { mutations, ..Applied::default() })
        },
    })
}

pub fn get_blob(engine: &Engine, name: &str) -> Result<Vec<u8>, EngineError> {
    let snapshot = engine.snapshot();
    let mut bytes = Vec::new();
    for index in 0.. {
        let Some(value) = snapshot.get(&blob_key(name, index))? else { break };
        let extent = Extent::decode(&value).expect("extent");
        let start = bytes.len();
        bytes.resize(start + extent.len as usize, 0);
        engine.read(&extent, 0, &mut bytes[start..])?;
    }
    Ok(bytes)
}

pub fn get(engine: &Engine, key: &str) -> Option<String> {
    let value = engine.snapshot().get(key.as_bytes()).expect("get");
    value.map(|value| String::from_utf8(value).expect("text"))
}

pub fn sound(engine: &Engine) {
    let report = engine.check(&mut |_, _| {}).expect("check");
    assert_eq!(report.problems, []);
}
