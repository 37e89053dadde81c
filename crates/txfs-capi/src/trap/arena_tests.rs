//! The allocator as the handler has it, without a handler: the flag that says "in the handler" is set by hand.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use super::*;

/// Runs as in the handler, with a workspace.
fn in_handler<T>(work: impl FnOnce() -> T) -> T {
    assert!(reserve());
    let workspace = workspace::take().expect("a workspace");
    let state = thread::state();
    state.workspace.store(ptr::from_ref(workspace).cast_mut(), Relaxed);
    state.in_handler.store(true, Relaxed);
    let result = work();
    state.in_handler.store(false, Relaxed);
    state.workspace.store(ptr::null_mut(), Relaxed);
    workspace::give_back(workspace);
    result
}

fn address<T>(values: &[T]) -> *mut u8 {
    values.as_ptr().cast_mut().cast()
}

#[test]
fn a_size_class_holds_its_sizes_and_wastes_little() {
    let mut before = (0, 16);
    for len in 1..200_000 {
        let (number, class_len) = size_number(len);
        assert!(class_len >= len && class_len % 16 == 0, "{len}: {class_len}");
        assert!(class_len <= len + (len / 4).max(15), "{len}: {class_len}");
        assert!((number, class_len) == before || (number == before.0 + 1 && class_len > before.1), "{len}");
        before = (number, class_len);
    }
    assert!(size_number(RESERVED_LEN_MAX / 2).0 < SIZES);
}

#[test]
fn the_handler_takes_and_frees_without_the_system() {
    in_handler(|| {
        let mut map = BTreeMap::new();
        for round in 0..5_u32 {
            for number in 0..2000_u32 {
                let value = vec![number as u8; (number as usize * 37) % 5000];
                assert!(value.is_empty() || is_ours(address(&value)));
                map.insert(number, value);
            }
            map.retain(|number, value| {
                assert!(value.iter().all(|byte| *byte == *number as u8));
                number % 5 == round
            });
        }
    });
}

#[test]
fn freed_blocks_are_used_again() {
    in_handler(|| {
        for len in [1, 100, 5000, 40_000, 100_000, 3_000_000] {
            let first = vec![7_u8; len];
            let block = address(&first);
            drop(first);
            let second = vec![0_u8; len];
            assert_eq!(address(&second), block, "{len}");
            assert!(second.iter().all(|byte| *byte == 0));
        }
    });
}

#[test]
fn blocks_are_aligned() {
    in_handler(|| {
        for align in [1, 8, 16, 32, 64, 512, 4096, 65_536] {
            for len in [1, 24, 100, 5000, 70_000] {
                let layout = Layout::from_size_align(len, align).unwrap();
                // SAFETY: the layout is not empty; freed with the same.
                unsafe {
                    let block = ALLOCATOR.alloc(layout);
                    assert!(!block.is_null() && (block as usize).is_multiple_of(align), "{len} {align}");
                    block.write_bytes(1, len);
                    ALLOCATOR.dealloc(block, layout);
                }
            }
        }
    });
}

#[test]
fn blocks_of_the_system_wait_to_be_freed() {
    let mut blocks: Vec<Vec<u8>> = (1..100).map(|len| vec![1; len]).collect();
    assert!(!is_ours(address(&blocks[0])));
    in_handler(|| {
        blocks.truncate(10);
        assert!(!PUT_OFF.load(Relaxed).is_null());
        // one of the system grows
        blocks[9].extend([1; 5000]);
        assert!(is_ours(address(&blocks[9])));
    });
    free_put_off();
    assert!(PUT_OFF.load(Relaxed).is_null());
    assert!(blocks.iter().flatten().all(|byte| *byte == 1));
}

#[test]
fn blocks_of_the_arena_may_be_freed_anywhere() {
    let mut blocks = in_handler(|| vec![vec![5_u8; 300], vec![6; 70_000]]);
    assert!(is_ours(address(&blocks)));
    let second = blocks.pop().unwrap();
    std::thread::spawn(move || assert!(second.iter().all(|byte| *byte == 6))).join().unwrap();
    blocks[0].extend([5; 3000]);
    assert!(!is_ours(address(&blocks[0])), "outside of the handler it grows to the system");
    assert!(blocks[0].iter().all(|byte| *byte == 5));
}

/// The test that panics runs in a process of its own, started anew: in a forked one, another test's thread might have held
/// a lock of the standard library.
const PANICS: &str = "TXFS_TEST_PANICS_IN_THE_HANDLER";

#[test]
fn a_panic_in_the_handler_says_what_and_ends_the_process() {
    if std::env::var_os(PANICS).is_some() {
        crate::trap::abort_when_the_handler_panics();
        in_handler(|| panic!("as tested"));
        return;
    }
    let name = "a_panic_in_the_handler_says_what_and_ends_the_process";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([&format!("trap::arena::tests::{name}"), "--exact", "--nocapture"])
        .env(PANICS, "1")
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("libtxfs: internal error") && text.contains("as tested"), "{text}");
}
