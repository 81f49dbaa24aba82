//! The processes that Stockade leaves running for a data directory: its local server, its keeper,
//! and the keeper's jails. Tests find and kill them, and a world ends them when it is dropped.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long processes that were requested to end may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Servers of a data directory that were started on demand.
pub(crate) fn servers(data: &Path) -> Vec<Pid> {
    with_arguments("__server", data)
}

/// Keepers of a data directory, and forks of them that have not become another process yet.
pub(crate) fn keepers(data: &Path) -> Vec<Pid> {
    with_arguments("__keeper", data)
}

/// The egress processes of the servers of a data directory.
pub(crate) fn egresses(data: &Path) -> Vec<Pid> {
    let mut below = Vec::new();
    for server in servers(data) {
        descendants(server, &mut below);
    }
    let is_one = |process: &Pid| {
        let path = format!("/proc/{}/cmdline", process.as_raw_nonzero());
        let line = std::fs::read(path).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"__egress")
    };
    below.retain(is_one);
    below
}

/// Kills them immediately and waits until they no longer exist.
pub(crate) fn kill_egress(data: &Path) {
    let killed = egresses(data);
    assert!(!killed.is_empty(), "there is no way out of {}", data.display());
    kill_all(&killed);
    wait_until("it is gone", || !egresses(data).iter().any(|one| killed.contains(one)));
}

/// Kills a server of a data directory immediately and waits until it no longer exists.
pub(crate) fn kill_server(data: &Path) {
    let killed = servers(data);
    assert!(!killed.is_empty(), "there is no server of {}", data.display());
    kill_all(&killed);
    // Another process may have started a new server already.
    wait_until("the server is gone", || !servers(data).iter().any(|one| killed.contains(one)));
}

/// Waits until a condition is true; fails the test if it never is.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "it never came to pass that {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends every sandbox of a data directory, then its server and its keeper. `prune` ends all
/// sandboxes. Never fails: it also runs when a test has failed.
pub(crate) fn end_all(data: &Path, mut prune: Command) {
    if keepers(data).is_empty() && servers(data).is_empty() {
        return;
    }
    prune.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut child) = prune.spawn() {
        if !becomes_true(|| !matches!(child.try_wait(), Ok(None))) {
            let _ = child.kill();
        }
        let _ = child.wait();
    }
    for server in servers(data) {
        let _ = kill_process(server, Signal::TERM);
    }
    if !becomes_true(|| servers(data).is_empty()) {
        kill_all(&servers(data));
    }
    let keepers = keepers(data);
    let mut held = Vec::new();
    for keeper in &keepers {
        descendants(*keeper, &mut held);
    }
    // The keeper first: it would replace the others.
    kill_all(&keepers);
    kill_all(&held);
    becomes_true(|| self::keepers(data).is_empty());
}

fn kill_all(processes: &[Pid]) {
    for process in processes {
        let _ = kill_process(*process, Signal::KILL);
    }
}

fn becomes_true(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// The processes whose first argument is this and whose second is the data directory.
fn with_arguments(word: &str, data: &Path) -> Vec<Pid> {
    // Containers have a keeper of their own.
    let of_containers = data.join("runtime-docker").to_string_lossy().into_owned();
    let data = data.to_string_lossy();
    let is_one = |process: &Pid| {
        let path = format!("/proc/{}/cmdline", process.as_raw_nonzero());
        let line = std::fs::read(path).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        words.next() == Some(word.as_bytes())
            && words.any(|word| word == data.as_bytes() || word == of_containers.as_bytes())
    };
    processes().filter(is_one).collect()
}

/// All processes that a process has started, and those that these have started.
pub(crate) fn descendants_of(process: Pid) -> Vec<Pid> {
    let mut below = Vec::new();
    descendants(process, &mut below);
    below
}

fn descendants(of: Pid, into: &mut Vec<Pid>) {
    let parent = of.as_raw_nonzero().to_string();
    for process in processes() {
        let path = format!("/proc/{}/stat", process.as_raw_nonzero());
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        // The name in parentheses may contain any character.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        if after.split_whitespace().nth(1) == Some(parent.as_str()) && !into.contains(&process) {
            into.push(process);
            descendants(process, into);
        }
    }
}
