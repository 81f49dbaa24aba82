//! The listener in the kernel: forked children make calls that the filter refuses, and this process
//! answers them as a supervisor does.

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::*;
use crate::channel::Channel;
use crate::seccomp::{SetIdBits, install, program};
use crate::testing::{ChildExit, errno_of, fork_child, set_no_new_privs, wait_for};

/// Arguments with which each of these calls fails with another error if it is not refused.
const NONSENSE: [usize; 6] = [usize::MAX; 6];
const KEYCTL: [usize; 6] = [0, usize::MAX - 2, 0, 0, 0, 0];

/// A child that runs `body` behind the reporting filter, and the listener for its refused calls.
fn start(body: impl FnOnce() -> i32) -> (libc::pid_t, CallListener) {
    let (ours, theirs) = Channel::pair().unwrap();
    let child = fork_child(|| {
        set_no_new_privs();
        let listener = seccomp::install_reporting(SetIdBits::Refused, false).unwrap().unwrap();
        theirs.send(b"L", &[listener.as_fd()]).unwrap();
        drop((listener, theirs));
        body()
    });
    let (_, mut descriptors) = ours.receive().unwrap().unwrap();
    (child, CallListener::new(descriptors.pop().unwrap()))
}

/// Answers until the child has ended. Returns how it ended, and its calls, each as often as it was
/// made.
fn answer_all(child: libc::pid_t, listener: &CallListener) -> (ChildExit, Vec<RefusedCall>) {
    let process = pidfd_open(Pid::from_raw(child).unwrap(), PidfdFlags::empty()).unwrap();
    let mut calls = Vec::new();
    loop {
        let mut waiting =
            [PollFd::new(listener, PollFlags::IN), PollFd::new(&process, PollFlags::IN)];
        poll(&mut waiting, None).unwrap();
        let has_ended = !waiting[1].revents().is_empty();
        listener.answer(|call| calls.push(call));
        if has_ended {
            return (wait_for(child), calls);
        }
    }
}

fn number(number: libc::c_long) -> u32 {
    u32::try_from(number).unwrap()
}

#[test]
fn every_reported_call_fails_with_the_errno_of_the_plain_filter() {
    let calls: &[(libc::c_long, [usize; 6])] = &[
        (libc::SYS_keyctl, KEYCTL),
        (libc::SYS_mount, NONSENSE),
        (libc::SYS_unshare, NONSENSE),
        (libc::SYS_io_uring_setup, NONSENSE),
        (libc::SYS_name_to_handle_at, NONSENSE),
        (libc::SYS_memfd_secret, NONSENSE),
        (libc::SYS_socket, [17, 3, 0, 0, 0, 0]),
        (libc::SYS_socket, [2, 3, 1, 0, 0, 0]),
        (libc::SYS_socket, [2, 1, 262, 0, 0, 0]),
        (libc::SYS_clone, [0x1000_0000, 0, 0, 0, 0, 0]),
        (libc::SYS_personality, [0x4_0000, 0, 0, 0, 0, 0]),
        (libc::SYS_ioctl, [usize::MAX, 0x5412, 0, 0, 0, 0]),
    ];
    for (call, arguments) in calls {
        let (call, arguments) = (*call, *arguments);
        let plain = crate::testing::in_child(|| {
            set_no_new_privs();
            install(program(SetIdBits::Refused)).unwrap();
            errno_of(call, arguments)
        });
        let (child, listener) = start(|| errno_of(call, arguments));
        let (ended, calls) = answer_all(child, &listener);
        assert_eq!(ended, plain, "call {call}");
        assert!(matches!(ended, ChildExit::Exited(1..)), "call {call}: {ended:?}");
        assert_eq!(calls, [RefusedCall { process: child, number: number(call) }]);
    }
}

#[test]
fn calls_that_are_made_often_wake_nobody() {
    let (child, listener) = start(|| {
        i32::from(errno_of(libc::SYS_clone3, NONSENSE) != libc::ENOSYS)
            + i32::from(errno_of(libc::SYS_openat2, NONSENSE) != libc::ENOSYS)
            + i32::from(errno_of(470, NONSENSE) != libc::ENOSYS)
    });
    assert_eq!(answer_all(child, &listener), (ChildExit::Exited(0), Vec::new()));
}

#[test]
fn a_flood_is_answered_in_turns() {
    const CALLS: usize = 10 * BATCH;
    let (child, listener) =
        start(|| (0..CALLS).map(|_| errno_of(libc::SYS_keyctl, KEYCTL)).max().unwrap_or(0));
    let (ended, calls) = answer_all(child, &listener);
    assert_eq!(ended, ChildExit::Exited(libc::EPERM));
    assert_eq!(calls.len(), CALLS);
    let mut set = RefusedCalls::default();
    calls.into_iter().for_each(|call| _ = set.insert(call));
    assert_eq!(set.names(), ["keyctl"]);
}

#[test]
fn many_processes_at_once_fill_one_turn() {
    // Each waits for its answer, so all of them wait at the same time.
    let (child, listener) = start(|| {
        let children: Vec<_> =
            (0..2 * BATCH).map(|_| fork_child(|| errno_of(libc::SYS_keyctl, KEYCTL))).collect();
        let refused = ChildExit::Exited(libc::EPERM);
        i32::from(!children.into_iter().all(|child| wait_for(child) == refused))
    });
    let process = pidfd_open(Pid::from_raw(child).unwrap(), PidfdFlags::empty()).unwrap();
    let mut count = 0;
    while count < 2 * BATCH {
        let mut waiting =
            [PollFd::new(&listener, PollFlags::IN), PollFd::new(&process, PollFlags::IN)];
        poll(&mut waiting, None).unwrap();
        assert!(waiting[1].revents().is_empty(), "{count} calls");
        let before = count;
        let heard = listener.answer(|_| count += 1);
        assert!(count - before <= BATCH && heard != CallsState::Over);
    }
    assert_eq!(answer_all(child, &listener).0, ChildExit::Exited(0));
}

#[test]
fn a_process_that_is_killed_while_it_waits_blocks_nobody() {
    let (child, listener) = start(|| errno_of(libc::SYS_keyctl, KEYCTL));
    poll(&mut [PollFd::new(&listener, PollFlags::IN)], None).unwrap();
    kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    assert_eq!(wait_for(child), ChildExit::Killed(libc::SIGKILL));
    let mut calls = 0;
    assert_eq!(listener.answer(|_| calls += 1), CallsState::Over);
    assert_eq!(calls, 0);
}

#[test]
fn without_a_supervisor_the_calls_fail() {
    let (child, listener) = start(|| errno_of(libc::SYS_keyctl, KEYCTL));
    poll(&mut [PollFd::new(&listener, PollFlags::IN)], None).unwrap();
    drop(listener);
    assert_eq!(wait_for(child), ChildExit::Exited(libc::ENOSYS));
}

/// The kernel allows one listener in a chain of filters. What is inside gets the plain filter, whose
/// errno the kernel prefers to a report.
#[test]
fn a_filter_inside_reports_to_nobody_and_refuses_the_same() {
    let (child, listener) = start(|| {
        let inner = seccomp::install_reporting(SetIdBits::Allowed, false).unwrap();
        if inner.is_some() { 200 } else { errno_of(libc::SYS_keyctl, KEYCTL) }
    });
    assert_eq!(answer_all(child, &listener), (ChildExit::Exited(libc::EPERM), Vec::new()));
}

/// A program's own filter without a listener stays in force, and cannot allow what is refused.
#[test]
fn a_filter_of_the_command_itself_does_not_hide_a_call() {
    let (child, listener) = start(|| {
        let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
        install(&[allow]).unwrap();
        errno_of(libc::SYS_keyctl, KEYCTL)
    });
    let (ended, calls) = answer_all(child, &listener);
    assert_eq!((ended, calls.len()), (ChildExit::Exited(libc::EPERM), 1));
}
