//! Has the interrupted code make a call after the handler has returned.
//!
//! The handler cannot make it: there all signals are masked, and a call may block for ever. So it leaves a frame on the
//! interrupted stack, points the interrupted context at a stub of `section`, and the stub makes the call as the program
//! would have: with its signal mask, interrupted and restarted as ever. Then it takes everything from the frame.
//!
//! The frame lies below the signal frame of SIGSYS, which the kernel still reads on the way back; what handlers of
//! other signals push lies below ours. Sets of signals and the like that a call is given instead of the program's own
//! lie between the two.

use crate::kernel::Errno;

/// What a stub pops.
#[repr(C)]
struct Frame {
    arguments: [usize; 6],
    return_address: usize,
    stack_pointer: usize,
}

const FRAME_LEN: usize = size_of::<Frame>();
/// What lies between the signal frame and ours at least: the handler's return address and rbp.
const DISTANCE: usize = 64;

/// The program's registers at its call, and its stack: the context that the kernel restores after the handler.
pub(super) struct Interrupted {
    context: *mut libc::ucontext_t,
    /// The lowest address that is in use.
    bottom: usize,
}

fn place(register: i32) -> usize {
    register as usize
}

const ARGUMENTS: [i32; 6] =
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];

impl Interrupted {
    /// # Safety
    /// `context` is what the kernel gave to the handler that is running, which runs on another stack.
    pub(super) unsafe fn new(context: *mut libc::ucontext_t) -> Interrupted {
        Interrupted { context, bottom: (context as usize - DISTANCE) & !15 }
    }

    fn registers(&mut self) -> &mut [libc::greg_t; 23] {
        // SAFETY: `new`'s promise; the kernel's context has the layout of libc's up to its registers.
        unsafe { &mut (*self.context).uc_mcontext.gregs }
    }

    pub(super) fn arguments(&mut self) -> [usize; 6] {
        let registers = self.registers();
        ARGUMENTS.map(|register| registers[place(register)] as usize)
    }

    pub(super) fn stack_pointer(&mut self) -> usize {
        self.registers()[place(libc::REG_RSP)] as usize
    }

    /// The signal mask that the program has and will have again.
    pub(super) fn signal_mask(&mut self) -> &mut u64 {
        // SAFETY: `new`'s promise; the kernel's set of signals is one word.
        unsafe { &mut *(&raw mut (*self.context).uc_sigmask).cast::<u64>() }
    }

    /// The call is answered.
    pub(super) fn answer(&mut self, result: isize) {
        self.registers()[place(libc::REG_RAX)] = result as i64;
    }

    /// Copies bytes to where they stay valid until the call has returned.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> usize {
        self.bottom = (self.bottom - bytes.len()) & !15;
        // SAFETY: memory of the interrupted stack below everything that is in use. The kernel grows the stack; where it
        // ends, the program dies of it, as it would in a handler of its own.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.bottom as *mut u8, bytes.len()) };
        self.bottom
    }

    /// The call is made with these arguments after the handler.
    pub(super) fn make(&mut self, number: usize, arguments: [usize; 6]) {
        let frame = self.frame();
        self.bottom -= FRAME_LEN;
        // SAFETY: as in `keep`; the address is aligned to 16.
        unsafe { (self.bottom as *mut Frame).write(frame) };
        let stub = super::section::txfs_stub_call as *const () as usize;
        self.resume_at(stub, self.bottom, number, arguments);
    }

    /// The same for a call that makes a process with memory of its own: there `flag` is cleared.
    pub(super) fn make_process(&mut self, number: usize, arguments: [usize; 6], flag: usize) {
        let frame = self.frame();
        self.bottom -= FRAME_LEN + 16;
        // SAFETY: as in `make`.
        unsafe { write_with_flag(self.bottom, flag, frame) };
        let stub = super::section::txfs_stub_fork as *const () as usize;
        self.resume_at(stub, self.bottom, number, arguments);
    }

    /// Puts a frame onto the stack of a child that will begin in a stub too; answers the stack pointer to begin with.
    pub(super) fn frame_on(&mut self, stack_pointer: usize, flag: Option<usize>) -> Result<usize, Errno> {
        let frame = Frame { stack_pointer, ..self.frame() };
        let bottom = stack_pointer.wrapping_sub(FRAME_LEN + 8) & !7;
        if !crate::trap::memory::is_writable(bottom, FRAME_LEN + 8) {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the program says that this is the free end of a stack, and it can be written; the child has it to
        // itself.
        unsafe {
            match flag {
                Some(flag) => {
                    write_with_flag(bottom, flag, frame);
                    Ok(bottom)
                }
                None => {
                    ((bottom + 8) as *mut Frame).write_unaligned(frame);
                    Ok(bottom + 8)
                }
            }
        }
    }

    /// `rt_sigreturn` of the program's own handler, whose frame its stack pointer points to.
    pub(super) fn return_from_handler(&mut self) {
        let stub = super::section::txfs_stub_sigreturn as *const () as usize;
        self.registers()[place(libc::REG_RIP)] = stub as i64;
    }

    fn frame(&mut self) -> Frame {
        let arguments = self.arguments();
        let registers = self.registers();
        Frame {
            arguments,
            return_address: registers[place(libc::REG_RIP)] as usize,
            stack_pointer: registers[place(libc::REG_RSP)] as usize,
        }
    }

    fn resume_at(&mut self, stub: usize, stack_pointer: usize, number: usize, arguments: [usize; 6]) {
        let registers = self.registers();
        for (register, argument) in ARGUMENTS.into_iter().zip(arguments) {
            registers[place(register)] = argument as i64;
        }
        registers[place(libc::REG_RAX)] = number as i64;
        registers[place(libc::REG_RIP)] = stub as i64;
        registers[place(libc::REG_RSP)] = stack_pointer as i64;
    }
}

/// # Safety
/// There is room for a word and a frame.
unsafe fn write_with_flag(address: usize, flag: usize, frame: Frame) {
    // SAFETY: the caller's promise.
    unsafe {
        (address as *mut usize).write_unaligned(flag);
        ((address + 8) as *mut Frame).write_unaligned(frame);
    }
}
