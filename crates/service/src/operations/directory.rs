//! `collect_directory`: copies a directory of a sandbox to a new one of the host. Only the owner of
//! the server's data directory may name paths of the host to write to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use stockade_api::{Caller, CollectDirectory, Result};
use stockade_core::access::{Effect, Level};
use stockade_durable::{Context, Failure, Step};
use stockade_runtime::SandboxPath;

use super::bundles::place_of;
use crate::failure::{invalid, of_access, of_path, of_runtime, to_failure};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::owned::Owned;
use crate::service::Service;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.collect_directory";

/// Copies the directory.
pub(crate) async fn collect(
    service: &Service,
    caller: &Caller,
    request: CollectDirectory,
) -> Result<()> {
    let used = service.used(caller, &request.sandbox_id).await?;
    place_of(&service.inner, &caller.owner)?;
    checked(&used, &request)?;
    operation::run(&service.engine, NAME, caller, &request).await
}

/// The workflow. If the target exists in a repeated execution, an earlier execution has copied it:
/// a copy gets its name when it is complete.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<CollectDirectory>,
) -> std::result::Result<(), Failure> {
    let request = &input.request;
    let used = inner.using(&context, &input.owner, &request.sandbox_id, None).await?;
    place_of(&inner, &input.owner).map_err(to_failure)?;
    let path = checked(&used, request).map_err(to_failure)?;
    let to = Path::new(OsStr::from_bytes(&request.to.0));
    let again = context.run_number() > 1;
    context
        .step("collect", async |_: Step| {
            if again && to.symlink_metadata().is_ok() {
                return Ok(());
            }
            let runtime = inner.runtime(&used.runtime).map_err(to_failure)?;
            let copied = runtime.collect(&used.id, &path, to, request.limit_bytes);
            let copied = inner.terminations.unless(&used.id, inner.within(copied)).await;
            copied.map_err(to_failure)?.map_err(|error| to_failure(of_runtime(&error)))
        })
        .await
}

/// The path inside, if all files below it may be read.
fn checked(owned: &Owned, request: &CollectDirectory) -> Result<SandboxPath> {
    let path = SandboxPath::new(OsStr::from_bytes(&request.path.0));
    let path = path.map_err(|error| of_path(&error))?;
    if !request.to.0.starts_with(b"/") {
        return Err(invalid("the path on the host must be absolute"));
    }
    owned.allows(Level::Read, &request.path.0)?;
    let rules = owned.rules.as_slice().map_err(|error| of_access(&error))?;
    let hidden = rules.iter().find(|rule| {
        rule.effect == Effect::Deny && Path::new(&rule.path).starts_with(path.as_path())
    });
    match hidden {
        Some(rule) => Err(invalid(format!("an access rule denies {} in it", rule.path))),
        None => Ok(path),
    }
}
