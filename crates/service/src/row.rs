//! What is kept of a sandbox: one row of `sandbox_instances`.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use stockade_api::{CreateSandbox, IdleAction, Network, Reached, Sandbox};
use stockade_core::access::Rules;
use stockade_core::event::Reason;
use stockade_core::{Code, ExecutionId, Isolation, OwnerId, Problem, SandboxId, SnapshotId, State};
use stockade_durable::{Row, Statement, Store, Value};

use crate::clock::{now_ms, timestamp};
use crate::failure::of_store;

/// The columns, in the order in which [`SandboxRow`] reads them.
const COLUMNS: &str = "id, owner_id, status, reason, image, visibility, requested_runtime, \
    runtime, execution_id, workflow_id, workspace_id, access_rules, created_at, expires_at, \
    terminated_at, spec, idle_timeout_ms, on_idle, last_used_at, idle_paused, files, generation";

/// A row of `sandbox_instances`.
#[derive(Debug, Clone)]
pub(crate) struct SandboxRow {
    pub(crate) id: SandboxId,
    pub(crate) owner: OwnerId,
    pub(crate) state: State,
    pub(crate) reason: Option<String>,
    pub(crate) image: String,
    pub(crate) visibility: String,
    pub(crate) requested_runtime: Option<String>,
    pub(crate) runtime: String,
    pub(crate) execution_id: Option<ExecutionId>,
    pub(crate) workflow_id: Option<String>,
    pub(crate) workspace_id: Option<String>,
    /// The rules as they were stored: what cannot be read denies.
    pub(crate) rules: Rules,
    pub(crate) created_at: i64,
    pub(crate) expires_at: Option<i64>,
    pub(crate) terminated_at: Option<i64>,
    /// What it was asked for with.
    pub(crate) request: CreateSandbox,
    pub(crate) idle_timeout_ms: Option<i64>,
    pub(crate) on_idle: IdleAction,
    pub(crate) last_used_at: i64,
    /// Whether it was paused because nobody used it.
    pub(crate) idle_paused: bool,
    /// The snapshot that its files are in while it has no processes.
    pub(crate) files: Option<SnapshotId>,
    /// Grows with each change of state; whoever writes names the one that it saw.
    pub(crate) generation: i64,
    /// Whether a part of the row cannot be read: then nothing but its end is possible.
    pub(crate) damaged: bool,
}

impl SandboxRow {
    /// The row of a sandbox, whoever's it is.
    pub(crate) async fn find(store: &dyn Store, id: &SandboxId) -> Result<Option<Self>, Problem> {
        let sql = select("WHERE id = ?1");
        let rows = store.query(Statement::new(sql, vec![id.as_str().into()])).await;
        rows.map_err(of_store)?.first().map(Self::read).transpose()
    }

    /// The rows that a condition selects. Those that not even their owner can be read of are left
    /// out.
    pub(crate) async fn select(
        store: &dyn Store,
        condition: &str,
        parameters: Vec<Value>,
    ) -> Result<Vec<Self>, Problem> {
        let rows = store.query(Statement::new(select(condition), parameters)).await;
        Ok(rows.map_err(of_store)?.iter().filter_map(|row| Self::read(row).ok()).collect())
    }

    fn read(row: &Row) -> Result<Self, Problem> {
        let missing = |what: &str| {
            Problem::new(Code::DatabaseInvalid, format!("a sandbox's record has no {what}"))
        };
        let text = |index: usize| row.text(index).map(str::to_owned).map_err(of_store);
        let optional =
            |index| row.optional_text(index).map(|t| t.map(str::to_owned)).map_err(of_store);
        let integer = |index| row.integer(index).map_err(of_store);
        let maybe = |index| row.optional_integer(index).map_err(of_store);
        // What a newer version wrote, or nobody should have: told as it is, and good for nothing.
        let state = text(2)?.parse().ok();
        let request = parse(&text(15)?);
        let on_idle = parse(&format!("\"{}\"", text(17)?));
        let files = optional(20)?.map(SnapshotId::new).transpose();
        let damaged = state.is_none() || request.is_none() || on_idle.is_none() || files.is_err();
        Ok(Self {
            id: SandboxId::new(text(0)?).map_err(|_| missing("id"))?,
            owner: OwnerId::new(text(1)?).map_err(|_| missing("owner"))?,
            state: state.unwrap_or(State::Error),
            reason: if damaged { Some(DAMAGED.to_owned()) } else { optional(3)? },
            image: text(4)?,
            visibility: text(5)?,
            requested_runtime: optional(6)?,
            runtime: text(7)?,
            execution_id: optional(8)?.and_then(|id| ExecutionId::new(id).ok()),
            workflow_id: optional(9)?,
            workspace_id: optional(10)?,
            rules: Rules::stored(&text(11)?),
            created_at: integer(12)?,
            expires_at: maybe(13)?,
            terminated_at: maybe(14)?,
            request: request.unwrap_or_default(),
            idle_timeout_ms: maybe(16)?,
            on_idle: on_idle.unwrap_or_default(),
            last_used_at: integer(18)?,
            idle_paused: integer(19)? != 0,
            files: files.ok().flatten(),
            generation: integer(21)?,
            damaged,
        })
    }

    /// The row as it is written first, as long as its owner has fewer than `quota` sandboxes.
    pub(crate) fn insert(&self, quota: u32) -> Statement {
        Statement::new(
            "INSERT INTO sandbox_instances (id, owner_id, status, reason, image, visibility, \
             requested_runtime, runtime, execution_id, workflow_id, workspace_id, access_rules, \
             sandbox_users, default_uid, metadata, resource_spec, proxy_config, created_at, \
             expires_at, spec, idle_timeout_ms, on_idle, last_used_at) SELECT ?1, ?2, ?3, NULL, \
             ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
             ?22 WHERE (SELECT count(*) FROM sandbox_instances WHERE owner_id = ?2 AND \
             status <> 'terminated') < ?23",
            vec![
                self.id.as_str().into(),
                self.owner.as_str().into(),
                self.state.as_str().into(),
                self.image.as_str().into(),
                self.visibility.as_str().into(),
                self.requested_runtime.clone().into(),
                self.runtime.as_str().into(),
                self.execution_id.as_ref().map(|id| id.as_str().to_owned()).into(),
                self.workflow_id.clone().into(),
                self.workspace_id.clone().into(),
                json(&self.request.access_rules).into(),
                json(&self.request.users).into(),
                self.request.default_uid.map(i64::from).into(),
                json(&self.request.metadata).into(),
                json(&self.request.limits).into(),
                self.request.proxy.as_ref().map(json).into(),
                self.created_at.into(),
                self.expires_at.into(),
                json(&self.request).into(),
                self.idle_timeout_ms.into(),
                json(&self.on_idle).trim_matches('"').into(),
                self.last_used_at.into(),
                i64::from(quota).into(),
            ],
        )
        .expecting(1)
    }

    /// Gives the row another state, here and by a statement that fails when somebody else changed
    /// it meanwhile.
    pub(crate) fn change(&mut self, state: State, reason: Option<String>) -> Statement {
        let seen = self.generation;
        let now = now_ms();
        self.state = state;
        self.reason = reason;
        self.generation += 1;
        self.idle_paused &= state == State::Paused;
        self.last_used_at = now;
        let mut spec = None;
        if state.is_terminal() {
            self.terminated_at = Some(now);
            self.files = None;
            if !self.request.environment.is_empty() {
                // Nothing is started with it any more.
                self.request.environment.clear();
                spec = Some(json(&self.request));
            }
        }
        Statement::new(
            "UPDATE sandbox_instances SET status = ?3, reason = ?4, terminated_at = ?5, \
             expires_at = ?6, idle_paused = ?7, last_used_at = ?8, files = ?9, \
             spec = coalesce(?10, spec), generation = generation + 1 \
             WHERE id = ?1 AND generation = ?2",
            vec![
                self.id.as_str().into(),
                seen.into(),
                state.as_str().into(),
                self.reason.clone().into(),
                self.terminated_at.into(),
                self.expires_at.into(),
                i64::from(self.idle_paused).into(),
                self.last_used_at.into(),
                self.files.as_ref().map(|files| files.as_str().to_owned()).into(),
                spec.into(),
            ],
        )
        .expecting(1)
    }

    /// Gives it another network, as [`Self::change`] gives it another state.
    pub(crate) fn change_network(&mut self, network: Network) -> Statement {
        let seen = self.generation;
        self.generation += 1;
        self.request.network = Some(network);
        Statement::new(
            "UPDATE sandbox_instances SET spec = ?3, generation = generation + 1 \
             WHERE id = ?1 AND generation = ?2",
            vec![self.id.as_str().into(), seen.into(), json(&self.request).into()],
        )
        .expecting(1)
    }

    /// Pauses the row because nobody uses the sandbox.
    pub(crate) fn change_to_idle(&mut self) -> Statement {
        self.idle_paused = true;
        self.change(State::Paused, Some(Reason::Idle.as_str().to_owned()))
    }

    /// Whether it runs, or will when it is used.
    pub(crate) fn is_usable(&self) -> bool {
        self.state == State::Running || self.state == State::Paused && self.idle_paused
    }

    /// What is told of it.
    pub(crate) fn to_sandbox(&self, isolation: Option<Isolation>) -> Sandbox {
        let request = &self.request;
        Sandbox {
            id: self.id.clone(),
            owner_id: self.owner.clone(),
            state: self.state,
            reason: self.reason.clone(),
            image: self.image.clone(),
            visibility: self.visibility.clone(),
            requested_runtime: self.requested_runtime.clone(),
            runtime: self.runtime.clone(),
            execution_id: self.execution_id.clone(),
            workflow_id: self.workflow_id.clone(),
            workspace_id: self.workspace_id.clone(),
            workspace: request.workspace.clone(),
            metadata: request.metadata.clone(),
            access_rules: request.access_rules.clone(),
            default_uid: request.default_uid,
            users: request.users.clone(),
            limits: request.limits,
            proxy: request.proxy.clone(),
            network: request.network.as_ref().and_then(|it| it.policy().ok()).map(Reached::by),
            created_at: timestamp(self.created_at),
            expires_at: self.expires_at.map(timestamp),
            terminated_at: self.terminated_at.map(timestamp),
            isolation,
            metrics: None,
        }
    }

    /// The statement that says that it was used now.
    pub(crate) fn touch(&self) -> Statement {
        Statement::new(
            "UPDATE sandbox_instances SET last_used_at = ?2 WHERE id = ?1 AND last_used_at < ?2",
            vec![self.id.as_str().into(), now_ms().into()],
        )
    }

    /// What its runtime is told to find it by: its metadata, whose it is, and which service's.
    pub(crate) fn labels(&self, service: &str) -> BTreeMap<String, String> {
        let mut labels = self.request.metadata.clone();
        labels.insert(OWNER_LABEL.to_owned(), self.owner.as_str().to_owned());
        labels.insert(SERVICE_LABEL.to_owned(), service.to_owned());
        labels
    }
}

/// The label with the owner of a sandbox.
const OWNER_LABEL: &str = "stockade.dev/owner";

/// The label with the service whose database knows a sandbox: a runtime may hold those of several.
pub(crate) const SERVICE_LABEL: &str = "stockade.dev/service";

/// Why a sandbox can only be ended.
const DAMAGED: &str = "its record cannot be read";

fn select(condition: &str) -> String {
    format!("SELECT {COLUMNS} FROM sandbox_instances {condition}")
}

fn parse<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// A value as it is stored.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}
