//! Attacks on other processes: the host's, the sandbox's own init, and processes that outlive what
//! should have ended them.
//!
//! An attack that signals more than one process takes the host's pid namespace as its first
//! argument and sends nothing when it runs in that namespace.

use std::ffi::CString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use crate::attempt::{Attempt, all_refused, call, in_child, last_error, raw_syscall};
use crate::files::process_ids;
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] = &[
    ("kill-host", kill_host),
    ("kill-all", kill_all),
    ("kill-init", kill_init),
    ("kill-others", kill_others),
    ("stop-self", stop_self),
    ("stop-all", stop_all),
    ("daemonize", daemonize),
    ("linger", linger),
    ("see-process", see_process),
    ("trace", trace),
    ("init-files", init_files),
    ("environments", environments),
    ("memory-of-init", memory_of_init),
    ("fork-bomb", fork_bomb),
];

/// The identity of this process's pid namespace, as in `/proc`.
fn own_namespace() -> String {
    std::fs::read_link("/proc/self/ns/pid")
        .map_or_else(|_| "unreadable".into(), |link| link.display().to_string())
}

fn host_verdict(namespace: &str) -> Option<Verdict> {
    (own_namespace() == namespace)
        .then(|| Verdict::Escaped("this is the host's own pid namespace".into()))
}

fn kill(pid: i32, signal: i32) -> i32 {
    raw_syscall(libc::SYS_kill, [pid as usize, signal as usize, 0, 0, 0, 0])
}

/// `kill-host NAMESPACE PID`: signals one process of the host by every available call.
fn kill_host(arguments: &[String]) -> Verdict {
    if let Some(verdict) = host_verdict(&arguments[0]) {
        return verdict;
    }
    let Ok(pid) = arguments[1].parse::<usize>() else {
        return Verdict::Broken("no pid".into());
    };
    let signal = libc::SIGKILL as usize;
    let negative = (pid as isize).wrapping_neg() as usize;
    let mut escapes = Vec::new();
    for (name, number, call_arguments) in [
        ("kill", libc::SYS_kill, [pid, signal, 0, 0, 0, 0]),
        ("kill of the group", libc::SYS_kill, [negative, signal, 0, 0, 0, 0]),
        ("tkill", libc::SYS_tkill, [pid, signal, 0, 0, 0, 0]),
        ("tgkill", libc::SYS_tgkill, [pid, pid, signal, 0, 0, 0]),
        ("pidfd_open", libc::SYS_pidfd_open, [pid, 0, 0, 0, 0, 0]),
    ] {
        if raw_syscall(number, call_arguments) == 0 {
            escapes.push(format!("{name} of {pid}"));
        }
    }
    Verdict::unless(&escapes, format!("no process {pid} here"))
}

/// `kill-all NAMESPACE`: ends every process that it may; the host checks which are still alive.
fn kill_all(arguments: &[String]) -> Verdict {
    if let Some(verdict) = host_verdict(&arguments[0]) {
        return verdict;
    }
    Verdict::Blocked(format!("kill(-1) returned {}", kill(-1, libc::SIGKILL)))
}

/// `kill-init NAMESPACE`: sends every signal to pid 1, and keeps running if pid 1 does.
fn kill_init(arguments: &[String]) -> Verdict {
    if let Some(verdict) = host_verdict(&arguments[0]) {
        return verdict;
    }
    for signal in 1..=64 {
        kill(1, signal);
    }
    std::thread::sleep(Duration::from_millis(200));
    Verdict::Blocked("pid 1 and this process live on".into())
}

/// `kill-others NAMESPACE (end|stay)`: ends every process but pid 1 and this one, including its own
/// supervisor inside the sandbox; then exits successfully or stays forever.
fn kill_others(arguments: &[String]) -> Verdict {
    if let Some(verdict) = host_verdict(&arguments[0]) {
        return verdict;
    }
    for _ in 0..20 {
        kill(std::os::unix::process::parent_id() as i32, libc::SIGKILL);
        for pid in process_ids() {
            if pid != 1 && pid != std::process::id() {
                kill(pid as i32, libc::SIGKILL);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    while arguments.get(1).is_some_and(|then| then == "stay") {
        std::thread::sleep(Duration::from_secs(1));
    }
    Verdict::Blocked("still here".into())
}

/// Stops itself: a supervisor that waits for its end waits for a long time.
fn stop_self(_: &[String]) -> Verdict {
    kill(std::process::id() as i32, libc::SIGSTOP);
    Verdict::Blocked("was continued".into())
}

/// `stop-all NAMESPACE`: stops every visible process, including pid 1 and the supervisor.
fn stop_all(arguments: &[String]) -> Verdict {
    if let Some(verdict) = host_verdict(&arguments[0]) {
        return verdict;
    }
    kill(1, libc::SIGSTOP);
    kill(std::os::unix::process::parent_id() as i32, libc::SIGSTOP);
    kill(-1, libc::SIGSTOP);
    stop_self(arguments)
}

/// `daemonize TOKEN [FILE]`: leaves the session and the parent and continues as `linger`.
fn daemonize(arguments: &[String]) -> Verdict {
    let Ok(own) = std::env::current_exe() else {
        return Verdict::Broken("cannot tell what this runs from".into());
    };
    let attempt = in_child(|| {
        // SAFETY: the probe has one thread; setsid and fork take no pointers.
        let grandchild = unsafe {
            libc::setsid();
            libc::fork()
        };
        if grandchild == 0 {
            // SAFETY: closes descriptors that nothing here uses again.
            unsafe {
                libc::setsid();
                libc::prctl(libc::PR_SET_PDEATHSIG, 0);
                libc::close_range(0, 1000, 0);
            }
            let _ = Command::new(&own).arg("linger").args(arguments).exec();
            return 1;
        }
        0
    });
    if attempt != Attempt::Done {
        return Verdict::Broken(format!("daemonize: {attempt}"));
    }
    std::thread::sleep(Duration::from_millis(100));
    Verdict::Blocked("left a process behind".into())
}

/// `linger TOKEN [FILE]`: ignores every signal that can be ignored and stays for a minute; a named
/// file grows all the time.
fn linger(arguments: &[String]) -> Verdict {
    for signal in 1..=64 {
        // SAFETY: SIG_IGN is a valid disposition; signals that cannot be ignored are refused.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    for round in 0..6000_u32 {
        if let Some(path) = arguments.get(1) {
            let _ = std::fs::write(path, round.to_string().repeat(64));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Verdict::Blocked("lingered".into())
}

/// `see-process HALF HALF`: looks for a process whose command line contains the two halves
/// together; in halves, so that it does not find the arguments of this run.
fn see_process(halves: &[String]) -> Verdict {
    let token = halves.concat();
    let pids = process_ids();
    let seen: Vec<_> = pids
        .iter()
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&token))
        })
        .map(|pid| format!("process {pid}"))
        .collect();
    if pids.is_empty() {
        return Verdict::Broken("not even this process was seen".into());
    }
    Verdict::unless(&seen, format!("{} processes seen", pids.len()))
}

/// Traces pid 1 and the parent.
fn trace(_: &[String]) -> Verdict {
    let mut attempts = Vec::new();
    for pid in [1, std::os::unix::process::parent_id() as usize] {
        for (name, request) in
            [("attach", libc::PTRACE_ATTACH as usize), ("seize", libc::PTRACE_SEIZE as usize)]
        {
            let attempt = call(libc::SYS_ptrace, [request, pid, 0, 0, 0, 0]);
            attempts.push((format!("{name} to {pid}"), attempt));
        }
    }
    all_refused(&attempts)
}

/// The files that reveal a process, of every process that the sandbox's user did not start.
fn init_files(_: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    let mut tried = 0;
    for pid in [1, std::os::unix::process::parent_id()] {
        for name in ["environ", "mem", "maps", "auxv", "syscall", "stack", "pagemap"] {
            tried += 1;
            let path = format!("/proc/{pid}/{name}");
            let mut bytes = [0; 8];
            let file = std::fs::File::open(&path);
            if file.is_ok_and(|mut file| {
                std::io::Read::read(&mut file, &mut bytes).is_ok_and(|n| n > 0)
            }) {
                escapes.push(format!("read {path}"));
            }
        }
        for name in ["root", "cwd", "exe"] {
            tried += 1;
            let path = format!("/proc/{pid}/{name}");
            if std::fs::read_link(&path).is_ok() || std::fs::metadata(&path).is_ok() {
                escapes.push(format!("followed {path}"));
            }
        }
        for name in ["fd", "map_files", "fdinfo"] {
            tried += 1;
            let path = format!("/proc/{pid}/{name}");
            if std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some()) {
                escapes.push(format!("listed {path}"));
            }
        }
    }
    Verdict::unless(&escapes, format!("{tried} files refused"))
}

/// `environments HALF HALF`: looks for a secret in the environment of every process, including this
/// one; in halves, as for `see-process`.
fn environments(halves: &[String]) -> Verdict {
    let secret = halves.concat();
    let mut escapes = Vec::new();
    for pid in process_ids() {
        if std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|text| String::from_utf8_lossy(&text).contains(&secret))
        {
            escapes.push(format!("the environment of process {pid}"));
        }
    }
    if std::env::vars_os().any(|(_, value)| value.to_string_lossy().contains(&secret)) {
        escapes.push("this process's environment".into());
    }
    Verdict::unless(&escapes, "no environment holds it")
}

/// `memory-of-init HALF HALF`: searches the memory of pid 1 and of the parent, with /proc and with
/// `process_vm_readv`, for a secret of the host.
fn memory_of_init(halves: &[String]) -> Verdict {
    use std::os::unix::fs::FileExt as _;
    let secret = halves.concat().into_bytes();
    let mut escapes = Vec::new();
    for pid in [1, std::os::unix::process::parent_id()] {
        let Ok(maps) = std::fs::read_to_string(format!("/proc/{pid}/maps")) else { continue };
        escapes.push(format!("the map of process {pid}"));
        let Ok(memory) = std::fs::File::open(format!("/proc/{pid}/mem")) else { continue };
        escapes.push(format!("the memory of process {pid}"));
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let Some((start, end)) = range else { continue };
            let (Ok(start), Ok(end)) =
                (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
            else {
                continue;
            };
            let mut bytes = vec![0; usize::try_from((end - start).min(64 << 20)).unwrap_or(0)];
            if memory.read_at(&mut bytes, start).is_ok()
                && bytes.windows(secret.len()).any(|window| window == secret)
            {
                escapes.push(format!("the secret, in process {pid}"));
            }
        }
    }
    Verdict::unless(&escapes, "no memory but its own can be opened")
}

/// `fork-bomb WANTED LIMIT`: forks children that wait; more than LIMIT of them is an escape.
fn fork_bomb(arguments: &[String]) -> Verdict {
    let numbers: Vec<usize> = arguments.iter().filter_map(|text| text.parse().ok()).collect();
    let [wanted, limit] = numbers[..] else {
        return Verdict::Broken("two numbers are needed".into());
    };
    let mut children = Vec::new();
    let mut error = 0;
    while children.len() < wanted {
        // SAFETY: the probe has one thread; the child only pauses.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            },
            -1 => {
                error = last_error();
                break;
            }
            child => children.push(child),
        }
    }
    let verdict = if children.len() > limit {
        Verdict::Escaped(format!("{} children live at once", children.len()))
    } else {
        Verdict::Blocked(format!("{} children, then error {error}", children.len()))
    };
    for child in children {
        kill(child, libc::SIGKILL);
    }
    verdict
}

/// The arguments for `exec` as C strings; used by the helpers.
pub(crate) fn c_arguments(words: &[String]) -> Vec<CString> {
    words.iter().map(|word| CString::new(word.as_str()).unwrap_or_default()).collect()
}
