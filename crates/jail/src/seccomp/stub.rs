//! The few system calls of a process that answers sockets which were open before: those of a worker,
//! and those that accept a connection and answer a datagram.
//!
//! So an attacker who takes the process over through its input makes no socket, connects to nothing,
//! opens nothing and starts nothing. Datagrams leave only into the network of the sandbox, which its
//! one datagram socket belongs to.

use libc::{EPERM, c_long};

use super::rules::KNOWN;
use super::tree::Verdict;
use super::worker;

/// Calls that are allowed whatever their arguments are, in addition to those of a worker.
const ALLOWED: &[c_long] = &[libc::SYS_accept4, libc::SYS_sendto, libc::SYS_shutdown];

/// The verdicts on every known number.
pub(super) const fn verdicts() -> [Verdict; KNOWN] {
    let verdicts = [Verdict::Refused(EPERM); KNOWN];
    let verdicts = worker::allow_also(verdicts, worker::ALLOWED, worker::FILTERED);
    worker::allow_also(verdicts, ALLOWED, &[])
}
