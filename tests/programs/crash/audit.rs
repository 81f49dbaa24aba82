//! What is left on the host when everything has ended: there must be nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stockade_runtime::Runtime as _;

use crate::{Failure, open, victims};

/// How long the remains of killed processes may take to disappear.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Resources of the host that could be left behind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Host {
    mounts: BTreeSet<String>,
    groups: BTreeSet<PathBuf>,
}

impl Host {
    /// Reads the state of the host.
    pub(crate) fn read() -> Result<Self, Failure> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        Ok(Self { mounts: mounts.lines().map(str::to_owned).collect(), groups: groups() })
    }

    /// What exists now and did not before; of groups only those that these keepers have created,
    /// because other processes may work on the same host.
    fn more_than(&self, before: &Self, keepers: &BTreeSet<u32>) -> Vec<String> {
        let mounts = self.mounts.difference(&before.mounts).map(|line| format!("mount {line}"));
        let groups = self.groups.difference(&before.groups);
        let groups =
            groups.filter(|path| creator(path).is_some_and(|keeper| keepers.contains(&keeper)));
        let groups = groups.map(|path| format!("control group {}", path.display()));
        mounts.chain(groups).collect()
    }
}

/// The process that has created a group, from its name: `stockade-PROCESS-…`.
fn creator(group: &Path) -> Option<u32> {
    group.file_name()?.to_str()?.split('-').nth(1)?.parse().ok()
}

/// The control groups of Stockade, in every hierarchy.
fn groups() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().to_string_lossy().starts_with("stockade-") {
                found.insert(entry.path());
            }
            waiting.push(entry.path());
        }
    }
    found
}

/// Whether a live init has this pid; a zombie has no resources.
fn is_living_init(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let Some((start, rest)) = stat.rsplit_once(") ") else { return false };
    start.ends_with("(stockade-init") && !rest.starts_with('Z')
}

/// Ends every sandbox that a killed client left, then the keeper, and returns what is left after
/// that. `inits` are those of all sandboxes that existed, and `keepers` all of their keepers.
pub(crate) fn check_after(
    program: &Path,
    data: &Path,
    before: &Host,
    (mut inits, mut keepers): (BTreeSet<u32>, BTreeSet<u32>),
) -> Result<Vec<String>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut faults = runtime.block_on(async {
        let native = open(program, data)?;
        for status in native.list(&Default::default()).await? {
            native.cleanup(&status.id).await?;
        }
        for snapshot in native.snapshots().await? {
            native.remove_snapshot(&snapshot.id).await?;
        }
        let left = native.list(&Default::default()).await?;
        Ok::<_, Failure>(
            left.iter().map(|status| format!("sandbox {}", status.id)).collect::<Vec<_>>(),
        )
    })?;
    // The keeper empties its trash in the background, and keeps its pool filled.
    let until = Instant::now() + TIMEOUT;
    let mut left = remaining(data);
    while !left.is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
        left = remaining(data);
    }
    faults.extend(left);
    inits.extend(victims::inits(data));
    keepers.extend(victims::keepers(data));
    runtime.block_on(async { Ok::<_, Failure>(open(program, data)?.drain().await?) })?;
    let until = Instant::now() + TIMEOUT;
    loop {
        let mut left = Host::read()?.more_than(before, &keepers);
        let living = inits.iter().filter(|init| is_living_init(**init));
        left.extend(living.map(|init| format!("process {init}")));
        left.extend(victims::keepers(data).iter().map(|keeper| format!("keeper {keeper}")));
        let helpers = victims::helpers(data, &inits);
        left.extend(helpers.iter().map(|helper| format!("helper {helper}")));
        if left.is_empty() || Instant::now() > until {
            faults.extend(left);
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    faults.extend(sockets(data));
    Ok(faults)
}

/// Files of sandboxes, except for those of the pool.
fn remaining(data: &Path) -> Vec<String> {
    let root = data.join("runtime/1");
    let mut left = Vec::new();
    for part in ["staging", "trash", "snapshots"] {
        let entries = std::fs::read_dir(root.join(part)).into_iter().flatten().flatten();
        left.extend(entries.map(|entry| format!("file {}", entry.path().display())));
    }
    for entry in std::fs::read_dir(root.join("sandboxes")).into_iter().flatten().flatten() {
        let record = std::fs::read(entry.path().join("record.json")).unwrap_or_default();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap_or_default();
        if !record["id"].is_null() || record["spec"].is_null() {
            left.push(format!("file {}", entry.path().display()));
        }
    }
    left
}

/// Sockets without a listener.
fn sockets(data: &Path) -> Vec<String> {
    let sandboxes = std::fs::read_dir(data.join("runtime/1/sandboxes")).into_iter().flatten();
    sandboxes
        .flatten()
        .map(|entry| entry.path().join("init"))
        .filter(|socket| socket.exists())
        .map(|socket| format!("socket {}", socket.display()))
        .collect()
}
