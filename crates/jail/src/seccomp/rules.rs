//! Which system calls a confined command may not make, with which error, and why.
//!
//! Everything that is not named here is allowed. Where possible, the errors are those of a kernel
//! that was built or configured without the feature: programs know them and fall back (libuv and
//! tokio without io_uring, glibc without clone3, libnuma without NUMA).
//!
//! Allowed on purpose: `landlock_*` and `seccomp`, which can only remove rights; set-user-id and
//! set-group-id bits where no file of the host is writable, since no_new_privs and nosuid mounts
//! make them ineffective inside; `pidfd_open` and `pidfd_send_signal`, which reach the same
//! processes as `kill`.

use libc::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, EAFNOSUPPORT, ENOSYS, EOPNOTSUPP, EPERM,
    EPROTONOSUPPORT, c_long,
};

use super::SetIdBits;
use super::tree::{
    Block, Comparison, Verdict, allow, allow_only, load, low_half_of_argument, mask, refuse,
    refuse_only, when,
};

/// The highest number that was reviewed when these rules were written: `file_setattr`, Linux 6.17.
pub(super) const HIGHEST_KNOWN: u32 = 469;

// Numbers that the libc crate does not have yet (arch/x86/entry/syscalls/syscall_64.tbl).
const SYS_CACHESTAT: c_long = 451;
const SYS_STATMOUNT: c_long = 457;
const SYS_LISTMOUNT: c_long = 458;
const SYS_OPEN_TREE_ATTR: c_long = 467;

/// Calls that are refused whatever their arguments are, with the errno.
const REFUSED: &[(i32, &[c_long])] = &[
    // Mounts: the view of the file system is the wall (other programs forgot the new calls:
    // CVE-2021-41133).
    (
        EPERM,
        &[
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_chroot,
            libc::SYS_open_tree,
            libc::SYS_move_mount,
            libc::SYS_fsopen,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fspick,
            libc::SYS_mount_setattr,
            SYS_OPEN_TREE_ATTR,
        ],
    ),
    // They list the host's mounts; programs read /proc/self/mountinfo instead.
    (ENOSYS, &[SYS_STATMOUNT, SYS_LISTMOUNT]),
    // Namespaces: a new user namespace gives back every capability inside it, and with them access
    // to the kernel code that most local exploits need (CVE-2022-0185). clone3's flags are in
    // memory, which a filter cannot read; glibc falls back to clone, whose flags the filter sees.
    (EPERM, &[libc::SYS_unshare, libc::SYS_setns]),
    (ENOSYS, &[libc::SYS_clone3]),
    // Other processes: their memory, file descriptors and kernel objects.
    (
        EPERM,
        &[
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_process_madvise,
            libc::SYS_pidfd_getfd,
            libc::SYS_kcmp,
        ],
    ),
    // Large kernel subsystems with a long list of exploits. io_uring also acts without making
    // system calls, so it bypasses this filter. EPERM is the error of their sysctls when they are
    // off.
    (
        EPERM,
        &[
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
        ],
    ),
    // Keyrings belong to the user, not to a namespace: these calls reach the host's keys.
    (EPERM, &[libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl]),
    // The machine: its kernel, clocks, names, swap, accounting, quotas, log, ports and terminals.
    (
        EPERM,
        &[
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_kexec_load,
            libc::SYS_kexec_file_load,
            libc::SYS_reboot,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_clock_adjtime,
            libc::SYS_adjtimex,
            libc::SYS_sethostname,
            libc::SYS_setdomainname,
            libc::SYS_swapon,
            libc::SYS_swapoff,
            libc::SYS_acct,
            libc::SYS_quotactl,
            libc::SYS_quotactl_fd,
            libc::SYS_syslog,
            libc::SYS_iopl,
            libc::SYS_ioperm,
            libc::SYS_vhangup,
        ],
    ),
    // Files by handle instead of by path: this bypasses every mount (the "shocker" escape). A file
    // system without handles fails with EOPNOTSUPP, which callers handle.
    (EPERM, &[libc::SYS_open_by_handle_at]),
    (EOPNOTSUPP, &[libc::SYS_name_to_handle_at]),
    // Watching whole file systems.
    (EPERM, &[libc::SYS_fanotify_init, libc::SYS_fanotify_mark]),
    // The content of the host's page cache is a side channel.
    (ENOSYS, &[SYS_CACHESTAT]),
    // Memory placement reveals and changes properties of the machine.
    (
        ENOSYS,
        &[
            libc::SYS_mbind,
            libc::SYS_set_mempolicy,
            libc::SYS_get_mempolicy,
            libc::SYS_set_mempolicy_home_node,
            libc::SYS_migrate_pages,
            libc::SYS_move_pages,
        ],
    ),
    // Memory that even the host's kernel cannot see, and 16-bit segments.
    (ENOSYS, &[libc::SYS_memfd_secret, libc::SYS_modify_ldt]),
    // Obsolete calls that nothing needs.
    (
        ENOSYS,
        &[
            libc::SYS_uselib,
            libc::SYS_ustat,
            libc::SYS_sysfs,
            libc::SYS__sysctl,
            libc::SYS_nfsservctl,
            libc::SYS_lookup_dcookie,
        ],
    ),
];

/// Calls that are decided by an argument.
const FILTERED: &[(c_long, Block)] = &[
    (libc::SYS_clone, clone()),
    (libc::SYS_ioctl, ioctl()),
    (libc::SYS_socket, socket()),
    (libc::SYS_socketpair, socketpair()),
    (libc::SYS_personality, personality()),
    (libc::SYS_mknod, make_node(1, SetIdBits::Allowed)),
    (libc::SYS_mknodat, make_node(2, SetIdBits::Allowed)),
];

/// Calls that are decided by an argument where set-id bits are refused; they replace those of
/// [`FILTERED`]. openat2's mode is in memory, which a filter cannot read; its users fall back.
const FILTERED_SET_ID: &[(c_long, Block)] = &[
    (libc::SYS_chmod, plain_mode(1)),
    (libc::SYS_fchmod, plain_mode(1)),
    (libc::SYS_fchmodat, plain_mode(2)),
    (libc::SYS_fchmodat2, plain_mode(2)),
    (libc::SYS_creat, plain_mode(1)),
    (libc::SYS_open, open(1)),
    (libc::SYS_openat, open(2)),
    (libc::SYS_openat2, refuse(ENOSYS)),
    (libc::SYS_mknod, make_node(1, SetIdBits::Refused)),
    (libc::SYS_mknodat, make_node(2, SetIdBits::Refused)),
];

/// Every flag that creates a namespace. `CLONE_NEWTIME` is one of the bits that clone uses for the
/// exit signal, which no valid signal sets.
const NAMESPACE_FLAGS: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWTIME)
    .cast_unsigned();

const fn clone() -> Block {
    load(low_half_of_argument(0)).append(&when(
        Comparison::AnyBitOf,
        NAMESPACE_FLAGS,
        &refuse(EPERM),
        &allow(),
    ))
}

/// Requests that put input into a terminal, where the user's shell would read it later
/// (CVE-2017-5226; TIOCLINUX pastes on consoles: CVE-2023-28100), or change its line discipline,
/// which loads kernel modules with a poor security record.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const TIOCSETD: u32 = 0x5423;

const fn ioctl() -> Block {
    load(low_half_of_argument(1)).append(&refuse_only(&[TIOCSTI, TIOCLINUX, TIOCSETD], EPERM))
}

const PROTOCOL_TCP: u32 = 6;
const PROTOCOL_UDP: u32 = 17;
const PROTOCOL_ROUTE_NETLINK: u32 = 0;
/// The bits of a socket's type other than SOCK_CLOEXEC and SOCK_NONBLOCK.
const SOCKET_TYPE_MASK: u32 = 0xf;

/// Only families that network namespaces isolate and that programs need: AF_VSOCK reaches the
/// hypervisor from any namespace, the others are rarely reviewed kernel code that is loaded on
/// demand. For the internet families only TCP and UDP (Go falls back from MPTCP); for netlink only
/// routes, which getifaddrs reads.
const fn socket() -> Block {
    let known = when(Comparison::Equal, PROTOCOL_UDP, &socket_type(), &refuse(EPROTONOSUPPORT));
    let known = when(Comparison::Equal, PROTOCOL_TCP, &socket_type(), &known);
    let internet =
        load(low_half_of_argument(2)).append(&when(Comparison::Equal, 0, &socket_type(), &known));
    let netlink = load(low_half_of_argument(2))
        .append(&allow_only(&[PROTOCOL_ROUTE_NETLINK], EPROTONOSUPPORT));
    let judge = when(Comparison::Equal, AF_NETLINK.unsigned_abs(), &netlink, &refuse(EAFNOSUPPORT));
    let judge = when(Comparison::Equal, AF_INET6.unsigned_abs(), &internet, &judge);
    let judge = when(Comparison::Equal, AF_INET.unsigned_abs(), &internet, &judge);
    let judge = when(Comparison::Equal, AF_UNIX.unsigned_abs(), &allow(), &judge);
    load(low_half_of_argument(0)).append(&judge)
}

pub(super) const fn socket_type() -> Block {
    load(low_half_of_argument(1)).append(&mask(SOCKET_TYPE_MASK)).append(&allow_only(
        &[libc::SOCK_STREAM.unsigned_abs(), libc::SOCK_DGRAM.unsigned_abs()],
        EPERM,
    ))
}

/// The kernel creates both sockets before it checks whether their family supports pairs.
const fn socketpair() -> Block {
    load(low_half_of_argument(0)).append(&allow_only(&[AF_UNIX.unsigned_abs()], EAFNOSUPPORT))
}

/// The native personality, and querying it. The others disable address randomisation or make memory
/// executable without the program's knowledge.
const fn personality() -> Block {
    load(low_half_of_argument(0)).append(&allow_only(&[0, 0xffff_ffff], EPERM))
}

/// No device files, not even the 0:0 one that anybody may create: overlays interpret it as a
/// deletion.
const fn make_node(mode_argument: u32, set_id_bits: SetIdBits) -> Block {
    let judge = mask(libc::S_IFMT).append(&refuse_only(&[libc::S_IFCHR, libc::S_IFBLK], EPERM));
    let judge = match set_id_bits {
        SetIdBits::Allowed => judge,
        SetIdBits::Refused => when(Comparison::AnyBitOf, SET_ID, &refuse(EPERM), &judge),
    };
    load(low_half_of_argument(mode_argument)).append(&judge)
}

const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// A mode without set-id bits.
const fn plain_mode(mode_argument: u32) -> Block {
    load(low_half_of_argument(mode_argument)).append(&when(
        Comparison::AnyBitOf,
        SET_ID,
        &refuse(EPERM),
        &allow(),
    ))
}

/// Opening; the mode, which follows the flags, has a meaning only where a file may be created.
const fn open(flags_argument: u32) -> Block {
    // O_TMPFILE is two bits, of which O_DIRECTORY is one.
    let makes = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)).cast_unsigned();
    load(low_half_of_argument(flags_argument)).append(&when(
        Comparison::AnyBitOf,
        makes,
        &plain_mode(flags_argument + 1),
        &allow(),
    ))
}

/// How many numbers have a verdict.
pub(super) const KNOWN: usize = HIGHEST_KNOWN as usize + 1;

/// The verdicts on every number from 0 to [`HIGHEST_KNOWN`].
pub(super) const fn verdicts(set_id_bits: SetIdBits) -> [Verdict; KNOWN] {
    let mut verdicts = [Verdict::Allowed; KNOWN];
    let mut index = 0;
    while index < REFUSED.len() {
        let (errno, numbers) = REFUSED[index];
        let mut at = 0;
        while at < numbers.len() {
            verdicts[table_index(numbers[at])] = Verdict::Refused(errno);
            at += 1;
        }
        index += 1;
    }
    set_filters(&mut verdicts, FILTERED);
    match set_id_bits {
        SetIdBits::Allowed => {}
        SetIdBits::Refused => set_filters(&mut verdicts, FILTERED_SET_ID),
    }
    verdicts
}

/// Stores the verdicts on these calls.
pub(super) const fn set_filters(
    verdicts: &mut [Verdict; KNOWN],
    calls: &'static [(c_long, Block)],
) {
    let mut index = 0;
    while index < calls.len() {
        let (number, block) = &calls[index];
        verdicts[table_index(*number)] = Verdict::Filtered(block);
        index += 1;
    }
}

/// An invalid system call number does not compile.
pub(super) const fn table_index(number: c_long) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "a larger number is out of bounds")]
    (number.unsigned_abs() as usize)
}
