//! The few system calls that a worker may make: it computes, and it communicates through one socket
//! that is open already. All other calls are refused, including those that did not exist when this
//! was written.
//!
//! So it affects no other process, although its siblings and the zygote are in its namespaces: it
//! can send no signal, trace nothing, change no limits or priorities of others, and set no owner of
//! its socket, to whom the kernel would send signals. It opens nothing, starts nothing, and makes
//! no memory executable.

use libc::{EPERM, PROT_EXEC, c_long};

use super::rules::{KNOWN, set_filters, table_index};
use super::tree::{Block, Comparison, Verdict, allow, load, low_half_of_argument, refuse, when};

/// Calls that are allowed whatever their arguments are.
pub(super) const ALLOWED: &[c_long] = &[
    // The socket. No path or address is possible: sends with an address fail on it.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_close,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Time and waiting.
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_futex,
    libc::SYS_getrandom,
    // Its own exit.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Calls that are decided by an argument.
pub(super) const FILTERED: &[(c_long, Block)] =
    &[(libc::SYS_mmap, not_executable(2)), (libc::SYS_mprotect, not_executable(2))];

pub(super) const fn not_executable(access_argument: u32) -> Block {
    load(low_half_of_argument(access_argument)).append(&when(
        Comparison::AnyBitOf,
        PROT_EXEC.cast_unsigned(),
        &refuse(EPERM),
        &allow(),
    ))
}

/// The verdicts on every known number.
pub(super) const fn verdicts() -> [Verdict; KNOWN] {
    allow_also([Verdict::Refused(EPERM); KNOWN], ALLOWED, FILTERED)
}

/// The same verdicts, except for these calls.
pub(super) const fn allow_also(
    mut verdicts: [Verdict; KNOWN],
    allowed: &[c_long],
    judged: &'static [(c_long, Block)],
) -> [Verdict; KNOWN] {
    let mut index = 0;
    while index < allowed.len() {
        verdicts[table_index(allowed[index])] = Verdict::Allowed;
        index += 1;
    }
    set_filters(&mut verdicts, judged);
    verdicts
}
