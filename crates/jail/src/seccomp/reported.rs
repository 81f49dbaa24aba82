//! Which refused calls the supervisor hears of ([`super::reporting_program`]). The decision is the
//! same as in `rules` and `arguments`; only the way to the errno is another.

use libc::c_long;

use super::SetIdBits;
use super::rules::{
    KNOWN, REFUSED, SYS_FILE_GETATTR, SYS_FILE_SETATTR, SYS_FUTEX_REQUEUE, SYS_FUTEX_WAIT,
    SYS_FUTEX_WAKE, table_index, verdicts,
};
use super::tree::Verdict;

/// Calls that fail without a report, because programs make them often and fall back on older ones:
/// a report takes some microseconds and wakes the supervisor. Numbers without a call are never
/// reported: to programs they mean an older kernel.
const SILENT: &[c_long] = &[
    // glibc, for every thread and process.
    libc::SYS_clone3,
    // C libraries and languages, for every file.
    libc::SYS_openat2,
    SYS_FILE_GETATTR,
    SYS_FILE_SETATTR,
    // Locks.
    SYS_FUTEX_WAKE,
    SYS_FUTEX_WAIT,
    SYS_FUTEX_REQUEUE,
    // Allocators, for every allocation.
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// Reported calls that many programs only try: they work as well without. Of these a user reads
/// only after a command has failed. So it is with every call that fails with `ENOSYS` or
/// `EOPNOTSUPP`.
const TRIED: &[c_long] = &[
    // libuv, and with it every start of Node.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Graphics drivers.
    libc::SYS_kcmp,
    // MPTCP by Go, families that the C library looks for.
    libc::SYS_socket,
    // Runtimes with their own memory management.
    libc::SYS_userfaultfd,
    libc::SYS_process_madvise,
];

const fn contains(numbers: &[c_long], number: c_long) -> bool {
    let mut at = 0;
    while at < numbers.len() {
        if numbers[at] == number {
            return true;
        }
        at += 1;
    }
    false
}

/// Whether programs often make this call only to find out whether it is there.
pub(super) fn is_tried(number: u32) -> bool {
    let number = c_long::from(number);
    let without_error = |errno| errno != libc::EPERM;
    let mut refused = REFUSED.iter().filter(|(_, numbers)| contains(numbers, number));
    contains(TRIED, number) || refused.any(|(errno, _)| without_error(*errno))
}

/// The verdicts on every known number, where what is refused is reported.
pub(super) const fn reporting(set_id_bits: SetIdBits) -> [Verdict; KNOWN] {
    let mut verdicts = verdicts(set_id_bits);
    let mut group = 0;
    while group < REFUSED.len() {
        let (_, numbers) = REFUSED[group];
        let mut at = 0;
        while at < numbers.len() {
            if !contains(SILENT, numbers[at]) {
                verdicts[table_index(numbers[at])] = Verdict::Reported;
            }
            at += 1;
        }
        group += 1;
    }
    let mut number = 0;
    while number < KNOWN {
        #[expect(clippy::cast_possible_wrap, reason = "it is less than KNOWN")]
        let is_silent = contains(SILENT, number as c_long);
        if let Verdict::Filtered(block) = verdicts[number]
            && !is_silent
        {
            verdicts[number] = Verdict::FilteredReported(block);
        }
        number += 1;
    }
    verdicts
}
