//! Which sandboxes and runs use a volume: running ones hold a lock on it, and the server's records list
//! persistent ones, also those that are stopped.

use std::collections::BTreeMap;

use stockade_api::{ListSandboxes, Sandbox};
use stockade_bundle::data::DataDir;
use stockade_core::{OwnerId, VolumeName};
use stockade_volume::problem::user;
use stockade_volume::{Volume, of_cache};

use crate::args::sandbox::ServerMode;
use crate::commands::sandbox::{STATES, list_all};
use crate::problem::Failure;
use crate::remote::{self, Connection, Remote};

/// The ids of the persistent sandboxes of each volume.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<VolumeName, Vec<String>>);

impl Users {
    /// The users according to the server's records. The server is started if it does not run.
    ///
    /// # Errors
    /// Those of the server: without its records, a volume could be removed that a stopped sandbox needs.
    pub(super) fn all(data: &DataDir) -> Result<Self, Failure> {
        if !has_records(data) {
            return Ok(Self::default());
        }
        let mode = ServerMode { in_process: false };
        let sandboxes = remote::with(mode, async |remote| list(&remote).await)?;
        Ok(Self::of_sandboxes(&sandboxes))
    }

    /// The users that are known without starting a server.
    pub(super) fn known(data: &DataDir) -> Self {
        if !has_records(data) {
            return Self::default();
        }
        let Ok(Some(connection)) = Connection::find() else { return Self::default() };
        let found = connection.call(async |remote| list(remote).await.unwrap_or_default());
        Self::of_sandboxes(&found)
    }

    fn of_sandboxes(sandboxes: &[Sandbox]) -> Self {
        let owner = OwnerId::from_uid(rustix::process::geteuid().as_raw());
        let mut users: BTreeMap<VolumeName, Vec<String>> = BTreeMap::new();
        for sandbox in sandboxes {
            let caches = sandbox.caches.iter();
            let caches = caches.filter_map(|cache| of_cache(&cache.of(&owner)).ok());
            let volumes = sandbox.volumes.iter().map(|volume| volume.name.clone());
            for name in volumes.chain(caches.map(|(name, _)| name)) {
                let of_volume = users.entry(name).or_default();
                if !of_volume.iter().any(|known| *known == sandbox.id.as_str()) {
                    of_volume.push(sandbox.id.to_string());
                }
            }
        }
        Self(users)
    }

    /// The ids of the sandboxes that use a volume.
    pub(super) fn sandboxes(&self, name: &VolumeName) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// What else uses a volume, in words.
    pub(super) fn others(&self, volume: &Volume) -> Vec<String> {
        let all = processes(&volume.processes);
        match self.sandboxes(&volume.name) {
            [] => all,
            // The locks of running ones are those of the keeper.
            _ => all.into_iter().filter(|user| is_run(user)).collect(),
        }
    }

    /// The users of a volume, in words.
    pub(super) fn of(&self, volume: &Volume) -> Vec<String> {
        let sandboxes = self.sandboxes(&volume.name).iter();
        sandboxes.map(|id| user(id)).chain(self.others(volume)).collect()
    }
}

/// Whether there may be records of persistent sandboxes.
fn has_records(data: &DataDir) -> bool {
    data.entry("stockade.db").exists()
}

async fn list(remote: &Remote) -> Result<Vec<Sandbox>, Failure> {
    let states = STATES[..STATES.len() - 1].to_vec();
    list_all(remote, ListSandboxes { states, ..ListSandboxes::default() }).await
}

/// What names a run in a list of users.
const RUN: &str = "run ";

fn is_run(user: &str) -> bool {
    user.starts_with(RUN)
}

/// The processes that hold a volume's lock, in words.
pub(super) fn processes(processes: &[u32]) -> Vec<String> {
    processes.iter().map(|process| described(*process)).collect()
}

fn described(process: u32) -> String {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    match words.get(1).map(AsRef::as_ref) {
        Some("run") => {
            let command: String = words[2..].join(" ").chars().take(80).collect();
            format!("{RUN}{process} ({command})")
        }
        _ => format!("process {process}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named() {
        let own = described(std::process::id());
        assert!(own.contains(&std::process::id().to_string()), "{own}");
        assert_eq!(described(u32::MAX), format!("process {}", u32::MAX));
    }
}
