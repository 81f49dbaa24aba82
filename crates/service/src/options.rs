//! The configuration of a service.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stockade_core::{Code, OwnerId, Problem};
use stockade_egress_control::Program;

use crate::image_source::ImageSource;
use crate::key_source::KeySource;

/// The variable of [`Options::queue_concurrency`] (FireFlow, "Configuration").
const QUEUE_CONCURRENCY: &str = "DBOS_SANDBOX_QUEUE_CONCURRENCY";

/// The variable of [`Options::worker_concurrency`].
const WORKER_CONCURRENCY: &str = "DBOS_SANDBOX_WORKER_CONCURRENCY";

/// The configuration of a service.
#[derive(Debug, Clone)]
pub struct Options {
    /// The id of this server among those that share a store, which its sandboxes name. A process with the
    /// same id takes over the work of the last one.
    pub executor_id: String,
    /// The other servers on the same store; without it there are none.
    pub cluster: Option<Cluster>,
    /// The TTL of a sandbox whose request has none.
    pub default_ttl: Option<Duration>,
    /// The quotas of one owner.
    pub quotas: Quotas,
    /// The directory of bundles that wait for a decision; without it there are none.
    pub home: Option<Home>,
    /// The program of the egress process; without it no sandbox has a network.
    pub egress: Option<Program>,
    /// Where the key of the vault comes from; without it there are no stored secrets.
    pub vault_key: Option<Arc<dyn KeySource>>,
    /// Whether a sandbox whose request does not say so gets its system directories from a copy
    /// instead of from the host's own files ([`Options::for_exposed_server`]).
    pub private_base: bool,
    /// Where images come from that the store does not have; without it none is downloaded.
    pub images: Option<Arc<dyn ImageSource>>,
    /// The registries from which a client with an API key may cause downloads.
    pub registries: BTreeSet<String>,
    /// The directories of the host of which a client with an API key may name what lies in them.
    pub host_paths: Vec<PathBuf>,
    /// How often a watcher checks its sandbox (FireFlow: every 10 s).
    pub watch_interval: Duration,
    /// How long a runtime may take for one change to a sandbox, and how long a change may wait for
    /// earlier ones.
    pub deadline: Duration,
    /// How many queued operations run concurrently in all processes
    /// (`DBOS_SANDBOX_QUEUE_CONCURRENCY`).
    pub queue_concurrency: u32,
    /// How many queued operations run concurrently in this process
    /// (`DBOS_SANDBOX_WORKER_CONCURRENCY`).
    pub worker_concurrency: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            executor_id: "local".to_owned(),
            cluster: None,
            default_ttl: Some(Duration::from_secs(60 * 60)),
            quotas: Quotas::default(),
            home: None,
            egress: None,
            vault_key: None,
            private_base: false,
            images: None,
            registries: BTreeSet::new(),
            host_paths: Vec::new(),
            watch_interval: Duration::from_secs(10),
            deadline: Duration::from_secs(5 * 60),
            queue_concurrency: 30,
            worker_concurrency: 3,
        }
    }
}

impl Options {
    /// The options of a server that listens beyond loopback: others than the owner of this host
    /// decide what runs, so no sandbox gets the host's own files, unless its request says so.
    #[must_use]
    pub fn for_exposed_server(self) -> Self {
        Self { private_base: true, ..self }
    }

    /// The defaults, with the values of FireFlow's variables. The caller passes the lookup
    /// function, since it knows whose environment applies.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a variable that is set but is not a number of at least 1.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Problem> {
        let number = |name: &str, default: u32| match variable(name) {
            None => Ok(default),
            Some(text) => match text.trim().parse() {
                Ok(number) if number > 0 => Ok(number),
                _ => {
                    let message =
                        format!("{name} is {text:?}, which is not a number of at least 1");
                    Err(Problem::new(Code::InvalidInput, message)
                        .remedied_by(format!("unset {name}")))
                }
            },
        };
        let default = Self::default();
        Ok(Self {
            queue_concurrency: number(QUEUE_CONCURRENCY, default.queue_concurrency)?,
            worker_concurrency: number(WORKER_CONCURRENCY, default.worker_concurrency)?,
            ..default
        })
    }
}

/// How a server takes part in a cluster: several servers on one database.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The URL at which the other servers reach this one.
    pub address: String,
    /// Whether this server holds sandboxes. One that does not passes on requests for new ones.
    pub holds_sandboxes: bool,
    /// How often a server renews its lease. One that has missed three renewals does not answer.
    pub heartbeat: Duration,
    /// After which silence a server is given up with its sandboxes.
    pub patience: Duration,
}

/// A data directory on the host.
#[derive(Debug, Clone)]
pub struct Home {
    /// Its path.
    pub path: PathBuf,
    /// The owner of the directory and of every bundle in it.
    pub owner: OwnerId,
}

/// The quotas of one owner.
#[derive(Debug, Clone, Copy)]
pub struct Quotas {
    /// Sandboxes that are not terminated.
    pub sandboxes: u32,
    /// Snapshots.
    pub snapshots: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { sandboxes: 1000, snapshots: 1000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_variables_are_numbers_or_refused() {
        let read = |queue: Option<&str>, worker: Option<&str>| {
            let options = Options::from_environment(|name| {
                let value = if name == QUEUE_CONCURRENCY { queue } else { worker };
                value.map(str::to_owned)
            });
            options.map(|options| (options.queue_concurrency, options.worker_concurrency))
        };
        assert_eq!(read(None, None), Ok((30, 3)));
        assert_eq!(read(Some("7"), Some(" 2 ")), Ok((7, 2)));
        for bad in ["", "0", "-1", "1.5", "many", "4294967296"] {
            let refused = read(None, Some(bad)).unwrap_err();
            assert_eq!(refused.code, Code::InvalidInput);
            assert!(refused.message.contains(WORKER_CONCURRENCY), "{}", refused.message);
        }
    }
}
