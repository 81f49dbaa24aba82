//! What the tests of several walls share: running something in a forked child.

use std::io;

/// How a forked child ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

/// Runs `body` in a forked child, whose exit code it returns. Walls can then be raised without
/// raising them around the other tests.
pub(crate) fn in_child(body: impl FnOnce() -> i32) -> Ended {
    // SAFETY: the child runs only `body` and `_exit`, never the test harness; glibc makes the
    // allocator usable after a fork, and the bodies touch no other lock of the parent.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", io::Error::last_os_error());
    if child == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
        // SAFETY: ends the child at once, without the parent's exit handlers.
        unsafe { libc::_exit(code) };
    }
    wait_for(child)
}

/// Waits for a child of ours and tells how it ended.
pub(crate) fn wait_for(child: libc::pid_t) -> Ended {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "waitpid: {}", io::Error::last_os_error());
    if libc::WIFSIGNALED(status) {
        Ended::Killed(libc::WTERMSIG(status))
    } else {
        Ended::Exited(libc::WEXITSTATUS(status))
    }
}

/// Sets no_new_privs on the calling thread.
pub(crate) fn set_no_new_privs() {
    // SAFETY: takes no pointers.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0, "no_new_privs: {}", io::Error::last_os_error());
}

/// The errno of a raw system call, or 0 when it succeeded.
pub(crate) fn errno_of(number: libc::c_long, arguments: [usize; 6]) -> i32 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the tests pass numbers and arguments that the kernel refuses or that are harmless;
    // pointers among them are valid or not mapped.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 { io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

/// Says what a test measured or skipped.
#[expect(clippy::print_stderr, reason = "the test harness captures it and shows it on request")]
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}
