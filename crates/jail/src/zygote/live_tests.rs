//! Zygotes in the kernel: what workers can do, and how they end.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Write as _};

use rustix::fs::{MemfdFlags, memfd_create};

use super::*;
use crate::identity::Identity;
use crate::seccomp::{self, SetIdBits};
use crate::spec::{Network, Serve, Source};
use crate::testing::{ChildExit, errno_of, fork_child, wait_for};
use crate::zygote_messages::{WorkerExit, decode_exit};

/// A zygote in a child of the test, which must exit by itself.
struct Fixture {
    requests: Option<Requests>,
    confinement: Confinement,
    process: libc::pid_t,
}

fn start(prepare: fn(OwnedFd) -> Result<Serve, String>) -> Result<Fixture, NotReady> {
    let (requests, inner) = Requests::pair().unwrap();
    let outer = requests.0.as_fd().try_clone_to_owned().unwrap();
    let process = fork_child(move || {
        // The test's end of the socket is open here, too.
        drop(outer);
        sys::close_all_but(vec![0, 1, 2, std::os::fd::AsRawFd::as_raw_fd(&inner)]).unwrap();
        let worker = ResourceLimits { file_bytes: Some(0), ..ResourceLimits::default() };
        let work = ZygoteTask { requests: inner, prepare, stack_bytes: 1 << 20, worker };
        let spec = JailSpec {
            identity: Identity::for_caller().unwrap(),
            root: Source::Empty,
            root_writable: false,
            root_is_own: true,
            mounts: Vec::new(),
            hostname: "zygote".to_owned(),
            network: Network::Off,
            task: Task::Fork(work),
            rlimits: ResourceLimits::default(),
            cgroup: None,
            locks: Vec::new(),
            access_mounts: None,
            landlock_optional: false,
            reports_refused_calls: false,
        };
        run(spec).into()
    });
    let mut input = File::from(memfd_create("input", MemfdFlags::CLOEXEC).unwrap());
    input.write_all(b"prepared").unwrap();
    let raised = requests.prepare(input.as_fd(), Duration::from_secs(30));
    match raised {
        Ok(raised) => Ok(Fixture { requests: Some(requests), confinement: raised, process }),
        Err(error) => {
            drop(requests);
            wait_for(process);
            Err(error)
        }
    }
}

impl Fixture {
    fn call(&self) -> (UnixStream, UnixStream) {
        let (wire, inner) = UnixStream::pair().unwrap();
        let leash = self.requests.as_ref().unwrap().fork(inner.as_fd()).unwrap();
        (wire, leash)
    }

    /// A worker's answer, and how it ends.
    fn request(&self, question: &[u8]) -> (Vec<u8>, Option<WorkerExit>) {
        let (mut wire, leash) = self.call();
        wire.write_all(question).unwrap();
        let mut answer = Vec::new();
        wire.read_to_end(&mut answer).unwrap();
        (answer, read_exit(leash))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.requests = None;
        assert_eq!(wait_for(self.process), ChildExit::Exited(0));
    }
}

fn read_exit(mut leash: UnixStream) -> Option<WorkerExit> {
    let mut bytes = Vec::new();
    leash.read_to_end(&mut bytes).unwrap();
    decode_exit(&bytes)
}

/// Answers one byte: its prepared input, an errno, or by its exit alone.
fn prepare(input: OwnedFd) -> Result<Serve, String> {
    use std::io::Seek as _;
    let mut input = File::from(input);
    let mut prepared = Vec::new();
    input.rewind().and_then(|()| input.read_to_end(&mut prepared)).map_err(|e| e.to_string())?;
    Ok(Box::new(move |wire| {
        let mut wire = File::from(wire);
        let mut question = [0];
        wire.read_exact(&mut question).unwrap();
        let answer = match question[0] {
            b'p' => prepared.clone(),
            b'a' => attempts().iter().map(|errno| u8::try_from(*errno).unwrap()).collect(),
            b'x' => return 7,
            b'!' => panic!("as asked"),
            b'0' => {
                sys::exit_now(i32::from(deep(10_000_000) == 0));
            }
            _ => loop {
                std::thread::sleep(Duration::from_millis(50));
            },
        };
        wire.write_all(&answer).unwrap();
        0
    }))
}

fn deep(left: u64) -> u64 {
    std::hint::black_box(if left == 0 { 0 } else { deep(std::hint::black_box(left) - 1) + 1 })
}

/// The errnos of the calls that a worker must not make.
fn attempts() -> Vec<i32> {
    let path = CString::new("/").unwrap();
    let path = path.as_ptr() as usize;
    let signed = crate::raw::signed;
    vec![
        // The zygote and all other processes.
        errno_of(libc::SYS_kill, [1, 9, 0, 0, 0, 0]),
        errno_of(libc::SYS_kill, [signed(-1), 9, 0, 0, 0, 0]),
        errno_of(libc::SYS_tgkill, [1, 1, 9, 0, 0, 0]),
        errno_of(libc::SYS_pidfd_open, [1, 0, 0, 0, 0, 0]),
        errno_of(libc::SYS_rt_sigqueueinfo, [1, 9, 0, 0, 0, 0]),
        errno_of(libc::SYS_ptrace, [16, 1, 0, 0, 0, 0]),
        errno_of(libc::SYS_process_vm_writev, [1, 0, 0, 0, 0, 0]),
        errno_of(libc::SYS_prlimit64, [1, 7, 0, 0, 0, 0]),
        errno_of(libc::SYS_setpriority, [0, 1, 19, 0, 0, 0]),
        errno_of(libc::SYS_sched_setaffinity, [1, 8, path, 0, 0, 0]),
        // F_SETOWN, which makes the kernel send signals on behalf of a process.
        errno_of(libc::SYS_fcntl, [0, 8, 1, 0, 0, 0]),
        errno_of(libc::SYS_ioctl, [0, 0x8901, path, 0, 0, 0]),
        // Files, networks, processes, code.
        errno_of(libc::SYS_openat, [signed(libc::AT_FDCWD), path, 0, 0, 0, 0]),
        errno_of(libc::SYS_memfd_create, [path, 0, 0, 0, 0, 0]),
        errno_of(libc::SYS_socket, [1, 1, 0, 0, 0, 0]),
        errno_of(libc::SYS_sendto, [0, path, 1, 0, 0, 0]),
        errno_of(libc::SYS_sendmsg, [0, path, 0, 0, 0, 0]),
        errno_of(libc::SYS_clone, [17, 0, 0, 0, 0, 0]),
        errno_of(libc::SYS_execve, [path, 0, 0, 0, 0, 0]),
        errno_of(libc::SYS_mmap, [0, 4096, 7, 0x22, signed(-1), 0]),
        errno_of(libc::SYS_prctl, [4, 1, 0, 0, 0, 0]),
        errno_of(libc::SYS_seccomp, [0, 0, 0, 0, 0, 0]),
    ]
}

#[test]
fn workers_have_what_was_prepared_and_reach_nothing() {
    let zygote = start(prepare).unwrap();
    assert!(zygote.confinement.namespaces && zygote.confinement.landlock > 0);
    assert_eq!(zygote.request(b"p"), (b"prepared".to_vec(), Some(WorkerExit::Exited(0))));
    let (errnos, ended) = zygote.request(b"a");
    assert_eq!(ended, Some(WorkerExit::Exited(0)));
    assert!(!errnos.is_empty());
    for (index, errno) in errnos.iter().enumerate() {
        assert_eq!(i32::from(*errno), libc::EPERM, "attempt {index}");
    }
}

#[test]
fn the_end_of_a_worker_costs_one_worker() {
    let zygote = start(prepare).unwrap();
    let waiting = zygote.call();
    assert_eq!(zygote.request(b"x"), (Vec::new(), Some(WorkerExit::Exited(7))));
    assert_eq!(zygote.request(b"!").1, Some(WorkerExit::Exited(101)));
    // Beyond the limit of its stack.
    assert_eq!(zygote.request(b"0").1, Some(WorkerExit::Signaled(11)));
    let (mut wire, leash) = waiting;
    wire.write_all(b"p").unwrap();
    assert_eq!(read_exit(leash), Some(WorkerExit::Exited(0)));
}

#[test]
fn a_worker_that_nobody_wants_is_killed() {
    let zygote = start(prepare).unwrap();
    let calls: Vec<_> = (0..5).map(|_| zygote.call()).collect();
    for (mut wire, leash) in calls {
        wire.write_all(b"w").unwrap();
        drop(leash);
        // The wire ends when the worker does, which may not have read the question.
        match wire.read(&mut [0]) {
            Ok(length) => assert_eq!(length, 0),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }
    let (mut wire, leash) = zygote.call();
    wire.write_all(b"w").unwrap();
    drop(zygote);
    assert_eq!(read_exit(leash), None);
}

#[test]
fn what_cannot_be_prepared_is_told() {
    let error = start(|_| Err("not this".to_owned())).err().unwrap();
    assert!(matches!(&error, NotReady::PrepareFailed(why) if why == "not this"), "{error:?}");
    let error = start(|_| panic!("not this")).err().unwrap();
    assert!(matches!(&error, NotReady::Lost(_)), "{error:?}");
}

/// As inside a sandbox: a filter of another program, and no namespaces available.
#[test]
fn without_namespaces_a_confined_process_says_so_and_others_are_refused() {
    fn in_filter(confined: bool) -> ChildExit {
        crate::testing::in_child(|| {
            crate::testing::become_other_user();
            if confined {
                crate::testing::set_no_new_privs();
                seccomp::install(seccomp::program(SetIdBits::Refused)).unwrap();
            } else {
                // No user namespace, for a process that has the maximal privileges already.
                crate::testing::enter_user_namespace();
                std::fs::write("/proc/sys/user/max_user_namespaces", "0").unwrap();
            }
            match start(prepare) {
                Ok(zygote) => {
                    assert!(!zygote.confinement.namespaces);
                    assert_eq!(zygote.request(b"p").0, b"prepared");
                    let (errnos, _) = zygote.request(b"a");
                    assert!(errnos.iter().all(|errno| i32::from(*errno) == libc::EPERM));
                    drop(zygote);
                    10
                }
                Err(error) => {
                    assert!(error.to_string().contains("communicate with"), "{error}");
                    20
                }
            }
        })
    }
    assert_eq!(in_filter(true), ChildExit::Exited(10));
    assert_eq!(in_filter(false), ChildExit::Exited(20));
}
