//! Attacks on the kernel's system call interface: calls that a sandboxed command must not make,
//! each with arguments that do no harm when it is executed.

use std::arch::asm;

use crate::attempt::{Attempt, all_refused, call, error_name, in_child, last_error, raw_syscall};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] = &[
    ("syscall", syscall),
    ("clone-user-namespace", clone_user_namespace),
    ("clone3", clone3),
    ("setns", setns),
    ("pidfd-getfd", pidfd_getfd),
    ("int80", int80),
    ("x32", x32),
    ("terminal-ioctl", terminal_ioctl),
    ("personality", personality),
    ("privileges", privileges),
    ("gain-ids", gain_ids),
    ("effective-ids", effective_ids),
    ("dirty-pipe", dirty_pipe),
    ("clock-set", clock_set),
];

/// Calls by name. Pointers are null or wild: a call that no wall refuses fails on them.
const CALLS: &[(&str, i64, [usize; 6])] = &[
    ("unshare-user", libc::SYS_unshare, [libc::CLONE_NEWUSER as usize, 0, 0, 0, 0, 0]),
    ("unshare-mount", libc::SYS_unshare, [libc::CLONE_NEWNS as usize, 0, 0, 0, 0, 0]),
    ("unshare-network", libc::SYS_unshare, [libc::CLONE_NEWNET as usize, 0, 0, 0, 0, 0]),
    ("unshare-pid", libc::SYS_unshare, [libc::CLONE_NEWPID as usize, 0, 0, 0, 0, 0]),
    ("bpf", libc::SYS_bpf, [9999, 0, 0, 0, 0, 0]),
    ("perf_event_open", libc::SYS_perf_event_open, [0, 0, usize::MAX, usize::MAX, 0, 0]),
    // UFFD_USER_MODE_ONLY: what an unprivileged process may request.
    ("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0]),
    // KEYCTL_GET_KEYRING_ID of the process's own keyring, created on demand.
    ("keyctl", libc::SYS_keyctl, [0, -2_isize as usize, 1, 0, 0, 0]),
    ("add_key", libc::SYS_add_key, [0, 0, 0, 0, 0, 0]),
    ("request_key", libc::SYS_request_key, [0, 0, 0, 0, 0, 0]),
    ("ptrace-traceme", libc::SYS_ptrace, [0, 0, 0, 0, 0, 0]),
    // With no vectors these succeed immediately where they are allowed.
    ("process_vm_readv", libc::SYS_process_vm_readv, [1, 0, 0, 0, 0, 0]),
    ("process_vm_writev", libc::SYS_process_vm_writev, [1, 0, 0, 0, 0, 0]),
    ("kcmp", libc::SYS_kcmp, [0, 0, 99, 0, 0, 0]),
    ("kexec_load", libc::SYS_kexec_load, [0, usize::MAX, 0, 0, 0, 0]),
    ("kexec_file_load", libc::SYS_kexec_file_load, [usize::MAX, usize::MAX, 0, 0, 0, 0]),
    ("init_module", libc::SYS_init_module, [0, 0, 0, 0, 0, 0]),
    ("finit_module", libc::SYS_finit_module, [usize::MAX, 0, 0, 0, 0, 0]),
    ("delete_module", libc::SYS_delete_module, [0, 0, 0, 0, 0, 0]),
    ("reboot", libc::SYS_reboot, [0, 0, 0, 0, 0, 0]),
    ("swapon", libc::SYS_swapon, [0, 0, 0, 0, 0, 0]),
    ("swapoff", libc::SYS_swapoff, [0, 0, 0, 0, 0, 0]),
    ("acct", libc::SYS_acct, [usize::MAX, 0, 0, 0, 0, 0]),
    ("quotactl", libc::SYS_quotactl, [0, 0, 0, 0, 0, 0]),
    ("mount", libc::SYS_mount, [0, 0, 0, 0, 0, 0]),
    ("umount2", libc::SYS_umount2, [0, 0, 0, 0, 0, 0]),
    ("pivot_root", libc::SYS_pivot_root, [0, 0, 0, 0, 0, 0]),
    ("chroot", libc::SYS_chroot, [0, 0, 0, 0, 0, 0]),
    ("fsopen", libc::SYS_fsopen, [0, 0, 0, 0, 0, 0]),
    ("fspick", libc::SYS_fspick, [usize::MAX, 0, 0, 0, 0, 0]),
    ("fsconfig", libc::SYS_fsconfig, [usize::MAX, 0, 0, 0, 0, 0]),
    ("fsmount", libc::SYS_fsmount, [usize::MAX, 0, 0, 0, 0, 0]),
    ("open_tree", libc::SYS_open_tree, [usize::MAX, 0, 1, 0, 0, 0]),
    ("move_mount", libc::SYS_move_mount, [usize::MAX, 0, usize::MAX, 0, 0, 0]),
    ("mount_setattr", libc::SYS_mount_setattr, [usize::MAX, 0, 0, 0, 0, 0]),
    // More recent than most deny lists: open_tree_attr (Linux 6.15).
    ("open_tree_attr", 467, [usize::MAX, 0, 1, 0, 0, 0]),
    ("open_by_handle_at", libc::SYS_open_by_handle_at, [usize::MAX, 0, 0, 0, 0, 0]),
    ("syslog", libc::SYS_syslog, [10, 0, 0, 0, 0, 0]),
    ("iopl", libc::SYS_iopl, [3, 0, 0, 0, 0, 0]),
    ("ioperm", libc::SYS_ioperm, [0x80, 1, 1, 0, 0, 0]),
    ("sethostname", libc::SYS_sethostname, [0, usize::MAX, 0, 0, 0, 0]),
    ("setdomainname", libc::SYS_setdomainname, [0, usize::MAX, 0, 0, 0, 0]),
    ("vhangup", libc::SYS_vhangup, [0, 0, 0, 0, 0, 0]),
    ("modify_ldt", libc::SYS_modify_ldt, [0, 0, 0, 0, 0, 0]),
    ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0]),
    ("io_uring_enter", libc::SYS_io_uring_enter, [usize::MAX, 0, 0, 0, 0, 0]),
    ("io_uring_register", libc::SYS_io_uring_register, [usize::MAX, 0, 0, 0, 0, 0]),
];

/// `syscall NAME…`: a wall must refuse every named call of the table.
fn syscall(names: &[String]) -> Verdict {
    let mut attempts = Vec::new();
    for name in names {
        let Some((_, number, arguments)) = CALLS.iter().find(|call| call.0 == name) else {
            return Verdict::Broken(format!("there is no call `{name}` in the table"));
        };
        attempts.push((name.clone(), call(*number, *arguments)));
    }
    if attempts.is_empty() {
        return Verdict::Broken("no call was named".into());
    }
    all_refused(&attempts)
}

/// The old `clone` with CLONE_NEWUSER, also with bits above the 32nd set in the flags.
fn clone_user_namespace(_: &[String]) -> Verdict {
    let flags = (libc::CLONE_NEWUSER | libc::SIGCHLD) as usize;
    let attempts: Vec<_> = [("clone", flags), ("clone with high bits", flags | 1 << 40)]
        .map(|(name, flags)| (name.to_owned(), call(libc::SYS_clone, [flags, 0, 0, 0, 0, 0])))
        .into();
    all_refused(&attempts)
}

/// `clone3` takes its flags through a pointer, which a filter cannot follow, so even a plain one
/// has to be refused.
fn clone3(_: &[String]) -> Verdict {
    let mut arguments = [0_u64; 8];
    arguments[0] = libc::CLONE_NEWUSER as u64;
    arguments[4] = libc::SIGCHLD as u64;
    let pointer = arguments.as_ptr().addr();
    let attempt = call(libc::SYS_clone3, [pointer, size_of_val(&arguments), 0, 0, 0, 0]);
    all_refused(&[("clone3".into(), attempt)])
}

/// Enters a namespace by descriptor, including its own.
fn setns(_: &[String]) -> Verdict {
    let mut attempts = Vec::new();
    for name in ["user", "mnt", "net", "pid", "uts", "ipc", "cgroup"] {
        for pid in ["self", "1"] {
            let attempt =
                in_child(|| match std::fs::File::open(format!("/proc/{pid}/ns/{name}")) {
                    Ok(file) => {
                        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file) as usize;
                        raw_syscall(libc::SYS_setns, [descriptor, 0, 0, 0, 0, 0])
                    }
                    Err(error) => match error.raw_os_error() {
                        // Not visible at all counts as refused.
                        Some(libc::ENOENT) | None => libc::EACCES,
                        Some(number) => number,
                    },
                });
            attempts.push((format!("setns to {name} of {pid}"), attempt));
        }
    }
    all_refused(&attempts)
}

/// Takes descriptors from pid 1 and from the parent, whose descriptors are shared, by number
/// (`pidfd_getfd`) and by name (/proc).
fn pidfd_getfd(_: &[String]) -> Verdict {
    let mut attempts = Vec::new();
    for pid in [1, std::os::unix::process::parent_id(), std::process::id()] {
        let attempt = in_child(|| {
            // SAFETY: takes two numbers and returns a new descriptor or an error.
            let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
            if descriptor < 0 {
                return last_error();
            }
            raw_syscall(libc::SYS_pidfd_getfd, [descriptor as usize, 0, 0, 0, 0, 0])
        });
        attempts.push((format!("pidfd_getfd from {pid}"), attempt));
    }
    let has_proc = std::path::Path::new("/proc/self/fd").exists();
    for pid in [1, std::os::unix::process::parent_id()].into_iter().filter(|_| has_proc) {
        let attempt = in_child(|| match std::fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(_) => 0,
            Err(error) => error.raw_os_error().unwrap_or(255),
        });
        attempts.push((format!("the descriptors of {pid} in /proc"), attempt));
    }
    all_refused(&attempts)
}

/// The 32-bit entry, where call numbers have other meanings: 20 is `getpid` there.
fn int80(_: &[String]) -> Verdict {
    let attempt = in_child(|| {
        let mut answer: i32 = 20;
        // SAFETY: `int 0x80` with getpid's number reads no memory and changes only the flags and
        // rax; r8 to r11 are listed because old kernels cleared them.
        unsafe {
            asm!("int 0x80", inlateout("eax") answer, out("r8") _, out("r9") _, out("r10") _,
                out("r11") _);
        }
        if answer > 0 { 0 } else { -answer }
    });
    // A kernel without the entry raises a fault.
    if attempt == Attempt::Killed(libc::SIGSEGV) {
        return Verdict::Blocked("ENOSYS: this kernel has no 32-bit entry".into());
    }
    all_refused(&[("int 0x80".into(), attempt)])
}

/// Call numbers with the x32 bit, which a filter that only compares numbers does not match.
fn x32(_: &[String]) -> Verdict {
    const X32_BIT: i64 = 0x4000_0000;
    let attempts: Vec<_> = [
        ("x32 getpid", libc::SYS_getpid, [0; 6]),
        ("x32 unshare", libc::SYS_unshare, [libc::CLONE_NEWUSER as usize, 0, 0, 0, 0, 0]),
        ("x32 ptrace", 521, [0; 6]),
    ]
    .map(|(name, number, arguments)| (name.to_owned(), call(number | X32_BIT, arguments)))
    .into();
    all_refused(&attempts)
}

/// `terminal-ioctl`: pushes input into a terminal, also with bits above the 32nd set, which the
/// kernel ignores and a 64-bit comparison does not.
fn terminal_ioctl(_: &[String]) -> Verdict {
    // SAFETY: posix_openpt takes flags and returns a new descriptor or -1.
    let terminal = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY) };
    let byte = [b'x', 0];
    let pointer = byte.as_ptr().addr();
    let mut attempts = Vec::new();
    for (name, request) in [
        ("TIOCSTI", libc::TIOCSTI as usize),
        ("TIOCSTI with high bits", libc::TIOCSTI as usize | 1 << 32),
        ("TIOCLINUX", libc::TIOCLINUX as usize),
        ("TIOCLINUX with high bits", libc::TIOCLINUX as usize | 0xdead << 32),
    ] {
        for descriptor in [0, 1, 2, terminal] {
            let attempt = call(libc::SYS_ioctl, [descriptor as usize, request, pointer, 0, 0, 0]);
            attempts.push((format!("{name} on {descriptor}"), attempt));
        }
    }
    all_refused(&attempts)
}

/// Personalities that weaken the process: no address randomisation, executable data.
fn personality(_: &[String]) -> Verdict {
    let attempts: Vec<_> = [
        ("ADDR_NO_RANDOMIZE", libc::ADDR_NO_RANDOMIZE),
        ("READ_IMPLIES_EXEC", libc::READ_IMPLIES_EXEC),
        ("MMAP_PAGE_ZERO", libc::MMAP_PAGE_ZERO),
    ]
    .map(|(name, value)| {
        (name.to_owned(), call(libc::SYS_personality, [value as usize, 0, 0, 0, 0, 0]))
    })
    .into();
    all_refused(&attempts)
}

/// The kernel's report about this process: no capability, no way to get new ones, filters enabled.
fn privileges(_: &[String]) -> Verdict {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return Verdict::Broken("/proc/self/status cannot be read".into());
    };
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map_or_else(|| "missing".to_owned(), |value| value.trim().to_owned())
    };
    let mut escapes = Vec::new();
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        if !field(name).trim_matches('0').is_empty() {
            escapes.push(format!("{name} is {}", field(name)));
        }
    }
    for (name, wanted) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
        if field(name) != wanted {
            escapes.push(format!("{name} is {}", field(name)));
        }
    }
    Verdict::unless(&escapes, "no capability, no_new_privs, a filter")
}

/// Changes to another user or group by system calls.
fn gain_ids(_: &[String]) -> Verdict {
    // SAFETY: getuid has no arguments and cannot fail.
    let other = unsafe { libc::getuid() } as usize + 1;
    let group = other.to_le_bytes();
    let attempts: Vec<_> = [
        ("setuid", libc::SYS_setuid, [other, 0, 0, 0, 0, 0]),
        ("setgid", libc::SYS_setgid, [other, 0, 0, 0, 0, 0]),
        ("setresuid", libc::SYS_setresuid, [other, other, other, 0, 0, 0]),
        ("setgroups", libc::SYS_setgroups, [1, group.as_ptr().addr(), 0, 0, 0, 0]),
        ("setuid to 0 from another", libc::SYS_setreuid, [other, 0, 0, 0, 0, 0]),
    ]
    .map(|(name, number, arguments)| {
        let attempt = match call(number, arguments) {
            // An id outside the map: no such user in this namespace.
            Attempt::Failed(libc::EINVAL) => Attempt::Failed(libc::EPERM),
            attempt => attempt,
        };
        (name.to_owned(), attempt)
    })
    .into();
    all_refused(&attempts)
}

/// Executed from a set-user-id file: whether that changed any id.
fn effective_ids(_: &[String]) -> Verdict {
    // SAFETY: none of the four has arguments or can fail.
    let (real, effective, real_group, effective_group) =
        unsafe { (libc::getuid(), libc::geteuid(), libc::getgid(), libc::getegid()) };
    if real == effective && real_group == effective_group {
        Verdict::Blocked(format!("still user {real}, group {real_group}"))
    } else {
        Verdict::Escaped(format!(
            "user {real} as {effective}, group {real_group} as {effective_group}"
        ))
    }
}

/// `dirty-pipe PATH`: splices a page of a read-only file into a pipe and writes after it, as
/// CVE-2022-0847 did; then checks whether the file changed.
fn dirty_pipe(arguments: &[String]) -> Verdict {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    let path = &arguments[0];
    let (Ok(before), Ok(file)) = (std::fs::read(path), std::fs::File::open(path)) else {
        return Verdict::Broken(format!("{path} cannot be read"));
    };
    let Ok((_reader, mut writer)) = std::io::pipe() else {
        return Verdict::Broken("no pipe".into());
    };
    let mut offset: libc::loff_t = 0;
    // SAFETY: both descriptors are open and `offset` outlives the call.
    unsafe {
        libc::splice(
            file.as_raw_fd(),
            &raw mut offset,
            writer.as_raw_fd(),
            std::ptr::null_mut(),
            1,
            0,
        );
    }
    if writer.write_all(b"OVERWRITTEN").is_err() {
        return Verdict::Broken("the pipe cannot be written".into());
    }
    match std::fs::read(path) {
        Ok(after) if after == before => Verdict::Blocked(format!("{path} is unchanged")),
        _ => Verdict::Escaped(format!("{path} changed in the page cache")),
    }
}

/// Sets the machine's clocks to their current values.
fn clock_set(_: &[String]) -> Verdict {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` outlives the call.
    if unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) } != 0 {
        return Verdict::Broken(format!("clock_gettime: {}", error_name(last_error())));
    }
    let time = libc::timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1000 };
    // SAFETY: an all-zero timex is valid: it requests no change.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    timex.modes = libc::ADJ_TICK;
    timex.tick = 10_000;
    let attempts: Vec<_> = [
        ("clock_settime", libc::SYS_clock_settime, [0, (&raw const now).addr(), 0, 0, 0, 0]),
        ("settimeofday", libc::SYS_settimeofday, [(&raw const time).addr(), 0, 0, 0, 0, 0]),
        ("adjtimex", libc::SYS_adjtimex, [(&raw const timex).addr(), 0, 0, 0, 0, 0]),
        ("clock_adjtime", libc::SYS_clock_adjtime, [0, (&raw const timex).addr(), 0, 0, 0, 0]),
    ]
    .map(|(name, number, arguments)| (name.to_owned(), call(number, arguments)))
    .into();
    all_refused(&attempts)
}
