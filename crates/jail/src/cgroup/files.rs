//! The basic file operations on control groups. No policy belongs here.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long a group with killed processes may take to become empty.
const DYING: Duration = Duration::from_secs(2);

/// Writes an existing control file.
pub(super) fn write(directory: &Path, file: &str, value: &str) -> io::Result<()> {
    use std::io::Write as _;
    // One write: the kernel interprets each write as a whole value.
    fs::OpenOptions::new().write(true).open(directory.join(file))?.write_all(value.as_bytes())
}

/// Makes a new group, in which every user may read the limits, whatever the umask is: processes inside
/// see it.
pub(super) fn make_group(directory: &Path) -> io::Result<()> {
    fs::create_dir(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).inspect_err(|_| {
        // No process is in it yet.
        let _ = fs::remove_dir(directory);
    })
}

/// The number in a control file that contains a single one.
pub(super) fn number(directory: &Path, file: &str) -> io::Result<u64> {
    let text = fs::read_to_string(directory.join(file))?;
    text.trim().parse().map_err(|_| unexpected(file, &text))
}

/// The number of a key in a control file of `key number` lines.
pub(super) fn number_of(directory: &Path, file: &str, key: &str) -> io::Result<u64> {
    let text = fs::read_to_string(directory.join(file))?;
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
        .ok_or_else(|| unexpected(file, &text))
}

fn unexpected(file: &str, text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file} contains {:?}", text.trim()))
}

/// The words of a control file, such as `cgroup.controllers`.
pub(super) fn words(directory: &Path, file: &str) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(directory.join(file))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// The processes of a group, as numbered in this process's pid namespace.
pub(super) fn processes(directory: &Path) -> io::Result<Vec<i32>> {
    let words = words(directory, "cgroup.procs")?;
    Ok(words.iter().filter_map(|word| word.parse().ok()).filter(|pid| *pid > 0).collect())
}

/// Kills every process of a group and waits until none is left.
///
/// # Errors
/// `TimedOut` when processes are left after two seconds: they are stuck in the kernel, or new ones
/// are created faster than they die.
pub(super) fn kill_processes(directory: &Path) -> io::Result<()> {
    let deadline = Instant::now() + DYING;
    loop {
        let found = processes(directory)?;
        if found.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        let handles: Vec<_> = found
            .iter()
            .filter_map(|pid| {
                Some((*pid, pidfd_open(Pid::from_raw(*pid)?, PidfdFlags::empty()).ok()?))
            })
            .collect();
        // The number may have been reused for an unrelated process before the pidfd was opened. A
        // process that is still in the group now, while the pidfd is open, is the right one.
        let still = processes(directory)?;
        for (pid, handle) in handles {
            if still.contains(&pid) {
                // It may have died meanwhile.
                let _ = pidfd_send_signal(&handle, Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Removes a group's directory, waiting until its killed processes have ended. A missing group is
/// no error.
pub(super) fn remove_group(directory: &Path) -> io::Result<()> {
    let deadline = Instant::now() + DYING;
    let mut pause = Duration::from_micros(200);
    loop {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline =>
            {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}
