//! The names of system calls, for messages and tests.
//!
//! Each table has the calls of one architecture in the order of their numbers; `-` stands for a
//! number without a call, and `-N` for N such numbers.

use super::SetIdBits;
use super::reported;
use super::rules;
use super::tree::Verdict;

/// The calls of x86-64 (arch/x86/entry/syscalls/syscall_64.tbl), up to Linux 6.18.
const X86_64: &str = "\
    read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction \
    rt_sigprocmask rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield \
    mremap msync mincore madvise shmget shmat shmctl dup dup2 pause nanosleep getitimer alarm \
    setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg recvmsg shutdown bind \
    listen getsockname getpeername socketpair setsockopt getsockopt clone fork vfork execve exit \
    wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock fsync \
    fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink \
    symlink readlink chmod fchmod chown fchown lchown umask gettimeofday getrlimit getrusage \
    sysinfo times ptrace getuid syslog getgid setuid setgid geteuid getegid setpgid getppid \
    getpgrp setsid setreuid setregid getgroups setgroups setresuid getresuid setresgid getresgid \
    getpgid setfsuid setfsgid getsid capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo \
    rt_sigsuspend sigaltstack utime mknod uselib personality ustat statfs fstatfs sysfs \
    getpriority setpriority sched_setparam sched_getparam sched_setscheduler sched_getscheduler \
    sched_get_priority_max sched_get_priority_min sched_rr_get_interval mlock munlock mlockall \
    munlockall vhangup modify_ldt pivot_root _sysctl prctl arch_prctl adjtimex setrlimit chroot \
    sync acct settimeofday mount umount2 swapon swapoff reboot sethostname setdomainname iopl \
    ioperm create_module init_module delete_module get_kernel_syms query_module quotactl \
    nfsservctl getpmsg putpmsg afs_syscall tuxcall security gettid readahead setxattr lsetxattr \
    fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr \
    lremovexattr fremovexattr tkill time futex sched_setaffinity sched_getaffinity set_thread_area \
    io_setup io_destroy io_getevents io_submit io_cancel get_thread_area lookup_dcookie \
    epoll_create epoll_ctl_old epoll_wait_old remap_file_pages getdents64 set_tid_address \
    restart_syscall semtimedop fadvise64 timer_create timer_settime timer_gettime timer_getoverrun \
    timer_delete clock_settime clock_gettime clock_getres clock_nanosleep exit_group epoll_wait \
    epoll_ctl tgkill utimes vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink \
    mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load waitid add_key request_key \
    keyctl ioprio_set ioprio_get inotify_init inotify_add_watch inotify_rm_watch migrate_pages \
    openat mkdirat mknodat fchownat futimesat newfstatat unlinkat renameat linkat symlinkat \
    readlinkat fchmodat faccessat pselect6 ppoll unshare set_robust_list get_robust_list splice \
    tee sync_file_range vmsplice move_pages utimensat epoll_pwait signalfd timerfd_create eventfd \
    fallocate timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 \
    inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init \
    fanotify_mark prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg \
    setns getcpu process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr \
    renameat2 seccomp getrandom memfd_create kexec_file_load bpf execveat userfaultfd membarrier \
    mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx io_pgetevents \
    rseq uretprobe uprobe -87 pidfd_send_signal io_uring_setup io_uring_enter io_uring_register \
    open_tree move_mount fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 \
    pidfd_getfd faccessat2 process_madvise epoll_pwait2 mount_setattr quotactl_fd \
    landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret process_mrelease \
    futex_waitv set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait \
    futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal \
    setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr";

/// The calls of a table with their numbers.
fn numbered(table: &'static str) -> impl Iterator<Item = (usize, &'static str)> {
    let mut number = 0;
    table.split(' ').filter_map(move |word| {
        let at = number;
        let gap = word.strip_prefix('-').map(|count| count.parse().unwrap_or(1));
        number += gap.unwrap_or(1);
        gap.is_none().then_some((at, word))
    })
}

/// The calls that a command cannot make, whatever their arguments are, with the error number of
/// each. Calls that no table names fail with `ENOSYS`.
pub fn refused() -> impl Iterator<Item = (&'static str, i32)> {
    let verdicts = const { rules::verdicts(SetIdBits::Allowed) };
    numbered(X86_64).filter_map(move |(number, name)| match verdicts.get(number) {
        Some(Verdict::Refused(errno)) => Some((name, *errno)),
        _ => None,
    })
}

/// The calls that a command may make, with any arguments or with those that its filter decides on.
pub fn possible() -> impl Iterator<Item = &'static str> {
    let verdicts = const { rules::verdicts(SetIdBits::Allowed) };
    numbered(X86_64).filter_map(move |(number, name)| match verdicts.get(number) {
        Some(Verdict::Allowed | Verdict::Filtered(_)) => Some(name),
        _ => None,
    })
}

/// The name of a call of x86-64.
pub(crate) fn name(number: u32) -> Option<&'static str> {
    numbered(X86_64).find(|(known, _)| u32::try_from(*known) == Ok(number)).map(|(_, name)| name)
}

/// Whether a command may make this call with other arguments than those with which it was refused.
pub fn depends_on_arguments(name: &str) -> bool {
    let verdicts = const { rules::verdicts(SetIdBits::Refused) };
    numbered(X86_64).any(|(number, known)| {
        known == name && matches!(verdicts.get(number), Some(Verdict::Filtered(_)))
    })
}

/// Whether many programs make this call only to find out whether it is there.
pub fn is_tried(name: &str) -> bool {
    let number = numbered(X86_64).find(|(_, known)| *known == name);
    let number = number.and_then(|(number, _)| u32::try_from(number).ok());
    number.is_some_and(reported::is_tried)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::seccomp::{arguments, calls};

    /// The calls of ARM 64 (scripts/syscall.tbl), up to Linux 6.18.
    const AARCH64: &str = "\
    io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr \
    lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr \
    getcwd lookup_dcookie eventfd2 epoll_create1 epoll_ctl epoll_pwait dup dup3 fcntl \
    inotify_init1 inotify_add_watch inotify_rm_watch ioctl ioprio_set ioprio_get flock mknodat \
    mkdirat unlinkat symlinkat linkat renameat umount2 mount pivot_root nfsservctl statfs fstatfs \
    truncate ftruncate fallocate faccessat chdir fchdir chroot fchmod fchmodat fchownat fchown \
    openat close vhangup pipe2 quotactl getdents64 lseek read write readv writev pread64 pwrite64 \
    preadv pwritev sendfile pselect6 ppoll signalfd4 vmsplice splice tee readlinkat newfstatat \
    fstat sync fsync fdatasync sync_file_range timerfd_create timerfd_settime timerfd_gettime \
    utimensat acct capget capset personality exit exit_group waitid set_tid_address unshare futex \
    set_robust_list get_robust_list nanosleep getitimer setitimer kexec_load init_module \
    delete_module timer_create timer_gettime timer_getoverrun timer_settime timer_delete \
    clock_settime clock_gettime clock_getres clock_nanosleep syslog ptrace sched_setparam \
    sched_setscheduler sched_getscheduler sched_getparam sched_setaffinity sched_getaffinity \
    sched_yield sched_get_priority_max sched_get_priority_min sched_rr_get_interval \
    restart_syscall kill tkill tgkill sigaltstack rt_sigsuspend rt_sigaction rt_sigprocmask \
    rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn setpriority getpriority reboot \
    setregid setgid setreuid setuid setresuid getresuid setresgid getresgid setfsuid setfsgid \
    times setpgid getpgid getsid setsid getgroups setgroups uname sethostname setdomainname \
    getrlimit setrlimit getrusage umask prctl getcpu gettimeofday settimeofday adjtimex getpid \
    getppid getuid geteuid getgid getegid gettid sysinfo mq_open mq_unlink mq_timedsend \
    mq_timedreceive mq_notify mq_getsetattr msgget msgctl msgrcv msgsnd semget semctl semtimedop \
    semop shmget shmctl shmat shmdt socket socketpair bind listen accept connect getsockname \
    getpeername sendto recvfrom setsockopt getsockopt shutdown sendmsg recvmsg readahead brk \
    munmap mremap add_key request_key keyctl clone execve mmap fadvise64 swapon swapoff mprotect \
    msync mlock munlock mlockall munlockall mincore madvise remap_file_pages mbind get_mempolicy \
    set_mempolicy migrate_pages move_pages rt_tgsigqueueinfo perf_event_open accept4 recvmmsg -16 \
    wait4 prlimit64 fanotify_init fanotify_mark name_to_handle_at open_by_handle_at clock_adjtime \
    syncfs setns sendmmsg process_vm_readv process_vm_writev kcmp finit_module sched_setattr \
    sched_getattr renameat2 seccomp getrandom memfd_create bpf execveat userfaultfd membarrier \
    mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx io_pgetevents \
    rseq kexec_file_load -129 pidfd_send_signal io_uring_setup io_uring_enter io_uring_register \
    open_tree move_mount fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 \
    pidfd_getfd faccessat2 process_madvise epoll_pwait2 mount_setattr quotactl_fd \
    landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret process_mrelease \
    futex_waitv set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait \
    futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal \
    setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr";

    /// The class of every call of x86-64.
    fn classes() -> BTreeMap<usize, &'static str> {
        let mut classes = BTreeMap::new();
        let mut add = |number: libc::c_long, class| {
            let number = usize::try_from(number).unwrap();
            let other = classes.insert(number, class);
            assert_eq!(other, None, "call {number} has two classes");
        };
        let allowed = calls::ALLOWED.iter().copied().flatten();
        allowed.for_each(|number| add(*number, "allowed"));
        let refused = rules::REFUSED.iter().flat_map(|(_, numbers)| numbers.iter());
        refused.for_each(|number| add(*number, "refused"));
        arguments::FILTERED.iter().for_each(|(number, _)| add(*number, "filtered"));
        classes
    }

    #[test]
    fn every_call_of_the_kernel_has_one_class() {
        let classes = classes();
        let calls: BTreeMap<_, _> = numbered(X86_64).collect();
        assert_eq!(calls.len(), 383);
        assert_eq!(
            calls.keys().copied().max(),
            usize::try_from(rules::HIGHEST_KNOWN).ok(),
            "the list ends where the rules end"
        );
        let without: Vec<_> =
            calls.iter().filter(|(number, _)| !classes.contains_key(number)).collect();
        assert!(without.is_empty(), "calls without a class: {without:?}");
        let unknown: Vec<_> = classes.keys().filter(|number| !calls.contains_key(number)).collect();
        assert!(unknown.is_empty(), "numbers without a call: {unknown:?}");
    }

    #[test]
    fn every_call_of_the_other_architecture_has_the_class_of_its_name() {
        let names: Vec<_> = numbered(X86_64).map(|(_, name)| name).collect();
        for (number, name) in numbered(AARCH64) {
            assert!(names.contains(&name), "{name} ({number})");
        }
        let last = numbered(AARCH64).last();
        assert_eq!(last, Some((rules::HIGHEST_KNOWN as usize, "file_setattr")));
    }

    #[test]
    fn the_names_are_those_of_the_numbers() {
        let calls: BTreeMap<_, _> = numbered(X86_64).collect();
        for (number, name) in [
            (libc::SYS_read, "read"),
            (libc::SYS_io_setup, "io_setup"),
            (libc::SYS_prlimit64, "prlimit64"),
            (libc::SYS_rseq, "rseq"),
            (libc::SYS_pidfd_send_signal, "pidfd_send_signal"),
            (libc::SYS_mseal, "mseal"),
        ] {
            assert_eq!(calls[&usize::try_from(number).unwrap()], name);
        }
        let other: BTreeMap<_, _> = numbered(AARCH64).collect();
        for (number, name) in
            [(63, "read"), (220, "clone"), (291, "statx"), (424, "pidfd_send_signal")]
        {
            assert_eq!(other[&number], name);
        }
    }

    #[test]
    fn what_programs_only_try_is_known_by_name() {
        for name in ["io_uring_setup", "name_to_handle_at", "memfd_secret", "statmount"] {
            assert!(is_tried(name), "{name}");
        }
        for name in ["keyctl", "mount", "unshare", "clone", "read", "none"] {
            assert!(!is_tried(name), "{name}");
        }
        assert!(depends_on_arguments("clone") && depends_on_arguments("chmod"));
        assert!(!depends_on_arguments("mount") && !depends_on_arguments("read"));
        assert_eq!((name(250), name(400), name(5000)), (Some("keyctl"), None, None));
    }

    #[test]
    fn refused_calls_have_names() {
        let refused: BTreeMap<_, _> = refused().collect();
        assert_eq!(refused["mount"], libc::EPERM);
        assert_eq!(refused["clone3"], libc::ENOSYS);
        assert_eq!(refused["name_to_handle_at"], libc::EOPNOTSUPP);
        assert!(!refused.contains_key("read") && !refused.contains_key("clone"));
    }
}
