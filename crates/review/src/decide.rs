//! The decisions about a bundle: to apply it, in whole or in part, or to reject it.
//!
//! Each decision consists of steps that can be repeated after a crash: a repeated step detects
//! what was already done.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stockade_api::{
    AppliedBundle, ApplyBundle, Bytes, Conflicts, RejectedBundle, Result, SkippedPath,
};
use stockade_bundle::RelativePath;
use stockade_bundle::apply::merge::{self, Favor, Labels};
use stockade_bundle::apply::{
    self, ApplyOutcome, Difference, Error, Recovery, Request, Selection, Skip, SkippedChange,
};
use stockade_bundle::decisions::Action;
use stockade_bundle::manifest::Manifest;
use stockade_bundle::patch;
use stockade_bundle::project::{Project, mark_programs};
use stockade_bundle::store::{self, Bundle};
use stockade_core::{Code, Problem};

use crate::bundles::{Bundles, READ_LIMITS, pending, project_path};
use crate::inspect::{DIFF_TIMEOUT, not_in_bundle, project_dir};
use crate::paths::{paths, to_bytes};
use crate::problem::{apply_problem, caused, short_id, store_problem};
use crate::{groups, hunks, messages, views};

/// How long to wait for a process that is ending and still holds the lock of the bundle.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for other apply operations on the same project.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// What a name refers to, as the object of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RejectTarget {
    /// A bundle, by its id.
    Bundle(String),
    /// A bundle that cannot be read, by its id.
    Damaged(String),
    /// A view that a killed run left, by the view's id.
    View(String),
}

impl RejectTarget {
    /// Its id.
    pub fn id(&self) -> &str {
        let (Self::Bundle(id) | Self::Damaged(id) | Self::View(id)) = self;
        id
    }
}

/// The result of an apply operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApplyDecision {
    answer: AppliedBundle,
    /// Why nothing was changed, if nothing was.
    nothing: Option<Problem>,
}

impl ApplyDecision {
    /// The bundle's id.
    pub fn id(&self) -> &str {
        &self.answer.id
    }

    /// Whether nothing in the bundle remains to be decided.
    pub const fn is_done(&self) -> bool {
        self.answer.done
    }

    /// The response, or why there is none.
    ///
    /// # Errors
    /// When there was nothing to change, or nothing that may be changed.
    pub fn into_response(self) -> Result<AppliedBundle> {
        match self.nothing {
            Some(problem) => Err(problem),
            None => Ok(self.answer),
        }
    }
}

/// Applies the bundle as soon as no other apply operation on the same project is running.
pub(crate) fn apply_when_free(
    request: &Request<'_>,
    observe: &mut dyn FnMut(apply::Step),
) -> std::result::Result<ApplyOutcome, Error> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match apply::apply_observed(request, observe) {
            Err(Error::Busy) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

impl Bundles {
    /// Ends apply operations that were killed: each is completed or undone.
    ///
    /// # Errors
    /// [`Code::Io`] when the journals cannot be read.
    pub fn recover(&self) -> Result<Vec<Recovery>> {
        let journals = self.data.journals().map_err(|error| caused(Code::Io, &error))?;
        apply::recover(&journals, &self.data).map_err(|error| caused(Code::Io, &error))
    }

    /// The id of the bundle called `name`.
    ///
    /// # Errors
    /// [`Code::BundleNotFound`].
    pub fn id(&self, name: &str) -> Result<String> {
        Ok(self.find(name)?.id().to_owned())
    }

    /// Makes the selected changes, all or none, and records them in the bundle. The bundle is kept
    /// until [`Bundles::remove_if_decided`].
    ///
    /// If `again` is set, an earlier attempt may have made the same changes; changes that the
    /// project already has then count as made.
    ///
    /// # Errors
    /// The project is then unchanged, unless the problem says otherwise.
    pub fn apply(&self, request: &ApplyBundle, again: bool) -> Result<ApplyDecision> {
        self.apply_observed(request, again, &mut |_| {})
    }

    /// The same, but calls `observe` after each step.
    ///
    /// # Errors
    /// As [`Bundles::apply`].
    pub fn apply_observed(
        &self,
        request: &ApplyBundle,
        again: bool,
        observe: &mut dyn FnMut(apply::Step),
    ) -> Result<ApplyDecision> {
        let (bundle, mut manifest, selection) = self.prepare(request, again)?;
        let project = Path::new(std::ffi::OsStr::from_bytes(&bundle.manifest.project));
        let is_all = selection.paths.is_empty();
        let partial = hunks::choose(&bundle, &mut manifest, &request.hunks)?;
        let merge = merge_options(request, &bundle);
        let apply_request = Request {
            bundle: bundle.id(),
            manifest: &manifest,
            blobs: &bundle.blobs().map_err(|error| store_problem(&error))?,
            project,
            journals: &self.data.journals().map_err(|error| caused(Code::Io, &error))?,
            ledger: &self.data,
            selection: &selection,
            merge: merge.as_ref(),
            partial: &partial,
            times: &bundle.times().map_err(|error| store_problem(&error))?,
        };
        let mut applied = apply_when_free(&apply_request, observe)
            .map_err(|error| refusal(&error, request, &bundle, None))?;
        // They were left out, because they are applied.
        applied.already_present.extend(selection.applied.iter().filter(|_| is_all).cloned());
        applied.already_present.sort();
        if again && applied.changed.is_empty() {
            applied.changed = std::mem::take(&mut applied.already_present);
        }
        let nothing = applied.changed.is_empty().then(|| nothing_changed(&bundle, &applied));
        // A bundle of which nothing was applied may be the only copy of the work in it, even if
        // nothing in it can ever be applied.
        let is_done = nothing.is_none() && pending(&bundle)?.is_empty();
        if nothing.is_none() {
            // A record that remains is only compared with later bundles.
            let _ = self.forget_shown(&bundle.manifest.project, bundle.id());
        }
        Ok(ApplyDecision { answer: response(&bundle, &applied, is_done)?, nothing })
    }

    /// The bundle of a request, all of its entries, and which of them are selected.
    pub(crate) fn prepare(
        &self,
        request: &ApplyBundle,
        again: bool,
    ) -> Result<(Bundle, Manifest, Selection)> {
        let mut bundle = self.find(&request.id)?;
        lock(&bundle)?;
        if let Some(Bytes(project)) = &request.project {
            bundle.manifest.project = moved_to(project)?;
            let root = project_path(&bundle).to_owned();
            mark_programs(&root, &mut bundle.manifest.entries);
        }
        let paths = paths(&bundle.manifest.project, &request.paths)?;
        let unseen = match request.allow_unseen {
            true => BTreeMap::new(),
            false => unseen(&bundle, &paths)?,
        };
        let selection = Selection {
            paths,
            include_ignored: request.include_ignored,
            allow_executed: request.allow_executed,
            unseen,
            skip_unaccepted: request.skip_unaccepted,
            // An earlier attempt may have applied what is applied now.
            applied: match again {
                true => BTreeSet::new(),
                false => bundle.state().map_err(|error| store_problem(&error))?.applied,
            },
        };
        let manifest = bundle.whole_manifest().map_err(|error| store_problem(&error))?;
        Ok((bundle, manifest, selection))
    }

    /// Removes a bundle in which nothing remains to be decided. A bundle that no longer exists,
    /// or about which another process is deciding, is left alone.
    ///
    /// # Errors
    /// [`Code::Io`] when it cannot be removed.
    pub fn remove_if_decided(&self, id: &str) -> Result<()> {
        let settled = self.store.find(id, &READ_LIMITS).and_then(|bundle| {
            bundle.lock()?;
            match pending(&bundle).is_ok_and(|left| left.is_empty()) {
                true => bundle.retire(&self.data),
                false => Ok(()),
            }
        });
        match settled {
            Ok(()) | Err(store::Error::NotFound(_) | store::Error::Busy(_)) => Ok(()),
            Err(error) => Err(store_problem(&error)),
        }
    }

    /// Applies a bundle, and removes it if nothing in it remains to be decided. This is the whole
    /// decision, for a caller that records no steps in between.
    ///
    /// # Errors
    /// As [`Bundles::apply`], and if nothing was changed.
    pub fn apply_at_once(
        &self,
        request: &ApplyBundle,
        observe: &mut dyn FnMut(apply::Step),
    ) -> Result<AppliedBundle> {
        let outcome = self.apply_observed(request, false, observe)?;
        if outcome.is_done() {
            self.remove_if_decided(outcome.id())?;
        }
        outcome.into_response()
    }

    /// Rejects what a name refers to. This is the whole decision, for a caller that records no steps
    /// in between.
    ///
    /// # Errors
    /// As [`Bundles::reject_target`] and [`Bundles::reject`].
    pub fn reject_at_once(&self, name: &str) -> Result<RejectedBundle> {
        let found = self.reject_target(name)?;
        let project = self.project_of(&found);
        self.reject(&found)?;
        Ok(RejectedBundle { id: found.id().to_owned(), project, rejected: true })
    }

    /// What a name refers to, for a rejection.
    ///
    /// # Errors
    /// [`Code::BundleNotFound`].
    pub fn reject_target(&self, name: &str) -> Result<RejectTarget> {
        match self.store.find(name, &READ_LIMITS) {
            Ok(bundle) => Ok(RejectTarget::Bundle(bundle.id().to_owned())),
            Err(error @ (store::Error::Altered(_) | store::Error::Invalid(_))) => {
                self.find_damaged(name).ok_or_else(|| store_problem(&error))
            }
            Err(error @ store::Error::NotFound(_)) => match views::exists(&self.data, name) {
                Ok(true) => Ok(RejectTarget::View(name.to_owned())),
                Ok(false) => Err(store_problem(&error)),
                Err(problem) => Err(problem),
            },
            Err(error) => Err(store_problem(&error)),
        }
    }

    /// The path of the project whose changes a rejection deletes, if it is known.
    pub fn project_of(&self, found: &RejectTarget) -> Option<Bytes> {
        match found {
            RejectTarget::Bundle(id) => {
                let bundle = self.store.find(id, &READ_LIMITS).ok()?;
                Some(Bytes(bundle.manifest.project))
            }
            RejectTarget::Damaged(_) => None,
            RejectTarget::View(id) => views::project(&self.data, id),
        }
    }

    /// Removes what was found. It is not an error if it no longer exists.
    ///
    /// # Errors
    /// [`Code::Io`] when it cannot be removed, or another process is deciding about it.
    pub fn reject(&self, found: &RejectTarget) -> Result<()> {
        match found {
            RejectTarget::Bundle(id) => {
                let bundle = match self.store.find(id, &READ_LIMITS) {
                    Err(store::Error::NotFound(_)) => return Ok(()),
                    found => found.map_err(|error| store_problem(&error))?,
                };
                match lock(&bundle) {
                    // Another command has just decided about it.
                    Err(problem) if problem.code == Code::BundleNotFound => return Ok(()),
                    held => held?,
                }
                // A record that remains is only compared with later bundles.
                let _ = self.forget_shown(&bundle.manifest.project, bundle.id());
                let paths = bundle.manifest.entries.len();
                let recorded = bundle.record(&self.data, Action::Rejected, paths);
                let removed = recorded.and_then(|()| bundle.remove());
                removed.map_err(|error| store_problem(&error))
            }
            RejectTarget::Damaged(id) => {
                let bundles = self.data.bundles().map_err(|error| caused(Code::Io, &error))?;
                let path = RelativePath::new(id.as_str()).map_err(|error| {
                    Problem::new(Code::Io, format!("cannot remove {id}")).because(error.to_string())
                })?;
                bundles.remove_tree(&path).map_err(|error| caused(Code::Io, &error))
            }
            RejectTarget::View(id) => views::discard(&self.data, id),
        }
    }

    /// The one unreadable bundle that a name refers to.
    fn find_damaged(&self, name: &str) -> Option<RejectTarget> {
        let mut listed = self.store.list(&READ_LIMITS).ok()?;
        listed.retain(|listed| {
            listed.bundle.is_err() && (name == "latest" || listed.id.starts_with(name))
        });
        match listed.as_slice() {
            [one] => Some(RejectTarget::Damaged(one.id.clone())),
            _ => None,
        }
    }
}

/// How conflicts are decided; `None` if they are errors.
fn merge_options<'b>(request: &ApplyBundle, bundle: &'b Bundle) -> Option<merge::Options<'b>> {
    let favor = match request.conflicts {
        Conflicts::Refuse if !request.markers => return None,
        Conflicts::Refuse | Conflicts::Merge => None,
        Conflicts::Ours => Some(Favor::Ours),
        Conflicts::Theirs => Some(Favor::Theirs),
    };
    let theirs = format!("bundle {}", short_id(bundle.id()));
    Some(merge::Options {
        favor,
        marks_conflicts: request.markers,
        labels: Labels { ours: "host".to_owned(), theirs },
        bases: bundle,
    })
}

/// The path of a project that was moved.
fn moved_to(project: &[u8]) -> Result<Vec<u8>> {
    let path = Path::new(std::ffi::OsStr::from_bytes(project));
    let real = std::fs::canonicalize(path).map_err(|error| {
        Problem::new(Code::ProjectRefused, format!("there is no project at {}", path.display()))
            .because(error.to_string())
    })?;
    let found = Project::open(&real, None).map_err(|error| caused(Code::ProjectRefused, &error))?;
    Ok(found.root.as_os_str().as_bytes().to_vec())
}

/// The changes at and below these paths, or all, whose new content no diff shows. Ignored changes are
/// not among them: no diff shows their content, and `include_ignored` is the acceptance of their own.
fn unseen(bundle: &Bundle, paths: &[RelativePath]) -> Result<BTreeMap<RelativePath, u64>> {
    let project = project_dir(bundle);
    let mut unseen = BTreeMap::new();
    for entry in pending(bundle)? {
        let is_named = paths.is_empty() || paths.iter().any(|path| entry.path.is_within(path));
        if entry.ignored || !is_named {
            continue;
        }
        let deadline = Some(Instant::now() + DIFF_TIMEOUT);
        let bytes = patch::unseen(bundle, project.as_ref(), entry, deadline);
        let bytes = bytes.map_err(|error| store_problem(&error))?;
        if bytes > 0 {
            unseen.insert(entry.path.clone(), bytes);
        }
    }
    Ok(unseen)
}

/// Prevents other processes from deciding about a bundle, as soon as none does.
fn lock(bundle: &Bundle) -> Result<()> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match bundle.lock() {
            Err(store::Error::Busy(_)) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            held => return held.map_err(|error| store_problem(&error)),
        }
    }
}

fn response(bundle: &Bundle, applied: &ApplyOutcome, done: bool) -> Result<AppliedBundle> {
    let all = |paths: &[RelativePath]| paths.iter().map(to_bytes).collect();
    Ok(AppliedBundle {
        id: bundle.id().to_owned(),
        project: Bytes(bundle.manifest.project.clone()),
        applied: all(&applied.changed),
        already: all(&applied.already_present),
        skipped: skipped_paths(bundle, &applied.skipped)?,
        merged: all(&applied.merged),
        marked: all(&applied.marked),
        kept: all(&applied.kept),
        done,
    })
}

/// What was skipped, with one entry for the paths of one directory that have the same reason.
pub(crate) fn skipped_paths(bundle: &Bundle, skips: &[SkippedChange]) -> Result<Vec<SkippedPath>> {
    let mut reasons: BTreeMap<String, BTreeSet<RelativePath>> = BTreeMap::new();
    for skip in skips {
        reasons.entry(messages::skip(&skip.reason)).or_default().insert(skip.path.clone());
    }
    if reasons.is_empty() {
        return Ok(Vec::new());
    }
    let whole = bundle.whole_manifest().map_err(|error| store_problem(&error))?;
    let all: BTreeSet<RelativePath> = whole.entries.into_iter().map(|entry| entry.path).collect();
    let mut skipped = Vec::new();
    for (reason, paths) in reasons {
        let others = all.difference(&paths).cloned().collect();
        skipped.extend(groups::by_directory(&paths, &others).into_iter().map(|group| {
            let path = group.path.as_ref().map_or_else(|| Bytes(b".".to_vec()), to_bytes);
            SkippedPath { path, reason: reason.clone(), paths: group.paths }
        }));
    }
    Ok(skipped)
}

/// The problem that nothing was changed: either the project already has all of it, or nothing
/// may be applied as requested. The bundle stays.
fn nothing_changed(bundle: &Bundle, applied: &ApplyOutcome) -> Problem {
    let id = short_id(bundle.id());
    if applied.skipped.is_empty() {
        return Problem::new(Code::BundleConflict, "the project already has these changes")
            .remedied_by(format!("stockade reject {id}"));
    }
    let skipped = skipped_paths(bundle, &applied.skipped).unwrap_or_default();
    let reasons: Vec<_> = skipped.iter().take(20).map(messages::skipped).collect();
    let is_any = |wanted: fn(&Skip) -> bool| applied.skipped.iter().any(|it| wanted(&it.reason));
    let remedy = if is_any(|reason| *reason == Skip::Ignored) {
        format!("stockade apply {id} --include-ignored")
    } else if is_any(|reason| matches!(reason, Skip::Executed(_) | Skip::Unseen)) {
        format!("stockade diff {id}")
    } else {
        format!("stockade diff {id} --stat")
    };
    Problem::new(Code::PathRefused, "none of these paths can be applied as requested")
        .because(reasons.join("; "))
        .remedied_by(remedy)
}

/// The problem for a refused decision, with the remedy that depends on the request. The changes were
/// to be committed to `branch`, if there is one.
pub(crate) fn refusal(
    error: &Error,
    request: &ApplyBundle,
    bundle: &Bundle,
    branch: Option<&str>,
) -> Problem {
    let id = short_id(bundle.id());
    let problem = match error {
        Error::NotInBundle(unknown) => return not_in_bundle(bundle, unknown.clone()),
        error => apply_problem(error, bundle.id()),
    };
    match error {
        Error::Executed { .. } | Error::Unseen(_) => {
            let is_executed = request.allow_executed || matches!(error, Error::Executed { .. });
            let is_unseen = request.allow_unseen
                || matches!(error, Error::Unseen(_) | Error::Executed { has_unseen: true, .. });
            let accepts = ApplyBundle {
                allow_executed: is_executed,
                allow_unseen: is_unseen,
                ..request.clone()
            };
            let accepting = command(&accepts, id, branch);
            // The safe way first: to take everything else, if there is anything else.
            if !has_others(bundle, request) {
                return problem.remedied_by(accepting);
            }
            let rest = ApplyBundle { skip_unaccepted: true, ..request.clone() };
            let cause = problem.cause.clone().unwrap_or_default();
            problem
                .because(format!("{cause}; after a review, `{accepting}` takes all"))
                .remedied_by(command(&rest, id, branch))
        }
        Error::NotWritable(paths) => {
            let mut directories: Vec<String> = paths
                .iter()
                .map(|path| {
                    let mut directory = bundle.manifest.project.clone();
                    if let Some(parent) = path.parent() {
                        directory.push(b'/');
                        directory.extend_from_slice(parent.as_bytes());
                    }
                    messages::shell_quote(&directory)
                })
                .collect();
            directories.sort();
            directories.dedup();
            problem.remedied_by(format!("chmod u+wx {}", directories.join(" ")))
        }
        Error::Beneath(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => {
            let project = String::from_utf8_lossy(&bundle.manifest.project);
            if Path::new(std::ffi::OsStr::from_bytes(&bundle.manifest.project)).exists() {
                return problem;
            }
            let message = format!("the project {project} no longer exists");
            Problem::new(Code::ProjectRefused, message)
                .remedied_by(format!("stockade apply {id} --project ."))
        }
        // A branch starts where the command started, so it has no conflicts.
        Error::Conflicts(conflicts) if branch.is_none() => {
            let is_text = |difference: Difference| {
                matches!(difference, Difference::Lines | Difference::BaseUnknown)
            };
            // None discards what the host has changed.
            let (conflicts, markers) = if request.conflicts == Conflicts::Refuse && !request.markers
            {
                (Conflicts::Merge, false)
            } else if conflicts.iter().all(|conflict| is_text(conflict.difference)) {
                (Conflicts::Merge, true)
            } else {
                (Conflicts::Ours, false)
            };
            let merging = ApplyBundle { conflicts, markers, ..request.clone() };
            problem.remedied_by(command(&merging, id, None))
        }
        _ => problem,
    }
}

/// The command that makes a request. It does not choose hunks.
fn command(request: &ApplyBundle, id: &str, branch: Option<&str>) -> String {
    let flags = [
        (request.allow_executed, " --allow-executed"),
        (request.allow_unseen, " --allow-unseen"),
        (request.skip_unaccepted, " --skip-unaccepted"),
        (request.include_ignored, " --include-ignored"),
        (request.conflicts == Conflicts::Merge, " --merge"),
        (request.conflicts == Conflicts::Ours, " --ours"),
        (request.conflicts == Conflicts::Theirs, " --theirs"),
        (request.markers, " --markers"),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| (*flag).to_owned());
    let word = |word: &[u8]| messages::shell_quote(word);
    let branch = branch.map(|name| format!(" --branch {}", word(name.as_bytes())));
    let project = request.project.as_ref().map(|path| format!(" --project {}", word(&path.0)));
    let paths = request.paths.iter().map(|path| format!(" {}", word(&path.0)));
    let words: String = flags.chain(branch).chain(project).chain(paths).collect();
    format!("stockade apply {id}{words}")
}

/// Whether the request also selects changes that need no acceptance.
fn has_others(bundle: &Bundle, request: &ApplyBundle) -> bool {
    let Ok(paths) = paths(&bundle.manifest.project, &request.paths) else { return false };
    let Ok(unseen) = unseen(bundle, &paths) else { return false };
    let Ok(left) = pending(bundle) else { return false };
    left.iter().any(|entry| {
        let is_named = paths.is_empty() || paths.iter().any(|path| entry.path.is_within(path));
        let is_accepted = (entry.executed_by.is_none() || request.allow_executed)
            && (!unseen.contains_key(&entry.path) || request.allow_unseen);
        is_named && is_accepted && (!entry.ignored || request.include_ignored)
    })
}
