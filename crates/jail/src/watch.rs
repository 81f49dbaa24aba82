//! Measures the resource use of a process tree, for limits that no control group enforces.
//!
//! A watched limit is weaker than an enforced one: a process can use more between two measurements,
//! and files in memory that no process has mapped are not counted.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::time::Duration;

/// The unit in which the kernel reports the CPU time of processes (`USER_HZ`), in milliseconds.
const TICK_MS: u64 = 10;

/// The resource use of a process and all its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of processes.
    pub processes: u64,
    /// Their memory, in bytes: of shared memory, each process's part where the kernel reports it.
    pub memory_bytes: u64,
    /// The CPU time of these processes and of the children that they have waited for.
    pub cpu_time: Duration,
}

/// The resource use of a process and all its descendants; zero when it has ended.
///
/// # Errors
/// As [`uses_more_than`].
pub fn usage_of_tree(root: i32) -> io::Result<Usage> {
    let mut usage = Usage::default();
    each(root, |process| {
        if let Some(ticks) = ticks(process) {
            usage.processes += 1;
            usage.memory_bytes = usage.memory_bytes.saturating_add(share(process));
            usage.cpu_time += Duration::from_millis(ticks.saturating_mul(TICK_MS));
        }
    })?;
    Ok(usage)
}

/// Whether a process and all its descendants use more than this many bytes of memory together.
///
/// Measures the resident memory first, which is cheap and counts shared pages once per process.
/// Only if that is too much, it measures each process's share (`Pss`), where the kernel reports it.
///
/// # Errors
/// `Unsupported` where the kernel does not list children (CONFIG_PROC_CHILDREN): such a limit
/// cannot be watched.
pub fn uses_more_than(root: i32, bytes: u64) -> io::Result<bool> {
    Ok(sum(root, resident)? > bytes && sum(root, share)? > bytes)
}

/// The resident memory of a process and all its descendants, in bytes; 0 when it has ended. Shared
/// pages count several times.
///
/// # Errors
/// As [`uses_more_than`].
pub fn memory_of_tree(root: i32) -> io::Result<u64> {
    sum(root, resident)
}

/// Whether every descendant of `root` is stopped by a signal or dead; `root` itself does not count.
///
/// # Errors
/// As [`uses_more_than`].
pub fn have_stopped(root: i32) -> io::Result<bool> {
    let runs = |process| u64::from(process != root && runs(process));
    Ok(sum(root, runs)? == 0)
}

/// Whether a process can continue by itself (`proc_pid_stat(5)`, "state").
fn runs(process: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    // The process name before it may contain anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    match state {
        None | Some('T' | 't' | 'Z' | 'X') => false,
        // A process that waits in vfork(2) for a stopped child stops itself right after the wait.
        Some('D') => !has_stop_pending(process),
        Some(_) => true,
    }
}

/// Whether a process will stop before it continues (`proc_pid_status(5)`).
fn has_stop_pending(process: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let pending = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")))
        .filter_map(|set| u64::from_str_radix(set.trim(), 16).ok());
    pending.fold(0, |all, set| all | set) & (1 << (libc::SIGSTOP - 1)) != 0
}

/// When a process was started, in the kernel's clock ticks since the host's boot. Together with the
/// process number it identifies a process uniquely.
///
/// # Errors
/// `NotFound` when there is no such process.
pub fn start_time(process: i32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' '));
    // The 22nd field; the 3rd is the first after the name.
    let started = fields.and_then(|mut fields| fields.nth(19)?.parse().ok());
    started.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The CPU time of a process and the children that it has waited for, in clock ticks
/// (`proc_pid_stat(5)`, "utime" to "cstime"); `None` when it has ended.
fn ticks(process: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    // The 14th field; the 3rd is the first after the name.
    fields.split(' ').skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum()
}

fn sum(root: i32, measure: impl Fn(i32) -> u64) -> io::Result<u64> {
    let mut total = 0_u64;
    each(root, |process| total = total.saturating_add(measure(process)))?;
    Ok(total)
}

/// Visits a process and all its descendants, each once.
fn each(root: i32, mut visit: impl FnMut(i32)) -> io::Result<()> {
    let mut seen = HashSet::new();
    let mut waiting = vec![root];
    while let Some(process) = waiting.pop() {
        // A process that gets a new parent meanwhile is found twice.
        if seen.insert(process) {
            visit(process);
            waiting.extend(children(process)?);
        }
    }
    Ok(())
}

/// The children of every thread of a process; none when it has ended.
fn children(process: i32) -> io::Result<Vec<i32>> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Ok(vec![]) };
    let mut children = Vec::new();
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(text) => children.extend(numbers(&text)),
            // The thread has ended, unless its directory still exists.
            Err(_) if !thread.path().exists() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(io::ErrorKind::Unsupported.into());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

/// The only child of a process.
///
/// # Errors
/// `InvalidData` where it has another number of them; as [`uses_more_than`].
pub(crate) fn only_child(process: i32) -> io::Result<i32> {
    match children(process)?.as_slice() {
        [child] => Ok(*child),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn numbers(text: &str) -> impl Iterator<Item = i32> {
    text.split_whitespace().filter_map(|word| word.parse().ok())
}

fn resident(process: i32) -> u64 {
    bytes_in(&format!("/proc/{process}/status"), "VmRSS:").unwrap_or(0)
}

fn share(process: i32) -> u64 {
    // Not readable for processes that we may not trace, such as a jail's init; those count in full.
    bytes_in(&format!("/proc/{process}/smaps_rollup"), "Pss:").unwrap_or_else(|| resident(process))
}

/// The value of a `Key:   123 kB` line.
fn bytes_in(file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::testing::{fork_child, wait_for};

    const MIB: u64 = 1 << 20;

    /// A child with this much memory of its own; that child has a child that shares it and has 8
    /// MiB more.
    fn tree(bytes: u64, inspect: impl FnOnce(i32)) {
        let (mut wait, mut ready) = std::io::pipe().unwrap();
        let child = fork_child(|| {
            let mut memory = vec![0_u8; usize::try_from(bytes).unwrap()];
            memory.chunks_mut(4096).for_each(|page| page[0] = 1);
            let own_child = fork_child(|| {
                let more = std::hint::black_box(vec![1_u8; 8 << 20]);
                // SAFETY: takes numbers; the parent lives at least until `ready` was written.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                ready.write_all(&[0]).unwrap();
                // SAFETY: waits for the signal that kills this process.
                unsafe { libc::pause() };
                drop(more);
                0
            });
            std::hint::black_box(&memory);
            wait_for(own_child);
            0
        });
        wait.read_exact(&mut [0]).unwrap();
        inspect(child);
        // SAFETY: the child has not been waited for, so the number is not reused.
        unsafe { libc::kill(child, libc::SIGKILL) };
        wait_for(child);
        assert_eq!(memory_of_tree(child).unwrap(), 0);
        assert_eq!(usage_of_tree(child).unwrap(), Usage::default());
    }

    #[test]
    fn all_generations_count() {
        tree(MIB, |child| {
            let used = memory_of_tree(child).unwrap();
            assert!(used >= 9 * MIB, "{used}");
            assert!(uses_more_than(child, 8 * MIB).unwrap());
            assert!(!uses_more_than(child, 1 << 40).unwrap());
            let usage = usage_of_tree(child).unwrap();
            assert_eq!(usage.processes, 2);
            assert!(usage.memory_bytes >= 9 * MIB && usage.memory_bytes <= used, "{usage:?}");
        });
    }

    #[test]
    fn the_time_of_who_was_waited_for_counts() {
        let before = usage_of_tree(own()).unwrap().cpu_time;
        let child = fork_child(|| {
            while usage_of_tree(own()).unwrap().cpu_time < Duration::from_millis(50) {}
            0
        });
        wait_for(child);
        assert!(usage_of_tree(own()).unwrap().cpu_time >= before + Duration::from_millis(50));
    }

    fn own() -> i32 {
        std::process::id().try_into().unwrap()
    }

    #[test]
    fn shared_memory_is_not_held_against_the_tree_twice() {
        tree(64 * MIB, |child| {
            assert!(memory_of_tree(child).unwrap() > 128 * MIB);
            assert!(!uses_more_than(child, 100 * MIB).unwrap());
            assert!(uses_more_than(child, 60 * MIB).unwrap());
        });
    }
}
