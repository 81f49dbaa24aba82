//! Helpers for the tests of several walls: running code in a forked child.

use std::io;

pub(crate) use stockade_test_support::skipped;

/// How a forked child ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChildExit {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

/// Runs `body` in a forked child, which exits with its result. In this way walls can be enabled
/// without affecting the other tests.
pub(crate) fn in_child(body: impl FnOnce() -> i32) -> ChildExit {
    wait_for(fork_child(body))
}

/// Forks a child that runs `body` and exits with its result.
pub(crate) fn fork_child(body: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child runs only `body` and `_exit`, never the test harness; glibc makes the
    // allocator usable after a fork, and the bodies touch no other lock of the parent.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", io::Error::last_os_error());
    if child == 0 {
        // The harness would keep the message in memory, which is lost with this process.
        std::panic::set_hook(Box::new(|panic| {
            let text = format!("in a child: {panic}\n");
            // SAFETY: the buffer is valid for its length.
            unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        }));
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
        // SAFETY: ends the child immediately, without the parent's exit handlers.
        unsafe { libc::_exit(code) };
    }
    child
}

/// Waits for a child of this process and returns how it ended.
pub(crate) fn wait_for(child: libc::pid_t) -> ChildExit {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "waitpid: {}", io::Error::last_os_error());
    if libc::WIFSIGNALED(status) {
        ChildExit::Killed(libc::WTERMSIG(status))
    } else {
        ChildExit::Exited(libc::WEXITSTATUS(status))
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

/// Prints what a test measured.
#[expect(clippy::print_stderr, reason = "the test harness captures it and shows it on request")]
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes the calling process an ordinary user if it runs as root, so that the kernel's exceptions
/// for root do not apply.
pub(crate) fn become_other_user() {
    if !is_root() {
        return;
    }
    let user = 0x7000_0000_u32;
    // SAFETY: take numbers; the calling process is a forked child with one thread.
    let results = unsafe {
        [
            libc::setgroups(0, std::ptr::null()),
            libc::setresgid(user, user, user),
            libc::setresuid(user, user, user),
            // Otherwise /proc/self belongs to root and the maps cannot be written.
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0),
        ]
    };
    assert_eq!(results, [0; 4], "{}", io::Error::last_os_error());
}

/// Enters a new user namespace in which the caller is user 0 and has every capability.
pub(crate) fn enter_user_namespace() {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    // SAFETY: takes flags; the calling process is a forked child with one thread.
    let result = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
    assert_eq!(result, 0, "unshare: {}", io::Error::last_os_error());
    std::fs::write("/proc/self/setgroups", "deny").unwrap();
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1")).unwrap();
    std::fs::write("/proc/self/gid_map", format!("0 {group} 1")).unwrap();
}
