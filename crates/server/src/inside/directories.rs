//! Directories: new ones that belong to a user, and the order of a listing.

use std::path::Path;
use std::sync::Arc;

use stockade_api::{FileEntry, MakeDirectory, Sandboxes, SetPermissions};
use stockade_core::Code;

use super::{Target, stat};
use crate::failure::Failure;

/// Creates a directory, with missing ones above it, for a user.
pub(crate) async fn create_as(
    sandboxes: &Arc<dyn Sandboxes>,
    target: &Target,
    (uid, gid): (u32, u32),
    name: &str,
    mode: Option<u32>,
) -> Result<(), Failure> {
    let sandbox_id = || target.sandbox.id.clone();
    let mut missing = Vec::new();
    for directory in Path::new(name).ancestors().filter_map(Path::to_str) {
        match stat(sandboxes, target, directory, true).await {
            Ok(_) => break,
            Err(Failure(problem)) if problem.code == Code::FileNotFound => missing.push(directory),
            Err(failure) => return Err(failure),
        }
    }
    let make =
        MakeDirectory { sandbox_id: sandbox_id(), path: name.into(), mode, uid: None, gid: None };
    let made = sandboxes.make_directory(&target.caller, make.clone()).await;
    // In a directory of root's, the ordinary user has no rights; the new one belongs to its user in the end.
    if made.as_ref().is_err_and(|problem| problem.code.http_status() == 403) {
        let make = MakeDirectory { uid: Some(0), gid: Some(0), ..make };
        sandboxes.make_directory(&target.caller, make).await?;
    } else {
        made?;
    }
    for directory in missing {
        let (uid, gid) = (Some(uid), Some(gid));
        let mode = mode.filter(|_| directory == name);
        let set =
            SetPermissions { sandbox_id: sandbox_id(), path: directory.into(), mode, uid, gid };
        sandboxes.set_permissions(&target.caller, set).await?;
    }
    Ok(())
}

/// Puts the entries of a listing into the order of a walk: each directory right before what is in it.
pub(crate) fn sort_as_walked(entries: &mut [FileEntry]) {
    entries.sort_by_cached_key(|entry| {
        let path = entry.path.lossy().into_owned();
        path.split('/').map(str::to_owned).collect::<Vec<_>>()
    });
}
