//! Taking back the last application of a bundle to a project, and the history of decisions.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::Serialize;
use stockade_api::{Bytes, Result};
use stockade_bundle::apply::{self, Request, Selection, undo};
use stockade_bundle::decisions::{self, Decision};
use stockade_bundle::manifest::{Manifest, VERSION, ViewKind};
use stockade_bundle::store;
use stockade_core::{Code, Problem};

use crate::bundles::Bundles;
use crate::decide::apply_when_free;
use crate::messages;
use crate::paths::to_bytes;
use crate::problem::{apply_problem, caused, lines, short_id, store_problem};

/// What an undo has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoOutcome {
    /// The bundle whose changes were taken back.
    pub bundle: String,
    /// The project.
    pub project: Bytes,
    /// The paths that are as they were before.
    pub restored: Vec<Bytes>,
    /// The paths that already were so.
    pub already: Vec<Bytes>,
    /// Directories that stay, because they contain files that the bundle did not create.
    pub kept: Vec<Bytes>,
    /// Whether the bundle waits for a decision again.
    pub waiting: bool,
}

impl Bundles {
    /// Takes back the last application to a project, all of it or nothing. Nothing is overwritten that
    /// has changed since.
    ///
    /// # Errors
    /// [`Code::BundleNotFound`] if there is none, [`Code::BundleConflict`] if something has changed.
    pub fn undo(&self, project: &Path) -> Result<UndoOutcome> {
        let store = self.data.undo().map_err(|error| caused(Code::Io, &error))?;
        let records = undo::list(&store).map_err(|error| caused(Code::Io, &error))?;
        let root = project.as_os_str().as_bytes();
        let last = records.into_iter().rev().find(|stored| stored.record.project == root);
        let Some(last) = last else {
            let message =
                format!("nothing that was applied to {} can be undone", project.display());
            return Err(Problem::new(Code::BundleNotFound, message).remedied_by("stockade history"));
        };
        let record = &last.record;
        let manifest = Manifest {
            image: None,
            version: VERSION,
            project: record.project.clone(),
            created_at_ms: 0,
            command: Vec::new(),
            labels: BTreeMap::new(),
            exit_code: 0,
            base_ref: None,
            view: ViewKind::Overlay,
            entries: record.entries.clone(),
        };
        // The content is the host's own, from before the application.
        let selection =
            Selection { include_ignored: true, allow_executed: true, ..Selection::default() };
        let request = Request {
            bundle: &format!("{}{}", undo::PREFIX, last.id),
            manifest: &manifest,
            blobs: &last.blobs,
            project,
            journals: &self.data.journals().map_err(|error| caused(Code::Io, &error))?,
            ledger: &self.data,
            selection: &selection,
            merge: None,
            partial: &[],
            times: &BTreeMap::new(),
        };
        let applied = apply_when_free(&request, &mut |_| {});
        let applied = applied.map_err(|error| undo_problem(&error, &record.bundle))?;
        let all = |paths: &[stockade_bundle::RelativePath]| paths.iter().map(to_bytes).collect();
        let waiting = store::remove_undone(&self.data, &last.id);
        Ok(UndoOutcome {
            bundle: record.bundle.clone(),
            project: Bytes(record.project.clone()),
            restored: all(&applied.changed),
            already: all(&applied.already_present),
            kept: applied.skipped.iter().map(|skipped| to_bytes(&skipped.path)).collect(),
            waiting: waiting.map_err(|error| store_problem(&error))?,
        })
    }

    /// The decisions, oldest first.
    ///
    /// # Errors
    /// [`Code::Io`] when they cannot be read.
    pub fn history(&self) -> Result<Vec<Decision>> {
        decisions::read(&self.data).map_err(|error| caused(Code::Io, &error))
    }
}

/// The problem for an application that could not be undone.
fn undo_problem(error: &apply::Error, bundle: &str) -> Problem {
    match error {
        apply::Error::Conflicts(conflicts) => {
            let message = "what was applied has changed since, so nothing was undone";
            let paths = conflicts.iter().map(|conflict| &conflict.path);
            Problem::new(Code::BundleConflict, message)
                .because(lines(conflicts.iter().map(|it| format!("{} {}", it.path, it.difference))))
                .remedied_by(format!("git diff -- {}", messages::shell_arguments(paths, 5)))
        }
        error => {
            let problem = apply_problem(error, bundle);
            match &problem.remediation {
                Some(remedy) if remedy.starts_with("stockade apply") => {
                    problem.remedied_by(format!("stockade history {}", short_id(bundle)))
                }
                _ => problem,
            }
        }
    }
}
