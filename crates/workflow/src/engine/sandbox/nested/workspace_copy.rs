//! Copies the workspace of a sandbox to a directory on the host. A nested sandbox starts with the copy,
//! and its changes are reviewed against it and applied to it, never to the project of the host.

use std::path::{Path, PathBuf};

use stockade_api::{Bytes, CollectDirectory};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;

use crate::engine::sandbox::directory::SandboxDirectory;
use crate::engine::sandbox::handle::{SandboxHandle, task_error};
use crate::engine::sandbox::request::WORKSPACE;
use crate::engine::task_error::TaskError;

/// The largest workspace that can be copied, in bytes.
const MAX_BYTES: u64 = 1 << 30;
/// The directories of a workspace that do not belong to the project.
const NOT_THE_PROJECT: [&str; 2] = [".smithers", ".stockade"];

fn failed(error: impl std::fmt::Display) -> TaskError {
    let message = format!("cannot copy the outer workspace of a nested <Sandbox>: {error}");
    TaskError::new("SANDBOX_EXECUTION_FAILED", message).retryable()
}

/// The workspace copy in a directory of a nested sandbox, which is created if it does not exist.
/// `copying` is its name until it is complete.
pub(super) async fn copy_workspace(
    outer: &SandboxHandle,
    directory: &SandboxDirectory,
    [copying, part]: [&str; 2],
) -> Result<PathBuf, TaskError> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = directory.path.join(part);
    if directory.has(part)? {
        return Ok(path);
    }
    let copied = directory.path.join(copying);
    let request = CollectDirectory {
        sandbox_id: outer.sandbox_id(),
        path: WORKSPACE.into(),
        to: Bytes(copied.as_os_str().as_bytes().to_vec()),
        limit_bytes: MAX_BYTES,
    };
    let caller = outer.caller(&format!("fork-{part}"));
    let done = outer.sandboxes().collect_directory(&caller, request).await;
    done.map_err(|problem| task_error(&problem))?;
    clean(&copied)?;
    directory.rename(copying, part)?;
    Ok(path)
}

/// Removes the files that the enclosing sandbox has in addition to its project.
fn clean(path: &Path) -> Result<(), TaskError> {
    let dir = Dir::open(path)?;
    for name in NOT_THE_PROJECT {
        let name = RelativePath::new(name).map_err(failed)?;
        match dir.remove_tree(&name) {
            Err(error) if error.kind() != Some(std::io::ErrorKind::NotFound) => {
                return Err(failed(error));
            }
            _ => {}
        }
    }
    // The request of the nested sandbox is mounted there.
    let own = RelativePath::new(NOT_THE_PROJECT[0]).map_err(failed)?;
    Ok(dir.mkdir(&own, 0o700)?)
}
