//! A process that begins before the program does. The C library's own beginning takes longer than a
//! tenth of a short run where the processor is asked for what it can do in a virtual machine, and the
//! namespaces of a run can be made meanwhile.
//!
//! So the program is entered here (`crates/cli/build.rs`), by what the kernel calls, or the dynamic linker
//! where the program is not linked statically: before the C library has begun, and Rust. Where the first
//! argument is `run`, it makes a process beside this one, which makes the namespaces, and waits until it is
//! told how to go on ([`crate::prepared`]). Then the program begins as any other. What fails here is left to
//! who prepares a run the usual way.

use std::arch::{asm, global_asm};
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::sys;
use crate::word::Word;

/// The first argument of a program that is to begin with such a process: `run`, as the processor reads it.
const RUN: u32 = u32::from_le_bytes(*b"run\0");
/// The largest set of processors that is looked at: 1024 of them.
const SET_BYTES: usize = 128;

/// What the process and the program tell each other.
#[repr(C)]
struct Early {
    /// The process; 0 where there is none, or somebody has taken it.
    pid: AtomicI32,
    /// What the kernel returned for the making of the namespaces.
    separated: AtomicI32,
    /// How to go on is there.
    told: Word,
    stack: AtomicPtr<libc::c_void>,
    enter: AtomicPtr<libc::c_void>,
    argument: AtomicPtr<libc::c_void>,
    /// Where the program's one thread has what is its own: nobody else has anything.
    thread: AtomicPtr<libc::c_void>,
}

static EARLY: Early = Early {
    pid: AtomicI32::new(0),
    separated: AtomicI32::new(0),
    told: Word::new(),
    stack: AtomicPtr::new(std::ptr::null_mut()),
    enter: AtomicPtr::new(std::ptr::null_mut()),
    argument: AtomicPtr::new(std::ptr::null_mut()),
    thread: AtomicPtr::new(std::ptr::null_mut()),
};

// The kernel's `execve(2)` leaves the number of arguments and their addresses at the top of the stack,
// and in rdx what the C library is to call in the end. System calls change rax, rcx and r11.
global_asm!(
    ".pushsection .text.stockade_begin, \"ax\", @progbits",
    ".globl stockade_begin",
    ".type stockade_begin, @function",
    "stockade_begin:",
    "cmp qword ptr [rsp], 2",
    "jb _start",
    "mov rax, [rsp + 16]",
    "cmp dword ptr [rax], {run}",
    "jne _start",
    "mov r15, rdx",
    // The table of descriptors is made larger while nobody shares it (`make_room_for_descriptors`).
    "mov eax, {eventfd2}",
    "xor edi, edi",
    "mov esi, {cloexec}",
    "syscall",
    "test eax, eax",
    "js 2f",
    "mov r12d, eax",
    "mov edi, eax",
    "mov eax, {fcntl}",
    "mov esi, {duplicate}",
    "mov edx, 255",
    "syscall",
    "mov edi, eax",
    "mov eax, {close}",
    "syscall",
    "mov edi, r12d",
    "mov eax, {close}",
    "syscall",
    // The processors that the program may run on, but for this one.
    "2:",
    "sub rsp, {set_bytes} + 16",
    "mov eax, {getaffinity}",
    "xor edi, edi",
    "mov esi, {set_bytes}",
    "mov rdx, rsp",
    "syscall",
    "mov r12d, eax",
    "mov eax, {getcpu}",
    "lea rdi, [rsp + {set_bytes}]",
    "xor esi, esi",
    "xor edx, edx",
    "syscall",
    "mov eax, [rsp + {set_bytes}]",
    "and eax, {set_bytes} * 8 - 1",
    "btr [rsp], rax",
    "mov eax, {getpid}",
    "syscall",
    "mov r14d, eax",
    "mov eax, {clone}",
    "mov edi, {flags}",
    "xor esi, esi",
    "xor edx, edx",
    "xor r10d, r10d",
    "xor r8d, r8d",
    "syscall",
    "test eax, eax",
    "jz 4f",
    "js 3f",
    "mov dword ptr [rip + {early} + {pid}], eax",
    "test r12d, r12d",
    "js 3f",
    "mov edi, eax",
    "mov eax, {setaffinity}",
    "mov esi, r12d",
    "mov rdx, rsp",
    "syscall",
    "3:",
    "add rsp, {set_bytes} + 16",
    "mov rdx, r15",
    "jmp _start",
    // The process. It has the program's memory and stack, and touches nothing but `EARLY`. It ends with
    // the program, which new rights undo (`prctl(2)`): so that is said twice.
    "4:",
    "xor r12d, r12d",
    "5:",
    "mov eax, {prctl}",
    "mov edi, {end_with}",
    "mov esi, {kill}",
    "xor edx, edx",
    "syscall",
    "mov eax, {getppid}",
    "syscall",
    "cmp eax, r14d",
    "jne 8f",
    "test r12d, r12d",
    "jnz 6f",
    "mov eax, {unshare}",
    "mov edi, {namespaces}",
    "syscall",
    "mov dword ptr [rip + {early} + {separated}], eax",
    "mov r12d, 1",
    "jmp 5b",
    "6:",
    "cmp dword ptr [rip + {early} + {told}], 0",
    "jne 7f",
    "mov eax, {futex}",
    "lea rdi, [rip + {early} + {told}]",
    "mov esi, {wait}",
    "xor edx, edx",
    "xor r10d, r10d",
    "syscall",
    "jmp 6b",
    // The program's thread is about what is its own, and this process with it, as processes are that begin
    // later (`beside`).
    "7:",
    "mov eax, {arch_prctl}",
    "mov edi, {set_thread}",
    "mov rsi, [rip + {early} + {thread}]",
    "syscall",
    "mov rsp, [rip + {early} + {stack}]",
    "xor ebp, ebp",
    "mov rdi, [rip + {early} + {argument}]",
    "call [rip + {early} + {enter}]",
    "8:",
    "mov eax, {exit}",
    "xor edi, edi",
    "syscall",
    "ud2",
    ".size stockade_begin, . - stockade_begin",
    ".popsection",
    run = const RUN,
    eventfd2 = const libc::SYS_eventfd2,
    cloexec = const libc::EFD_CLOEXEC,
    fcntl = const libc::SYS_fcntl,
    duplicate = const libc::F_DUPFD_CLOEXEC,
    close = const libc::SYS_close,
    set_bytes = const SET_BYTES,
    getaffinity = const libc::SYS_sched_getaffinity,
    setaffinity = const libc::SYS_sched_setaffinity,
    getcpu = const libc::SYS_getcpu,
    getpid = const libc::SYS_getpid,
    getppid = const libc::SYS_getppid,
    clone = const libc::SYS_clone,
    flags = const libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD,
    prctl = const libc::SYS_prctl,
    end_with = const libc::PR_SET_PDEATHSIG,
    kill = const libc::SIGKILL,
    unshare = const libc::SYS_unshare,
    namespaces = const NAMESPACES,
    futex = const libc::SYS_futex,
    wait = const libc::FUTEX_WAIT,
    arch_prctl = const libc::SYS_arch_prctl,
    set_thread = const SET_THREAD,
    exit = const libc::SYS_exit_group,
    early = sym EARLY,
    pid = const offset_of!(Early, pid),
    separated = const offset_of!(Early, separated),
    told = const offset_of!(Early, told),
    stack = const offset_of!(Early, stack),
    enter = const offset_of!(Early, enter),
    argument = const offset_of!(Early, argument),
    thread = const offset_of!(Early, thread),
);

/// What the process moves into: all that a run prepares.
const NAMESPACES: i32 = libc::CLONE_NEWNET | crate::prepared::OTHERS;
/// `ARCH_SET_FS` (`arch_prctl(2)`).
const SET_THREAD: i32 = 0x1002;

/// The process that began before this program, where there is one that nobody has taken: to be told how
/// it goes on ([`go_on`]), or ended.
pub(crate) fn take() -> Option<(libc::pid_t, OwnedFd)> {
    let pid = EARLY.pid.swap(0, Ordering::Relaxed);
    let process = Pid::from_raw(pid)?;
    let held = pidfd_open(process, PidfdFlags::empty());
    // Where its end is nobody's business (`SIGCHLD` was ignored before) it may have ended, and the number
    // be another's.
    let wait = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(process), wait).ok()?;
    match held {
        Ok(descriptor) => Some((pid, descriptor)),
        Err(_) => {
            let _ = sys::kill(pid, libc::SIGKILL);
            let _ = waitid(WaitId::Pid(process), WaitIdOptions::EXITED);
            None
        }
    }
}

/// Has the process go on with `enter` on this stack.
///
/// # Safety
/// As for `Beside::start`. Nobody has taken another one before.
pub(crate) unsafe fn go_on(
    stack: *mut libc::c_void,
    enter: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: *mut libc::c_void,
) {
    let thread: *mut libc::c_void;
    // SAFETY: the first word of what a thread has for itself is that place's address (the ELF handling of
    // thread-local storage, x86-64).
    unsafe { asm!("mov {}, fs:0", out(reg) thread, options(nostack, readonly, preserves_flags)) };
    EARLY.stack.store(stack, Ordering::Relaxed);
    EARLY.enter.store(enter as *mut libc::c_void, Ordering::Relaxed);
    EARLY.argument.store(argument, Ordering::Relaxed);
    EARLY.thread.store(thread, Ordering::Relaxed);
    EARLY.told.say();
}

/// What the kernel said to the making of the namespaces; for the process itself.
pub(crate) fn separated() -> Result<(), Errno> {
    match EARLY.separated.load(Ordering::Relaxed) {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(-errno)),
    }
}
