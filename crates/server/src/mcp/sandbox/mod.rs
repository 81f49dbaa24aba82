//! The tools on sandboxes: each translates its arguments into operations of `stockade_api`, and their
//! results into text and a value.
//!
//! Over several sandboxes a tool has the argument `sandbox`; over the one sandbox of a workspace it has
//! none. `operation` is what all tools share, `place` the paths in a sandbox.

mod bundles;
mod changes;
mod collected;
mod command;
mod files;
mod lifecycle;
mod operation;
mod place;
mod ports;
mod snapshots;
mod workspace;

use std::path::PathBuf;
use std::sync::Arc;

use stockade_api::Sandboxes;
use stockade_core::network::AllowedHost;

use super::Tools;
use operation::{Context, OnSandbox, Scope};

pub use workspace::WorkspaceSandbox;

/// What calls may do without asking the user of the client.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    /// Bundles may be applied and rejected.
    pub apply: bool,
    /// New sandboxes may connect to these hosts.
    pub hosts: Vec<AllowedHost>,
    /// New sandboxes may have these directories, and those below them, as workspaces. Others are refused.
    pub workspaces: Vec<PathBuf>,
}

/// The tools on all sandboxes of the caller.
pub fn tools_for_sandboxes(sandboxes: Arc<dyn Sandboxes>, grants: Grants) -> Tools {
    let context = Arc::new(Context { sandboxes, grants, scope: Scope::Named });
    let tool = Arc::clone;
    common(&context)
        .with(OnSandbox::new(tool(&context), lifecycle::Create))
        .with(OnSandbox::new(tool(&context), lifecycle::List))
        .with(OnSandbox::new(tool(&context), lifecycle::Kill))
        .with(OnSandbox::new(tool(&context), snapshots::Take))
        .with(OnSandbox::new(tool(&context), snapshots::Restore))
}

/// The tools on the one sandbox of a workspace.
pub fn tools_for_workspace(workspace: Arc<WorkspaceSandbox>, grants: Grants) -> Tools {
    let sandboxes = workspace.sandboxes();
    common(&Arc::new(Context { sandboxes, grants, scope: Scope::Workspace(workspace) }))
}

fn common(context: &Arc<Context>) -> Tools {
    let tool = Arc::clone;
    Tools::default()
        .with(OnSandbox::new(tool(context), command::Run))
        .with(OnSandbox::new(tool(context), files::Read))
        .with(OnSandbox::new(tool(context), files::Write))
        .with(OnSandbox::new(tool(context), files::List))
        .with(OnSandbox::new(tool(context), files::Search))
        .with(OnSandbox::new(tool(context), files::Patch))
        .with(OnSandbox::new(tool(context), changes::Diff))
        .with(OnSandbox::new(tool(context), changes::Collect))
        .with(OnSandbox::new(tool(context), bundles::Apply))
        .with(OnSandbox::new(tool(context), bundles::Reject))
        .with(OnSandbox::new(tool(context), ports::Ports))
}

#[cfg(test)]
mod tests;
