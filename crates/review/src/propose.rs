//! Bundles of changes that were not made in a sandbox of this host: the `diffBundle` of a
//! result (Smithers, "Result bundles").

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde_json::json;
use stockade_api::{CollectedChanges, ProposeChanges, Result};
use stockade_bundle::manifest::ViewKind;
use stockade_bundle::project::Project;
use stockade_bundle::propose;
use stockade_bundle::sandbox::{DiffBundle, SandboxManifest};
use stockade_bundle::scan::Changes;
use stockade_bundle::store::Draft;
use stockade_bundle::view::View;
use stockade_core::{BundleLimits, Code, Problem};

use crate::bundles::Bundles;
use crate::collect::response;
use crate::problem::{caused, store_problem};

impl Bundles {
    /// Creates a bundle of proposed changes, or finds the one with the same origin and time.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for changes that are refused, with the error code of Smithers in
    /// its cause; [`Code::ProjectRefused`].
    pub fn propose(&self, request: &ProposeChanges, at_ms: u64) -> Result<CollectedChanges> {
        let limits = BundleLimits::SANDBOX;
        let command = ["<Sandbox>".to_owned(), request.origin.clone()];
        if let Some(answer) = self.find_created(&command, at_ms)? {
            return Ok(answer);
        }
        let diff = read(request, &limits)?;
        let root = Path::new(std::ffi::OsStr::from_bytes(&request.project.0));
        let real = std::fs::canonicalize(root).map_err(|error| caused(Code::Io, &error))?;
        let mut project =
            Project::open(&real, None).map_err(|error| caused(Code::ProjectRefused, &error))?;
        if request.base_ref.is_some() {
            project.base_ref.clone_from(&request.base_ref);
        }
        let started = (i64::try_from(at_ms / 1000).unwrap_or(i64::MAX), 0).into();
        let view = View::create(&self.data, &project, ViewKind::Overlay, None, &command, started)
            .map_err(|error| caused(Code::Io, &error))?;
        let made = self.store_proposal(&view, &project, &diff, at_ms, &limits);
        let removed = view.remove().map_err(|error| caused(Code::Io, &error));
        let answer = made?;
        removed?;
        Ok(answer)
    }

    fn store_proposal(
        &self,
        view: &View,
        project: &Project,
        diff: &DiffBundle,
        at_ms: u64,
        limits: &BundleLimits,
    ) -> Result<CollectedChanges> {
        let changes = propose::propose(view, project, diff, limits);
        let changes = changes.map_err(|error| invalid_proposal(&error, error.code()))?;
        let Changes { entries, listings, notes } = changes;
        // A caller that proposes exact changes means all of them, so a change that can never be
        // applied is an error.
        if let Some(entry) = entries.iter().find(|entry| entry.refused.is_some()) {
            let message = format!("{} can never be applied", entry.path.quoted());
            let problem = Problem::new(Code::InvalidInput, message);
            return Err(problem.because("TOOL_PATH_ESCAPE"));
        }
        let draft = Draft {
            view,
            project,
            entries,
            old_contents: Vec::new(),
            listings,
            exit_code: 0,
            created_at_ms: at_ms,
        };
        let made = self.store.create(draft, limits).map_err(|error| store_problem(&error))?;
        response(made.as_ref(), notes)
    }
}

/// Parses the changes within the limits of a manifest that contains them.
fn read(request: &ProposeChanges, limits: &BundleLimits) -> Result<DiffBundle> {
    let manifest = json!({ "status": "finished", "diffBundle": request.diff });
    let manifest = SandboxManifest::parse(manifest.to_string().as_bytes(), limits)
        .map_err(|error| invalid_proposal(&error, error.code()))?;
    manifest.diff_bundle.ok_or_else(|| {
        Problem::new(Code::InvalidInput, "the proposal contains no changes")
            .because("INVALID_INPUT")
    })
}

fn invalid_proposal(error: &(dyn std::error::Error + 'static), code: &str) -> Problem {
    let problem = caused(Code::InvalidInput, error);
    let detail = match &problem.cause {
        Some(cause) => format!("{code}: {cause}"),
        None => code.to_owned(),
    };
    problem.because(detail)
}
