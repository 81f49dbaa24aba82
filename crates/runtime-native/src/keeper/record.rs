//! The stored records of sandboxes, from which the next keeper adopts them.
//!
//! A record is written before the jail is launched, and again whenever it changes, always
//! atomically. The sandbox's environment is stored separately, because it may hold secrets, and a
//! keeper has none in its memory when it forks.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stockade_core::Bytes;
use stockade_core::sandbox::{Root, User};
use stockade_core::{Isolation, SandboxId, SandboxSpec};

use super::boot_time::{self, BootTime};
use crate::wire::InitialState;
use stockade_plan::wipe::{wipe, wipe_all};
use stockade_runtime::{EndCause, ExecStatus};

const RECORD: &str = "record.json";
const ENVIRONMENT: &str = "environment.json";
/// The files of a sandbox that are written without a sync, and synced by a helper a moment later.
pub(super) const FILES: [&str; 2] = [RECORD, ENVIRONMENT];
/// The size of one write. The old allocation of a growing buffer is never wiped.
const PIECE_BYTES: usize = 64 << 10;
/// The size of a write that is never cut short.
const PAGE_BYTES: usize = 4096;
/// The maximal length of a file that is read back, in bytes.
const LONGEST_BYTES: u64 = 64 << 20;

/// The stored record of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Its id; none for a sandbox of the pool.
    pub(super) id: Option<SandboxId>,
    /// The requested specification, without its environment.
    pub(super) spec: SandboxSpec,
    /// Whether it has an environment of its own.
    pub(super) has_environment: bool,
    /// The source of the root's lower layer; never a snapshot.
    pub(super) root: Root,
    /// The initial state of its workspace, if it has one.
    #[serde(default)]
    pub(super) begun: Option<InitialState>,
    /// Why its layers are complete trees, if they are.
    #[serde(default)]
    pub(super) whole: Option<String>,
    /// Whether it is a container that another engine has made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_container: bool,
    /// Whether it has the subordinate ids of the keeper's user, which own files in its layers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) subordinate: bool,
    /// When it was created, in milliseconds since 1970.
    pub(super) created_at_ms: u64,
    /// When its lease ends.
    pub(super) lease: Option<Lease>,
    /// The user that commands run as if they name none.
    pub(super) user: User,
    /// The user whose home directory is `/home/user`; the ordinary user if the version that created
    /// the sandbox did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) home_owner: Option<User>,
    /// The boot of the host in which it was created.
    pub(super) host_start: String,
    /// Its control groups, as [`stockade_jail::cgroup::Group::from_record`] reads them.
    pub(super) groups: Vec<u8>,
    /// Its stage.
    pub(super) stage: Stage,
}

/// The stage of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// Its jail is being launched. No client was notified that it exists.
    Starting,
    /// Commands can be started in it.
    Held(JailRecord),
    /// Its processes have ended.
    Ended(EndedRecord),
}

/// The state of a running jail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct JailRecord {
    /// The process id of its init.
    pub(super) init: i32,
    /// The process id of the init that serves requests, where bubblewrap has started it: then `init`
    /// is bubblewrap's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) serving: Option<i32>,
    /// The start time of init, which distinguishes it from other processes with the same id.
    pub(super) init_started: u64,
    /// The host id of inside id 0.
    pub(super) host_start: Option<u32>,
    /// The isolation that is in force.
    pub(super) isolation: Isolation,
    /// Whether a client has paused it.
    pub(super) paused: bool,
    /// Whether its init knows the request to change the limits of commands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) takes_limits: bool,
    /// Whether its init follows renames, which it must finish before its processes are stopped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) follows_renames: bool,
    /// The name of the skeleton that is its root's lower layer.
    #[serde(default)]
    pub(super) skeleton: Option<String>,
    /// The network namespace of its egress listeners, if it has any:
    /// `Listeners::network` of the jail, recorded before anything
    /// ran inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<u64>,
}

/// The state of a sandbox that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct EndedRecord {
    /// The reason, in words.
    pub(super) reason: String,
    /// The cause; an older program did not record it.
    #[serde(default)]
    pub(super) cause: EndCause,
    /// The host id of inside id 0.
    pub(super) host_start: Option<u32>,
    /// The isolation that was in force; absent if its launch never finished.
    pub(super) isolation: Option<Isolation>,
    /// The commands that a client may still ask for.
    pub(super) commands: Vec<ExecStatus>,
}

/// The end of a lease, by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lease {
    /// The time after the boot of the host; used as long as the host runs.
    after_start: Duration,
    /// In milliseconds since 1970; used after a reboot of the host.
    wall_ms: u64,
}

impl Lease {
    /// A lease that ends this long from now.
    pub(super) fn from_now(length: Duration) -> Self {
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        Self {
            after_start: (BootTime::now() + length).after_host_start(),
            wall_ms: boot_time::wall_ms().saturating_add(millis),
        }
    }

    /// When it ends.
    pub(super) const fn end(&self) -> BootTime {
        BootTime::from_host_start(self.after_start)
    }

    /// The lease after a reboot of the host.
    pub(super) fn after_restart(self) -> Self {
        Self::from_now(Duration::from_millis(self.wall_ms.saturating_sub(boot_time::wall_ms())))
    }
}

impl Record {
    /// Reads the record in a sandbox's directory.
    ///
    /// # Errors
    /// `InvalidData` for an invalid record, else the error of the read.
    pub(super) fn read(directory: BorrowedFd<'_>) -> io::Result<Self> {
        read(directory, RECORD)
    }

    /// Writes the record, and replaces the existing one.
    pub(super) fn write(&self, directory: BorrowedFd<'_>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(PIECE_BYTES);
        serde_json::to_writer(&mut bytes, self)?;
        if !write_in_place(directory, &mut bytes)? {
            replace(directory, RECORD, &bytes)?;
        }
        Ok(())
    }
}

/// The processes of a sandbox, for measuring what they use.
#[derive(Debug)]
pub(crate) struct RunningProcesses {
    /// The process id of its init.
    pub(crate) init: i32,
    /// The start time of init.
    pub(crate) init_started: u64,
    /// Its control groups, as [`stockade_jail::cgroup::Group::from_record`] reads them.
    pub(crate) groups: Vec<u8>,
}

/// The recorded processes of the sandbox in this directory; none if it has no processes.
pub(crate) fn running_processes(directory: BorrowedFd<'_>) -> io::Result<Option<RunningProcesses>> {
    let Record { groups, stage, .. } = Record::read(directory)?;
    Ok(match stage {
        Stage::Held(JailRecord { init, init_started, .. }) => {
            Some(RunningProcesses { init, init_started, groups })
        }
        Stage::Starting | Stage::Ended(_) => None,
    })
}

/// Writes a record into the existing file, or a new one; false when it does not fit.
///
/// A write within one page is not cut short by a signal, and takes a tenth of the time that a new
/// file does. A new file that a killed keeper left empty counts as a missing record.
fn write_in_place(directory: BorrowedFd<'_>, bytes: &mut Vec<u8>) -> io::Result<bool> {
    if bytes.len() > PAGE_BYTES {
        return Ok(false);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = File::from(rustix::fs::openat(directory, RECORD, flags, Mode::RUSR | Mode::WUSR)?);
    let length = file.metadata()?.len();
    if length != 0 && length != PAGE_BYTES as u64 {
        return Ok(false);
    }
    // JSON allows trailing white space.
    bytes.resize(PAGE_BYTES, b' ');
    file.write_all_at(bytes, 0)?;
    Ok(true)
}

/// An environment: names and values.
pub(super) type Environment = std::collections::BTreeMap<String, Bytes>;

/// Reads a sandbox's environment.
pub(super) fn read_environment(directory: BorrowedFd<'_>) -> io::Result<Environment> {
    read(directory, ENVIRONMENT)
}

/// Stores a sandbox's environment.
pub(super) fn write_environment(
    directory: BorrowedFd<'_>,
    environment: &Environment,
) -> io::Result<()> {
    write(directory, ENVIRONMENT, environment)
}

/// Wipes an environment's values from memory.
pub(super) fn wipe_environment(environment: Environment) {
    wipe_all(environment.into_values().map(|value| value.0));
}

/// Reads a small JSON file of the keeper's own.
pub(super) fn read<T: DeserializeOwned>(directory: BorrowedFd<'_>, name: &str) -> io::Result<T> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
    let length = file.metadata()?.len().min(LONGEST_BYTES);
    // With a single allocation, as when it is written.
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.read_exact(&mut bytes)?;
    let value = serde_json::from_slice(&bytes);
    wipe(&mut bytes);
    Ok(value?)
}

/// Writes a small JSON file atomically: a reader finds the old one or this one.
pub(super) fn write(
    directory: BorrowedFd<'_>,
    name: &str,
    value: &impl Serialize,
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(PIECE_BYTES);
    serde_json::to_writer(&mut bytes, value)?;
    let written = replace(directory, name, &bytes);
    wipe(&mut bytes);
    written
}

fn replace(directory: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let mut file = File::from(rustix::fs::openat(directory, &new, flags, mode)?);
    file.write_all(bytes)?;
    // Without a sync, which may take long: a helper does it when a sandbox was created. A later record
    // that a power failure of the host loses says at most that the jail runs, and then it does not.
    Ok(rustix::fs::renameat(directory.as_fd(), &new, directory.as_fd(), name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            id: Some(SandboxId::new("box").unwrap()),
            spec: SandboxSpec::default(),
            has_environment: true,
            root: Root::Host,
            begun: None,
            whole: None,
            is_container: false,
            subordinate: false,
            created_at_ms: 7,
            lease: Some(Lease::from_now(Duration::from_secs(9))),
            user: User { user: 1000, group: 1000 },
            home_owner: None,
            host_start: boot_time::host_start().unwrap(),
            groups: b"1 stops /x\n".to_vec(),
            stage: Stage::Starting,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_last() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap();
        let absent = Record::read(directory.as_fd()).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        let mut record = record();
        record.write(directory.as_fd()).unwrap();
        record.stage = Stage::Ended(EndedRecord {
            reason: "it was told to".to_owned(),
            cause: EndCause::Requested,
            host_start: None,
            isolation: None,
            commands: Vec::new(),
        });
        record.write(directory.as_fd()).unwrap();
        assert_eq!(Record::read(directory.as_fd()).unwrap(), record);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
        // One that does not fit into a page, and one that fits again.
        for length in [PAGE_BYTES, 10] {
            record.spec.labels.insert("long".to_owned(), "x".repeat(length));
            record.write(directory.as_fd()).unwrap();
            assert_eq!(Record::read(directory.as_fd()).unwrap(), record);
            assert_eq!(dir.path().read_dir().unwrap().count(), 1);
        }
        std::fs::write(dir.path().join(RECORD), "{\"id\":").unwrap();
        let broken = Record::read(directory.as_fd()).unwrap_err();
        assert_eq!(broken.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_lease_is_kept_by_the_clock_that_nobody_sets() {
        let lease = Lease::from_now(Duration::from_secs(60));
        let left = lease.end().since(BootTime::now());
        assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60), "{left:?}");
        // The wall clock was set forward. It is not used as long as the host runs.
        let set = Lease { wall_ms: 0, ..lease };
        assert_eq!(set.end(), lease.end());
        assert_eq!(set.after_restart().end().since(BootTime::now()), Duration::ZERO);
        let restarted = lease.after_restart().end().since(BootTime::now());
        assert!(restarted > Duration::from_secs(50), "{restarted:?}");
    }
}
