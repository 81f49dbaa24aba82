//! What killed runs left: their views become bundles, so that nothing that a
//! command wrote is lost with the process that watched over it.

use std::path::PathBuf;

use stockade_bundle::data::DataDir;
use stockade_bundle::project::Project;
use stockade_bundle::view::View;
use stockade_core::{BundleLimits, Code, Problem};

use super::ending;
use crate::problem::caused;

/// The exit code that stands for a run whose own end nobody saw: that of a kill.
const UNSEEN_EXIT_CODE: u8 = 137;

/// A view that no run holds any more and that could not become a bundle.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The view's name.
    pub(crate) id: String,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Why it is not a bundle.
    pub(crate) problem: Problem,
}

/// Makes a bundle of every view that no run holds any more. What cannot become one stays.
pub(crate) fn finish(data: &DataDir, limits: &BundleLimits) -> Result<Vec<Kept>, Problem> {
    let io = |e: stockade_bundle::view::Error| caused(Code::Io, &e);
    View::sweep(data).map_err(io)?;
    stockade_jail::cgroup::sweep();
    let mut kept = Vec::new();
    for summary in View::list(data).map_err(io)? {
        if summary.live {
            continue;
        }
        let view = match View::open(data, &summary.id) {
            Ok(view) => view,
            // Another command has just taken it.
            Err(
                stockade_bundle::view::Error::InUse(_) | stockade_bundle::view::Error::NotFound(_),
            ) => continue,
            Err(e) => {
                let path = data.path().join("views").join(&summary.id);
                kept.push(Kept { id: summary.id, path, problem: io(e) });
                continue;
            }
        };
        if let Err(problem) = finish_one(data, &view, limits) {
            let path = data.path().join("views").join(&summary.id);
            kept.push(Kept { id: summary.id, path, problem });
            continue;
        }
        view.remove().map_err(io)?;
    }
    Ok(kept)
}

fn finish_one(data: &DataDir, view: &View, limits: &BundleLimits) -> Result<(), Problem> {
    let project = Project::open(view.record().project(), None)
        .map_err(|e| caused(Code::ProjectRefused, &e))?;
    ending::bundle(data, &project, view, UNSEEN_EXIT_CODE, limits, &mut Vec::new()).map(drop)
}

/// Throws a kept view away. True when there was one of this name.
pub(crate) fn discard(data: &DataDir, id: &str) -> Result<bool, Problem> {
    match View::open(data, id) {
        Ok(view) => view.remove().map(|()| true).map_err(|e| caused(Code::Io, &e)),
        Err(stockade_bundle::view::Error::NotFound(_)) => Ok(false),
        Err(e) => Err(caused(Code::Io, &e)),
    }
}
