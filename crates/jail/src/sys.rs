//! The kernel calls that `rustix` does not provide, each as one small function.
//!
//! No policy belongs here.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::AtomicPtr;

use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::raw;
use crate::seccomp::OWN_CALL;

/// The namespaces of a jail that its fork creates. The network namespace is created in parallel
/// (`network`), the cgroup namespace when the jail is in its group.
pub(crate) const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// `unshare(CLONE_NEWCGROUP)`: the control groups of the calling thread become the roots that it
/// sees.
pub(crate) fn hide_outer_groups() -> io::Result<()> {
    // SAFETY: takes flags; the call neither shares nor unmaps memory.
    match unsafe { libc::unshare(libc::CLONE_NEWCGROUP) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `unshare(CLONE_NEWUSER)`: the process has all capabilities in a new user namespace, in which no id is
/// mapped yet.
pub(crate) fn enter_user_namespace() -> io::Result<()> {
    // SAFETY: takes flags; the call neither shares nor unmaps memory.
    check(i64::from(unsafe { libc::unshare(libc::CLONE_NEWUSER) }))
}

/// `unshare(CLONE_THREAD)`: does nothing where the calling process has a single thread, and fails
/// otherwise.
pub(crate) fn leave_thread_group() -> io::Result<()> {
    // SAFETY: takes flags; whatever threads share stays shared.
    check(i64::from(unsafe { libc::unshare(libc::CLONE_THREAD) }))
}

/// Fails unless this process has a single thread: a fork copies only the calling thread.
pub(crate) fn single_thread() -> io::Result<()> {
    leave_thread_group()
        .map_err(|_| io::Error::other("a jail can be forked only from a single-threaded process"))
}

/// On drop, ends the jail and reaps its init, unless init was taken out.
#[derive(Debug)]
pub(crate) struct KillOnDrop(pub(crate) Option<OwnedFd>);

impl KillOnDrop {
    pub(crate) fn disarm(mut self) -> Option<OwnedFd> {
        self.0.take()
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(init) = &self.0 {
            kill_and_reap(init);
        }
    }
}

/// Which side of a [`clone_process`] this is.
#[derive(Debug)]
pub(crate) enum ForkResult {
    /// The child.
    Child,
    /// The parent, with the child's pid and pidfd.
    Parent(libc::pid_t, OwnedFd),
}

/// `CLONE_INTO_CGROUP` of `clone(2)`, since Linux 5.7.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// `clone3(2)` without shared memory: a fork into new namespaces, and into a control group of
/// version 2 if one is given.
///
/// # Safety
/// The calling process must have a single thread: the child continues with a copy of that thread
/// only.
pub(crate) unsafe fn clone_process(
    flags: i32,
    group: Option<BorrowedFd<'_>>,
) -> io::Result<ForkResult> {
    #[repr(C)]
    #[derive(Default)]
    struct CloneArgs {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }
    let mut pidfd: RawFd = -1;
    let mut arguments = CloneArgs {
        flags: u64::from((flags | libc::CLONE_PIDFD).cast_unsigned()),
        pidfd: std::ptr::from_mut(&mut pidfd) as u64,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        ..CloneArgs::default()
    };
    if let Some(group) = group {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::from(group.as_raw_fd().cast_unsigned());
    }
    // SAFETY: the arguments are valid for the call and the kernel writes only `pidfd`; no stack is
    // given and no memory is shared, so that the child continues as after fork(2).
    let result = unsafe {
        let arguments = std::ptr::from_mut(&mut arguments) as usize;
        raw::syscall(libc::SYS_clone3, [arguments, size_of::<CloneArgs>(), 0, 0, 0, 0])
    };
    match raw::check(result)? {
        0 => Ok(ForkResult::Child),
        pid => {
            let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidData)?;
            // SAFETY: the kernel has just opened this descriptor for us.
            Ok(ForkResult::Parent(pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
        }
    }
}

/// `clone(2)` as `fork(2)`, with a pidfd of the child. For use under the seccomp filter, which
/// refuses `clone3(2)`.
///
/// # Safety
/// No other thread of the calling process may hold a lock, because the child continues with a copy
/// of the calling thread only.
pub(crate) unsafe fn fork() -> io::Result<ForkResult> {
    let mut pidfd: RawFd = -1;
    let flags = libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: no stack is given and no memory is shared, so that the child continues as after
    // fork(2); the kernel writes only `pidfd`, which is the third argument (`clone(2)`).
    let result =
        unsafe { libc::syscall(libc::SYS_clone, flags, 0, std::ptr::from_mut(&mut pidfd), 0, 0) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(ForkResult::Child),
        pid => {
            let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
            // SAFETY: the kernel has just opened this descriptor for us.
            Ok(ForkResult::Parent(pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
        }
    }
}

/// Starts a child that shares this process's memory and runs `child`, and waits until the child has
/// executed another program or ended (`vfork(2)`): no memory is copied. The child has its own file
/// descriptors, ids, signals, limits and directory. Its stack stays mapped: unmapping takes longer
/// after another process has run in this memory, and the started program would wait for it.
///
/// # Safety
/// The calling process must have a single thread. `child` must not free, close or give away
/// anything that this process still uses; it never returns.
pub(crate) unsafe fn spawn_sharing_memory<F: Fn()>(child: &F) -> io::Result<libc::pid_t> {
    // SAFETY: the caller keeps the conditions.
    let (pid, stack) = unsafe { spawn_sharing(child, 0) }?;
    std::mem::forget(stack);
    Ok(pid)
}

/// Like [`spawn_sharing_memory`], but the file descriptors are shared too: what the child opens
/// stays open here.
///
/// # Safety
/// As for [`spawn_sharing_memory`].
pub(crate) unsafe fn spawn_sharing_descriptors<F: Fn()>(child: &F) -> io::Result<libc::pid_t> {
    // SAFETY: the caller keeps the conditions.
    unsafe { spawn_sharing(child, libc::CLONE_FILES) }.map(|(pid, _stack)| pid)
}

unsafe fn spawn_sharing<F: Fn()>(child: &F, flags: i32) -> io::Result<(libc::pid_t, Stack)> {
    const STACK_BYTES: usize = 256 * 1024;
    extern "C" fn enter<F: Fn()>(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the argument is the closure below, which the waiting parent keeps alive.
        unsafe { (*argument.cast::<F>().cast_const())() };
        exit_now(125)
    }
    let mut stack = Stack::new(STACK_BYTES)?;
    // SAFETY: the stack outlives the child's use of it, as does the closure: this process does
    // not run until the child has left its memory.
    let pid = unsafe {
        libc::clone(
            enter::<F>,
            stack.top(),
            flags | libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            std::ptr::from_ref(child).cast_mut().cast(),
        )
    };
    if pid == -1 { Err(io::Error::last_os_error()) } else { Ok((pid, stack)) }
}

/// Memory for the stack of a process that shares this one's memory. Untouched pages cost nothing.
#[derive(Debug)]
pub(crate) struct Stack {
    start: *mut libc::c_void,
    length: usize,
}

// SAFETY: the value owns the memory, in whichever thread it is.
unsafe impl Send for Stack {}

impl Stack {
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: requests new memory at any address.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start, length })
    }

    /// The initial stack pointer, aligned to a page; the stack grows down from there.
    pub(crate) fn top(&mut self) -> *mut libc::c_void {
        self.start.wrapping_byte_add(self.length)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: this value owns the memory, and no process runs on it any more.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// `mount_setattr(2)` on the mount of a descriptor. Allocates nothing.
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    recursive: bool,
    set: u64,
    user_namespace: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set | if user_namespace.is_some() { libc::MOUNT_ATTR_IDMAP } else { 0 },
        attr_clr: 0,
        propagation: 0,
        userns_fd: user_namespace.map_or(0, |fd| u64::from(fd.as_raw_fd().cast_unsigned())),
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    let (mount, path) = (raw::signed(mount.as_raw_fd()), c"".as_ptr() as usize);
    let (attributes, length) = ((&raw const attributes) as usize, size_of::<libc::mount_attr>());
    let arguments = [mount, path, raw::signed(flags), attributes, length, 0];
    // SAFETY: the path is empty and terminated, and the structure is valid for its stated size.
    raw::check(unsafe { raw::syscall(libc::SYS_mount_setattr, arguments) }).map(drop)
}

/// `signalfd(2)` for these signals, which are blocked in this process from now on.
pub(crate) fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use, and each call gets valid pointers.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) == -1 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

/// The next pending signal of a [`signal_descriptor`], if any.
pub(crate) fn next_signal(descriptor: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::read(descriptor, &mut bytes) {
        Ok(length) if length == bytes.len() => {
            // `ssi_signo` is the structure's first field, 32 bits wide.
            let number = [bytes[0], bytes[1], bytes[2], bytes[3]];
            Ok(Some(i32::from_ne_bytes(number)))
        }
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Gives each signal its default action and blocks none.
pub(crate) fn reset_signals() {
    // SAFETY: default actions run no code of ours; the set is initialised before use. Numbers
    // that cannot be changed (SIGKILL, SIGSTOP, the C library's own) fail without effect.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Whether this thread has no_new_privs and a system call filter. If so, another program has
/// already confined it.
pub(crate) fn is_confined() -> bool {
    // SAFETY: both take no pointers and change nothing.
    unsafe {
        libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1
            && libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) == 2
    }
}

/// `prctl(2)` with one argument.
pub(crate) fn prctl(option: i32, argument: u64) -> io::Result<()> {
    // SAFETY: only options whose arguments are plain numbers are used in this crate.
    check(i64::from(unsafe { libc::prctl(option, argument, 0, 0, 0) }))
}

/// Sets the name of the calling process that `ps` shows (`PR_SET_NAME`), of at most 15 bytes.
pub(crate) fn set_process_name(name: &CStr) {
    // SAFETY: the kernel reads at most 16 bytes, up to the name's terminator. The call cannot fail.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Makes every descriptor from `first` on close at the next exec (`close_range(2)`).
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    let flag = libc::CLOSE_RANGE_CLOEXEC as usize;
    let arguments = [first as usize, u32::MAX as usize, flag, 0, 0, 0];
    // SAFETY: sets a flag of descriptors and touches no memory.
    raw::check(unsafe { raw::syscall(libc::SYS_close_range, arguments) }).map(drop)
}

/// Closes every descriptor except these. Values that own the others must not be dropped.
pub(crate) fn close_all_but(mut keep: Vec<RawFd>) -> io::Result<()> {
    keep.sort_unstable();
    let mut first = 0;
    for descriptor in keep {
        let descriptor = descriptor.cast_unsigned();
        if descriptor > first {
            // SAFETY: closing descriptors touches no memory; the caller uses none of them again.
            check(unsafe { libc::syscall(libc::SYS_close_range, first, descriptor - 1, 0) })?;
        }
        first = descriptor + 1;
    }
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) })
}

/// `renameat2(2)`, marked so that the filter does not ask init about it.
pub(crate) fn rename_unfollowed(
    (old_start, old): (BorrowedFd<'_>, &CStr),
    (new_start, new): (BorrowedFd<'_>, &CStr),
    flags: u32,
) -> rustix::io::Result<()> {
    let flags = u64::from(flags) | u64::from(OWN_CALL) << u32::BITS;
    // SAFETY: the paths end in NUL and outlive the call, which writes to no memory.
    let result = unsafe {
        let (old_start, new_start) = (old_start.as_raw_fd(), new_start.as_raw_fd());
        libc::syscall(libc::SYS_renameat2, old_start, old.as_ptr(), new_start, new.as_ptr(), flags)
    };
    match result {
        -1 => Err(rustix::io::Errno::from_io_error(&io::Error::last_os_error())
            .unwrap_or(rustix::io::Errno::IO)),
        _ => Ok(()),
    }
}

/// `execve(2)`; returns only when it failed.
pub(crate) fn exec(
    program: &CStr,
    arguments: &[AtomicPtr<libc::c_char>],
    environment: &[AtomicPtr<libc::c_char>],
) -> io::Error {
    let pointers = [program.as_ptr() as usize, arguments.as_ptr() as usize];
    let arguments = [pointers[0], pointers[1], environment.as_ptr() as usize, 0, 0, 0];
    // SAFETY: both lists end in null and their strings outlive the call, which returns only on
    // failure, without effect.
    match raw::check(unsafe { raw::syscall(libc::SYS_execve, arguments) }) {
        Err(error) => error,
        Ok(_) => io::ErrorKind::Other.into(),
    }
}

/// `kill(2)`.
pub(crate) fn kill(pid: libc::pid_t, signal: i32) -> io::Result<()> {
    // SAFETY: sends a signal and touches no memory.
    check(i64::from(unsafe { libc::kill(pid, signal) }))
}

/// `waitpid(2)`: a child that ended, with its status.
pub(crate) enum WaitOutcome {
    /// This child ended with this status.
    Child(libc::pid_t, i32),
    /// There are children, and none has ended.
    None,
    /// There are no children.
    NoChildren,
}

/// Reaps one child, waiting for it when `block` is set.
pub(crate) fn reap(block: bool) -> io::Result<WaitOutcome> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes only the status, which is ours.
        let pid = unsafe {
            libc::waitpid(-1, &raw mut status, libc::__WALL | if block { 0 } else { libc::WNOHANG })
        };
        if pid > 0 {
            return Ok(WaitOutcome::Child(pid, status));
        }
        if pid == 0 {
            return Ok(WaitOutcome::None);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(WaitOutcome::NoChildren),
            _ => return Err(error),
        }
    }
}

/// Has a signal end this process after this time, unless it is called again before; 0 is never.
pub(crate) fn set_alarm(seconds: u32) {
    // SAFETY: takes a number.
    unsafe { libc::alarm(seconds) };
}

/// Ends this process immediately, without the C library's clean-up.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: nothing of this process is used again.
    unsafe { libc::_exit(code) }
}

/// Sets all user and group ids of this process, and clears the supplementary groups where that is
/// allowed.
pub(crate) fn become_ids(user: u32, group: u32, clear_groups: bool) -> io::Result<()> {
    // SAFETY: changes the ids of the only thread and touches no memory.
    unsafe {
        if clear_groups {
            check(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
        }
        check(libc::syscall(libc::SYS_setresgid, group, group, group))?;
        check(libc::syscall(libc::SYS_setresuid, user, user, user))
    }
}

/// The user and group id that the calling thread's file accesses are checked against.
pub(crate) fn file_ids() -> (u32, u32) {
    // No process can have this id: setting it changes nothing (setfsuid(2), "Return value").
    const NOBODY: u32 = u32::MAX;
    set_file_ids(NOBODY, NOBODY)
}

/// `setfsuid(2)` and `setfsgid(2)` of the calling thread. Returns the previous ids; only
/// [`file_ids`] shows whether the change took effect.
pub(crate) fn set_file_ids(user: u32, group: u32) -> (u32, u32) {
    let id = |was: i64| u32::try_from(was).unwrap_or(u32::MAX);
    // The group first, because the right to set it is lost with the user. SAFETY: take numbers, and
    // change the calling thread's own ids only.
    let group = unsafe { libc::syscall(libc::SYS_setfsgid, group) };
    // SAFETY: as above.
    let user = unsafe { libc::syscall(libc::SYS_setfsuid, user) };
    (id(user), id(group))
}

/// Clears the supplementary groups of the calling thread only; the C library's function would clear
/// those of every thread.
pub(crate) fn clear_thread_groups() -> io::Result<()> {
    // SAFETY: the list is empty, so the kernel reads nothing from the pointer.
    check(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) })
}

/// Gives the calling thread a umask, a working directory and a root directory of its own.
pub(crate) fn leave_shared_directories() -> io::Result<()> {
    // SAFETY: memory and descriptors stay shared; the thread relies on no other's umask.
    check(i64::from(unsafe { libc::unshare(libc::CLONE_FS) }))
}

/// Sets the host name in the current namespace.
pub(crate) fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the kernel reads `name.len()` bytes from a valid pointer.
    check(i64::from(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }))
}

fn check(result: i64) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Kills a child, and with the init of a jail every process in it, and waits until all are dead.
pub(crate) fn kill_and_reap(child: &OwnedFd) {
    // It may have ended already.
    let _ = pidfd_send_signal(child, Signal::KILL);
    wait(child);
}

/// Waits until a child has ended, reaps it, and returns whether it has exited with 0.
pub(crate) fn wait_for_success(child: &OwnedFd) -> bool {
    loop {
        match waitid(WaitId::PidFd(child.as_fd()), WaitIdOptions::EXITED) {
            Err(rustix::io::Errno::INTR) => {}
            ended => return matches!(ended, Ok(Some(status)) if status.exit_status() == Some(0)),
        }
    }
}

/// Waits until a child has ended, and reaps it.
pub(crate) fn wait(child: &OwnedFd) {
    while let Err(rustix::io::Errno::INTR) =
        waitid(WaitId::PidFd(child.as_fd()), WaitIdOptions::EXITED)
    {}
}
