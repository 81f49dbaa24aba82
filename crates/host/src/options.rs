//! The options of a host.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stockade_core::{Code, Problem};
use stockade_egress_control::Program;
use stockade_workflow::engine::OuterSandbox;

use crate::confined::{self, Child};
use crate::settings::Settings;

/// The options of a host.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The data directory.
    pub(crate) data: PathBuf,
    /// The processes that it starts.
    pub(crate) programs: Programs,
    /// The settings of its sandboxes; if absent, there are none, and it only executes workflow
    /// runs.
    pub(crate) sandboxes: Option<Settings>,
    /// The sandbox that this process is in, where it executes commands.
    pub(crate) outer_sandbox: Option<OuterSandbox>,
    /// When the processes of workflow files are started.
    pub(crate) realms: Realms,
}

/// When the processes of workflow files are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Realms {
    /// When a run needs one.
    OnDemand,
    /// The first one immediately.
    Now,
    /// One is always ready in advance for the next run.
    Ready,
}

/// The processes that a host starts: each is a program with its first arguments.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// The keeper of persistent sandboxes; the data directory and the size of its pool are
    /// appended.
    pub(crate) keeper: Vec<OsString>,
    /// The same for the sandboxes that the program bubblewrap makes.
    pub(crate) bwrap_keeper: Vec<OsString>,
    /// The process that runs a workflow file.
    pub(crate) realm: Vec<OsString>,
    /// The process that starts one command in a confined environment.
    pub(crate) command: Vec<OsString>,
    /// The egress process.
    pub(crate) egress: Program,
    /// The programs that a child workflow of a `<Sandbox>` finds: names, and paths on this host.
    pub(crate) child: Vec<(String, PathBuf)>,
}

impl Options {
    /// A host with sandboxes that outlives the command that started it.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for an invalid setting in the environment.
    pub(crate) fn for_server(
        data: PathBuf,
        programs: Programs,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Problem> {
        let sandboxes = Some(Settings::from_environment(variable)?);
        Ok(Self { data, programs, sandboxes, outer_sandbox: None, realms: Realms::Ready })
    }

    /// A host for one command in this process. If the process is confined, there are no sandboxes,
    /// and the data is stored in the directory `named`, else in one of the user.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for an invalid setting in the environment, [`Code::Io`] if there is
    /// no directory for the data.
    pub(crate) fn for_command(
        data: impl FnOnce() -> Result<PathBuf, Problem>,
        named: Option<PathBuf>,
        programs: Programs,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Problem> {
        if confined::is_confined() {
            let data = confined::data(named)?;
            let outer_sandbox = confined::is_in_sandbox(variable).then(confined::outer_sandbox);
            return Ok(Self {
                data,
                programs,
                sandboxes: None,
                outer_sandbox,
                realms: Realms::Now,
            });
        }
        let (data, sandboxes) = (data()?, Some(Settings::from_environment(variable)?));
        Ok(Self { data, programs, sandboxes, outer_sandbox: None, realms: Realms::OnDemand })
    }

    /// A host for the child of a `<Sandbox>` in this process, which has no sandboxes.
    ///
    /// # Errors
    /// [`Code::Io`] if the current directory cannot be determined.
    pub(crate) fn for_child(
        child: Child<'_>,
        programs: Programs,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Problem> {
        let data = child.state.to_owned();
        let outer_sandbox = if confined::is_in_sandbox(variable) {
            // Its file is in the request, and its commands run in the current directory.
            let here = std::env::current_dir();
            let here = here.map_err(|error| Problem::caused(Code::Io, &error))?;
            Some(confined::outer_sandbox_at(here, child.nested.map(Path::to_owned)))
        } else {
            None
        };
        Ok(Self { data, programs, sandboxes: None, outer_sandbox, realms: Realms::Now })
    }
}
