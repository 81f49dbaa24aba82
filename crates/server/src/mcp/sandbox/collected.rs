//! The bundle that a call is about: one that exists, or one of the present changes of its sandbox.

use stockade_api::{Bundle, BundleDetail, CollectChanges, Problem, ShowBundle};
use stockade_core::Code;

use super::operation::{On, Scope, Stop};
use crate::mcp::untrusted::line;

/// A bundle that the tools of this scope may show: in a workspace only those of its project.
pub(super) async fn find_bundle(on: &On<'_>, id: &str) -> Result<BundleDetail, Problem> {
    let missing = || {
        let message = format!("there is no bundle {}", line(id.as_bytes()));
        Problem::new(Code::BundleNotFound, message)
    };
    // `latest` would mean another one a moment later.
    if id == "latest" {
        return Err(missing());
    }
    let request = ShowBundle { id: id.to_owned(), paths: Vec::new() };
    let found = on.context.sandboxes.show_bundle(on.call.reader(), request).await?;
    match &on.context.scope {
        Scope::Workspace(workspace) if !workspace.is_project(&found.bundle.project.0) => {
            Err(missing())
        }
        _ => Ok(found),
    }
}

/// Makes a bundle of the changes of a call's sandbox.
pub(super) async fn collect(
    on: &On<'_>,
    exclude: Vec<String>,
) -> Result<(Option<Bundle>, Vec<String>), Stop> {
    let sandbox = on.sandbox().await?;
    if sandbox.workspace.is_none() {
        let message = format!("the sandbox {} has no workspace", sandbox.id);
        return Err(Problem::new(Code::InvalidInput, message)
            .because("only changes in a workspace can be applied to a project")
            .remedied_by("stockade create --workspace .")
            .into());
    }
    let request = CollectChanges {
        sandbox_id: sandbox.id,
        exclude: exclude.into_iter().map(|path| path.into_bytes().into()).collect(),
        limit_bytes: None,
        limit_paths: None,
    };
    let collected = on.context.sandboxes.collect_changes(&on.call.writer(), request).await?;
    Ok((collected.bundle, collected.notes))
}
