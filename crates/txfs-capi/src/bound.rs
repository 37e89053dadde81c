//! What binds a thread to its transaction, and what its last one has met.
//!
//! A thread whose calls are caught has its binding in the trap; one that asked for its calls to be let through has it in a
//! variable of its own.

use crate::calls::mounts;
use crate::calls::own;
use crate::connection;
use crate::transaction::{self, Binding, End};
use crate::trap;
use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char};
use std::ptr::NonNull;
use txfs_protocol::ConflictReport;

/// The calling thread's binding, while it is in a transaction.
///
/// The caller runs in the trap's handler or in `trap::uninterrupted`, and gives the reference up before it ends.
pub fn binding() -> Option<&'static mut Binding> {
    let binding = match trap::binding() {
        Some(binding) => binding.cast::<Binding>(),
        None => NonNull::new(EXPLICIT.try_with(|explicit| explicit.0.get()).ok()?)?,
    };
    // SAFETY: either is a Binding of this thread, freed only after it is taken from there; nothing else of the thread
    // runs meanwhile, and no other thread knows the address.
    Some(unsafe { &mut *binding.as_ptr() })
}

/// The binding of a thread whose calls are not caught.
struct Explicit(Cell<*mut Binding>);

impl Drop for Explicit {
    fn drop(&mut self) {
        if let Some(mut binding) = take_explicit(&self.0) {
            let _ = binding.end(End::Abort);
        }
    }
}

thread_local! {
    static EXPLICIT: Explicit = const { Explicit(Cell::new(std::ptr::null_mut())) };
}

/// Binds the thread without catching its calls.
pub fn enter_explicitly(binding: Box<Binding>) {
    EXPLICIT.with(|explicit| explicit.0.set(Box::into_raw(binding)));
}

/// Takes such a binding back, if there is one.
pub fn leave_explicitly() -> Option<Box<Binding>> {
    EXPLICIT.try_with(|explicit| take_explicit(&explicit.0)).ok().flatten()
}

fn take_explicit(place: &Cell<*mut Binding>) -> Option<Box<Binding>> {
    let binding = place.replace(std::ptr::null_mut());
    // SAFETY: it came from a box, and is taken out once.
    (!binding.is_null()).then(|| unsafe { Box::from_raw(binding) })
}

thread_local! {
    /// What the thread's last transaction has met. First used outside of the handler, where memory may be had for it.
    static REPORT: RefCell<Option<CString>> = const { RefCell::new(None) };
}

pub fn set_report(report: Option<ConflictReport>) {
    let text = report.and_then(|report| CString::new(serde_json::to_vec(&report).ok()?).ok());
    let _ = REPORT.try_with(|place| {
        if let Ok(mut place) = place.try_borrow_mut() {
            *place = text;
        }
    });
}

/// Its text, valid until the next begin; null if there is none.
pub fn report() -> *const c_char {
    let text =
        REPORT.try_with(|place| place.borrow().as_ref().map_or(std::ptr::null(), |text| text.as_ptr()));
    text.unwrap_or(std::ptr::null())
}

/// A thread ends in its transaction.
pub fn thread_exits() {
    if let Some(binding) = binding() {
        // Where others take part, it goes on without this thread.
        let _ = if binding.is_shared() { binding.leave() } else { binding.end(End::Abort) };
        if trap::is_on() {
            let binding = std::ptr::from_mut(binding);
            // SAFETY: it came from a box, and the trap asks for it no more: the thread leaves it right after this.
            drop(unsafe { Box::from_raw(binding) });
        }
    }
}

/// In a child process: what the parent has is the parent's.
pub fn forked() {
    // Its descriptors are closed, and what else it has is memory.
    std::mem::forget(leave_explicitly());
    // Its threads are the parent's.
    transaction::forget_all();
    own::close_all();
    mounts::forget();
    connection::forget_all();
}
