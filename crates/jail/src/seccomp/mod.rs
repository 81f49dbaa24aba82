//! The system call wall: the filter program and its installation.
//!
//! `calls` lists what is allowed, `rules` what is refused and why, `arguments` what depends on an
//! argument; `reported` which refusals the supervisor hears of, `followed` which allowed calls; `tree` turns decisions into classic
//! BPF. No policy belongs here. An installed filter
//! can never be removed.

mod arguments;
mod calls;
mod evaluate;
mod followed;
mod names;
mod reported;
mod rules;
mod stub;
mod traffic;
mod tree;
mod worker;

#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod socket_tests;

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use libc::{
    SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
    SECCOMP_RET_ACTION_FULL, SECCOMP_RET_DATA, SECCOMP_RET_ERRNO, SECCOMP_SET_MODE_FILTER,
    SYS_seccomp, c_ulong, sock_filter, sock_fprog,
};

pub(crate) use evaluate::Call;
pub(crate) use followed::{OWN_CALL, is_followed};
pub(crate) use names::name;
pub use names::{depends_on_arguments, is_tried, possible, refused};
use rules::KNOWN;
use tree::{Block, Verdict};

/// `AUDIT_ARCH_X86_64` of linux/audit.h: machine 62, 64-bit, little-endian.
const ARCHITECTURE_X86_64: u32 = 0xc000_003e;

/// Whether a command may put set-user-id and set-group-id bits on files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetIdBits {
    /// It may: all writable paths are invisible to other users of the host, and nothing leaves them
    /// with these bits. Opening files then has no overhead, because the kernel need not run the
    /// filter for it.
    Allowed,
    /// It may not. For jails that write to files of the host: as the owner of the directory, which
    /// may be host root, the command would leave a program there that runs with its owner's rights
    /// for anyone.
    Refused,
}

/// The filter for a confined command, ready for [`install`].
///
/// - A call of another architecture (by `int 0x80`) ends the process: its numbers mean other calls,
///   and nothing that we start uses it.
/// - The calls in `calls` are allowed, those in `arguments` decided by an argument.
/// - The calls in `rules` are refused with an errno that lets programs fall back.
/// - Numbers above the highest known one, x32 calls (bit 30) among them, fail with ENOSYS: calls
///   that did not exist when the rules were written were never reviewed.
pub const fn program(set_id_bits: SetIdBits) -> &'static [sock_filter] {
    static ALLOWED: Block = build(&rules::verdicts(SetIdBits::Allowed));
    static REFUSED: Block = build(&rules::verdicts(SetIdBits::Refused));
    match set_id_bits {
        SetIdBits::Allowed => ALLOWED.program(),
        SetIdBits::Refused => REFUSED.program(),
    }
}

/// The same filter, but where it refuses a call, it asks the supervisor, which answers with
/// [`errno`]. Where nobody answers any more, such a call fails with ENOSYS.
pub const fn reporting_program(set_id_bits: SetIdBits) -> &'static [sock_filter] {
    static ALLOWED: Block = build(&reported::reporting(SetIdBits::Allowed));
    static REFUSED: Block = build(&reported::reporting(SetIdBits::Refused));
    match set_id_bits {
        SetIdBits::Allowed => ALLOWED.program(),
        SetIdBits::Refused => REFUSED.program(),
    }
}

/// The reporting filter, but it asks the supervisor about the calls in `followed` too, which it allows.
pub(crate) const fn following_program(set_id_bits: SetIdBits) -> &'static [sock_filter] {
    static ALLOWED: Block = build(&followed::following(SetIdBits::Allowed));
    static REFUSED: Block = build(&followed::following(SetIdBits::Refused));
    match set_id_bits {
        SetIdBits::Allowed => ALLOWED.program(),
        SetIdBits::Refused => REFUSED.program(),
    }
}

/// The error number of a call that was refused, by either filter for commands: what one of them
/// refuses, the stricter one refuses with the same error. ENOSYS for a call that is not refused.
pub(crate) fn errno(call: &Call) -> i32 {
    match evaluate::evaluate(program(SetIdBits::Refused), call) {
        Some((answer, _)) if answer & SECCOMP_RET_ACTION_FULL == SECCOMP_RET_ERRNO => {
            i32::try_from(answer & SECCOMP_RET_DATA).unwrap_or(libc::ENOSYS)
        }
        _ => libc::ENOSYS,
    }
}

/// The filter for a worker of a zygote, in addition to that of the zygote: only the calls in
/// `worker` are allowed; all others fail with EPERM or, above the highest known number, ENOSYS.
pub const fn worker_program() -> &'static [sock_filter] {
    static WORKER: Block = build(&worker::verdicts());
    WORKER.program()
}

/// The filter for a process that carries traffic for sandboxes, in addition to that for commands:
/// only the calls in `traffic` are allowed; all others fail as in a worker.
pub const fn traffic_program() -> &'static [sock_filter] {
    static TRAFFIC: Block = build(&traffic::verdicts());
    TRAFFIC.program()
}

/// The filter for a process that refuses what a sandbox without network access asks for, in addition
/// to that for commands: only the calls in `stub` are allowed; all others fail as in a worker.
pub const fn stub_program() -> &'static [sock_filter] {
    static STUB: Block = build(&stub::verdicts());
    STUB.program()
}

const fn build(verdicts: &[Verdict; KNOWN]) -> Block {
    let foreign = tree::answer(libc::SECCOMP_RET_KILL_PROCESS);
    let native = tree::load(tree::NUMBER).append(&tree::search(verdicts));
    let judge = tree::when(tree::Comparison::Equal, ARCHITECTURE_X86_64, &native, &foreign);
    tree::lay_out(&tree::load(tree::ARCHITECTURE).append(&judge))
}

/// Installs a filter on the calling thread and all processes that it will start.
///
/// The caller must have set no_new_privs. Allocates nothing, so it may run between fork and exec.
/// Errors are those of seccomp(2).
pub fn install(program: &[sock_filter]) -> io::Result<()> {
    install_with(program, 0).map(drop)
}

/// Installs [`reporting_program`] or [`following_program`], and returns the descriptor by which the
/// supervisor hears of these calls; it is closed on exec. Installs [`program`] and returns none where
/// the kernel cannot report them, or a filter of this thread reports to another supervisor already.
///
/// As [`install`].
pub(crate) fn install_reporting(
    set_id_bits: SetIdBits,
    follows_renames: bool,
) -> io::Result<Option<OwnedFd>> {
    let reporting = match follows_renames {
        true => following_program(set_id_bits),
        false => reporting_program(set_id_bits),
    };
    // Linux 5.19 and later: a signal does not interrupt a call that the supervisor has received.
    let flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    for flags in [flags, SECCOMP_FILTER_FLAG_NEW_LISTENER] {
        match install_with(reporting, flags) {
            // SAFETY: the kernel has just made this descriptor for the caller.
            Ok(listener) => return Ok(Some(unsafe { OwnedFd::from_raw_fd(listener) })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
    }
    install(program(set_id_bits)).map(|()| None)
}

fn install_with(program: &[sock_filter], flags: c_ulong) -> io::Result<RawFd> {
    let length =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // The kernel only reads the program; the field is not const in C.
    let program = sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` points to `len` instructions that outlive the call, which copies them.
    let result =
        unsafe { libc::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match RawFd::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
