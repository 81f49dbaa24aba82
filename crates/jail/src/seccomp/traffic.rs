//! The few system calls of a process that carries traffic for sandboxes: TCP and UDP connections,
//! and the socket to its owner, which is open already. This filter is added to that for commands,
//! once everything else that the process needs has been made.
//!
//! So an attacker who takes the process over through its input opens no file, reaches no socket of
//! the host's file system, starts nothing, makes no memory executable, and sends no signals.

use libc::{
    AF_INET, AF_INET6, EAFNOSUPPORT, EPERM, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_SETFD, F_SETFL,
    c_long,
};

use super::arguments::socket_type;
use super::rules::KNOWN;
use super::tree::{
    Block, Comparison, Verdict, allow_only, load, low_half_of_argument, refuse, when,
};
use super::worker::{self, not_executable};

/// Calls that are allowed whatever their arguments are, in addition to those of a worker.
const ALLOWED: &[c_long] = &[
    // Connections.
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    // Waiting for many connections.
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
];

/// Without the commands that make the kernel send signals.
const DESCRIPTOR_FLAGS: [u32; 5] = [
    F_GETFD.unsigned_abs(),
    F_SETFD.unsigned_abs(),
    F_GETFL.unsigned_abs(),
    F_SETFL.unsigned_abs(),
    F_DUPFD_CLOEXEC.unsigned_abs(),
];
/// Of asm-generic/ioctls.h: non-blocking mode, and the number of readable bytes.
const FIONBIO: u32 = 0x5421;
const FIONREAD: u32 = 0x541b;

/// Calls that are decided by an argument.
const FILTERED: &[(c_long, Block)] = &[
    (libc::SYS_mmap, not_executable(2)),
    (libc::SYS_mprotect, not_executable(2)),
    (libc::SYS_socket, internet()),
    (libc::SYS_fcntl, one_of(&DESCRIPTOR_FLAGS)),
    (libc::SYS_ioctl, one_of(&[FIONBIO, FIONREAD])),
];

/// TCP and UDP; the filter for commands checks the protocol.
const fn internet() -> Block {
    let judge =
        when(Comparison::Equal, AF_INET6.unsigned_abs(), &socket_type(), &refuse(EAFNOSUPPORT));
    let judge = when(Comparison::Equal, AF_INET.unsigned_abs(), &socket_type(), &judge);
    load(low_half_of_argument(0)).append(&judge)
}

/// Commands and requests are the second argument.
const fn one_of(commands: &[u32]) -> Block {
    load(low_half_of_argument(1)).append(&allow_only(commands, EPERM))
}

/// The verdicts on every known number.
pub(super) const fn verdicts() -> [Verdict; KNOWN] {
    let verdicts = [Verdict::Refused(EPERM); KNOWN];
    worker::allow_also(worker::allow_also(verdicts, worker::ALLOWED, &[]), ALLOWED, FILTERED)
}
