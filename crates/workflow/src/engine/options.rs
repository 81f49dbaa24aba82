//! The configuration of an engine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stockade_api::Sandboxes;
use stockade_core::sandbox::HostMount;

use super::commands::{self, OuterSandbox};
use super::run_servers::Servers;
use crate::authoring::Processes;
use crate::rust_workflow::RustWorkflow;

/// The programs of a child in a form that runs in any image.
pub trait ImagePrograms: std::fmt::Debug + Send + Sync {
    /// Read-only mounts, of the programs in this directory inside and of what they need.
    ///
    /// # Errors
    /// Why there are none, in words.
    fn mounts(&self, directory: &Path) -> Result<Vec<HostMount>, String>;
}

/// The configuration of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// Identifies this process among those that share a store. A process with the same name takes over
    /// the runs that the last one left. Two engines on the same store must not have the same name.
    pub executor_id: String,
    /// Starts the processes in which workflow files run.
    pub realms: Processes,
    /// A command and its first arguments that run [`command_process`](super::command_process).
    pub helper: Vec<OsString>,
    /// The programs that the child of a `<Sandbox>` finds in its `PATH`: names, and paths on this host.
    pub child_programs: Vec<(String, PathBuf)>,
    /// The same for sandboxes with an image, which may lack what those need.
    pub image_programs: Option<Arc<dyn ImagePrograms>>,
    /// Executes commands, agents and the children of a `<Sandbox>`, for the owner of their run. If
    /// absent, they are rejected.
    pub sandboxes: Option<Arc<dyn Sandboxes>>,
    /// The servers elsewhere that runs may name for their sandboxes. If absent, none.
    pub servers: Option<Arc<dyn Servers>>,
    /// Where commands and agents are executed if `sandboxes` is absent: beside this process, which is
    /// in a sandbox itself. Set it only if the kernel confirms that.
    pub outer_sandbox: Option<OuterSandbox>,
    /// A file with the user's own adapters of agents, which may be missing: an object from their names
    /// to adapters, in the format of `commands/adapters.json`.
    pub agents: Option<PathBuf>,
    /// A file with the user's own programs that are providers of a `<Sandbox>`, which may be missing:
    /// an object from their ids to `{ module, program?, environment?, owners? }` or `{ command,
    /// environment?, owners? }`. No other program of this host is ever a provider.
    pub providers: Option<PathBuf>,
    /// The directories of the host of which a `<Sandbox>` may mount what lies in them. If absent, those that
    /// the user of this engine may use.
    pub host_paths: Option<Vec<PathBuf>>,
    /// The data directory, in which the files of projects are kept for forks of runs. If absent, a fork
    /// works on the files as they are.
    pub data: Option<PathBuf>,
    /// The workflows in Rust that this engine executes. Runs that another process left continue here
    /// only if their workflows are among these.
    pub rust_workflows: Vec<RustWorkflow>,
}

impl Options {
    /// Options of an engine that executes workflows in Rust, and no commands.
    pub fn new(executor_id: &str) -> Self {
        Self {
            executor_id: executor_id.to_owned(),
            realms: Processes::new(Vec::new()),
            helper: Vec::new(),
            child_programs: Vec::new(),
            image_programs: None,
            sandboxes: None,
            servers: None,
            outer_sandbox: None,
            agents: None,
            providers: None,
            host_paths: None,
            data: None,
            rust_workflows: Vec::new(),
        }
    }

    /// Whether commands may connect to a network: the network of the sandbox that encloses this
    /// process.
    pub(super) fn has_network(&self) -> bool {
        self.sandboxes.is_none()
            && self.outer_sandbox.as_ref().is_some_and(OuterSandbox::has_network)
    }

    /// The directory that the commands and sandboxes of a workflow file work on.
    pub(super) fn project_of(&self, file: &Path) -> PathBuf {
        let inside = self.outer_sandbox.as_ref().and_then(OuterSandbox::project);
        inside.map_or_else(|| commands::project_of(file), Path::to_owned)
    }
}
