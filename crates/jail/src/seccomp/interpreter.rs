//! Runs filter programs in tests as the kernel would, and checks their decisions.

use libc::{c_long, sock_filter};

use super::evaluate::{Call, evaluate};
use super::{SetIdBits, program, reporting_program, rules, stub_program, traffic_program};

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

const fn errno(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()
}

/// The result of `program` and the number of executed instructions.
fn run(program: &[sock_filter], call: &Call) -> (u32, usize) {
    evaluate(program, call).unwrap()
}

fn decide_number(number: u32, arguments: [u64; 6]) -> u32 {
    let call = Call { architecture: 0xc000_003e, number, arguments };
    let [lenient, strict] = [SetIdBits::Allowed, SetIdBits::Refused]
        .map(|set_id_bits| run(program(set_id_bits), &call).0);
    // Everything that the lenient filter refuses, the strict one refuses as well.
    assert!(lenient == ALLOW || strict == lenient, "{number}");
    lenient
}

fn decide_strictly(number: c_long, arguments: &[u64]) -> u32 {
    let number = u32::try_from(number).unwrap();
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let call = Call { architecture: 0xc000_003e, number, arguments: all };
    run(program(SetIdBits::Refused), &call).0
}

fn decide(number: c_long, arguments: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    decide_number(u32::try_from(number).unwrap(), all)
}

#[test]
fn other_architectures_end_the_process() {
    // i386, ARM 64, and x86-64 without the 64-bit flag.
    for architecture in [0x4000_0003, 0xc000_00b7, 0x8000_003e, 0] {
        // Among them socketcall, setsockopt and sendmsg of i386.
        for number in [0, 1, 59, 102, 366, 370, 0x4000_0000] {
            let call = Call { architecture, number, arguments: [0; 6] };
            assert_eq!(
                run(program(SetIdBits::Refused), &call).0,
                KILL,
                "{architecture:#x} {number}"
            );
        }
    }
}

#[test]
fn numbers_that_were_never_judged_do_not_exist() {
    let first = rules::HIGHEST_KNOWN + 1;
    for number in (first..first + 4096).chain([0x4000_0000, 0x4000_0001, 0x4000_0200, u32::MAX]) {
        assert_eq!(decide_number(number, [0; 6]), errno(libc::ENOSYS), "{number:#x}");
    }
    // Every x32 number, including those that only x32 has (512 to 547).
    for number in 0..=600 {
        assert_eq!(decide_number(0x4000_0000 | number, [0; 6]), errno(libc::ENOSYS), "{number}");
    }
}

/// The reporting filter decides as the plain one, but for the calls that it reports, and the
/// supervisor answers those with the errno of the plain one.
#[test]
fn a_report_stands_only_for_a_refusal_with_the_same_errno() {
    const REPORT: u32 = libc::SECCOMP_RET_USER_NOTIF;
    let mut reported = 0;
    let values = [0, 1, 3, 0x2_0000, 0x5412, 0x4_0000, 40, 16 << 32, 0o4755, 0o20644, u64::MAX];
    for set_id_bits in [SetIdBits::Allowed, SetIdBits::Refused] {
        for number in 0..=rules::HIGHEST_KNOWN + 2 {
            for first in values {
                for second in values {
                    let arguments = [first, second, second, first, first, second];
                    let call = Call { architecture: 0xc000_003e, number, arguments };
                    let plain = run(program(set_id_bits), &call).0;
                    match run(reporting_program(set_id_bits), &call).0 {
                        REPORT => {
                            assert_eq!(plain, errno(super::errno(&call)), "{number}");
                            reported += 1;
                        }
                        other => assert_eq!(other, plain, "{number}"),
                    }
                }
            }
        }
        for architecture in [0x4000_0003, 0xc000_00b7] {
            let call = Call { architecture, number: 0, arguments: [0; 6] };
            assert_eq!(run(reporting_program(set_id_bits), &call).0, KILL);
        }
    }
    assert!(reported > 0);
}

/// The following filter decides as the reporting one, but for calls that the plain one allows.
#[test]
fn only_allowed_calls_are_followed() {
    let own = u64::from(super::OWN_CALL) << 32;
    for set_id_bits in [SetIdBits::Allowed, SetIdBits::Refused] {
        for number in 0..=rules::HIGHEST_KNOWN + 2 {
            for arguments in [[0; 6], [u64::MAX; 6], [1; 6], [own; 6]] {
                let call = Call { architecture: 0xc000_003e, number, arguments };
                let following = run(super::following_program(set_id_bits), &call).0;
                if !super::is_followed(number) {
                    assert_eq!(following, run(reporting_program(set_id_bits), &call).0, "{number}");
                    continue;
                }
                assert_eq!(run(program(set_id_bits), &call).0, ALLOW, "{number}");
                let number = c_long::from(number);
                let is_marked = arguments == [own; 6]
                    && [libc::SYS_renameat2, libc::SYS_landlock_restrict_self].contains(&number);
                let expected = if is_marked { ALLOW } else { libc::SECCOMP_RET_USER_NOTIF };
                assert_eq!(following, expected, "{number}");
            }
        }
    }
    let calls = [82, 264, 316, 446];
    assert!((0..600).all(|number| super::is_followed(number) == calls.contains(&number)));
}

#[test]
fn what_programs_make_often_fails_without_a_report() {
    let report = |number: c_long| {
        let number = u32::try_from(number).unwrap();
        let call = Call { architecture: 0xc000_003e, number, arguments: [0; 6] };
        run(reporting_program(SetIdBits::Refused), &call).0
    };
    for number in [libc::SYS_clone3, libc::SYS_openat2, libc::SYS_get_mempolicy, 470, 400] {
        assert_eq!(report(number), errno(libc::ENOSYS), "{number}");
    }
    for number in [libc::SYS_keyctl, libc::SYS_mount, libc::SYS_io_uring_setup, libc::SYS_bpf] {
        assert_eq!(report(number), libc::SECCOMP_RET_USER_NOTIF, "{number}");
    }
}

/// The search tree compared with a list written independently: the numbers that are not simply
/// allowed.
#[test]
fn exactly_the_named_calls_are_refused() {
    let refused: &[(i32, &[u32])] = &[
        (
            libc::EPERM,
            &[
                103, 153, 155, 159, 161, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173,
                175, 176, 179, 227, 246, 248, 249, 250, 272, 298, 300, 301, 304, 305, 308, 312,
                313, 320, 321, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 440, 442,
                443, 467,
            ],
        ),
        (libc::EOPNOTSUPP, &[303]),
        (
            libc::ENOSYS,
            &[
                134, 136, 139, 154, 156, 174, 177, 178, 180, 181, 182, 183, 184, 185, 205, 211,
                212, 214, 215, 216, 236, 237, 238, 239, 256, 279, 435, 447, 448, 450, 451, 454,
                455, 456, 457, 458, 459, 460, 461, 468, 469,
            ],
        ),
    ];
    // Numbers without a call.
    let unassigned = 337..=423;
    // clone, ioctl, socket, socketpair, setsockopt, those with flags of messages, personality,
    // mknod and mknodat have tests of their own.
    let judged = [16, 41, 44, 45, 46, 47, 53, 54, 56, 133, 135, 259, 299, 307];
    for number in (0..=rules::HIGHEST_KNOWN).filter(|number| !judged.contains(number)) {
        let expected = refused
            .iter()
            .find(|(_, numbers)| numbers.contains(&number))
            .map(|(refusal, _)| errno(*refusal))
            .or_else(|| unassigned.contains(&number).then(|| errno(libc::ENOSYS)))
            .unwrap_or(ALLOW);
        for arguments in [[0; 6], [u64::MAX; 6]] {
            assert_eq!(decide_number(number, arguments), expected, "{number}");
        }
    }
}

#[test]
fn clone_makes_threads_and_processes_but_no_namespace() {
    let thread = 0x3d_0f00;
    let fork = 0x0120_0011;
    let vfork = 0x4111;
    for flags in [0, thread, fork, vfork, 0x8000_0000] {
        assert_eq!(decide(libc::SYS_clone, &[flags]), ALLOW, "{flags:#x}");
    }
    for namespace in
        [0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000, 0x80]
    {
        for flags in [namespace, namespace | fork, namespace | 0xffff_ffff_0000_0000] {
            assert_eq!(decide(libc::SYS_clone, &[flags]), errno(libc::EPERM), "{flags:#x}");
        }
    }
    // The kernel drops the high half, so its bits do not make a call forbidden.
    assert_eq!(decide(libc::SYS_clone, &[fork | 0x1000_0000_0000_0000]), ALLOW);
}

#[test]
fn terminal_injection_is_refused_whatever_the_high_half_holds() {
    for request in [0x5412, 0x541c, 0x5423] {
        for high in [0, 1 << 32, 0xffff_ffff << 32] {
            let answer = decide(libc::SYS_ioctl, &[0, request | high]);
            assert_eq!(answer, errno(libc::EPERM), "{request:#x}");
        }
    }
    // TCGETS, TIOCGWINSZ, TIOCGPTN, FIONREAD.
    for request in [0x5401, 0x5413, 0x8004_5430, 0x541b] {
        assert_eq!(decide(libc::SYS_ioctl, &[0, request]), ALLOW, "{request:#x}");
    }
}

#[test]
fn only_isolated_socket_families_exist() {
    let socket =
        |family: u64, kind: u64, protocol: u64| decide(libc::SYS_socket, &[family, kind, protocol]);
    let (stream, datagram, raw, flags) = (1, 2, 3, 0o2_004_000);
    for family in [2, 10] {
        for kind in [stream, datagram, stream | flags, datagram | flags] {
            assert_eq!(socket(family, kind, 0), ALLOW);
        }
        assert_eq!(socket(family, stream, 6), ALLOW);
        assert_eq!(socket(family, datagram, 17), ALLOW);
        for kind in [raw, raw | flags, 4, 5, 6, 10] {
            assert_eq!(socket(family, kind, 0), errno(libc::EPERM), "{family} {kind}");
            assert_eq!(socket(family, kind | 1 << 32, 0), errno(libc::EPERM));
        }
        // ICMP, L2TP, SCTP, UDP-Lite, raw, SMC, MPTCP.
        for protocol in [1, 58, 115, 132, 136, 255, 256, 262, 132 | 1 << 32] {
            let answer = socket(family, stream, protocol);
            assert_eq!(answer, errno(libc::EPROTONOSUPPORT), "{family} {protocol}");
        }
    }
    for kind in [stream, datagram, 5, stream | flags] {
        assert_eq!(socket(1, kind, 0), ALLOW);
    }
    assert_eq!(socket(16, raw | flags, 0), ALLOW);
    for protocol in (1..32).chain([1 << 32 | 4]) {
        assert_eq!(socket(16, raw, protocol), errno(libc::EPROTONOSUPPORT), "{protocol}");
    }
    for family in (0..64).chain([u64::from(u32::MAX)]) {
        for high in [0, 1 << 32] {
            let expected =
                if matches!(family, 1 | 2 | 10 | 16) { ALLOW } else { errno(libc::EAFNOSUPPORT) };
            assert_eq!(socket(family | high, stream, 0), expected, "{family}");
            let pair = decide(libc::SYS_socketpair, &[family | high, stream, 0]);
            let expected = if family == 1 { ALLOW } else { errno(libc::EAFNOSUPPORT) };
            assert_eq!(pair, expected, "{family}");
        }
    }
}

#[test]
fn only_the_native_personality_can_be_had() {
    for persona in [0, 0xffff_ffff, u64::MAX] {
        assert_eq!(decide(libc::SYS_personality, &[persona]), ALLOW);
    }
    // No address randomisation, READ_IMPLIES_EXEC, MMAP_PAGE_ZERO, 32 bits.
    for persona in [0x4_0000, 0x40_0000, 0x10_0000, 8, 0x4_0000 | 1 << 32] {
        assert_eq!(decide(libc::SYS_personality, &[persona]), errno(libc::EPERM));
    }
}

#[test]
fn device_files_cannot_be_made_but_files_and_fifos_can() {
    for (format, expected) in [
        (libc::S_IFCHR, errno(libc::EPERM)),
        (libc::S_IFBLK, errno(libc::EPERM)),
        (libc::S_IFREG, ALLOW),
        (libc::S_IFIFO, ALLOW),
        (libc::S_IFSOCK, ALLOW),
        (0, ALLOW),
    ] {
        // The kernel uses 16 bits of the mode.
        for noise in [0, 0o7777, 1 << 16, 1 << 32] {
            let mode = u64::from(format) | noise;
            assert_eq!(decide(libc::SYS_mknod, &[0, mode]), expected, "{mode:#o}");
            assert_eq!(decide(libc::SYS_mknodat, &[0, 0, mode]), expected, "{mode:#o}");
        }
    }
}

#[test]
fn set_id_bits_are_refused_where_host_files_can_be_written() {
    const CREATE: u64 = 0o100;
    const TEMPORARY: u64 = 0o20_200_000;
    const DIRECTORY: u64 = 0o200_000;
    let refused = errno(libc::EPERM);
    for (mode, expected) in [
        (0o755, ALLOW),
        (0o1777, ALLOW),
        (0o4755, refused),
        (0o2755, refused),
        (0o6000, refused),
        (0o4000 | 1 << 32, refused),
        (1 << 32, ALLOW),
    ] {
        for (number, arguments) in [
            (libc::SYS_chmod, vec![0, mode]),
            (libc::SYS_fchmod, vec![0, mode]),
            (libc::SYS_fchmodat, vec![0, 0, mode]),
            (libc::SYS_fchmodat2, vec![0, 0, mode]),
            (libc::SYS_creat, vec![0, mode]),
            (libc::SYS_mknod, vec![0, mode]),
            (libc::SYS_mknodat, vec![0, 0, mode]),
            (libc::SYS_open, vec![0, CREATE, mode]),
            (libc::SYS_openat, vec![0, 0, CREATE | 2, mode]),
            (libc::SYS_open, vec![0, TEMPORARY, mode]),
            (libc::SYS_openat, vec![0, 0, TEMPORARY, mode]),
        ] {
            assert_eq!(decide_strictly(number, &arguments), expected, "{number} {mode:#o}");
            assert_eq!(decide(number, &arguments), ALLOW, "{number} {mode:#o}");
        }
        // The argument after the flags is ignored where no file is created.
        for flags in [0, 2, DIRECTORY] {
            assert_eq!(decide_strictly(libc::SYS_openat, &[0, 0, flags, mode]), ALLOW);
        }
    }
    assert_eq!(decide_strictly(libc::SYS_openat2, &[]), errno(libc::ENOSYS));
    assert_eq!(decide(libc::SYS_openat2, &[]), ALLOW);
    let device = u64::from(libc::S_IFCHR);
    assert_eq!(decide_strictly(libc::SYS_mknod, &[0, device]), refused);
}

/// The overhead of every system call that the kernel cannot cache as always allowed, and the cost
/// of installing: the kernel runs the program for each number.
#[test]
fn few_instructions_are_run_for_each_call() {
    let program = program(SetIdBits::Refused);
    assert!(program.len() < 400, "{} instructions", program.len());
    for number in 0..=rules::HIGHEST_KNOWN + 1 {
        let call = Call { architecture: 0xc000_003e, number, arguments: [u64::MAX; 6] };
        let steps = run(program, &call).1;
        assert!(steps <= 18, "{steps} instructions for call {number}");
    }
}

#[test]
fn a_stub_answers_its_sockets_and_makes_none() {
    let decide = |number: c_long, arguments: [u64; 6]| {
        let number = u32::try_from(number).unwrap();
        run(stub_program(), &Call { architecture: 0xc000_003e, number, arguments }).0
    };
    for number in [
        libc::SYS_accept4,
        libc::SYS_recvfrom,
        libc::SYS_sendto,
        libc::SYS_shutdown,
        libc::SYS_ppoll,
        libc::SYS_exit_group,
    ] {
        assert_eq!(decide(number, [0; 6]), ALLOW, "{number}");
    }
    for number in [
        libc::SYS_socket,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_sendmsg,
        libc::SYS_recvmsg,
        libc::SYS_openat,
        libc::SYS_execve,
        libc::SYS_clone,
        libc::SYS_kill,
        libc::SYS_ioctl,
        libc::SYS_setsockopt,
    ] {
        assert_eq!(decide(number, [0; 6]), errno(libc::EPERM), "{number}");
    }
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        assert_eq!(decide(number, [0, 0, 4, 0, 0, 0]), errno(libc::EPERM), "{number}");
    }
}

#[test]
fn who_carries_traffic_makes_connections_and_nothing_else() {
    let decide = |number: c_long, arguments: &[u64]| {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        let number = u32::try_from(number).unwrap();
        let call = Call { architecture: 0xc000_003e, number, arguments: all };
        run(traffic_program(), &call).0
    };
    for number in [libc::SYS_accept4, libc::SYS_connect, libc::SYS_sendmsg, libc::SYS_epoll_wait] {
        assert_eq!(decide(number, &[]), ALLOW, "{number}");
    }
    for number in [
        libc::SYS_open,
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_execve,
        libc::SYS_clone,
        libc::SYS_fork,
        libc::SYS_kill,
        libc::SYS_tgkill,
        libc::SYS_socketpair,
        libc::SYS_prctl,
        libc::SYS_setrlimit,
        libc::SYS_pidfd_open,
        libc::SYS_memfd_create,
    ] {
        assert_eq!(decide(number, &[]), errno(libc::EPERM), "{number}");
    }
    for (family, kind, expected) in [
        (2, 1, ALLOW),
        (10, 2, ALLOW),
        (2, 3, errno(libc::EPERM)),
        (1, 1, errno(libc::EAFNOSUPPORT)),
        (16, 3, errno(libc::EAFNOSUPPORT)),
        (40, 1, errno(libc::EAFNOSUPPORT)),
    ] {
        assert_eq!(decide(libc::SYS_socket, &[family, kind]), expected, "{family} {kind}");
    }
    // F_SETOWN, F_SETSIG; TIOCSTI, FIOSETOWN; executable memory.
    for (number, arguments) in [
        (libc::SYS_fcntl, [0, 8, 0]),
        (libc::SYS_fcntl, [0, 10, 0]),
        (libc::SYS_ioctl, [0, 0x5412, 0]),
        (libc::SYS_ioctl, [0, 0x8901, 0]),
        (libc::SYS_mmap, [0, 0, 4]),
        (libc::SYS_mprotect, [0, 0, 5]),
    ] {
        assert_eq!(decide(number, &arguments), errno(libc::EPERM), "{number} {arguments:?}");
    }
    let call = Call { architecture: 0x4000_0003, number: 1, arguments: [0; 6] };
    assert_eq!(run(traffic_program(), &call).0, KILL);
}

#[test]
fn no_socket_takes_another_protocol_or_joins_a_group() {
    let set = |level: u64, name: u64| decide(libc::SYS_setsockopt, &[3, level, name]);
    let refused: &[(u64, &[u64])] = &[
        (0, &[35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48]),
        (6, &[31]),
        (17, &[100]),
        (41, &[1, 20, 21, 27, 28, 42, 43, 44, 45, 46, 47, 48]),
    ];
    for level in (0..300).chain([0xffff_ffff]) {
        let names = refused.iter().find(|(other, _)| *other == level).map_or(&[][..], |(_, n)| *n);
        for name in (0..130).chain([0xffff_ffff]) {
            let expected = if names.contains(&name) { errno(libc::ENOPROTOOPT) } else { ALLOW };
            assert_eq!(set(level, name), expected, "{level} {name}");
            // The kernel drops the high halves.
            assert_eq!(set(level | 1 << 32, name | 1 << 63), expected, "{level} {name}");
        }
    }
}

#[test]
fn urgent_data_is_refused_in_every_call_with_flags() {
    let calls = [
        (libc::SYS_sendto, 3),
        (libc::SYS_recvfrom, 3),
        (libc::SYS_sendmsg, 2),
        (libc::SYS_recvmsg, 2),
        (libc::SYS_sendmmsg, 3),
        (libc::SYS_recvmmsg, 3),
    ];
    for (number, flags_argument) in calls {
        for (flags, expected) in [
            (0, ALLOW),
            (2, ALLOW),
            (0x4040, ALLOW),
            (1 << 32, ALLOW),
            (1, errno(libc::EPERM)),
            (0x4041, errno(libc::EPERM)),
            (u64::MAX, errno(libc::EPERM)),
        ] {
            let mut arguments = [!1; 6];
            arguments[flags_argument] = flags;
            assert_eq!(decide(number, &arguments), expected, "{number} {flags:#x}");
        }
    }
}
