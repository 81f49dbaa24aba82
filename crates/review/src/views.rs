//! Turning views into bundles: views of runs that have ended, and of runs that were killed, so
//! that nothing that a command wrote is lost with its supervising process.

use std::os::unix::ffi::OsStrExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use stockade_api::{Bytes, Result, StoredView};
use stockade_bundle::baseline::Baseline;
use stockade_bundle::data::DataDir;
use stockade_bundle::project::Project;
use stockade_bundle::scan;
use stockade_bundle::store::{Bundle, Draft, Store};
use stockade_bundle::view::{Error, View};
use stockade_core::{BundleLimits, Code};

use crate::problem::{caused, scan_problem, store_problem};

/// The exit code for a run whose end was not observed: that of a killed process.
const UNKNOWN_EXIT_CODE: u8 = 137;

/// Returns the content of an object of the project's own repository ([`object`](crate::object)).
pub type LookUp<'a> = &'a mut dyn FnMut(&str) -> Option<Vec<u8>>;

/// Creates the bundle of the changes in a view; `None` if there are none. `notes` receives
/// descriptions of what could not be taken into account.
///
/// # Errors
/// [`Code::BundleTooLarge`], or [`Code::Io`]; the view is then unchanged.
pub fn bundle_view(
    data: &DataDir,
    project: &Project,
    view: &View,
    exit_code: u8,
    limits: &BundleLimits,
    (baseline, look_up): (&Baseline, LookUp<'_>),
    notes: &mut Vec<String>,
) -> Result<Option<Bundle>> {
    let mut changes = scan::scan(view, project, limits).map_err(|error| scan_problem(&error))?;
    notes.extend(changes.notes);
    let old_contents = baseline.rebase(&mut changes.entries, look_up);
    if changes.entries.is_empty() {
        return Ok(None);
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let draft = Draft {
        view,
        project,
        entries: changes.entries,
        old_contents,
        listings: changes.listings,
        exit_code,
        created_at_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
    };
    let store = Store::open(data).map_err(|error| store_problem(&error))?;
    store.create(draft, limits).map_err(|error| store_problem(&error))
}

/// Creates a bundle of every view that no run uses any more. Views for which this fails are kept.
pub(crate) fn bundle_leftovers(data: &DataDir, limits: &BundleLimits) -> Result<Vec<StoredView>> {
    let io = |error: Error| caused(Code::Io, &error);
    View::sweep(data).map_err(io)?;
    let mut kept = Vec::new();
    for summary in View::list(data).map_err(io)? {
        if summary.live {
            continue;
        }
        let finished = match View::open(data, &summary.id) {
            Ok(view) => bundle_leftover(data, view, limits),
            // Another command has just taken it.
            Err(Error::InUse(_) | Error::NotFound(_)) => continue,
            Err(error) => Err(io(error)),
        };
        if let Err(error) = finished {
            let path = data.path().join("views").join(&summary.id);
            let path = Bytes(path.as_os_str().as_bytes().to_vec());
            kept.push(StoredView { id: summary.id, path, error });
        }
    }
    Ok(kept)
}

fn bundle_leftover(data: &DataDir, view: View, limits: &BundleLimits) -> Result<()> {
    let project = Project::open(view.record().project(), None)
        .map_err(|error| caused(Code::ProjectRefused, &error))?;
    let exit_code = view.record().exit_code.unwrap_or(UNKNOWN_EXIT_CODE);
    bundle_view(
        data,
        &project,
        &view,
        exit_code,
        limits,
        (&Baseline::default(), &mut |_| None),
        &mut Vec::new(),
    )?;
    view.remove().map_err(|error| caused(Code::Io, &error))
}

/// Whether there is a view of this name that no run uses.
pub(crate) fn exists(data: &DataDir, id: &str) -> Result<bool> {
    match View::open(data, id) {
        Ok(_) => Ok(true),
        Err(Error::NotFound(_)) => Ok(false),
        Err(error) => Err(caused(Code::Io, &error)),
    }
}

/// The path of the project of a stored view, if it can be read.
pub(crate) fn project(data: &DataDir, id: &str) -> Option<Bytes> {
    let view = View::open(data, id).ok()?;
    Some(Bytes(view.record().project().as_os_str().as_bytes().to_vec()))
}

/// Removes a stored view. It is not an error if it no longer exists.
pub(crate) fn discard(data: &DataDir, id: &str) -> Result<()> {
    match View::open(data, id).and_then(View::remove) {
        Ok(()) | Err(Error::NotFound(_)) => Ok(()),
        Err(error) => Err(caused(Code::Io, &error)),
    }
}
