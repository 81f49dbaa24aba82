//! One system call in a forked child, so that the probe survives a filter that kills, and
//! distinguishes it from one that returns an error. Contains no attack.

use crate::Verdict;

/// How a system call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It succeeded.
    Done,
    /// It returned this error number.
    Failed(i32),
    /// The process was killed by this signal.
    Killed(i32),
}

impl Attempt {
    /// Whether a wall refused it: an error that means "not allowed" or "no such call", or the
    /// filter's signal. Any other error comes from kernel code behind the wall.
    pub(crate) fn is_refusal(self) -> bool {
        match self {
            Self::Done => false,
            Self::Failed(error) => {
                matches!(
                    error,
                    libc::EPERM
                        | libc::ENOSYS
                        | libc::EACCES
                        | libc::EAFNOSUPPORT
                        | libc::EPROTONOSUPPORT
                )
            }
            Self::Killed(signal) => signal == libc::SIGSYS,
        }
    }
}

impl std::fmt::Display for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => f.write_str("carried out"),
            Self::Failed(error) => f.write_str(error_name(*error)),
            Self::Killed(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// Runs `action` in a forked child. It returns 0 or an error number.
pub(crate) fn in_child(action: impl FnOnce() -> i32) -> Attempt {
    // SAFETY: the probe has one thread; the child only calls `action` and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let error = action();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(error) };
    }
    if child < 0 {
        panic!("fork: {}", std::io::Error::last_os_error());
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    while unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) } < 0 {
        if last_error() != libc::EINTR {
            panic!("waitpid: {}", std::io::Error::last_os_error());
        }
    }
    if libc::WIFSIGNALED(status) {
        Attempt::Killed(libc::WTERMSIG(status))
    } else if libc::WIFSTOPPED(status) {
        // A traced child stopped: tracing was allowed.
        // SAFETY: the child was forked above and has not been reaped yet.
        unsafe { libc::kill(child, libc::SIGKILL) };
        Attempt::Done
    } else {
        match libc::WEXITSTATUS(status) {
            0 => Attempt::Done,
            error => Attempt::Failed(error),
        }
    }
}

/// Makes one system call in a forked child.
pub(crate) fn call(number: i64, arguments: [usize; 6]) -> Attempt {
    in_child(|| raw_syscall(number, arguments))
}

/// Makes one system call in this process; returns 0 or the error number.
pub(crate) fn raw_syscall(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> i32 {
    // SAFETY: every caller passes arguments that are valid for the call, or such that the kernel
    // itself refuses them (null or wild pointers are checked by the kernel, never followed here).
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 { last_error() } else { 0 }
}

/// The error number of the last call that failed.
pub(crate) fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(255)
}

/// The verdict on several attempts: a wall must have refused each.
pub(crate) fn all_refused(attempts: &[(String, Attempt)]) -> Verdict {
    let reached: Vec<_> = attempts
        .iter()
        .filter(|(_, attempt)| !attempt.is_refusal())
        .map(|(name, attempt)| format!("{name} reached the kernel: {attempt}"))
        .collect();
    let held: Vec<_> =
        attempts.iter().map(|(name, attempt)| format!("{name}: {attempt}")).collect();
    Verdict::unless(&reached, held.join(", "))
}

/// The symbolic name of the error numbers that attacks get.
pub(crate) fn error_name(error: i32) -> &'static str {
    match error {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::ESRCH => "ESRCH",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::ENODEV => "ENODEV",
        libc::ENOTDIR => "ENOTDIR",
        libc::EINVAL => "EINVAL",
        libc::ENOTTY => "ENOTTY",
        libc::EIO => "EIO",
        libc::ENXIO => "ENXIO",
        libc::EROFS => "EROFS",
        libc::ENOSYS => "ENOSYS",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ECONNREFUSED => "ECONNREFUSED",
        libc::ENETUNREACH => "ENETUNREACH",
        libc::ENOTCONN => "ENOTCONN",
        libc::ETXTBSY => "ETXTBSY",
        _ => "another error",
    }
}
