//! Nodes in memory, by where they lie in the file.
//!
//! A table with a place for each sector: finding a node is two loads, without a lock, a hash or a change of anything
//! that another processor reads. It grows with the file, 8 bytes for 512 (1.6 %), region by region, and each version of
//! the tree holds the table as it was when the version was made: nothing that it refers to lies behind that.
//!
//! A place may hold a node that was there before the sector was written again. Who asks compares length and checksum
//! with the pointer, so that counts as absent.
//!
//! What goes when room is needed is decided by a hand that goes around the table (CLOCK): it takes what nobody used since
//! it came by last. New nodes begin as unused, so a scan of everything does not drive out what is used.
//!
//! # Locking
//! The mutex holds the hand and is taken only for growing and by whoever makes room; others go on meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use super::node::Node;
use super::pointer::{Pointer, SECTOR_BYTES};
use super::regions::REGION_BYTES;

const REGION_SECTORS: usize = REGION_BYTES as usize / SECTOR_BYTES;
/// What a node takes in memory beside its bytes.
const NODE_OVERHEAD_BYTES: usize = 64;

type Places = Box<[ArcSwapOption<Node>]>;
/// The table, by region.
pub(super) type Table = Arc<Vec<Arc<Places>>>;
/// A node that stays as long as this is held.
pub(super) type Held = Guard<Option<Arc<Node>>>;

/// See the module's documentation.
pub(super) struct Cache {
    bytes_max: usize,
    bytes: AtomicUsize,
    hand: Mutex<Hand>,
}

struct Hand {
    table: Table,
    region: usize,
}

fn place<'a>(table: &'a Table, pointer: &Pointer) -> Option<&'a ArcSwapOption<Node>> {
    let sector = pointer.sector as usize;
    table.get(sector / REGION_SECTORS).map(|places| &places[sector % REGION_SECTORS])
}

fn node_bytes(node: Option<&Arc<Node>>) -> usize {
    node.map_or(0, |node| node.bytes().len() + NODE_OVERHEAD_BYTES)
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Cache {
        let hand = Hand { table: Arc::default(), region: 0 };
        Cache { bytes_max, bytes: AtomicUsize::new(0), hand: Mutex::new(hand) }
    }

    /// The table for a file of so many regions.
    pub(super) fn table(&self, regions: usize) -> Table {
        let mut hand = self.hand.lock();
        if hand.table.len() < regions {
            let mut table = Vec::clone(&hand.table);
            table.resize_with(regions, || {
                Arc::new((0..REGION_SECTORS).map(|_| ArcSwapOption::empty()).collect())
            });
            hand.table = Arc::new(table);
        }
        hand.table.clone()
    }

    /// The node that the pointer means, if it is here.
    pub(super) fn get(&self, table: &Table, pointer: &Pointer) -> Option<Held> {
        let held = place(table, pointer)?.load();
        let node = held.as_ref()?;
        if node.crc != pointer.crc || node.bytes().len() != pointer.len as usize {
            return None;
        }
        if !node.used.load(Ordering::Relaxed) {
            node.used.store(true, Ordering::Relaxed);
        }
        Some(held)
    }

    /// Keeps a node; others may have to go.
    pub(super) fn put(&self, table: &Table, pointer: &Pointer, node: Arc<Node>) {
        let Some(place) = place(table, pointer) else { return };
        let more = node_bytes(Some(&node));
        self.bytes.fetch_add(more, Ordering::Relaxed);
        let old = place.swap(Some(node));
        let bytes = self.bytes.fetch_sub(node_bytes(old.as_ref()), Ordering::Relaxed);
        if bytes > self.bytes_max {
            self.make_room();
        }
    }

    /// Gives up a node that the newest version does not have any more.
    pub(super) fn remove(&self, table: &Table, pointer: &Pointer) {
        let Some(place) = place(table, pointer) else { return };
        if place.load().as_ref().is_some_and(|node| node.crc == pointer.crc) {
            let old = place.swap(None);
            self.bytes.fetch_sub(node_bytes(old.as_ref()), Ordering::Relaxed);
        }
    }

    fn make_room(&self) {
        // One is enough; the others are over by a node each.
        let Some(mut hand) = self.hand.try_lock() else { return };
        let enough = self.bytes_max - self.bytes_max / 64;
        // Twice around finds everything: the first time takes the marks away.
        for _ in 0..2 * hand.table.len() {
            if self.bytes.load(Ordering::Relaxed) <= enough {
                return;
            }
            let Some(places) = hand.table.get(hand.region) else {
                hand.region = 0;
                continue;
            };
            for place in places.iter() {
                let held = place.load();
                let Some(node) = held.as_ref() else { continue };
                if !node.used.swap(false, Ordering::Relaxed) {
                    drop(held);
                    let old = place.swap(None);
                    self.bytes.fetch_sub(node_bytes(old.as_ref()), Ordering::Relaxed);
                }
            }
            hand.region += 1;
        }
    }
}
