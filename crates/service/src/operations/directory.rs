//! `collect_directory`: copies a directory of a sandbox to a new one of the host. Only the owner of
//! the server's data directory may name paths of the host to write to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use stockade_api::{Caller, CollectDirectory, Result};
use stockade_core::access::{Effect, Level};
use stockade_core::event::Direction;
use stockade_durable::{Context, Failure, Step};
use stockade_runtime::SandboxPath;

use super::bundles::require_home;
use super::files::{copied, refuse_secret_files};
use crate::elsewhere;
use crate::events;
use crate::failure::{access_problem, invalid, path_problem, runtime_problem, to_failure};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::owned_sandbox::OwnedSandbox;
use crate::service::Service;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.collect_directory";

/// Copies the directory.
pub(crate) async fn collect(
    service: &Service,
    caller: &Caller,
    request: CollectDirectory,
) -> Result<()> {
    let used = service.use_sandbox(caller, &request.sandbox_id).await?;
    let target = Path::new(OsStr::from_bytes(&request.to.0));
    let parent = target.parent().unwrap_or(target);
    let what = "a directory of the server's machine";
    elsewhere::check_directory(caller, parent, &service.inner.options, what)?;
    require_home(&service.inner, &caller.owner)?;
    let path = check_request(&used, &request)?;
    let runtime = &**service.inner.runtime(&used.runtime)?;
    refuse_secret_files(runtime, &used.id, &path).await?;
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
    let used = inner.use_in_workflow(&context, &input.owner, &request.sandbox_id, None).await?;
    require_home(&inner, &input.owner).map_err(to_failure)?;
    let path = check_request(&used, request).map_err(to_failure)?;
    let to = Path::new(OsStr::from_bytes(&request.to.0));
    let again = context.run_number() > 1;
    context
        .step("collect", async |_: Step| {
            if again && to.symlink_metadata().is_ok() {
                return Ok(());
            }
            let runtime = inner.runtime(&used.runtime).map_err(to_failure)?;
            let refused = refuse_secret_files(&**runtime, &used.id, &path).await;
            refused.map_err(to_failure)?;
            let copied = runtime.collect(&used.id, &path, to, request.limit_bytes);
            let copied = inner
                .terminations
                .run_unless_terminated(&used.id, inner.with_deadline(copied))
                .await;
            copied.map_err(to_failure)?.map_err(|error| to_failure(runtime_problem(&error)))
        })
        .await?;
    let copy = to.to_owned();
    let size = tokio::task::spawn_blocking(move || measure(&copy)).await.unwrap_or_default();
    let payload = copied(Direction::Out, &request.path, size.0, size.1);
    context.finish_with(vec![events::record(&context, &used, payload)]);
    Ok(())
}

/// How many paths are below a directory of the host, and the bytes of the files there, as far as they
/// can be read.
fn measure(directory: &Path) -> (u64, u64) {
    let (mut paths, mut bytes, mut waiting) = (0, 0, vec![directory.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            paths += 1;
            match entry.metadata() {
                Ok(found) if found.is_dir() => waiting.push(entry.path()),
                Ok(found) if found.is_file() => bytes += found.len(),
                _ => {}
            }
        }
    }
    (paths, bytes)
}

/// The path inside, if all files below it may be read.
fn check_request(owned: &OwnedSandbox, request: &CollectDirectory) -> Result<SandboxPath> {
    let path = SandboxPath::new(OsStr::from_bytes(&request.path.0));
    let path = path.map_err(|error| path_problem(&error))?;
    if !request.to.0.starts_with(b"/") {
        return Err(invalid("the path on the host must be absolute"));
    }
    owned.allows(Level::Read, &request.path.0)?;
    let rules = owned.rules.as_slice().map_err(|error| access_problem(&error))?;
    let hidden = rules.iter().find(|rule| {
        rule.effect == Effect::Deny && Path::new(&rule.path).starts_with(path.as_path())
    });
    match hidden {
        Some(rule) => Err(invalid(format!("an access rule denies {} in it", rule.path))),
        None => Ok(path),
    }
}
