//! What a host is made of.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stockade_core::{Code, Problem};
use stockade_egress_control::Program;
use stockade_workflow::engine::Inside;

use crate::confined::{self, Child};
use crate::settings::Settings;

/// What a host is made of.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The data directory.
    pub(crate) data: PathBuf,
    /// The processes that it starts.
    pub(crate) programs: Programs,
    /// How its sandboxes are set up; without it there are none, and it only does runs of workflows.
    pub(crate) sandboxes: Option<Settings>,
    /// The sandbox around this process, whose commands are executed beside it.
    pub(crate) inside: Option<Inside>,
    /// When the processes of workflow files are started.
    pub(crate) realms: Realms,
}

/// When the processes of workflow files are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Realms {
    /// When a run needs one.
    OnDemand,
    /// The first one at once.
    Now,
    /// One is always ready for the next run.
    Ready,
}

/// The processes that a host starts: each is a program with its first arguments.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// The keeper of held sandboxes; the data directory and the size of its pool follow.
    pub(crate) keeper: Vec<OsString>,
    /// The process that runs a workflow file.
    pub(crate) realm: Vec<OsString>,
    /// The process that starts one command inside a confinement.
    pub(crate) command: Vec<OsString>,
    /// The egress process.
    pub(crate) egress: Program,
    /// What the child workflow of a `<Sandbox>` finds among its programs: names and paths here.
    pub(crate) child: Vec<(String, PathBuf)>,
}

impl Options {
    /// A host with sandboxes that outlives the command that started it.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a setting in the environment that cannot be used.
    pub(crate) fn for_server(
        data: PathBuf,
        programs: Programs,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Problem> {
        let sandboxes = Some(Settings::from_environment(variable)?);
        Ok(Self { data, programs, sandboxes, inside: None, realms: Realms::Ready })
    }

    /// A host for one command in this process. Where the process is confined, there are no sandboxes,
    /// and the data is kept in the directory that is `named`, else in one of the user's own.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a setting in the environment that cannot be used, [`Code::Io`] when
    /// there is no place for the data.
    pub(crate) fn for_command(
        data: impl FnOnce() -> Result<PathBuf, Problem>,
        named: Option<PathBuf>,
        programs: Programs,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Problem> {
        if confined::is_confined() {
            let data = confined::data(named)?;
            let inside = confined::is_ours(variable).then(confined::around);
            return Ok(Self { data, programs, sandboxes: None, inside, realms: Realms::Now });
        }
        let (data, sandboxes) = (data()?, Some(Settings::from_environment(variable)?));
        Ok(Self { data, programs, sandboxes, inside: None, realms: Realms::OnDemand })
    }

    /// A host for the child of a `<Sandbox>` in this process, which has no sandboxes.
    ///
    /// # Errors
    /// [`Code::Io`] when the current directory cannot be told.
    pub(crate) fn for_child(
        child: Child<'_>,
        programs: Programs,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Problem> {
        let data = child.state.to_owned();
        let inside = if confined::is_ours(variable) {
            // Its file is in the request, and its work in the current directory.
            let here = std::env::current_dir();
            let here = here.map_err(|error| Problem::caused(Code::Io, &error))?;
            Some(confined::around_at(here, child.nested.map(Path::to_owned)))
        } else {
            None
        };
        Ok(Self { data, programs, sandboxes: None, inside, realms: Realms::Now })
    }
}
