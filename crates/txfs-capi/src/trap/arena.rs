//! The allocator of the library. A thread in the handler may have been interrupted inside `malloc`, so there the memory
//! comes from an arena of our own; anywhere else from the system.
//!
//! The arena is one reserved range of addresses, so that a block says by its address whose it is. Pages of it are taken
//! in order and never given back to the range; freed blocks go to lists by size, which belong to a workspace. Nothing
//! has a lock. What `malloc` gave and the handler frees waits in `PUT_OFF` until a thread is outside of the handler.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use super::{thread, workspace};
use crate::kernel;

/// Only addresses: nothing is committed before it is used.
const RESERVED_LEN_MAX: usize = 64 << 30;
const RESERVED_LEN_MIN: usize = 64 << 20;
/// What is taken of the range at once, and the alignment of what is taken.
const CHUNK_LEN: usize = 64 * 1024;
/// Blocks of at least this size give their pages back to the kernel when they are freed.
const LARGE_LEN: usize = CHUNK_LEN;
/// Four sizes for each power of two; those up to 128 bytes go in steps of 16.
const SIZES: usize = 8 + 4 * 28;
/// Blocks that are aligned to more than 16 bytes: powers of two.
const ALIGNED_SIZES: usize = 36;

/// Where the range begins, and in the low bits, which are 0 there, the power of two of its length. One word, so that
/// no copy of the process ever has half of it.
static RESERVED: AtomicUsize = AtomicUsize::new(0);
static TAKEN_LEN: AtomicUsize = AtomicUsize::new(0);
static PUT_OFF: AtomicPtr<PutOff> = AtomicPtr::new(ptr::null_mut());

/// Written into a block of `malloc`, which has at least this size.
struct PutOff {
    next: *mut PutOff,
    align: usize,
}

/// Reserves the range; called before any handler can run. Again is no harm.
pub(super) fn reserve() -> bool {
    if RESERVED.load(Acquire) != 0 {
        return true;
    }
    let mut len = RESERVED_LEN_MAX;
    while len >= RESERVED_LEN_MIN {
        let protection = libc::PROT_NONE as usize;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
        // One chunk more, to begin at a multiple of a chunk.
        let mapped_len = len + CHUNK_LEN;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let mapped = unsafe {
            kernel::raw(libc::SYS_mmap as usize, [0, mapped_len, protection, flags, usize::MAX, 0])
        };
        if mapped > 0 {
            let start = (mapped as usize).next_multiple_of(CHUNK_LEN) | len.ilog2() as usize;
            if RESERVED.compare_exchange(0, start, AcqRel, Acquire).is_err() {
                // SAFETY: the mapping just made, which nobody knows: another thread was first.
                unsafe { kernel::raw(libc::SYS_munmap as usize, [mapped as usize, mapped_len, 0, 0, 0, 0]) };
            }
            return true;
        }
        len /= 2;
    }
    false
}

/// The range: start and length; nothing before it is reserved.
fn reserved() -> (usize, usize) {
    match RESERVED.load(Acquire) {
        0 => (0, 0),
        word => (word & !(CHUNK_LEN - 1), 1 << (word % CHUNK_LEN)),
    }
}

/// Takes at least `len` new bytes, zeroed and aligned to a chunk; None if the range or memory is used up.
pub(super) fn take(len: usize) -> Option<*mut u8> {
    let len = len.checked_next_multiple_of(CHUNK_LEN)?;
    let (start, end) = reserved();
    let within = |taken: usize| taken.checked_add(len).filter(|next| *next <= end);
    let start = start + TAKEN_LEN.fetch_update(AcqRel, Acquire, within).ok()?;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: these pages of our range belong to nobody else.
    let changed = unsafe { kernel::raw(libc::SYS_mprotect as usize, [start, len, protection, 0, 0, 0]) };
    (changed == 0).then_some(start as *mut u8)
}

fn is_ours(block: *mut u8) -> bool {
    let (start, len) = reserved();
    (block as usize).wrapping_sub(start) < len
}

/// Freed blocks of a workspace, and what is left of its newest chunk.
pub(super) struct FreeBlocks {
    by_size: [*mut u8; SIZES],
    aligned: [*mut u8; ALIGNED_SIZES],
    chunk: usize,
    chunk_end: usize,
}

impl FreeBlocks {
    pub(super) const fn new() -> FreeBlocks {
        let by_size = [ptr::null_mut(); SIZES];
        FreeBlocks { by_size, aligned: [ptr::null_mut(); ALIGNED_SIZES], chunk: 0, chunk_end: 0 }
    }

    /// The list for a layout, and the length and alignment of its blocks.
    fn list(&mut self, layout: Layout) -> Option<(&mut *mut u8, usize, usize)> {
        if layout.align() > 16 {
            let len = layout.size().max(layout.align()).checked_next_power_of_two()?;
            let list = self.aligned.get_mut(len.trailing_zeros() as usize)?;
            return (layout.align() <= CHUNK_LEN).then_some((list, len, len.min(CHUNK_LEN)));
        }
        let (number, len) = size_number(layout.size());
        Some((self.by_size.get_mut(number)?, len, 16))
    }

    fn allocate(&mut self, layout: Layout) -> *mut u8 {
        let Some((list, len, align)) = self.list(layout) else { return ptr::null_mut() };
        let block = *list;
        if !block.is_null() {
            // SAFETY: a block in a list holds the address of the next one, and nobody else has it.
            *list = unsafe { block.cast::<*mut u8>().read() };
            return block;
        }
        if len >= LARGE_LEN / 2 {
            return take(len).unwrap_or(ptr::null_mut());
        }
        let mut start = self.chunk.next_multiple_of(align);
        if start + len > self.chunk_end {
            let Some(chunk) = take(CHUNK_LEN) else { return ptr::null_mut() };
            start = chunk as usize;
            self.chunk_end = start + CHUNK_LEN;
        }
        self.chunk = start + len;
        start as *mut u8
    }

    /// # Safety
    /// The block came from `allocate` of any workspace with this layout, and is not used any more.
    unsafe fn free(&mut self, block: *mut u8, layout: Layout) {
        let Some((list, len, _)) = self.list(layout) else { return };
        if len >= LARGE_LEN {
            // SAFETY: pages of a block that nobody uses; they read as zero when they are used again.
            unsafe {
                kernel::raw(
                    libc::SYS_madvise as usize,
                    [block as usize, len, libc::MADV_DONTNEED as usize, 0, 0, 0],
                )
            };
        }
        // SAFETY: the block is ours, aligned to 16, and at least 16 bytes long.
        unsafe { block.cast::<*mut u8>().write(*list) };
        *list = block;
    }
}

/// Which size class a length belongs to, and the length of its blocks.
fn size_number(len: usize) -> (usize, usize) {
    if len <= 128 {
        let number = len.max(1).div_ceil(16) - 1;
        return (number, (number + 1) * 16);
    }
    let last = len - 1;
    let power = last.ilog2() as usize;
    let quarter = (last >> (power - 2)) - 4;
    (8 + (power - 7) * 4 + quarter, (quarter + 5) << (power - 2))
}

/// Uses the free blocks of this thread's workspace, or of one that is taken for the moment.
fn with_free_blocks<T>(work: impl FnOnce(&mut FreeBlocks) -> T) -> Option<T> {
    if thread::in_handler() {
        let workspace = thread::state().workspace.load(Relaxed);
        // SAFETY: in the handler the thread has a workspace, which is its own, and `work` (both users are above) does
        // not come back here.
        return Some(work(unsafe { &mut *(*workspace).free_blocks.get() }));
    }
    // Outside, a signal handler might come between: it would take another one.
    let workspace = workspace::take()?;
    // SAFETY: it was taken from the pool, so nobody else has it.
    let result = work(unsafe { &mut *workspace.free_blocks.get() });
    workspace::give_back(workspace);
    Some(result)
}

/// Frees what the handler put off. Not for the handler.
pub(super) fn free_put_off() {
    if PUT_OFF.load(Relaxed).is_null() {
        return;
    }
    let mut block = PUT_OFF.swap(ptr::null_mut(), Acquire);
    while !block.is_null() {
        // SAFETY: blocks in the list came from `System` with this alignment (their length does not matter to it), hold
        // what `put_off` wrote, and belong to whoever took the list.
        unsafe {
            let PutOff { next, align } = block.read();
            System.dealloc(block.cast(), Layout::from_size_align_unchecked(1, align));
            block = next;
        }
    }
}

/// # Safety
/// The block came from `System` with this alignment and is not used any more.
unsafe fn put_off(block: *mut u8, align: usize) {
    let block = block.cast::<PutOff>();
    let mut next = PUT_OFF.load(Relaxed);
    loop {
        // SAFETY: the smallest block of malloc holds three words and is aligned to 16.
        unsafe { block.write(PutOff { next, align }) };
        match PUT_OFF.compare_exchange_weak(next, block, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => next = now,
        }
    }
}

/// The library's global allocator.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: blocks come from `System` or from the arena, whose lists hold blocks of at least the layout's length and
// alignment; by its address each block goes back to where it came from.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if thread::in_handler() {
            return with_free_blocks(|free_blocks| free_blocks.allocate(layout)).unwrap_or(ptr::null_mut());
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_ours(block) {
            // SAFETY: the caller's promise; without any workspace the block is lost, which is safe.
            with_free_blocks(|free_blocks| unsafe { free_blocks.free(block, layout) });
        } else if thread::in_handler() {
            // SAFETY: what is not of the arena is of the system.
            unsafe { put_off(block, layout.align()) };
        } else {
            // SAFETY: as above.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !thread::in_handler() {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's promise; a block that was used before is not zero.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, len_new: usize) -> *mut u8 {
        let ours = is_ours(block);
        if !ours && !thread::in_handler() {
            // SAFETY: the caller's promise.
            return unsafe { System.realloc(block, layout, len_new) };
        }
        if ours && layout.align() <= 16 && size_number(layout.size()) == size_number(len_new) {
            return block;
        }
        // SAFETY: the caller's promise; the new block does not overlap the old one.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(len_new, layout.align()));
            if !new.is_null() {
                ptr::copy_nonoverlapping(block, new, layout.size().min(len_new));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(test)]
#[path = "arena_tests.rs"]
mod tests;
