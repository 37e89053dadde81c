//! Catches the system calls of a thread (Syscall User Dispatch, Linux 5.11).
