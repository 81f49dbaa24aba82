//! How runs of workflow files and of workflows in Rust are started, for the first time and again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stockade_api::{Caller, ForkOrigin, LATEST, Result, Run};
use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::{StartOptions, Statement};
use stockade_script::worker::Confinement;

use super::options::Options;
use super::prepare::{check, check_executable, load};
use super::problem::{from_store, run_exists};
use super::program::{self, Program};
use super::user_code::{Rendering, UserCode};
use super::workflows::Workflows;
use super::{project_files, run, sandbox};
use crate::engine::clock::now_ms;
use crate::store::runs::{self, NewRun, RunRow};
use crate::store::{events, programs};

/// The longest id of a run, in bytes.
const MAX_ID_BYTES: usize = 128;

/// A request to start a run of a workflow in Rust.
#[derive(Debug, Clone, Default)]
pub struct StartRun {
    /// The input of the workflow.
    pub input: Value,
    /// The id of the run; if absent, a new one is generated.
    pub run_id: Option<String>,
    /// The directory that commands and sandboxes work on.
    pub project: PathBuf,
    /// How many tasks of the run may run in parallel; `None` means no limit.
    pub max_concurrency: Option<u32>,
}

/// A run to be started.
pub(super) struct RunRequest {
    pub(super) id: String,
    pub(super) file: PathBuf,
    pub(super) input: Value,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) max_concurrency: Option<u32>,
    /// The step that it is forked from, and the statements that copy what had ended before.
    pub(super) fork: Option<(ForkOrigin, Vec<Statement>)>,
}

/// The id of a run to be started.
pub(super) enum RunId {
    /// The run was already started, with the same idempotency key.
    Existing(Box<Run>),
    /// No run has it.
    New(String),
}

impl Workflows {
    /// Starts a run of a workflow in Rust, one of [`Options::rust_workflows`](super::Options::rust_workflows). All other
    /// operations are the same as for any run; [`resume_run`](stockade_api::Workflows) resumes a failed
    /// run with the workflow that has its name now.
    ///
    /// # Errors
    /// As for [`up`](stockade_api::Workflows): the workflow does not exist, its graph cannot be
    /// executed, it does not accept the input, or the id is taken.
    pub async fn start_run(
        &self,
        caller: &Caller,
        workflow: &str,
        request: StartRun,
    ) -> Result<Run> {
        let id = match self.reserve_id(caller, request.run_id).await? {
            RunId::Existing(run) => return Ok(*run),
            RunId::New(id) => id,
        };
        let found = program::find(workflow, &self.state.options.rust_workflows);
        let found = found.map_err(|message| Problem::new(Code::NotFound, message))?;
        let user_code = UserCode::of_rust(found);
        let StartRun { input, project, max_concurrency, .. } = request;
        let (name, schemas) = (Path::new(workflow), &self.state.schemas);
        let rendering = check(&user_code, name, &id, &input, schemas).await?;
        let file = project.canonicalize().unwrap_or(project).join(workflow);
        let environment = BTreeMap::new();
        let fork = None;
        let new = RunRequest { id, file, input, environment, max_concurrency, fork };
        self.submit(caller, new, user_code, &rendering).await
    }

    /// The id of a new run, or the run that the same request has already started.
    pub(super) async fn reserve_id(
        &self,
        caller: &Caller,
        requested: Option<String>,
    ) -> Result<RunId> {
        let id = match requested {
            Some(id) => check_id(id)?,
            None => uuid::Uuid::now_v7().simple().to_string(),
        };
        let Some(known) = runs::find(self.state.store(), &id).await.map_err(from_store)? else {
            return Ok(RunId::New(id));
        };
        let is_same =
            known.idempotency_key.is_some() && known.idempotency_key == caller.idempotency_key;
        if !is_same {
            return Err(run_exists(&id));
        }
        Ok(RunId::Existing(Box::new(self.find_own(caller, &id).await?.run)))
    }

    /// Stores a run, and starts it.
    pub(super) async fn submit(
        &self,
        caller: &Caller,
        new: RunRequest,
        user_code: UserCode,
        rendering: &Rendering,
    ) -> Result<Run> {
        check_executable(&rendering.graph, &self.state.options, &new.file)?;
        let RunRequest { id, file, input, environment, max_concurrency, fork } = new;
        let (hash, program) = stored_program(&user_code)?;
        let now = now_ms();
        let name = rendering.graph.name.as_str();
        let mut started =
            json!({ "type": "RunStarted", "runId": id, "timestampMs": now, "name": name });
        if let Some(Confinement { namespaces, landlock }) = user_code.confinement().await {
            started["isolation"] = json!({ "namespaces": namespaces, "landlock": landlock });
        }
        let (origin, copies) = fork.unzip();
        if let Some(origin) = origin {
            started["forkedFrom"] = json!(origin);
        }
        let row = NewRun {
            id: &id,
            owner: caller.owner.as_str(),
            name,
            file: file.display().to_string(),
            program: hash,
            input: &input,
            environment: &environment,
            max_concurrency,
            idempotency_key: caller.idempotency_key.clone(),
        };
        let mut statements =
            vec![program, runs::insert(row, now), events::insert(&id, 0, now, &started)];
        statements.extend(copies.into_iter().flatten());
        let project = self.state.options.project_of(&file);
        self.tidy(project).await;
        self.state.store_prepared(&id, user_code);
        let started = self.start(&caller.owner, &id, 1, statements).await;
        if started.is_err() {
            drop(self.state.take_prepared(&id));
        }
        started?;
        Ok(self.find_own(caller, &id).await?.run)
    }

    /// Removes old files of ended runs from a project, in the background.
    async fn tidy(&self, project: PathBuf) {
        let Ok(unfinished) = runs::list_unfinished(self.state.store()).await else { return };
        let unfinished: Vec<String> = unfinished.into_iter().map(|run| run.id).collect();
        let data = self.state.options.data.clone();
        tokio::task::spawn_blocking(move || {
            if let Some(data) = data {
                project_files::tidy(&data, &project, &unfinished, now_ms() / 1_000);
            }
            if let Err(error) = sandbox::tidy(&project, &unfinished, now_ms() / 1_000) {
                tracing::warn!(%error, "old files of sandboxes remain");
            }
        });
    }

    /// Loads the current version of the workflow of a run; returns it and its rendering.
    pub(super) async fn reload(&self, row: &RunRow) -> Result<(UserCode, Rendering)> {
        let Options { realms, rust_workflows: built, .. } = &self.state.options;
        let (run, schemas) = (&row.run, &self.state.schemas);
        let file = Path::new(&run.file);
        let stored = program::stored(self.state.store(), &run.program).await.map_err(from_store)?;
        if let Some(Program::Rust(name)) = stored {
            let found = program::find(&name.built, built);
            let user_code = found.map_err(|message| Problem::new(Code::NotFound, message))?;
            let user_code = UserCode::of_rust(user_code);
            let rendering = check(&user_code, file, &run.id, &run.input, schemas).await?;
            return Ok((user_code, rendering));
        }
        load(realms.clone(), file, &run.id, &run.input, &row.environment, schemas).await
    }

    /// Starts the durable workflow of a run and applies these statements in one commit.
    pub(super) async fn start(
        &self,
        owner: &OwnerId,
        id: &str,
        generation: i64,
        with: Vec<Statement>,
    ) -> Result<()> {
        let options = StartOptions {
            id: Some(run::workflow_id(id, generation).map_err(from_store)?),
            owner: Some(owner.as_str().to_owned()),
            statements: with,
            ..StartOptions::default()
        };
        let input = run::Input { run: id.to_owned() };
        self.engine.start(run::NAME, &input, options).await.map_err(from_store)?;
        Ok(())
    }
}

/// The hash of a program, and the statement that stores it.
pub(super) fn stored_program(user_code: &UserCode) -> Result<(String, Statement)> {
    let program = user_code.program();
    let hash = program.hash();
    let text = serde_json::to_string(&program)
        .map_err(|error| Problem::new(Code::Io, error.to_string()))?;
    let statement = programs::insert(&hash, text);
    Ok((hash, statement))
}

fn check_id(id: String) -> Result<String> {
    let is_good = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let is_free = !id.is_empty() && id != LATEST;
    if is_free && id.len() <= MAX_ID_BYTES && id.chars().all(is_good) {
        return Ok(id);
    }
    let message = format!("{id:?} is not a valid run id");
    let why =
        format!("use 1 to {MAX_ID_BYTES} letters, digits, `-`, `_` and `.`, but not `{LATEST}`");
    Err(Problem::new(Code::InvalidInput, message).because(why))
}
