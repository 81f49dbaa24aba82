//! A `<Sandbox>` that a provider of the author's executes (seed 001, "Execution model"): the same
//! steps as for a runtime of this host, but for who does the work.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use stockade_bundle::beneath::Dir;
use stockade_core::egress::Contract;

use super::child_runs::ChildRuns;
use super::held::Held;
use super::notes::Notes;
use super::outside::{Outside, granted};
use super::place::Place;
use super::provider::{self, Places, Provided, ProviderResult};
use super::provision::{self, Provision, Times};
use super::{Collected, Given, Try, copied, is_stopped, request, result};
use crate::authoring::ChildRequest;
use crate::engine::clock::now_ms;
use crate::engine::timings::Operation;
use crate::engine::trouble::Trouble;
use crate::engine::user_code::{ActiveGuard, ChildResult, ProviderHost, ProviderName};
use crate::graph::Sandbox;
use crate::journal::WorkflowRef;
use crate::store::sandboxes::{self, Review, SandboxRow, Stage};

/// How long a provider may be silent, unless somebody says otherwise, and the variable that does
/// (upstream's, in milliseconds).
const SILENT: Duration = Duration::from_secs(600);
const SILENT_VARIABLE: &str = "SMITHERS_TASK_HEARTBEAT_MS";
/// How much of what a provider says of itself is kept with an event; it may say a megabyte, twice a
/// second.
const KEPT_BYTES: usize = 16 << 10;

impl Try {
    /// Lets the provider clean up behind a try whose result is in safety.
    pub(super) async fn clean_up_again(&self, sandbox: &Sandbox) -> Result<(), Trouble> {
        let contract = request::contract(sandbox)?;
        let place = self.directory()?;
        let request = self.asked_of(sandbox, contract.as_ref(), &place);
        let provision = Provision::new(&self.user_code, &self.run, &self.task.id, request);
        provision.clean_up_before().await;
        Ok(())
    }

    /// Everything up to the review, by the provider.
    pub(super) async fn provided(
        &self,
        sandbox: &Sandbox,
        kept: Option<SandboxRow>,
    ) -> Result<Given, Trouble> {
        if kept.is_none() {
            self.notes.keep(vec![self.notes.stage("initializing", 0)], Vec::new()).await?;
        }
        let held = self.held()?;
        let _active = ActiveGuard::new(&self.state.provider_requests);
        let asked =
            self.user_code.provider(&self.run, &self.task.id, sandbox.provider.as_deref()).await;
        let ProviderName { id, is_known } = asked.map_err(provision::trouble)?;
        let file = self.state.options.providers.as_deref();
        let granted = (!is_known).then(|| granted(file, &id, &self.owner)).transpose()?;
        let contract = request::contract(sandbox)?;
        let _place = self.place(sandbox, &id, false).await?;
        let place = self.directory()?;
        let mut request = self.asked_of(sandbox, contract.as_ref(), &place);
        if granted.is_some() {
            // The realm has it already, as the author wrote it.
            request["input"] = sandbox.input.clone();
        }
        let mut provision = Provision::new(&self.user_code, &self.run, &self.task.id, request);
        if let Some(granted) = granted {
            let workflow = sandbox.workflow.map(WorkflowRef::Rendered);
            let places = (self.root.as_path(), place.path.as_path());
            let program = (granted, self.state.options.helper.clone());
            provision =
                provision.outside(Outside::new(program, places, &self.environment, workflow));
        }
        if kept.is_some() {
            // A crash ended this try: what it left elsewhere goes before it begins again.
            provision.clean_up_before().await;
        }
        self.state.provider_cleanups.claim(&self.name);
        if kept.is_some() {
            // It is not to begin again only to be ended.
            self.state.provider_cleanups.wait_for_cancel(&self.run).await;
        }
        let secrets = Secrets::of(sandbox, contract.as_ref());
        let done =
            self.asked_provider(sandbox, kept, (&place, &held, &id), &mut provision, &secrets);
        let done = done.await.map_err(|trouble| secrets.left_out_of(trouble));
        if !is_stopped(&done) {
            if let Err(failure) = self.child_runs.cancel_rest(&self.owner).await {
                tracing::warn!(run = self.run, error = failure.message, "child runs are left");
            }
            // What it gave is here by now, whoever decides about it.
            let cleaned = self.notes.timings.measure(Operation::Cleanup, provision.clean_up());
            if let Err(trouble) = cleaned.await {
                let error = secrets.left_out_of(trouble).message;
                tracing::warn!(run = self.run, error, "sandbox provider cleanup failed");
            }
            self.state.provider_cleanups.release(&self.name);
        }
        self.concluded(sandbox, done).await
    }

    /// The plain part of what a provider is given.
    fn asked_of(&self, sandbox: &Sandbox, contract: Option<&Contract>, place: &Place) -> Value {
        let path = |name: &str| place.path.join(name).display().to_string();
        let tools = self.tools(sandbox);
        let mut request = json!({
            "runId": self.run,
            "sandboxId": self.key.node,
            "rootDir": self.root.display().to_string(),
            "requestBundlePath": path("request-bundle"),
            "resultBundlePath": path("result"),
            "allowNetwork": sandbox.allow_network,
            "maxOutputBytes": request::output_bytes(tools),
            "toolTimeoutMs": request::timeout_ms(tools).unwrap_or(request::TOOL_TIMEOUT_MS),
            "config": sandbox.config,
        });
        if let Some(contract) = contract {
            request["egress"] = json!(contract);
        }
        request
    }

    fn times(&self) -> Times {
        let said = self.environment.get(SILENT_VARIABLE).and_then(|text| text.trim().parse().ok());
        let usual = said.filter(|said| *said > 0).map_or(SILENT, Duration::from_millis);
        Times { whole: self.task.timeout, silent: self.task.heartbeat_timeout.or(Some(usual)) }
    }

    async fn asked_provider(
        &self,
        sandbox: &Sandbox,
        kept: Option<SandboxRow>,
        (place, held, id): (&Place, &Held, &str),
        provision: &mut Provision,
        secrets: &Secrets,
    ) -> Result<(Review, i64), Trouble> {
        let (run, key, notes) = (&self.run, &self.key, &self.notes);
        let runtime = request::runtime(sandbox);
        let is_shipped = kept.as_ref().is_some_and(|kept| kept.stage == Stage::Shipped);
        let (began, base_ref) = self.begin(sandbox, kept, id).await?;
        let contract = request::contract(sandbox)?;
        let request = self.request(sandbox, runtime, contract.as_ref(), (place, false));
        let size = notes.timings.measure(Operation::Ship, request).await?;
        drop(place.fresh("result")?);
        if !is_shipped {
            let more = json!({ "runtime": runtime, "bundleSizeBytes": size });
            let events = vec![notes.event("SandboxShipped", more), notes.stage("shipped", 25)];
            notes.keep(events, vec![sandboxes::ship(run, key, now_ms())]).await?;
        }
        notes.keep(vec![notes.stage("executing", 40)], Vec::new()).await?;
        let child_runs = &*self.child_runs;
        let host = Ours { notes, run, child_runs, secrets };
        let work = provision.work(self.times(), &host);
        let given = notes.timings.measure(Operation::Execute, work).await?;
        let places = Places::of(&self.root, &place.path);
        let Provided { result, remote } = provider::read(given, &places)?;
        let collected = async {
            let (into, path) = materialised(result, place).await?;
            let bundle = result::read(&into)?;
            Ok::<_, Trouble>((into, path, bundle))
        };
        let (into, path, bundle) = notes.timings.measure(Operation::Collect, collected).await?;
        let unsynced = Vec::new();
        let collected = Collected { into, path, bundle, unsynced, began, base_ref, remote };
        self.gathered(held, collected, false).await
    }
}

/// A result as a bundle in the sandbox's own place: the directory, and where it is.
async fn materialised(result: ProviderResult, place: &Place) -> Result<(Dir, PathBuf), Trouble> {
    match result {
        ProviderResult::Structured(result) => {
            let into = place.fresh("result")?;
            stockade_bundle::sandbox::write_result(&into, &result)
                .map_err(|error| result::refused(&error))?;
            Ok((into, place.path.join("result")))
        }
        // Whoever wrote it may go on writing, and removes it when it cleans up.
        ProviderResult::Bundle(from) => {
            let into = place.fresh("collected")?;
            let copy =
                tokio::task::spawn_blocking(move || copied::copy(&from, &into).map(|()| into));
            let lost = |error| super::failed(format!("cannot copy the result: {error}"));
            Ok((copy.await.map_err(lost)??, place.path.join("collected")))
        }
    }
}

/// What a provider's words lead to.
struct Ours<'a> {
    notes: &'a Notes,
    run: &'a str,
    child_runs: &'a dyn ChildRuns,
    secrets: &'a Secrets,
}

#[async_trait]
impl ProviderHost for Ours<'_> {
    async fn heartbeat(&self, mut data: Value) {
        let length = data.to_string().len();
        if length > KEPT_BYTES {
            data = json!({ "truncated": true, "sizeBytes": length });
        }
        self.secrets.leave_out_of(&mut data);
        let key = &self.notes.key;
        let beat = json!({
            "type": "TaskHeartbeat", "nodeId": key.node, "iteration": key.iteration,
            "attempt": self.notes.attempt, "data": data,
        });
        // A run that has stopped keeps nothing more.
        let _ =
            self.notes.keep(vec![beat], vec![sandboxes::heartbeat(self.run, key, now_ms())]).await;
    }

    async fn child(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildResult, Trouble> {
        self.child_runs.run(workflow, request).await
    }
}

/// Values that are stored nowhere: whatever a sandbox is told of the way to the network, and what
/// goes by a secret's name in its environment.
#[derive(Debug, Default)]
struct Secrets(Vec<String>);

/// Shorter ones are in every text.
const LEAST_SECRET_BYTES: usize = 4;
const SECRET_NAMES: [&str; 6] = ["token", "secret", "key", "passw", "credential", "authorization"];
const REDACTED: &str = "[redacted]";

impl Secrets {
    fn of(sandbox: &Sandbox, contract: Option<&Contract>) -> Self {
        let is_secret = |name: &str| {
            let name = name.to_lowercase();
            SECRET_NAMES.iter().any(|secret| name.contains(secret))
        };
        let named = sandbox.env.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value);
        let mut all: Vec<String> = named.cloned().collect();
        if let Some(contract) = contract {
            all.extend(contract.env.values().cloned());
            let bindings = contract.secret_bindings.iter();
            all.extend(bindings.flat_map(|(one, other)| [one.clone(), other.clone()]));
            let single = [&contract.http_proxy, &contract.https_proxy, &contract.ca_cert_pem];
            all.extend(single.into_iter().flatten().cloned());
        }
        all.retain(|secret| secret.len() >= LEAST_SECRET_BYTES);
        // The longest first: one may be part of another.
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(all)
    }

    fn text(&self, text: &mut String) {
        for secret in &self.0 {
            if text.contains(secret) {
                *text = text.replace(secret, REDACTED);
            }
        }
    }

    fn leave_out_of(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.leave_out_of(item)),
            Value::Object(fields) => fields.values_mut().for_each(|item| self.leave_out_of(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn left_out_of(&self, mut trouble: Trouble) -> Trouble {
        self.text(&mut trouble.message);
        trouble
    }
}
