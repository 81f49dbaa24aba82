//! What becomes of a run's changes, and which exit code its ending is.

use std::path::PathBuf;

use stockade_bundle::apply::{self, Selection};
use stockade_bundle::data::DataDir;
use stockade_bundle::project::Project;
use stockade_bundle::store::Bundle;
use stockade_bundle::view::View;
use stockade_core::{Code, Problem};
use stockade_jail::Ending;
use stockade_review as review;

use crate::args::Run;
use crate::problem::{caused, of_apply, of_store};

/// What became of the changes.
#[derive(Debug)]
pub(crate) enum Conclusion {
    /// Nothing had changed, or the changes were to be thrown away.
    Nothing,
    /// They wait for a decision.
    Kept(Box<Bundle>),
    /// They are in the project, but for those that were left out; these wait for a decision.
    Applied { id: String, applied: apply::Applied, left: bool },
    /// They were to be applied and could not be; they wait for a decision.
    NotApplied(Box<Bundle>, Problem),
    /// They could not become a bundle. The view is kept at this place.
    ViewKept(PathBuf, Problem),
}

/// The exit code of `stockade run`: the command's own, or what shells and `timeout(1)` return.
pub(super) fn exit_code(ending: Ending) -> u8 {
    match ending {
        Ending::Exited(code) => code,
        Ending::Signaled(signal) | Ending::Stopped(signal) => {
            u8::try_from(128 + signal).unwrap_or(u8::MAX)
        }
        Ending::TimedOut => 124,
        Ending::OutOfMemory | Ending::OutputExceeded | Ending::LimitExceeded(_) => 137,
        Ending::NotRun(errno) if errno == rustix::io::Errno::NOENT.raw_os_error() => 127,
        Ending::NotEntered(_) | Ending::NotRun(_) => 126,
    }
}

/// Makes a bundle of what changed, and applies it where that was asked for and the command
/// succeeded.
pub(super) fn conclude(
    arguments: &Run,
    data: &DataDir,
    project: &Project,
    view: View,
    ending: Ending,
) -> Result<(Conclusion, Vec<String>), Problem> {
    let mut notes = Vec::new();
    if arguments.discard {
        view.release().map_err(|e| caused(Code::Io, &e))?;
        return Ok((Conclusion::Nothing, notes));
    }
    let place = data.path().join("views").join(view.id());
    let limits = review::limits(arguments.max_bundle);
    let made = review::of_view(data, project, &view, exit_code(ending), &limits, &mut notes);
    let bundle = match made {
        Ok(bundle) => bundle,
        // The view has what the command wrote; it stays for whoever wants to look.
        Err(problem) => return Ok((Conclusion::ViewKept(place, problem), notes)),
    };
    // The bundle is on disk, or there is nothing to keep.
    view.release().map_err(|e| caused(Code::Io, &e))?;
    let Some(bundle) = bundle else { return Ok((Conclusion::Nothing, notes)) };
    let bundle = Box::new(bundle);
    if !arguments.apply || ending != Ending::Exited(0) {
        return Ok((Conclusion::Kept(bundle), notes));
    }
    let conclusion = match apply_all(data, project, &bundle) {
        Ok(applied) => {
            let id = bundle.id().to_owned();
            let left = !review::pending(&bundle)?.is_empty();
            if !left {
                bundle.remove().map_err(|e| of_store(&e))?;
            }
            Conclusion::Applied { id, applied, left }
        }
        Err(problem) => Conclusion::NotApplied(bundle, problem),
    };
    Ok((conclusion, notes))
}

fn apply_all(
    data: &DataDir,
    project: &Project,
    bundle: &Bundle,
) -> Result<apply::Applied, Problem> {
    let request = apply::Request {
        bundle: bundle.id(),
        manifest: &bundle.manifest,
        blobs: &bundle.blobs().map_err(|e| of_store(&e))?,
        project: &project.root,
        journals: &data.journals().map_err(|e| caused(Code::Io, &e))?,
        ledger: data,
        selection: &Selection::default(),
    };
    apply::apply(&request).map_err(|e| of_apply(&e, bundle.id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        for (ending, code) in [
            (Ending::Exited(0), 0),
            (Ending::Exited(77), 77),
            (Ending::Signaled(9), 137),
            (Ending::Stopped(2), 130),
            (Ending::TimedOut, 124),
            (Ending::OutOfMemory, 137),
            (Ending::NotEntered(2), 126),
            (Ending::NotRun(2), 127),
            (Ending::NotRun(13), 126),
        ] {
            assert_eq!(exit_code(ending), code, "{ending:?}");
        }
    }
}
