//! The host's perspective: its processes, and file trees to compare.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files larger than this are compared by size and time only.
const COMPARED_BYTES: u64 = 4 << 20;

/// The host's processes whose command line contains the token.
pub(crate) fn processes_with(token: &str) -> Vec<u32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| *pid != std::process::id())
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(token)
        })
        .filter(|pid| {
            // A zombie has no resources except its pid.
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            !status.contains("State:\tZ") && !status.is_empty()
        })
        .collect()
}

/// The processors on which this thread may run, as a line of its `/proc/thread-self/status`.
pub(crate) fn processors() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list"));
    format!("{}\n", line.unwrap())
}

/// Fails unless every process with the token ends soon.
#[track_caller]
pub(crate) fn assert_none_survives(token: &str) {
    let patience = Instant::now() + Duration::from_secs(5);
    while !processes_with(token).is_empty() {
        if Instant::now() > patience {
            let survivors = processes_with(token);
            for pid in &survivors {
                let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            panic!("processes {survivors:?} with {token} outlived their sandbox");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the host has a process with the token in its command line whose program is the
/// probe, and returns its pid.
#[track_caller]
pub(crate) fn wait_for_process(token: &str) -> u32 {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let found = processes_with(token).into_iter().find(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.split(|&byte| byte == 0).nth(1) == Some(b"linger"))
        });
        if let Some(pid) = found {
            return pid;
        }
        assert!(Instant::now() < patience, "no process lingers with {token}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A word that no other test uses, in two halves.
pub(crate) fn token() -> (String, String) {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    (format!("canary-{}-", std::process::id()), format!("{number}-of-the-host"))
}

/// A namespace of the test's own process, by its name in `/proc`.
pub(crate) fn namespace(name: &str) -> String {
    fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string()
}

/// One file or directory of a tree, with what is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The content of a file, the target of a symbolic link; empty for everything else.
    content: Vec<u8>,
    size: u64,
}

impl Entry {
    pub(crate) fn content_holds(&self, token: &[u8]) -> bool {
        self.content.windows(token.len()).any(|window| window == token)
    }

    fn describe(&self) -> String {
        const SHOWN: usize = 40;
        let content = self.content[..self.content.len().min(SHOWN)].escape_ascii();
        let Self { mode, uid, gid, size, .. } = self;
        format!("{mode:o} {uid}:{gid} {size} bytes {content}")
    }
}

/// Everything at and below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) entries: BTreeMap<PathBuf, Entry>,
}

impl Tree {
    /// Reads a tree without following symbolic links.
    pub(crate) fn of(root: &Path) -> Self {
        let mut entries = BTreeMap::new();
        let mut pending = vec![root.to_owned()];
        while let Some(path) = pending.pop() {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let kind = metadata.file_type();
            let content = if kind.is_symlink() {
                fs::read_link(&path).unwrap_or_default().as_os_str().as_bytes().to_vec()
            } else if kind.is_file() && metadata.len() <= COMPARED_BYTES {
                fs::read(&path).unwrap_or_default()
            } else {
                Vec::new()
            };
            if kind.is_dir() {
                let below = fs::read_dir(&path).into_iter().flatten().flatten();
                pending.extend(below.map(|entry| entry.path()));
            }
            let size = if kind.is_dir() { 0 } else { metadata.size() };
            let entry = Entry {
                mode: metadata.mode(),
                uid: metadata.uid(),
                gid: metadata.gid(),
                content,
                size,
            };
            entries.insert(path, entry);
        }
        Self { entries }
    }

    /// Fails with the differences.
    #[track_caller]
    pub(crate) fn assert_same(&self, other: &Self, what: &str) {
        let differences = self.differences(other);
        assert!(differences.is_empty(), "{what}: {differences:#?}");
    }

    /// One line for each path that differs in the other tree, with its entry there.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let paths: BTreeSet<_> = self.entries.keys().chain(other.entries.keys()).collect();
        paths
            .into_iter()
            .filter_map(|path| {
                let (here, there) = (self.entries.get(path), other.entries.get(path));
                let reported = |entry: Option<&Entry>| {
                    entry.map_or_else(|| "nothing".to_owned(), Entry::describe)
                };
                (here != there).then(|| {
                    format!("{}: {} became {}", path.display(), reported(here), reported(there))
                })
            })
            .collect()
    }
}
