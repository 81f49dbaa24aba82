//! More than one id for images of an ordinary user: the process enters a namespace with the user's
//! subordinate ids, before it does anything that needs them.

use std::path::Path;

use stockade_core::caller::{outside_user, set_outside_user};
use stockade_core::sandbox::Root;
use stockade_core::{Code, OwnerId, Problem};
use stockade_image::Store;
use stockade_jail::subordinate::{Missing, Subordinate};

use crate::args::sandbox_flags::SandboxFlags;
use crate::problem::caused;
use crate::request::root;

/// The owner of what this process makes.
pub(crate) fn owner() -> OwnerId {
    OwnerId::from_uid(outside_user().unwrap_or_else(|| rustix::process::geteuid().as_raw()))
}

/// Enters the namespace for a run in an image of the store, if the caller is an ordinary user who has
/// subordinate ids. Returns what is missing, if something is.
///
/// # Errors
/// [`Code::LaunchFailed`] where the ids are granted and cannot be mapped.
pub(crate) fn enter_for(flags: &SandboxFlags, current: &Path) -> Result<Option<Missing>, Problem> {
    let is_of_store =
        flags.image.as_deref().is_some_and(|image| matches!(root(image, current), Root::Image(_)));
    if !is_of_store || rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    match Subordinate::find() {
        Err(missing) => Ok(Some(missing)),
        Ok(ids) => enter(&ids).map(|()| None),
    }
}

/// Enters it to remove images, if some have files of subordinate ids.
///
/// # Errors
/// What is missing, with the remedy.
pub(crate) fn enter_to_remove(store: &Store) -> Result<bool, Problem> {
    if rustix::process::geteuid().is_root()
        || !store.has_owned_layers().map_err(|error| caused(Code::Io, &error))?
    {
        return Ok(false);
    }
    enter(&Subordinate::find().map_err(|missing| problem(&missing))?)?;
    Ok(true)
}

fn enter(ids: &Subordinate) -> Result<(), Problem> {
    let user = rustix::process::geteuid().as_raw();
    ids.enter().map_err(|missing| problem(&missing))?;
    set_outside_user(user);
    Ok(())
}

fn problem(missing: &Missing) -> Problem {
    let problem = caused(Code::LaunchFailed, missing);
    match missing.remedy() {
        Some(remedy) => problem.remedied_by(remedy),
        None => problem,
    }
}
