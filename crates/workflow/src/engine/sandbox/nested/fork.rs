//! What the workspace of a sandbox holds at a moment, as a directory of its own on the host: what an
//! inner sandbox begins with, and what its changes are reviewed against and applied to. The project of
//! the host is never.

use std::path::{Path, PathBuf};

use stockade_api::{Bytes, CollectDirectory};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;

use super::super::held::{Held, trouble};
use super::super::place::Place;
use super::super::request::WORKSPACE;
use crate::engine::trouble::Trouble;

/// How long the files of a workspace may be together that a nested sandbox can begin with.
const MAX_BYTES: u64 = 1 << 30;
/// What in a workspace is not the project's.
const NOT_THE_PROJECT: [&str; 2] = [".smithers", ".stockade"];

fn failed(error: impl std::fmt::Display) -> Trouble {
    let message = format!("cannot copy the workspace around a nested <Sandbox>: {error}");
    Trouble::new("SANDBOX_EXECUTION_FAILED", message).retryable()
}

/// Makes it, or finds it: a part of what a sandbox has on the host, and what that is called before it is
/// whole.
pub(super) async fn fork(
    outer: &Held,
    place: &Place,
    [copying, part]: [&str; 2],
) -> Result<PathBuf, Trouble> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = place.path.join(part);
    if place.has(part)? {
        return Ok(path);
    }
    let copied = place.path.join(copying);
    let request = CollectDirectory {
        sandbox_id: outer.sandbox_id(),
        path: WORKSPACE.into(),
        to: Bytes(copied.as_os_str().as_bytes().to_vec()),
        limit_bytes: MAX_BYTES,
    };
    let caller = outer.caller(&format!("fork-{part}"));
    let done = outer.sandboxes().collect_directory(&caller, request).await;
    done.map_err(|problem| trouble(&problem))?;
    clean(&copied)?;
    place.rename(copying, part)?;
    Ok(path)
}

/// Takes out what the sandbox around was shown besides its project.
fn clean(path: &Path) -> Result<(), Trouble> {
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
    // Where the request of the inner one is shown.
    let own = RelativePath::new(NOT_THE_PROJECT[0]).map_err(failed)?;
    Ok(dir.mkdir(&own, 0o700)?)
}
