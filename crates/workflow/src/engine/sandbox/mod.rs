//! One try of a `<Sandbox>` (seeds 000 and 001): a request bundle is made, a child workflow or a
//! command is executed in a sandbox, its result is held to the limits, its changes are reviewed,
//! and its outputs are the task's. `Try::go` has the steps in order.
//!
//! A try that a crash ended goes on where its row says: nothing that was executed is again.

pub(crate) mod child_runs;
mod copied;
pub(crate) mod held;
mod local;
pub(crate) mod nested;
pub(crate) mod notes;
mod outside;
mod place;
mod provided;
mod provider;
mod provision;
mod request;
mod result;
mod review;
pub(crate) mod waiting;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use stockade_api::{Bundle, Sandboxes};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;
use stockade_bundle::project::Project;
use stockade_bundle::sandbox::{Request, SandboxBundle, Status, write_request};
use stockade_core::egress::Contract;
use stockade_durable::Statement;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::child_runs::ChildRuns;
use self::held::Held;
use self::nested::{Around, Carried, Within};
use self::notes::Notes;
use self::place::Place;
use self::provider::Remote;
use self::review::Decision;
use super::state::EngineState;
use super::timings::Operation;
use super::tool_limits;
use super::trouble::Trouble;
use super::user_code::UserCode;
use crate::engine::clock::now_ms;
use crate::graph::{OnLimit, Sandbox, Task, ToolLimits, Work};
use crate::journal::child_input;
use crate::schedule::Key;
use crate::store::runs;
use crate::store::sandboxes::{self, OpenSandbox, Pause, Review, SandboxRow, Stage};

/// How many sandboxes of a run are under way at once, unless a variable says otherwise (seed 000).
const USUAL_LIMIT: usize = 10;
/// The variables that say otherwise; the first that is a number counts.
const LIMITS: [&str; 2] =
    ["STOCKADE_MAX_CONCURRENT_SANDBOXES", "SMITHERS_MAX_CONCURRENT_SANDBOXES"];

/// What came of a try.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Given {
    /// The task has this.
    Value(Value),
    /// Its changes wait for a decision.
    Review,
    /// Its child waits.
    Waits(Pause),
    /// Only the host can make it, which is asked for it: by this name.
    Host(String),
}

/// A result that was read, and what is known of who gave it.
#[derive(Debug)]
struct Collected {
    into: Dir,
    /// Where that is.
    path: PathBuf,
    bundle: SandboxBundle,
    /// The files in it that are still to be brought to the disk.
    unsynced: Vec<RelativePath>,
    /// When the try began, and the commit that the project was at then.
    began: i64,
    base_ref: Option<String>,
    remote: Remote,
}

/// How many sandboxes a run with this environment may have under way.
pub(crate) fn limit(environment: &BTreeMap<String, String>) -> usize {
    let number = |name: &&str| environment.get(*name)?.trim().parse::<f64>().ok();
    let found = LIMITS.iter().find_map(number).filter(|number| *number >= 1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 1024")]
    let limit = found.map(|number| number.min(1024.0) as usize);
    limit.unwrap_or(USUAL_LIMIT)
}

/// Ends the sandboxes of a run that is over, and of those below it.
pub(crate) async fn end_all(
    state: &EngineState,
    owner: &str,
    run: &str,
) -> Result<(), stockade_durable::Error> {
    let Some(sandboxes) = &state.options.sandboxes else { return Ok(()) };
    let file = runs::find(state.store(), run).await?.map(|row| row.run.file).unwrap_or_default();
    let root = state.options.project_of(Path::new(&file));
    for OpenSandbox { run, key, name } in sandboxes::list_open(state.store(), run).await? {
        // What is in it ends before it.
        Within { engine: state, owner, root: &root }.end(&run, &name).await;
        if let Ok(held) = Held::of(Arc::clone(sandboxes), owner, &name) {
            held.end_for_good().await;
        }
        let end = sandboxes::end(&run, &key, Stage::Cancelled, now_ms());
        state.store().execute(vec![end]).await?;
    }
    Ok(())
}

/// All that one try needs.
#[derive(Debug)]
pub(crate) struct Try {
    pub(crate) state: Arc<EngineState>,
    pub(crate) user_code: Arc<UserCode>,
    pub(crate) run: String,
    /// Names the try, and no other.
    pub(crate) name: String,
    pub(crate) owner: String,
    /// The project's directory.
    pub(crate) root: PathBuf,
    /// What the run's `process.env` holds.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) key: Key,
    pub(crate) task: Arc<Task>,
    pub(crate) notes: Notes,
    /// The places of the run for sandboxes.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) child_runs: Arc<dyn ChildRuns>,
    /// What is around it, where it is in another sandbox.
    pub(crate) around: Option<Around>,
    /// What it has from a child that asked for it, and not from the author.
    pub(crate) carried: Option<Carried>,
}

impl Try {
    /// Does it, or what is left of it.
    pub(crate) async fn go(mut self) -> Result<Given, Trouble> {
        self.narrow()?;
        let Work::Sandbox(sandbox) = &self.task.work else {
            return Err(failed("the task is no sandbox"));
        };
        if self.state.options.sandboxes.is_none() {
            return self.ask_host(sandbox).await;
        }
        let kept = self.kept().await?;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.stage == Stage::Waiting) {
            return Ok(Given::Waits(kept.pause().unwrap_or_default()));
        }
        // One that ended with its run is begun anew; the changes of one that was done still wait.
        let is_over = |kept: &SandboxRow| kept.stage == Stage::Cancelled && kept.review.is_none();
        let kept = kept.filter(|kept| !is_over(kept));
        if let Some(review) = kept.as_ref().and_then(|kept| kept.review.clone()) {
            let decision =
                kept.as_ref().and_then(|kept| kept.decision.as_ref()).map(Decision::read);
            let began = kept.as_ref().map_or(0, |kept| kept.created_at_ms);
            if decision.is_none() || sandbox.provider.is_none() {
                self.end_again(sandbox).await?;
            }
            return self.settle(sandbox, review, decision, began).await;
        }
        if sandbox.provider.is_some() {
            return self.provided(sandbox, kept).await;
        }
        self.execute(sandbox, kept).await
    }

    /// What is kept of this very try.
    async fn kept(&self) -> Result<Option<SandboxRow>, Trouble> {
        let kept = sandboxes::find(self.state.store(), &self.run, &self.key).await;
        let kept = kept.map_err(|error| failed(error.to_string()).retryable())?;
        let is_same =
            |kept: &SandboxRow| kept.attempt == self.notes.attempt && kept.name == self.name;
        Ok(kept.filter(is_same))
    }

    fn sandboxes(&self) -> Result<Arc<dyn Sandboxes>, Trouble> {
        let sandboxes = self.state.options.sandboxes.clone();
        sandboxes.ok_or_else(|| Trouble::new("INVALID_INPUT", "no sandbox can be made in here"))
    }

    /// Where it has its files on the host.
    fn directory(&self) -> Result<Place, Trouble> {
        match &self.carried {
            Some(_) => Place::open_nested(&self.root, &self.run, &self.key),
            None => Place::open(&self.root, &self.run, &self.key),
        }
    }

    /// Ends what executed a try whose result is in safety; a crash may have come before.
    async fn end_again(&self, sandbox: &Sandbox) -> Result<(), Trouble> {
        if sandbox.provider.is_some() {
            self.clean_up_again(sandbox).await
        } else {
            self.held()?.end().await;
            Ok(())
        }
    }

    /// The sandbox of this try.
    fn held(&self) -> Result<Held, Trouble> {
        Held::of(self.sandboxes()?, &self.owner, &self.name)
    }

    /// One of the places of the run. That there is none is kept as the try's failure; a child that
    /// goes on after a wait, in which it had no place, waits for one in any case.
    async fn place(
        &self,
        sandbox: &Sandbox,
        selected: &str,
        goes_on: bool,
    ) -> Result<OwnedSemaphorePermit, Trouble> {
        let places = Arc::clone(&self.places);
        let place = match sandbox.on_limit {
            OnLimit::Fail if !goes_on => places.try_acquire_owned().ok(),
            OnLimit::Wait | OnLimit::Fail => places.acquire_owned().await.ok(),
        };
        if let Some(place) = place {
            return Ok(place);
        }
        let limit = limit(&self.environment);
        let message = format!(
            "Sandbox concurrency limit reached: {limit} are under way in this run \
             (SMITHERS_MAX_CONCURRENT_SANDBOXES; onLimit=\"wait\" waits instead)"
        );
        let trouble = failed(message).retryable();
        let begun = self.begun(sandbox, selected, None);
        self.notes.keep(Vec::new(), vec![begun]).await?;
        self.fail(request::runtime(sandbox), &trouble).await;
        Err(trouble)
    }

    /// What the tools of the sandbox may take.
    fn tools(&self, sandbox: &Sandbox) -> ToolLimits {
        tool_limits::limits(&self.environment).narrowed(sandbox.tools)
    }

    fn begun(&self, sandbox: &Sandbox, selected: &str, base_ref: Option<&str>) -> Statement {
        let config = request::config(sandbox, selected, self.tools(sandbox));
        let who = (self.run.as_str(), &self.key, self.notes.attempt, self.name.as_str());
        let within = self.around.as_ref().map(|around| around.lineage.parent());
        sandboxes::begin(who, within, request::runtime(sandbox), &config, base_ref, now_ms())
    }

    /// When a try began, and the commit that the project was at then: of one that goes on, or that
    /// begins now.
    async fn begin(
        &self,
        sandbox: &Sandbox,
        kept: Option<SandboxRow>,
        selected: &str,
    ) -> Result<(i64, Option<String>), Trouble> {
        if let Some(kept) = kept {
            return Ok((kept.created_at_ms, kept.base_ref));
        }
        let base_ref = self.base_ref()?;
        let config = request::config(sandbox, selected, self.tools(sandbox)).to_string();
        let more = json!({ "runtime": request::runtime(sandbox), "configJson": config });
        let created = self.notes.event("SandboxCreated", more);
        let begun = self.begun(sandbox, selected, base_ref.as_deref());
        self.notes.keep(vec![created, self.notes.stage("created", 10)], vec![begun]).await?;
        Ok((now_ms(), base_ref))
    }

    /// The commit that the project is at; a project that must not be shown is refused.
    fn base_ref(&self) -> Result<Option<String>, Trouble> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let project = Project::open(self.project(), home.as_deref());
        let project = project.map_err(|error| Trouble::new("INVALID_INPUT", error.to_string()))?;
        Ok(project.base_ref)
    }

    /// Writes the request bundle; its length in bytes. When it is written again after a crash, a
    /// sandbox that nothing was executed in yet may have its directory already.
    async fn request(
        &self,
        sandbox: &Sandbox,
        runtime: &str,
        contract: Option<&Contract>,
        (place, is_again): (&Place, bool),
    ) -> Result<u64, Trouble> {
        let mut files: Vec<(RelativePath, Vec<u8>)> = Vec::new();
        let named = |name: &str, content: Vec<u8>| {
            let name = RelativePath::new(name).map_err(|error| failed(error.to_string()))?;
            Ok::<_, Trouble>((name, content))
        };
        if let Some(pem) = contract.and_then(|contract| contract.ca_cert_pem.as_ref()) {
            files.push(named(".smithers/egress/ca.crt", pem.clone().into_bytes())?);
        }
        let provider = sandbox.provider.as_deref();
        if let Some(carried) = &self.carried {
            for (name, content) in &carried.program {
                files.push(named(name, content.clone())?);
            }
        } else if sandbox.workflow.is_some() {
            let program = self.user_code.child_program(&self.run, &self.task.id).await;
            // A provider has the workflow itself; its program is there for what it ships.
            let program = if provider.is_some() { program.unwrap_or_default() } else { program? };
            for (name, content) in program {
                files.push(named(&name, content)?);
            }
        } else if sandbox.command.is_none() && provider.is_none() {
            let message = "a <Sandbox> needs `workflow`, children, or `command`";
            return Err(Trouble::new("INVALID_INPUT", message));
        }
        let input = child_input(sandbox.input.clone());
        files.push(named("input.json", input.to_string().into_bytes())?);
        let lineage = self.notes.lineage.as_ref().map(|lineage| json!(lineage));
        let request = Request {
            sandbox_id: &self.key.node,
            lineage: lineage.as_ref(),
            provider,
            runtime: sandbox.provider.is_none().then_some(runtime),
            input: &input,
            files: &files,
        };
        let dir = match is_again {
            true => place.emptied("request-bundle")?,
            false => place.fresh("request-bundle")?,
        };
        let size = write_request(&dir, &request).map_err(|error| result::refused(&error))?;
        // It is shown inside in any case.
        let own = RelativePath::new(".smithers").map_err(|error| failed(error.to_string()))?;
        match dir.mkdir(&own, 0o700) {
            Err(error) if error.kind() == Some(std::io::ErrorKind::AlreadyExists) => {}
            made => made?,
        }
        Ok(size)
    }

    /// Keeps the changes that a result brings, and those of the workspace where there is one; where
    /// all that cannot be done, none of them.
    async fn gathered(
        &self,
        held: &Held,
        collected: Collected,
        has_workspace: bool,
    ) -> Result<(Review, i64), Trouble> {
        let mut bundles = Vec::new();
        let review = self.kept_changes(held, &collected, has_workspace, &mut bundles).await;
        if review.is_err() && !is_stopped(&review) {
            review::discard(held, bundles.iter().map(|bundle| bundle.id.as_str())).await;
        }
        Ok((review?, collected.began))
    }

    async fn kept_changes(
        &self,
        held: &Held,
        collected: &Collected,
        has_workspace: bool,
        bundles: &mut Vec<Bundle>,
    ) -> Result<Review, Trouble> {
        let Collected { into, bundle, remote, unsynced, .. } = collected;
        let trouble = result::unfinished(bundle);
        let synced = result::sync(into, unsynced);
        // What a child that failed has changed goes with it.
        if trouble.is_none() {
            let changes = self.changes(held, collected, has_workspace, bundles);
            let changes = self.notes.timings.measure(Operation::Collect, changes);
            let (changes, synced) = tokio::join!(changes, synced);
            changes.and(synced)?;
        } else {
            synced.await?;
        }
        let review = review::of(held, bundles, bundle).await?;
        let remote_run_id = remote.run_id.clone().or(review.remote_run_id);
        let review = Review { remote_run_id, ..review };
        self.received(collected, &review).await?;
        trouble.map_or(Ok(review), Err)
    }

    /// Makes bundles of what it has changed.
    async fn changes(
        &self,
        held: &Held,
        collected: &Collected,
        has_workspace: bool,
        bundles: &mut Vec<Bundle>,
    ) -> Result<(), Trouble> {
        let Collected { into, base_ref, .. } = collected;
        if let Some(diff) = result::diff(into)? {
            let proposed = review::proposed(held, self.project(), base_ref.as_deref(), &diff);
            bundles.extend(proposed.await?);
        }
        if has_workspace {
            bundles.extend(review::changes(held).await?);
        }
        Ok(())
    }

    /// A result passed validation.
    async fn received(&self, collected: &Collected, review: &Review) -> Result<(), Trouble> {
        let Collected { path, bundle, remote, .. } = collected;
        let path = path.display().to_string();
        let logs = bundle.stream_log.as_ref().map(|log| format!("{path}/{}", log.quoted()));
        let patches = review.patch_count;
        let more = json!({ "bundlePath": path, "patchCount": patches, "logsPath": logs });
        let event = self.notes.event(
            "SandboxBundleReceived",
            json!({
                "bundleSizeBytes": bundle.total_bytes, "patchCount": patches,
                "hasOutputs": !bundle.manifest.outputs.is_null(),
            }),
        );
        let events = vec![self.notes.stage_with("bundle-collected", 85, more), event];
        let ids = [&review.remote_run_id, &remote.workspace_id, &remote.container_id];
        let ids = ids.map(Option::as_deref);
        let mut statements = vec![sandboxes::receive(&self.run, &self.key, &path, ids, now_ms())];
        if bundle.manifest.status == Status::Finished {
            // In safety from here on: who made it may go.
            statements.push(sandboxes::request_review(&self.run, &self.key, review));
        }
        self.notes.keep(events, statements).await
    }

    /// Ends a try that was executed: with a decision about its changes, or as failed.
    async fn concluded(
        &self,
        sandbox: &Sandbox,
        done: Result<(Review, i64), Trouble>,
    ) -> Result<Given, Trouble> {
        if !is_stopped(&done)
            && let Err(trouble) = &done
        {
            self.fail(request::runtime(sandbox), trouble).await;
        }
        let (review, began) = done?;
        self.settle(sandbox, review, None, began).await
    }

    /// Decides about the changes, or waits for who does.
    async fn settle(
        &self,
        sandbox: &Sandbox,
        review: Review,
        decision: Option<Decision>,
        began: i64,
    ) -> Result<Given, Trouble> {
        let has_changes = review.patch_count > 0;
        let asks = has_changes && (sandbox.review_diffs || review.executed > 0);
        let usual = Decision { is_approved: true, ..Decision::default() };
        let is_somebodys = decision.as_ref().is_some_and(|decision| !decision.at.is_empty());
        let decision = match decision {
            Some(decision) => decision,
            None => {
                let mut events = Vec::new();
                if asks {
                    let more = json!({
                        "patchCount": review.patch_count,
                        "totalDiffLines": review.total_diff_lines,
                        "bundles": review.bundles,
                    });
                    events.push(self.notes.event("SandboxDiffReviewRequested", more));
                }
                let mut statements = vec![sandboxes::request_review(&self.run, &self.key, &review)];
                let is_accepted = !sandbox.review_diffs || sandbox.auto_accept_diffs;
                let waits = asks && (!is_accepted || review.executed > 0);
                if !waits {
                    let said = json!({ "approved": true });
                    statements.push(sandboxes::decide(&self.run, &self.key, &said));
                }
                self.notes.keep(events, statements).await?;
                if waits {
                    return Ok(Given::Review);
                }
                usual
            }
        };
        let held = self.held()?;
        if !decision.is_approved {
            review::discard(&held, review.bundles.iter().map(String::as_str)).await;
            let reason = decision.note.clone();
            let told = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let message = format!("the changes of sandbox \"{}\" were denied{told}", self.key.node);
            let trouble = Trouble::new("INVALID_INPUT", message);
            let event = self.notes.event("SandboxDiffRejected", json!({ "reason": reason }));
            self.notes.keep(vec![event], Vec::new()).await?;
            self.fail(request::runtime(sandbox), &trouble).await;
            return Err(trouble);
        }
        self.note_changes(&held, &review).await?;
        let left = match review::apply(&held, &review, &decision).await {
            Ok(left) => left,
            // Who decided can look what is in the way, and decide again: nothing is lost.
            Err(trouble) if is_somebodys && !trouble.is_stop() => {
                let more = json!({ "error": trouble.to_json() });
                let event = self.notes.event("SandboxDiffNotApplied", more);
                let waits = sandboxes::request_review(&self.run, &self.key, &review);
                self.notes.keep(vec![event], vec![waits]).await?;
                return Ok(Given::Review);
            }
            Err(trouble) => {
                self.fail(request::runtime(sandbox), &trouble).await;
                return Err(trouble);
            }
        };
        let mut events = Vec::new();
        if has_changes {
            let more = json!({ "patchCount": review.patch_count, "skipped": left });
            events.push(self.notes.event("SandboxDiffAccepted", more));
        }
        let more = json!({
            "remoteRunId": review.remote_run_id, "runtime": request::runtime(sandbox),
            "status": "finished", "durationMs": now_ms().saturating_sub(began),
        });
        events.push(self.notes.event("SandboxCompleted", more));
        events.push(self.notes.stage("completed", 100));
        let end = sandboxes::end(&self.run, &self.key, Stage::Finished, now_ms());
        self.notes.keep(events, vec![end]).await?;
        Ok(Given::Value(review.outputs))
    }

    /// Keeps that the try has failed. Best effort: the failure itself is the task's.
    async fn fail(&self, runtime: &str, trouble: &Trouble) {
        let more = json!({ "runtime": runtime, "error": trouble.to_json() });
        let events = vec![self.notes.event("SandboxFailed", more), self.notes.stage("failed", 100)];
        let end = sandboxes::end(&self.run, &self.key, Stage::Failed, now_ms());
        let _ = self.notes.keep(events, vec![end]).await;
    }
}

/// Whether it ended because its run has stopped, and goes on with that.
fn is_stopped<T>(done: &Result<T, Trouble>) -> bool {
    done.as_ref().is_err_and(Trouble::is_stop)
}

fn failed(message: impl Into<String>) -> Trouble {
    Trouble::new("SANDBOX_EXECUTION_FAILED", message)
}
