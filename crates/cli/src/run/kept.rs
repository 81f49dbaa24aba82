//! `run --keep-ignored`: the ignored directories that runs of a project leave for each other. They are in
//! a cache of the project, so `stockade cache` lists and removes them.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;
use stockade_bundle::data::DataDir;
use stockade_bundle::kept_directories::{self as kept, Error};
use stockade_bundle::project::Project;
use stockade_bundle::view::{Ownership, View, coarse_now};
use stockade_core::cache::IGNORED;
use stockade_core::sandbox::CacheMount;
use stockade_core::{Code, Problem, Time, VolumeName};
use stockade_volume::{Volumes, of_cache};

use crate::args::{Run, View as ViewKind};
use crate::many_ids;
use crate::problem::caused;
use crate::table::size;

/// How long a run waits for another one that reads or writes what is kept.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it looks.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// The place of what is kept.
#[derive(Debug)]
pub(crate) struct IgnoredStore {
    directory: Dir,
    /// The cache is in use as long as this is open.
    _lock: OwnedFd,
}

impl IgnoredStore {
    /// Opens it, if the run keeps something.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] together with what has no overlay on disk; the errors of volumes.
    pub(super) fn open(
        arguments: &Run,
        project: &Project,
        data: &DataDir,
    ) -> Result<Option<Self>, Problem> {
        if !arguments.keep_ignored {
            return Ok(None);
        }
        let other = match (arguments.view, arguments.sandbox.disk.is_some()) {
            (ViewKind::Copy, _) => Some("--view copy"),
            (_, true) => Some("--disk"),
            _ => None,
        };
        if let Some(other) = other {
            let message = format!("`--keep-ignored` and `{other}` exclude each other");
            return Err(Problem::new(Code::InvalidInput, message)
                .because("what is kept is a part of an overlay on disk")
                .remedied_by(format!("omit `{other}`")));
        }
        let invalid = |error: &dyn std::error::Error| caused(Code::InvalidInput, error);
        let owner = many_ids::owner();
        let mount = CacheMount {
            owner: owner.clone(),
            name: VolumeName::new(IGNORED).map_err(|error| invalid(&error))?,
            project: Some(project.root.clone()),
            inside: None,
        };
        let open = || {
            let (name, labels) = of_cache(&mount)?;
            let volumes = Volumes::open(data, &owner)?;
            volumes.create(&name, &labels, false, now())?;
            volumes.require_cache(&name, &labels)?;
            volumes.mount(&name, None)
        };
        let mounted = open().map_err(|error| stockade_volume::problem::problem(&error))?;
        let directory = Dir::open_recorded(&mounted.path);
        let directory = directory.map_err(|error| caused(Code::Io, &error))?;
        Ok(Some(Self { directory, _lock: mounted.lock }))
    }

    /// Puts what is kept into the layer of a view.
    ///
    /// # Errors
    /// The view must then not be used.
    pub(super) fn place(
        &self,
        view: &mut View,
        project: &Project,
        ownership: Option<Ownership>,
    ) -> Result<Vec<RelativePath>, Problem> {
        let _lock = self.lock()?;
        kept::place(&self.directory, view, project, ownership).map_err(|error| problem(&error))
    }

    /// Keeps what a view has, which is then left out of its bundle. A failure is a note: the
    /// directories are then in the bundle.
    pub(super) fn store(
        &self,
        view: &mut View,
        project: &Project,
        ownership: Option<Ownership>,
        limit_bytes: u64,
    ) -> String {
        let store = || {
            let _lock = self.lock()?;
            let paths = kept::find(view, project, limit_bytes).map_err(|error| problem(&error))?;
            let ids = ownership.map(|ownership| ownership.host_start);
            let stored = kept::store(view, &paths, &self.directory, ids, limit_bytes);
            stored.map(|bytes| (paths, bytes)).map_err(|error| problem(&error))
        };
        match store() {
            Ok((paths, bytes)) => {
                let note = note(&paths, bytes);
                view.exclude(paths);
                note
            }
            Err(problem) => {
                let cause = problem.cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                format!("the ignored directories are not kept: {}{cause}", problem.message)
            }
        }
    }

    /// Excludes other runs as long as the result is open.
    fn lock(&self) -> Result<Dir, Problem> {
        let io = |error| caused(Code::Io, &error);
        let lock = self.directory.reopen().map_err(io)?;
        let start = Instant::now();
        while !stockade_bundle::claim::try_lock(&lock).map_err(io)? {
            if start.elapsed() > LOCK_TIMEOUT {
                let message = "another run uses the ignored directories that are kept";
                return Err(Problem::new(Code::Busy, message).remedied_by("try again"));
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
        Ok(lock)
    }
}

fn now() -> Time {
    let now = coarse_now();
    Time::from_ms(now.seconds.saturating_mul(1000) + i64::from(now.nanoseconds / 1_000_000))
}

/// What is kept, in one line.
fn note(paths: &[RelativePath], bytes: u64) -> String {
    const SHOWN: usize = 3;
    if paths.is_empty() {
        return "no ignored directory is kept: the run has none".to_owned();
    }
    let names: Vec<_> = paths.iter().take(SHOWN).map(RelativePath::quoted).collect();
    let more = match paths.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "kept for the next run with --keep-ignored, and not in the bundle: {}{more} ({})",
        names.join(", "),
        size(bytes)
    )
}

fn problem(error: &Error) -> Problem {
    let code = match error {
        Error::Layer(stockade_bundle::layer::Error::TooLarge { .. })
        | Error::Renamed(stockade_bundle::layer::renamed::Error::TooLarge { .. }) => {
            return caused(Code::BundleTooLarge, error).remedied_by("--max-bundle SIZE");
        }
        _ => Code::Io,
    };
    caused(code, error).remedied_by("stockade cache rm ignored")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_directories_are_named_and_the_others_counted() {
        let paths: Vec<_> =
            ["a", "b", "c", "d", "e"].map(|name| RelativePath::new(name).unwrap()).into();
        assert!(note(&paths, 2048).ends_with("a, b, c and 2 more (2.0 KiB)"));
        assert!(note(&paths[..1], 2048).ends_with(": a (2.0 KiB)"));
        assert!(note(&[], 0).contains("has none"));
    }
}
