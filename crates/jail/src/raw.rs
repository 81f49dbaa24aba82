//! System calls that touch nothing but their arguments, not even the C library's `errno`: for
//! processes that share the memory of another, concurrently running one.

use std::arch::asm;
use std::io;

/// Makes a system call; returns the kernel's return value.
///
/// # Safety
/// As for the call itself: pointers among the arguments must be valid for it.
pub(crate) unsafe fn syscall(number: libc::c_long, arguments: [usize; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    let result: i64;
    // SAFETY: the kernel's calling convention: it clobbers rcx, r11 and what the call itself
    // changes, for which the caller is responsible.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The kernel's return value as a result. Constructing the error allocates nothing.
pub(crate) fn check(result: i64) -> io::Result<usize> {
    // The kernel returns errors as small negative numbers (`syscalls(2)`).
    usize::try_from(result).map_err(|_| {
        io::Error::from_raw_os_error(i32::try_from(result.wrapping_neg()).unwrap_or(libc::EIO))
    })
}

/// Sends a signal (`kill(2)`).
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    let arguments = [signed(pid), signed(signal), 0, 0, 0, 0];
    // SAFETY: takes numbers.
    check(unsafe { syscall(libc::SYS_kill, arguments) }).map(drop)
}

/// Reaps one child that has ended, without waiting (`wait4(2)`): its pid and status. `Ok(None)`
/// when none has; `ECHILD` when there are no children.
pub(crate) fn reap() -> io::Result<Option<(i32, i32)>> {
    let mut status = 0_i32;
    let options = signed(libc::WNOHANG | libc::__WALL);
    let arguments = [signed(-1), (&raw mut status) as usize, options, 0, 0, 0];
    // SAFETY: the status is ours to write.
    let pid = check(unsafe { syscall(libc::SYS_wait4, arguments) })?;
    Ok(i32::try_from(pid).ok().filter(|pid| *pid > 0).map(|pid| (pid, status)))
}

/// Whether a process is an unreaped child of the calling one (`waitid(2)`).
pub(crate) fn is_child(pid: i32) -> bool {
    // The kernel writes information about the child here, which is not used.
    let mut known = [0_u64; 16];
    let options = signed(libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL);
    let kind = libc::P_PID as usize;
    let arguments = [kind, signed(pid), (&raw mut known) as usize, options, 0, 0];
    // SAFETY: a `siginfo_t` has 128 bytes, which are ours to write.
    check(unsafe { syscall(libc::SYS_waitid, arguments) }).is_ok()
}

/// Waits for one of these signals, which must be blocked, up to a time limit
/// (`rt_sigtimedwait(2)`).
pub(crate) fn wait_for_signal(signals: u64, milliseconds: Option<u32>) {
    let timeout = milliseconds.map(|milliseconds| libc::timespec {
        tv_sec: (milliseconds / 1000).into(),
        tv_nsec: i64::from(milliseconds % 1000) * 1_000_000,
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let set = (&raw const signals) as usize;
    let arguments = [set, 0, timeout as usize, size_of::<u64>(), 0, 0];
    // SAFETY: the set and the time are valid for the call. Callers check their condition again,
    // whatever woke them.
    unsafe { syscall(libc::SYS_rt_sigtimedwait, arguments) };
}

/// Blocks these signals and no others (`rt_sigprocmask(2)`).
pub(crate) fn block_only(signals: u64) {
    let set = (&raw const signals) as usize;
    let arguments = [libc::SIG_SETMASK.cast_unsigned() as usize, set, 0, size_of::<u64>(), 0, 0];
    // SAFETY: the set is valid for the call, and of the kernel's size.
    unsafe { syscall(libc::SYS_rt_sigprocmask, arguments) };
}

/// The kernel's signal set with only this signal.
pub(crate) const fn only(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// A number as an argument of a system call.
#[expect(clippy::cast_sign_loss, reason = "the kernel takes the same bits back")]
pub(crate) const fn signed(value: i32) -> usize {
    value as isize as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ChildExit, fork_child, in_child, wait_for};

    #[test]
    fn errors_come_back_and_errno_stays() {
        // SAFETY: errno is this thread's own.
        unsafe { *libc::__errno_location() = 77 };
        let error = kill(i32::MAX, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 77);
    }

    #[test]
    fn a_child_is_known_until_it_is_reaped() {
        let ended = in_child(|| {
            assert!(!is_child(1));
            let child = fork_child(|| 7);
            while is_child(child) {
                if let Some((pid, status)) = reap().unwrap() {
                    assert_eq!((pid, libc::WEXITSTATUS(status)), (child, 7));
                }
            }
            i32::from(reap().unwrap_err().raw_os_error() != Some(libc::ECHILD))
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }

    #[test]
    fn a_blocked_signal_is_waited_for() {
        let child = fork_child(|| {
            block_only(only(libc::SIGUSR1) | only(libc::SIGCHLD));
            // SAFETY: takes no arguments.
            kill(unsafe { libc::getpid() }, libc::SIGUSR1).unwrap();
            wait_for_signal(only(libc::SIGUSR1), None);
            wait_for_signal(only(libc::SIGUSR1), Some(1));
            0
        });
        assert_eq!(wait_for(child), ChildExit::Exited(0));
    }
}
