//! Which system calls a confined command may not make, with which error, and why.
//!
//! Everything that is neither allowed in `calls` nor decided by its arguments in `arguments` is
//! named here. Where possible, the errors are those of a kernel that was built or configured
//! without the feature: programs know them and fall back (libuv and tokio without io_uring, glibc
//! without clone3, libnuma without NUMA).

use libc::{ENOSYS, EOPNOTSUPP, EPERM, c_long};

use super::SetIdBits;
use super::arguments::{FILTERED, FILTERED_SET_ID};
use super::calls::ALLOWED;
use super::tree::{Block, Verdict};

/// The highest number that was reviewed when these rules were written: `file_setattr`, Linux 6.17.
pub(super) const HIGHEST_KNOWN: u32 = 469;

// Numbers that the libc crate does not have yet (arch/x86/entry/syscalls/syscall_64.tbl).
const SYS_CREATE_MODULE: c_long = 174;
const SYS_GET_KERNEL_SYMS: c_long = 177;
const SYS_QUERY_MODULE: c_long = 178;
const SYS_CACHESTAT: c_long = 451;
pub(super) const SYS_FUTEX_WAKE: c_long = 454;
pub(super) const SYS_FUTEX_WAIT: c_long = 455;
pub(super) const SYS_FUTEX_REQUEUE: c_long = 456;
const SYS_STATMOUNT: c_long = 457;
const SYS_LISTMOUNT: c_long = 458;
const SYS_LSM_GET_SELF_ATTR: c_long = 459;
const SYS_LSM_SET_SELF_ATTR: c_long = 460;
const SYS_LSM_LIST_MODULES: c_long = 461;
const SYS_OPEN_TREE_ATTR: c_long = 467;
pub(super) const SYS_FILE_GETATTR: c_long = 468;
pub(super) const SYS_FILE_SETATTR: c_long = 469;

/// Calls that are refused whatever their arguments are, with the errno.
pub(super) const REFUSED: &[(i32, &[c_long])] = &[
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
    // Descriptors and kernel objects of other processes.
    (EPERM, &[libc::SYS_process_madvise, libc::SYS_pidfd_getfd, libc::SYS_kcmp]),
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
            libc::SYS_remap_file_pages,
        ],
    ),
    // Numbers that are reserved for calls that Linux for this architecture does not have.
    (
        ENOSYS,
        &[
            SYS_CREATE_MODULE,
            SYS_GET_KERNEL_SYMS,
            SYS_QUERY_MODULE,
            libc::SYS_getpmsg,
            libc::SYS_putpmsg,
            libc::SYS_afs_syscall,
            libc::SYS_tuxcall,
            libc::SYS_security,
            libc::SYS_vserver,
            libc::SYS_set_thread_area,
            libc::SYS_get_thread_area,
            libc::SYS_epoll_ctl_old,
            libc::SYS_epoll_wait_old,
        ],
    ),
    // New calls that no program needs yet: each has an older one to fall back on.
    (
        ENOSYS,
        &[
            libc::SYS_process_mrelease,
            SYS_FUTEX_WAKE,
            SYS_FUTEX_WAIT,
            SYS_FUTEX_REQUEUE,
            SYS_LSM_GET_SELF_ATTR,
            SYS_LSM_SET_SELF_ATTR,
            SYS_LSM_LIST_MODULES,
            SYS_FILE_GETATTR,
            SYS_FILE_SETATTR,
        ],
    ),
];

/// How many numbers have a verdict.
pub(super) const KNOWN: usize = HIGHEST_KNOWN as usize + 1;

/// The verdicts on every number from 0 to [`HIGHEST_KNOWN`]. A number without a call fails with
/// ENOSYS.
pub(super) const fn verdicts(set_id_bits: SetIdBits) -> [Verdict; KNOWN] {
    let mut verdicts = [Verdict::Refused(ENOSYS); KNOWN];
    let mut group = 0;
    while group < ALLOWED.len() {
        let mut at = 0;
        while at < ALLOWED[group].len() {
            verdicts[table_index(ALLOWED[group][at])] = Verdict::Allowed;
            at += 1;
        }
        group += 1;
    }
    group = 0;
    while group < REFUSED.len() {
        let (errno, numbers) = REFUSED[group];
        let mut at = 0;
        while at < numbers.len() {
            verdicts[table_index(numbers[at])] = Verdict::Refused(errno);
            at += 1;
        }
        group += 1;
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
