//! The filter in the kernel: forked children install it and try what it must refuse and what it
//! must not break.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use libc::{EAFNOSUPPORT, ENOSYS, EOPNOTSUPP, EPERM, EPROTONOSUPPORT, c_long};

use super::{SetIdBits, install, program};
use crate::testing::{ChildExit, errno_of, in_child, note, set_no_new_privs, skipped};

pub(super) fn confined(body: impl FnOnce() -> i32) -> ChildExit {
    let program = program(SetIdBits::Refused);
    in_child(|| {
        set_no_new_privs();
        install(program).unwrap();
        body()
    })
}

/// Arguments with which each of these calls fails with another error if it is not refused.
const NONSENSE: [usize; 6] = [usize::MAX; 6];

#[test]
fn refused_calls_fail_with_their_errno() {
    let refused: &[(i32, &[c_long])] = &[
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
                467,
                libc::SYS_unshare,
                libc::SYS_setns,
                libc::SYS_process_madvise,
                libc::SYS_pidfd_getfd,
                libc::SYS_kcmp,
                libc::SYS_bpf,
                libc::SYS_perf_event_open,
                libc::SYS_userfaultfd,
                libc::SYS_io_uring_setup,
                libc::SYS_io_uring_enter,
                libc::SYS_io_uring_register,
                libc::SYS_add_key,
                libc::SYS_request_key,
                libc::SYS_keyctl,
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
                libc::SYS_open_by_handle_at,
                libc::SYS_fanotify_init,
                libc::SYS_fanotify_mark,
            ],
        ),
        (EOPNOTSUPP, &[libc::SYS_name_to_handle_at]),
        (
            ENOSYS,
            &[
                libc::SYS_clone3,
                libc::SYS_memfd_secret,
                libc::SYS_mbind,
                libc::SYS_move_pages,
                451,
                457,
                458,
                470,
                1000,
            ],
        ),
    ];
    for (errno, numbers) in refused {
        for number in *numbers {
            let ended = confined(|| errno_of(*number, NONSENSE));
            assert_eq!(ended, ChildExit::Exited(*errno), "call {number}");
        }
    }
}

#[test]
fn x32_calls_do_not_exist() {
    for number in [libc::SYS_getpid, libc::SYS_mount, 520, 545] {
        let ended = confined(|| errno_of(0x4000_0000 | number, [0; 6]));
        assert_eq!(ended, ChildExit::Exited(ENOSYS), "x32 call {number}");
    }
}

#[test]
fn a_call_of_another_architecture_kills() {
    fn i386_getpid() -> i32 {
        let mut result = 20; // getpid of i386
        // SAFETY: getpid touches no memory; the gate preserves all registers but rax and r8-r11.
        unsafe {
            std::arch::asm!("int 0x80", inout("eax") result,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
        result
    }
    let unfiltered = in_child(|| i32::from(i386_getpid() <= 0));
    if unfiltered != ChildExit::Exited(0) {
        skipped(&format!("this kernel has no 32-bit calls ({unfiltered:?})"));
        return;
    }
    assert_eq!(confined(|| i32::from(i386_getpid() <= 0)), ChildExit::Killed(libc::SIGSYS));
}

#[test]
fn clone_refuses_each_namespace() {
    for shift in [7, 17, 25, 26, 27, 28, 29, 30, 60] {
        // Bit 60 is dropped by the kernel: a plain fork.
        let flags = (1_usize << shift) | libc::SIGCHLD.unsigned_abs() as usize;
        let expected = if shift == 60 { 0 } else { EPERM };
        let ended = confined(|| errno_of(libc::SYS_clone, [flags, 0, 0, 0, 0, 0]));
        assert_eq!(ended, ChildExit::Exited(expected), "bit {shift}");
    }
}

#[test]
fn sockets_that_no_namespace_isolates_cannot_be_made() {
    let socket = |family: usize, kind: usize, protocol: usize| {
        confined(|| errno_of(libc::SYS_socket, [family, kind, protocol, 0, 0, 0]))
    };
    for family in [15, 17, 29, 30, 31, 38, 40, 41, 43, 44, 45, 21, 9, 4, 5, 3] {
        assert_eq!(socket(family, 1, 0), ChildExit::Exited(EAFNOSUPPORT), "family {family}");
    }
    assert_eq!(socket(2, 3, 0), ChildExit::Exited(EPERM));
    assert_eq!(socket(2, 1, 132), ChildExit::Exited(EPROTONOSUPPORT));
    assert_eq!(socket(10, 1, 262), ChildExit::Exited(EPROTONOSUPPORT));
    assert_eq!(socket(16, 3, 12), ChildExit::Exited(EPROTONOSUPPORT));
    for (family, kind, protocol) in [(1, 1, 0), (2, 1, 0), (2, 2, 17), (10, 1, 6), (16, 3, 0)] {
        // A missing IPv6 in the kernel is not the filter's fault.
        let plain = in_child(|| errno_of(libc::SYS_socket, [family, kind, protocol, 0, 0, 0]));
        assert_eq!(socket(family, kind, protocol), plain, "family {family}");
    }
    let pair = |family: usize| {
        confined(|| {
            let mut ends = [0_i32; 2];
            let ends = ends.as_mut_ptr() as usize;
            errno_of(libc::SYS_socketpair, [family, 1, 0, ends, 0, 0])
        })
    };
    assert_eq!(pair(1), ChildExit::Exited(0));
    assert_eq!(pair(30), ChildExit::Exited(EAFNOSUPPORT));
}

#[test]
fn terminal_input_cannot_be_faked() {
    let ended = confined(|| {
        for request in [0x5412, 0x541c, 0x5423, 0x5412 | 1 << 32] {
            if errno_of(libc::SYS_ioctl, [0, request, NONSENSE[0], 0, 0, 0]) != EPERM {
                return 1;
            }
        }
        // The kernel itself rejects TCGETS on a closed file descriptor.
        i32::from(errno_of(libc::SYS_ioctl, [9999, 0x5401, 0, 0, 0, 0]) != libc::EBADF)
    });
    assert_eq!(ended, ChildExit::Exited(0));
}

#[test]
fn device_files_and_odd_personalities_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path =
        |name: &str| std::ffi::CString::new(dir.path().join(name).to_str().unwrap()).unwrap();
    let make = |name: &str, mode: u32| {
        let path = path(name);
        confined(|| {
            let path = path.as_ptr() as usize;
            errno_of(libc::SYS_mknod, [path, mode as usize, 0, 0, 0, 0])
        })
    };
    assert_eq!(make("whiteout", libc::S_IFCHR | 0o600), ChildExit::Exited(EPERM));
    assert_eq!(make("disk", libc::S_IFBLK | 0o600), ChildExit::Exited(EPERM));
    assert_eq!(make("fifo", libc::S_IFIFO | 0o600), ChildExit::Exited(0));
    let persona =
        |persona: usize| confined(|| errno_of(libc::SYS_personality, [persona, 0, 0, 0, 0, 0]));
    assert_eq!(persona(0x4_0000), ChildExit::Exited(EPERM));
    assert_eq!(persona(0xffff_ffff), ChildExit::Exited(0));
}

#[test]
fn threads_start_without_clone3() {
    let ended = confined(|| {
        let sum: i32 = (0..4)
            .map(|n| std::thread::spawn(move || n))
            .map(|thread| thread.join().unwrap())
            .sum();
        sum
    });
    assert_eq!(ended, ChildExit::Exited(6));
}

#[test]
fn no_set_id_program_can_be_left_behind() {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("program");
    std::fs::write(&file, "").unwrap();
    let ended = confined(|| {
        let chmod =
            |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).is_ok();
        let make = |name: &str, mode| {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create_new(true).mode(mode).open(dir.path().join(name)).is_ok()
        };
        assert!(chmod(0o755) && make("plain", 0o777));
        i32::from(chmod(0o4755) || chmod(0o2755) || make("user", 0o4755) || make("group", 0o2755))
    });
    assert_eq!(ended, ChildExit::Exited(0));
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o6000, 0);
    }
}

/// The output of a program that was started under the filter.
fn output_of(program_name: &str, arguments: &[&str]) -> Option<String> {
    let filter = program(SetIdBits::Refused);
    let mut command = Command::new(program_name);
    command.args(arguments);
    // SAFETY: both calls are async-signal-safe and allocate nothing.
    unsafe {
        command.pre_exec(move || {
            set_no_new_privs();
            install(filter)
        });
    }
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skipped(&format!("no {program_name}"));
            return None;
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{program_name}: {output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn ordinary_programs_work() {
    assert_eq!(output_of("/bin/true", &[]), Some(String::new()));
    let shell = "set -e; a=$(echo 6 | cat); (exit 0) & wait; echo $((a * 7))";
    assert_eq!(output_of("/bin/sh", &["-c", shell]).as_deref(), Some("42\n"));
}

#[test]
fn interpreters_with_threads_sockets_and_children_work() {
    let python = "\
import os, socket, subprocess, threading, multiprocessing.connection
server = socket.create_server(('127.0.0.1', 0))
def answer():
    peer, _ = server.accept()
    peer.sendall(b'hello')
    peer.close()
thread = threading.Thread(target=answer)
thread.start()
client = socket.create_connection(server.getsockname())
text = client.recv(9).decode()
thread.join()
a, b = socket.socketpair()
a.sendall(b'x')
assert b.recv(1) == b'x'
assert subprocess.check_output(['echo', 'child']) == b'child\\n'
socket.getaddrinfo('localhost', 80)
print(text)
";
    assert!(output_of("python3", &["-c", python]).is_none_or(|out| out == "hello\n"));
    let node = "\
const {execFileSync} = require('child_process');
const {Worker} = require('worker_threads');
const fs = require('fs');
fs.promises.readFile('/proc/self/stat').then(() =>
  new Worker('require(\"worker_threads\").parentPort.postMessage(1)', {eval: true})
    .on('message', () => console.log(execFileSync('echo', ['child']).toString().trim())));
";
    assert!(output_of("node", &["-e", node]).is_none_or(|out| out == "child\n"));
}

/// Prints what the wall costs (`cargo test -p stockade-jail seccomp_cost -- --nocapture`). The
/// bound is loose, since machines differ: it is there to notice an accidental linear chain.
#[test]
fn seccomp_cost_is_small() {
    let filter = program(SetIdBits::Refused);
    let mut times: Vec<u64> = (0..21)
        .map(|_| {
            let mut pipe = [0; 2];
            // SAFETY: `pipe` has room for the two descriptors.
            assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
            let [reader, writer] = pipe;
            in_child(|| {
                set_no_new_privs();
                let start = Instant::now();
                install(filter).unwrap();
                let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap();
                // SAFETY: the buffer holds the eight bytes that are written.
                unsafe { libc::write(writer, (&raw const nanoseconds).cast(), 8) };
                0
            });
            let mut nanoseconds = 0_u64;
            // SAFETY: the buffer has room for the eight bytes; both descriptors are ours.
            unsafe {
                assert_eq!(libc::read(reader, (&raw mut nanoseconds).cast(), 8), 8);
                libc::close(reader);
                libc::close(writer);
            }
            nanoseconds
        })
        .collect();
    times.sort_unstable();
    let median = Duration::from_nanos(times[times.len() / 2]);
    let least = Duration::from_nanos(times[0]);
    note(&format!(
        "seccomp: {} instructions, installed in {median:?} (least {least:?})",
        filter.len(),
    ));
    assert!(least < Duration::from_millis(1), "installing the filter took {least:?} at least");
}
