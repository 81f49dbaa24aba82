//! A double of a cluster: an API server on the loopback that stores objects, checks them against schemas, serves
//! watches and exec over WebSockets, and a kubelet that runs pods as processes of bubblewrap.

mod controllers;
mod exec;
mod faults;
mod kubelet;
mod schemas;
mod server;
mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use faults::{Fault, Then};
pub(crate) use schemas::check as check_object;
use store::Store;
use tempfile::TempDir;

/// The token that clients must send.
const TOKEN: &str = "token-of-the-double";

/// Which resources of agent-sandbox the double has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Agents {
    #[default]
    None,
    Sandboxes,
    All,
}

/// A cluster.
#[derive(Debug)]
pub(crate) struct Double {
    pub(crate) store: Arc<Store>,
    directory: TempDir,
}

impl Double {
    /// Starts a cluster in a tokio runtime of its own, or says why its pods cannot run here.
    pub(crate) fn start(agents: Agents) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("the pods of the double need root".to_owned());
        }
        for program in ["bwrap", "nsenter", "setpriv"] {
            let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
                .any(|directory| directory.join(program).is_file());
            if !found {
                return Err(format!("the program {program} is not installed"));
            }
        }
        let directory = tempfile::Builder::new().prefix("stockade-cluster-").tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let store = Arc::new(Store::new(agents, directory.path().join("pods")));
        let serving = Arc::clone(&store);
        std::thread::spawn(move || server::run(listener, serving));
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "double", "cluster": { "server": url } }],
            "users": [{ "name": "double", "user": { "token": TOKEN } }],
            "contexts": [{ "name": "double", "context": { "cluster": "double", "user": "double" } }],
            "current-context": "double",
        });
        std::fs::write(directory.path().join("config"), config.to_string()).unwrap();
        Ok(Self { store, directory })
    }

    /// The file that says where the cluster is.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("config")
    }

    /// A directory for clients.
    pub(crate) fn place(&self) -> &Path {
        self.directory.path()
    }

    /// Lets the next requests of a kind fail.
    pub(crate) fn fail(&self, fault: Fault) {
        self.store.faults.lock().unwrap().push(fault);
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.store.end_all();
    }
}
