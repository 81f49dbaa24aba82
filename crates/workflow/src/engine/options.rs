//! What an engine is configured with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stockade_api::Sandboxes;

use super::commands::{self, Inside};
use crate::authoring::Processes;
use crate::built::Built;

/// What an engine is configured with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names this process among those that share a store; the same name again takes over what the
    /// last one left. It is not that of another engine on the same store.
    pub executor_id: String,
    /// Starts the processes that workflow files run in.
    pub realms: Processes,
    /// A command and its first arguments that run [`command_process`].
    pub helper: Vec<OsString>,
    /// The programs that the child of a `<Sandbox>` finds in its `PATH`: names and paths here.
    pub child_programs: Vec<(String, PathBuf)>,
    /// Where commands, agents and the children of a `<Sandbox>` are executed, for the owner of their
    /// run. Without it they are refused.
    pub sandboxes: Option<Arc<dyn Sandboxes>>,
    /// Where commands and agents are executed if there are no sandboxes: beside this process, which
    /// is in a sandbox itself. Set it only where the kernel confirms that.
    pub inside: Option<Inside>,
    /// A file with the user's own adapters of agents, which may be missing: an object from their
    /// names to adapters, as `commands/adapters.json` has them.
    pub agents: Option<PathBuf>,
    /// A file with the user's own programs that are providers of a `<Sandbox>`, which need not be
    /// there: an object from their ids to `{ module, program?, environment?, owners? }` or
    /// `{ command, environment?, owners? }`. No other program of this host is ever a provider.
    pub providers: Option<PathBuf>,
    /// The workflows in Rust that this engine executes. Runs that another process left go on here only
    /// if their workflows are among these.
    pub built: Vec<Built>,
}

impl Options {
    /// Options of an engine that executes workflows in Rust, and no commands.
    pub fn new(executor_id: &str) -> Self {
        Self {
            executor_id: executor_id.to_owned(),
            realms: Processes::new(Vec::new()),
            helper: Vec::new(),
            child_programs: Vec::new(),
            sandboxes: None,
            inside: None,
            agents: None,
            providers: None,
            built: Vec::new(),
        }
    }

    /// Whether commands may reach a network: that of the sandbox that encloses this process.
    pub(super) fn reaches(&self) -> bool {
        self.sandboxes.is_none() && self.inside.as_ref().is_some_and(Inside::reaches)
    }

    /// The directory that the commands and sandboxes of a workflow file work on.
    pub(super) fn project_of(&self, file: &Path) -> PathBuf {
        let inside = self.inside.as_ref().and_then(Inside::project);
        inside.map_or_else(|| commands::project_of(file), Path::to_owned)
    }
}
