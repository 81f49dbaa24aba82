//! Which commands can use a server at a URL.

use super::{Apply, Command, Diff, image};

/// What is done to use this machine.
const LOCAL: &str = "for this machine: --server local";

/// Where a command can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On this machine, or on that of a server at a URL.
    Anywhere,
    /// The same, but on another machine only if the command line or `STOCKADE_SERVER` names its server:
    /// it sends files of the project there, is about a project of this machine, or serves a program that
    /// expects this machine, which a former login or a variable of another program does not ask for.
    AnywhereIfNamed,
    /// On this machine only, for the first reason. The second text is what the user can do instead.
    Here(&'static str, &'static str),
    /// It does nothing with sandboxes, so that a server has no meaning for it.
    Nowhere,
}

impl Command {
    /// Where this command can happen.
    #[must_use]
    pub const fn place(&self) -> Place {
        match self {
            Self::Create(_)
            | Self::Exec(_)
            | Self::Shell(_)
            | Self::Ls(_)
            | Self::Show(_)
            | Self::Cp(_)
            | Self::Rm(_)
            | Self::Sync(_)
            | Self::Workspace(_)
            | Self::Ps(_)
            | Self::Attach(_)
            | Self::Wait(_)
            | Self::Forward(_)
            | Self::Open(_)
            | Self::Logs(_)
            | Self::Events(_)
            | Self::Start(_)
            | Self::Stop(_)
            | Self::Pause(_)
            | Self::Resume(_)
            | Self::Renew(_)
            | Self::Update(_)
            | Self::Allow(_)
            | Self::Refuse(_)
            | Self::Secret(_)
            | Self::Snapshot(_)
            | Self::Collect(_)
            | Self::Snapshots(_)
            | Self::Restore(_)
            | Self::Kill(_)
            | Self::Prune(_)
            | Self::Tool(_)
            | Self::Runs(_)
            | Self::Metrics(_)
            | Self::Inspect(_)
            | Self::Approve(_)
            | Self::Deny(_)
            | Self::Signal(_)
            | Self::Cancel(_)
            | Self::Secrets(_)
            | Self::Volume(_)
            | Self::Keys(_) => Place::Anywhere,
            Self::Diff(Diff { commits: false, .. }) | Self::Bundles(_) | Self::Reject(_) => {
                Place::Anywhere
            }
            Self::Run(_) | Self::Cache(_) | Self::Up(_) => Place::AnywhereIfNamed,
            Self::Apply(Apply { commits: false, decision, .. }) if decision.branch.is_none() => {
                Place::AnywhereIfNamed
            }
            Self::Diff(_) | Self::Apply(_) | Self::Undo(_) | Self::History(_) | Self::Trust(_) => {
                Place::Here("it works on the project's files, which are on this machine", LOCAL)
            }
            Self::Image(image) => match &image.command {
                image::ImageCommand::Ls(_)
                | image::ImageCommand::Pull(_)
                | image::ImageCommand::Rm(_) => Place::Anywhere,
                _ => Place::Here(
                    "it works on the files of the store of images on this machine",
                    LOCAL,
                ),
            },
            Self::Mcp(mcp) => match mcp.workspace.is_none() && mcp.allow_workspace.is_empty() {
                true => Place::AnywhereIfNamed,
                false => Place::Here(
                    "a workspace is a directory of the machine on which its sandbox runs",
                    "omit `--workspace` and `--allow-workspace`; or for this machine: --server local",
                ),
            },
            Self::Base(_) | Self::Df(_) | Self::Audit(_) | Self::Backup(_) | Self::Migrate(_) => {
                Place::Here("it is about this machine", LOCAL)
            }
            Self::Doctor(_)
            | Self::Policy(_)
            | Self::Serve(_)
            | Self::Snippet(_)
            | Self::Graph(_)
            | Self::Init(_)
            | Self::Login(_)
            | Self::Logout(_)
            | Self::Completions(_)
            | Self::Complete(_)
            | Self::Man(_)
            | Self::Explain(_)
            | Self::Help(_)
            | Self::Debug(_) => Place::Nowhere,
        }
    }
}
