//! The only machine code from which system calls are made: one stretch of text, which is the range that Syscall User
//! Dispatch lets pass, and the thread-local block that this code and the kernel look at.
//!
//! The kernel compares the address *after* the `syscall` instruction with the range. So the range begins behind filler
//! that is no `syscall`, and each `syscall` in it is followed by code of ours.
//!
//! The stubs leave flags and all registers as the kernel does: rax is the result, rcx the return address, r11 flags.
//! They carry unwinding information, since a thread that is cancelled in a blocking call unwinds through them.

use std::arch::global_asm;

use super::{handler, thread};

unsafe extern "C" {
    /// Makes a system call; nothing about memory is checked.
    pub(crate) fn txfs_raw_syscall(
        number: usize,
        first: usize,
        second: usize,
        third: usize,
        fourth: usize,
        fifth: usize,
        sixth: usize,
    ) -> isize;
    /// Makes the call that a `frame::Frame` below the interrupted code describes, then goes on in that code.
    pub(super) fn txfs_stub_call();
    /// The same for calls that make a process: the child first clears the byte that the word in front of the frame
    /// points to.
    pub(super) fn txfs_stub_fork();
    /// `rt_sigreturn` with the stack as it is.
    pub(super) fn txfs_stub_sigreturn();
    /// The restorer of the trap's own handler.
    pub(super) fn txfs_restorer();
    /// The handler of SIGSYS.
    pub(super) fn txfs_trap_entry();
    static txfs_trap_start: u8;
    static txfs_trap_end: u8;
}

/// The allowed range: address and length.
pub(super) fn range() -> (usize, usize) {
    let start = &raw const txfs_trap_start as usize;
    (start, &raw const txfs_trap_end as usize - start)
}

global_asm!(
    // The thread's block, in static TLS: reaching it never allocates, not even in a library that was loaded late, and it
    // lives until the thread's last instruction.
    ".pushsection .tbss.txfs_thread,\"awT\",@nobits",
    ".balign 16",
    ".globl txfs_thread",
    ".hidden txfs_thread",
    ".type txfs_thread,@object",
    ".size txfs_thread, {thread_size}",
    "txfs_thread: .zero {thread_size}",
    ".popsection",
    ".pushsection .text.txfs_trap,\"ax\",@progbits",
    ".balign 64",
    ".fill 16, 1, 0xcc",
    ".globl txfs_trap_start, txfs_trap_end, txfs_raw_syscall, txfs_stub_call, txfs_stub_fork",
    ".globl txfs_stub_sigreturn, txfs_restorer, txfs_trap_entry",
    ".hidden txfs_trap_start, txfs_trap_end, txfs_raw_syscall, txfs_stub_call, txfs_stub_fork",
    ".hidden txfs_stub_sigreturn, txfs_restorer, txfs_trap_entry",
    "txfs_trap_start:",
    "nop",
    // C calling convention to that of system calls.
    ".balign 16",
    ".type txfs_raw_syscall,@function",
    "txfs_raw_syscall:",
    ".cfi_startproc",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, qword ptr [rsp + 8]",
    "syscall",
    "ret",
    ".cfi_endproc",
    // What debuggers and unwinders take for the end of a signal handler is exactly these bytes.
    ".balign 16",
    "nop",
    ".type txfs_restorer,@function",
    "txfs_restorer:",
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00",
    "txfs_stub_sigreturn:",
    "syscall",
    "ud2",
    // The frame: rdi, rsi, rdx, r10, r8, r9, return address, stack pointer. The two escapes say: the caller's stack
    // pointer is what lies at rsp + a, its return address is what lies at rsp + b.
    ".macro txfs_cfi a:req, b:req",
    ".cfi_escape 0x0f, 3, 0x77, \\a, 0x06",
    ".cfi_escape 0x10, 16, 2, 0x77, \\b",
    ".endm",
    ".balign 16",
    ".type txfs_stub_fork,@function",
    "txfs_stub_fork:",
    ".cfi_startproc simple",
    "txfs_cfi 64, 56",
    "syscall",
    // Neither of these instructions touches the flags.
    "mov rcx, rax",
    "jrcxz 2f",
    "pop rcx",
    "txfs_cfi 56, 48",
    "jmp 3f",
    "2:",
    "txfs_cfi 64, 56",
    "pop rcx",
    "txfs_cfi 56, 48",
    "mov byte ptr [rcx], 0",
    "jmp 3f",
    ".cfi_endproc",
    ".balign 16",
    ".type txfs_stub_call,@function",
    "txfs_stub_call:",
    ".cfi_startproc simple",
    "txfs_cfi 56, 48",
    "syscall",
    "3:",
    "pop rdi",
    "txfs_cfi 48, 40",
    "pop rsi",
    "txfs_cfi 40, 32",
    "pop rdx",
    "txfs_cfi 32, 24",
    "pop r10",
    "txfs_cfi 24, 16",
    "pop r8",
    "txfs_cfi 16, 8",
    "pop r9",
    "txfs_cfi 8, 0",
    "pop rcx",
    ".cfi_escape 0x0f, 3, 0x77, 0, 0x06",
    ".cfi_register rip, rcx",
    "pop rsp",
    ".cfi_def_cfa rsp, 0",
    "jmp rcx",
    ".cfi_endproc",
    "nop",
    "txfs_trap_end:",
    "nop",
    // A SIGSYS that is not of our making goes on, on this stack; ours is handled on a stack of the thread's workspace,
    // so that programs with small stacks need room for a signal frame only. Nothing else that asks for this stack can
    // run meanwhile: all other signals are masked, and no call is dispatched.
    ".balign 16",
    ".type txfs_trap_entry,@function",
    "txfs_trap_entry:",
    "cmp dword ptr [rsi + 8], 2",
    "jne {foreign}",
    "mov rax, qword ptr [rip + txfs_thread@GOTTPOFF]",
    "cmp byte ptr fs:[rax + {on}], 0",
    "je {foreign}",
    "push rbp",
    "mov rbp, rsp",
    "mov rsp, qword ptr fs:[rax + {stack}]",
    "call {handle}",
    "mov rsp, rbp",
    "pop rbp",
    // From here on the program's calls are caught again; the one call left is the restorer's.
    "mov rcx, qword ptr [rip + txfs_thread@GOTTPOFF]",
    "mov byte ptr fs:[rcx + {selector}], al",
    "test al, al",
    "jz {released}",
    "ret",
    ".popsection",
    thread_size = const size_of::<thread::State>(),
    on = const std::mem::offset_of!(thread::State, on),
    stack = const std::mem::offset_of!(thread::State, stack),
    selector = const std::mem::offset_of!(thread::State, selector),
    handle = sym handler::handle,
    foreign = sym handler::foreign,
    released = sym handler::released,
);
