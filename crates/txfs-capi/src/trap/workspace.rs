//! What a thread needs to handle its calls, kept from one transaction to the next: a stack, free blocks, a counter.
//!
//! Workspaces are made once, never freed, and handed on over a stack without locks: a process may be copied (fork) at
//! any moment, and its child must find the pool usable whatever other threads were doing.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use super::arena::{self, FreeBlocks};
use crate::kernel;

/// The most threads that can be in transactions at once.
const WORKSPACES_MAX: usize = 16_384;
/// Paths, requests and answers of the handler live here.
const STACK_LEN: usize = 256 * 1024;
const PAGE_LEN: usize = 4096;

/// One workspace. Whoever took it from the pool has it alone.
pub(super) struct Workspace {
    number: u32,
    /// In the pool: number of the next one, plus 1.
    next: AtomicU32,
    /// Calls that were caught with it.
    pub caught: AtomicU64,
    pub stack_top: *mut u8,
    /// Only used by the thread that has the workspace, and never by two of its functions at once.
    pub free_blocks: UnsafeCell<FreeBlocks>,
}

static ALL: [AtomicPtr<Workspace>; WORKSPACES_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; WORKSPACES_MAX];
/// How many there are.
static MADE: AtomicU32 = AtomicU32::new(0);
/// The pool: number of the first workspace plus 1; above it a count of changes, so that a stale view never wins.
static POOL: AtomicU64 = AtomicU64::new(0);

/// Takes a workspace; None without memory, or with too many threads.
pub(super) fn take() -> Option<&'static Workspace> {
    let mut pool = POOL.load(Acquire);
    loop {
        let Some(first) = (pool as u32).checked_sub(1) else { return make() };
        // SAFETY: a number in the pool is that of a finished workspace, and those are never freed.
        let workspace: &'static Workspace = unsafe { &*ALL[first as usize].load(Acquire) };
        let rest = ((pool >> 32).wrapping_add(1) << 32) | u64::from(workspace.next.load(Relaxed));
        match POOL.compare_exchange_weak(pool, rest, AcqRel, Acquire) {
            Ok(_) => return Some(workspace),
            Err(now) => pool = now,
        }
    }
}

/// Puts it back.
pub(super) fn give_back(workspace: &'static Workspace) {
    let mut pool = POOL.load(Relaxed);
    loop {
        workspace.next.store(pool as u32, Relaxed);
        let with = ((pool >> 32).wrapping_add(1) << 32) | u64::from(workspace.number + 1);
        match POOL.compare_exchange_weak(pool, with, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => pool = now,
        }
    }
}

/// How many calls of this process were caught so far.
pub fn caught() -> u64 {
    // One that is just being made has caught nothing; those behind it may have.
    let made = MADE.load(Acquire) as usize;
    let workspaces = ALL[..made].iter().filter_map(|slot| {
        // SAFETY: workspaces are never freed.
        unsafe { slot.load(Acquire).as_ref() }
    });
    workspaces.map(|workspace| workspace.caught.load(Relaxed)).sum()
}

fn make() -> Option<&'static Workspace> {
    let number = MADE
        .fetch_update(Relaxed, Relaxed, |made| (made < WORKSPACES_MAX as u32).then_some(made + 1))
        .ok()?;
    let memory = arena::take(PAGE_LEN + STACK_LEN + size_of::<Workspace>())?;
    // A handler that needs more than its stack dies, rather than writing over somebody's data.
    // SAFETY: the first page of our own new memory.
    unsafe {
        kernel::raw(
            libc::SYS_mprotect as usize,
            [memory as usize, PAGE_LEN, libc::PROT_NONE as usize, 0, 0, 0],
        )
    };
    // SAFETY: within the memory just taken; the sum is a multiple of the alignment.
    let workspace = unsafe {
        let stack_top = memory.add(PAGE_LEN + STACK_LEN);
        let workspace = stack_top.cast::<Workspace>();
        let free_blocks = UnsafeCell::new(FreeBlocks::new());
        workspace.write(Workspace {
            number,
            next: AtomicU32::new(0),
            caught: AtomicU64::new(0),
            stack_top,
            free_blocks,
        });
        &*workspace
    };
    ALL[number as usize].store(ptr::from_ref(workspace).cast_mut(), Release);
    Some(workspace)
}
