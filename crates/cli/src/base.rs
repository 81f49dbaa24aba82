//! The private base: how a command gets it, and how its progress is shown.

use std::io::{IsTerminal as _, Write as _};

use stockade_api::CreateSandbox;
use stockade_bundle::data::DataDir;
use stockade_core::sandbox::Root;
use stockade_core::{Code, Problem, SandboxSpec};
use stockade_plan::private_base::{self, Base, Error, Progress};

use crate::data_dir::{data_path, find_data_dir, open_data_dir};
use crate::problem::caused;

/// The base of a run that wants one, made if it is missing.
///
/// # Errors
/// [`Code::StorageFull`] before anything is written, and why it cannot be made.
pub(crate) fn of_run(spec: &SandboxSpec, data: &DataDir) -> Result<Option<Base>, Problem> {
    if !spec.private_base || spec.root != Root::Host {
        return Ok(None);
    }
    ensure(data).map(Some)
}

/// Makes the base for a sandbox that wants one, so that its progress is visible. The server would
/// make it otherwise.
///
/// # Errors
/// As [`of_run`].
pub(crate) fn prepare(request: &CreateSandbox) -> Result<(), Problem> {
    if request.private_base != Some(true) || request.image.is_some() {
        return Ok(());
    }
    ensure(&open_data_dir(&data_path()?)?).map(drop)
}

fn ensure(data: &DataDir) -> Result<Base, Problem> {
    let mut shown = Shown::default();
    let base = private_base::ensure(data, &mut |progress| shown.report(progress));
    shown.end();
    base.map_err(|error| problem(&error))
}

/// Removes the copies of former states of the host that no sandbox uses.
///
/// # Errors
/// What cannot be removed.
pub(crate) fn prune_former() -> Result<(), Problem> {
    let Some(data) = find_data_dir(&data_path()?)? else { return Ok(()) };
    let pruned = private_base::prune(&data, false).map_err(|error| problem(&error))?;
    if pruned.removed > 0 {
        let mib = pruned.bytes >> 20;
        eprint_line!("stockade: removed {} old private bases: {mib} MiB are free", pruned.removed);
    }
    Ok(())
}

/// The progress on standard error: one line that changes on a terminal, else one line in all.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    last: Option<Progress>,
    has_open_line: bool,
}

impl Shown {
    /// Shows a step.
    pub(crate) fn report(&mut self, progress: Progress) {
        let is_copying = |progress| matches!(progress, Some(Progress::Copying { .. }));
        let is_new = match self.last {
            Some(last) if is_copying(Some(last)) => !is_copying(Some(progress)),
            last => last != Some(progress),
        };
        self.last = Some(progress);
        let text = match progress {
            Progress::Waiting => "another process makes the private base; waiting".to_owned(),
            Progress::Counting => "making the private base: counting the system files".to_owned(),
            Progress::Copying { done, all } => format!(
                "making the private base: {} of {} MiB, {} of {} files",
                done.bytes >> 20,
                all.bytes >> 20,
                done.entries,
                all.entries
            ),
            Progress::Writing => "making the private base: writing it to the disk".to_owned(),
        };
        if std::io::stderr().is_terminal() {
            // A reader that is gone does not stop the work.
            let _ = write!(std::io::stderr(), "\r\x1b[Kstockade: {text}");
            self.has_open_line = true;
        } else if is_new {
            eprint_line!("stockade: {text}");
        }
    }

    /// Ends the line.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.has_open_line) {
            eprint_line!("");
        }
    }
}

/// The problem of a private base that cannot be made or used.
pub(crate) fn problem(error: &Error) -> Problem {
    let code = match error {
        _ if error.is_full() => Code::StorageFull,
        Error::Busy(_) | Error::Changing | Error::Missing => Code::Busy,
        Error::TooDeep(_) => Code::Unsupported,
        _ => Code::Io,
    };
    let problem = caused(code, error);
    match error {
        Error::NoSpace { needed, free, .. } => problem.remedied_by(format!(
            "free {} MiB, or export STOCKADE_DATA_DIR=/a/directory/on/a/larger/disk, or omit \
             `--private-base`",
            needed.saturating_sub(*free).div_ceil(1 << 20)
        )),
        Error::NoInodes { .. } => problem.remedied_by(
            "export STOCKADE_DATA_DIR=/a/directory/on/another/disk, or omit `--private-base`",
        ),
        Error::Changing => {
            problem.remedied_by("run the same command again when packages are installed")
        }
        Error::Missing | Error::Busy(_) => problem.remedied_by("stockade base"),
        _ => problem,
    }
}
