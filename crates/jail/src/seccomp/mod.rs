//! The system call wall: the filter program and its installation.
//!
//! What is refused and why is in `rules`; how decisions become classic BPF is in `tree`. No
//! policy is made here. A filter that is installed can never be taken off again, by anybody.

mod rules;
mod traffic;
mod tree;
mod worker;

#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod live_tests;

use std::io;

use libc::{SECCOMP_SET_MODE_FILTER, SYS_seccomp, sock_filter, sock_fprog};

use rules::KNOWN;
use tree::{Block, Verdict};

/// `AUDIT_ARCH_X86_64` of linux/audit.h: machine 62, 64-bit, little-endian.
const ARCHITECTURE_X86_64: u32 = 0xc000_003e;

/// Whether a command may put set-user-id and set-group-id bits on files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetIdBits {
    /// It may: all it can write is in places that no other user of the host reaches, and nothing
    /// leaves them with these bits. Opening files then costs nothing, for the kernel need not run
    /// the filter for it.
    Allowed,
    /// It may not. For jails that write to files of the host: as the owner of the directory,
    /// which may be host root, the command would leave a program there that makes anybody its
    /// owner.
    Refused,
}

/// The filter for a confined command, ready for [`install`].
///
/// - Another architecture (`int 0x80` is the way in) ends the process: its numbers mean other
///   calls, and nothing that we start uses it.
/// - What `rules` names is refused with an errno that lets programs fall back.
/// - Numbers above the highest known one, x32 calls (bit 30) among them, answer ENOSYS: a call
///   that did not exist when the rules were written was never judged.
pub const fn program(set_id_bits: SetIdBits) -> &'static [sock_filter] {
    static ALLOWED: Block = build(&rules::verdicts(SetIdBits::Allowed));
    static REFUSED: Block = build(&rules::verdicts(SetIdBits::Refused));
    match set_id_bits {
        SetIdBits::Allowed => ALLOWED.program(),
        SetIdBits::Refused => REFUSED.program(),
    }
}

/// The filter for a worker of a zygote, which comes on top of that of the zygote: only what is named
/// in `worker` is allowed, and all else fails with EPERM or, above the highest known number, ENOSYS.
pub const fn worker_program() -> &'static [sock_filter] {
    static WORKER: Block = build(&worker::verdicts());
    WORKER.program()
}

/// The filter for a process that carries traffic for sandboxes, which comes on top of that for
/// commands: only what is named in `traffic` is allowed, and all else fails as in a worker.
pub const fn traffic_program() -> &'static [sock_filter] {
    static TRAFFIC: Block = build(&traffic::verdicts());
    TRAFFIC.program()
}

const fn build(verdicts: &[Verdict; KNOWN]) -> Block {
    let foreign = tree::answer(libc::SECCOMP_RET_KILL_PROCESS);
    let native = tree::load(tree::NUMBER).then(&tree::search(verdicts));
    let judge = tree::when(tree::Is::Equal, ARCHITECTURE_X86_64, &native, &foreign);
    tree::share_answers(&tree::load(tree::ARCHITECTURE).then(&judge))
}

/// Installs a filter on the calling thread and all it will start.
///
/// The caller must have set no_new_privs. Allocates nothing, so it may run between fork and exec.
/// Errors are those of seccomp(2).
pub fn install(program: &[sock_filter]) -> io::Result<()> {
    let length =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // The kernel only reads the program; the field is not const in C.
    let program = sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` points to `len` instructions that outlive the call, which copies them.
    let result =
        unsafe { libc::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
