//! Concluding a run: its changes are stored, applied or discarded.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use stockade_api::BundleChanges;
use stockade_bundle::RelativePath;
use stockade_bundle::apply::{self, Selection};
use stockade_bundle::baseline::Baseline;
use stockade_bundle::data::DataDir;
use stockade_bundle::project::Project;
use stockade_bundle::store::Bundle;
use stockade_bundle::view::{Ownership, View};
use stockade_core::access::Rules;
use stockade_core::{Code, Ending, Problem};
use stockade_review::{self as review, counts};

use super::kept::IgnoredStore;
use crate::args::Run;
use crate::problem::{apply_problem, caused, store_problem};

/// What happened to the changes.
#[derive(Debug)]
pub(crate) enum Conclusion {
    /// There were no changes, or they were to be discarded.
    Nothing,
    /// They wait for a decision.
    Stored(Box<Bundle>),
    /// They are in the project, except for those that were left out; these wait for a decision.
    Applied { id: String, applied: apply::ApplyOutcome, changes: BundleChanges, has_skipped: bool },
    /// They could not be applied as requested; they wait for a decision.
    NotApplied(Box<Bundle>, Problem),
    /// They could not become a bundle. The view is kept at this path.
    ViewKept(PathBuf, Problem),
}

/// Creates a bundle of the changes, and applies it if that was requested and the command
/// succeeded.
pub(crate) fn conclude(
    arguments: &Run,
    data: &DataDir,
    project: &Project,
    access: &Rules,
    (mut view, ownership, kept): (View, Option<Ownership>, Option<&IgnoredStore>),
    (ending, baseline): (&Ending, &Baseline),
) -> Result<(Conclusion, Vec<String>), Problem> {
    let mut notes = Vec::new();
    let limits = super::bundle_limits(arguments);
    if let Some(kept) = kept.filter(|_| !matches!(ending, Ending::NotRun { .. })) {
        notes.push(kept.store(&mut view, project, ownership, limits.total_bytes));
    }
    if arguments.discard {
        view.release().map_err(|e| caused(Code::Io, &e))?;
        return Ok((Conclusion::Nothing, notes));
    }
    let path = data.path().join("views").join(view.id());
    remove_denied_directories(access, project, &view);
    let exit_code = ending.process_exit_code();
    let look_up = &mut |object: &str| review::object(&project.root, object);
    let start = (baseline, look_up as review::LookUp<'_>);
    let made = review::bundle_view(data, project, &view, exit_code, &limits, start, &mut notes);
    let bundle = match made {
        Ok(bundle) => bundle,
        // The view contains what the command wrote; it is kept so that the user can inspect it.
        Err(problem) => {
            // The disk may be full; the bundle then has the exit code of a killed run.
            let _ = view.store_exit_code(exit_code);
            return Ok((Conclusion::ViewKept(path, problem), notes));
        }
    };
    // The bundle is on disk, or there is nothing to store.
    view.release().map_err(|e| caused(Code::Io, &e))?;
    let Some(bundle) = bundle else { return Ok((Conclusion::Nothing, notes)) };
    let bundle = Box::new(bundle);
    if !arguments.apply || *ending != Ending::Exited(0) {
        return Ok((Conclusion::Stored(bundle), notes));
    }
    let conclusion = match apply_all(data, project, &bundle) {
        // Nothing of it can be applied, so the bundle is the only copy.
        Ok(applied) if applied.changed.is_empty() && !applied.skipped.is_empty() => {
            Conclusion::Stored(bundle)
        }
        Ok(applied) => {
            let id = bundle.id().to_owned();
            let changes = counts(&bundle.manifest.entries);
            let left = !review::pending(&bundle)?.is_empty();
            if !left {
                bundle.retire(data).map_err(|e| store_problem(&e))?;
            }
            Conclusion::Applied { id, applied, changes, has_skipped: left }
        }
        Err(problem) => Conclusion::NotApplied(bundle, problem),
    };
    Ok((conclusion, notes))
}

/// Removes the empty directories that the jail created in the view to enforce rules for missing
/// paths: they are not changes of the command.
fn remove_denied_directories(access: &Rules, project: &Project, view: &View) {
    for rule in access.as_slice().unwrap_or_default() {
        let below = Path::new(&rule.path).strip_prefix(&project.root);
        for path in below.iter().flat_map(|below| below.ancestors()) {
            let Ok(path) = RelativePath::new(path.as_os_str().as_bytes()) else { continue };
            if matches!(project.dir.stat(&path), Ok(None)) {
                // A path that is not an empty directory was changed by the command.
                let _ = view.changed().remove_dir(&path);
            }
        }
    }
}

fn apply_all(
    data: &DataDir,
    project: &Project,
    bundle: &Bundle,
) -> Result<apply::ApplyOutcome, Problem> {
    let manifest = bundle.whole_manifest().map_err(|e| store_problem(&e))?;
    let request = apply::Request {
        bundle: bundle.id(),
        manifest: &manifest,
        blobs: &bundle.blobs().map_err(|e| store_problem(&e))?,
        project: &project.root,
        journals: &data.journals().map_err(|e| caused(Code::Io, &e))?,
        ledger: data,
        selection: &Selection::default(),
        merge: None,
        partial: &[],
        times: &bundle.times().map_err(|e| store_problem(&e))?,
    };
    apply::apply(&request).map_err(|e| apply_problem(&e, bundle.id()))
}
