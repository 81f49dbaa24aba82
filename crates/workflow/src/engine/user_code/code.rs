//! The user's code, dispatched by its language.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use stockade_script::worker::Confinement;
use tokio::sync::Notify;

use super::calls::{Interface, Rendering, TaskCall};
use super::provider::{ProviderHost, ProviderName};
use super::rust::{self, RustCode};
use super::script::ScriptCode;
use crate::authoring::{Error, Processes, TokenUsage};
use crate::engine::program::Program;
use crate::graph::{Function, Work};
use crate::journal::SharedJournal;
use crate::rust_workflow::RustWorkflow;

/// The user's code of one program.
#[derive(Debug)]
pub(crate) enum UserCode {
    /// A workflow file.
    Script(Box<ScriptCode>),
    /// A workflow in Rust.
    Rust(RustCode),
}

impl UserCode {
    /// Loads a workflow file from the disk into a realm.
    pub(crate) async fn load(
        realms: Processes,
        file: &Path,
        environment: BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let code = ScriptCode::load(realms, file, environment).await?;
        Ok(Self::Script(Box::new(code)))
    }

    /// The code of a stored program. `known` are the workflows in Rust of this engine.
    pub(crate) fn of(
        program: Program,
        realms: &Processes,
        environment: BTreeMap<String, String>,
        known: &[RustWorkflow],
    ) -> Result<Self, Error> {
        match program {
            Program::Files(sources) => {
                let code = ScriptCode::new(realms.clone(), sources, environment);
                Ok(Self::Script(Box::new(code)))
            }
            Program::Rust(name) => Ok(Self::Rust(RustCode::new(name.find_in(known)?))),
        }
    }

    /// The code of a workflow in Rust.
    pub(crate) fn of_rust(workflow: RustWorkflow) -> Self {
        Self::Rust(RustCode::new(workflow))
    }

    /// The program in the form that is stored.
    pub(crate) fn program(&self) -> Program {
        match self {
            Self::Script(code) => Program::Files(code.sources().clone()),
            Self::Rust(code) => Program::Rust(code.name()),
        }
    }

    /// The lines written to the console since the last call: levels and texts.
    pub(crate) fn take_lines(&self) -> Vec<(String, String)> {
        match self {
            Self::Script(code) => code.take_lines(),
            Self::Rust(_) => Vec::new(),
        }
    }

    /// The tokens that the agent of a call said it used; `None` if it did not say.
    pub(crate) fn take_usage(&self, call: TaskCall<'_>) -> Option<TokenUsage> {
        match self {
            Self::Script(code) => code.take_usage(call),
            Self::Rust(_) => None,
        }
    }

    /// The isolation of its realm, while there is one.
    pub(crate) async fn confinement(&self) -> Option<Confinement> {
        match self {
            Self::Script(code) => code.confinement().await,
            Self::Rust(_) => None,
        }
    }

    /// Opens a run.
    pub(crate) async fn open(&self, journal: &SharedJournal) -> Result<Interface, Error> {
        match self {
            Self::Script(code) => code.open(journal).await,
            Self::Rust(code) => code.open(journal),
        }
    }

    /// Renders a run.
    pub(crate) async fn render(&self, run: &str) -> Result<Rendering, Error> {
        match self {
            Self::Script(code) => code.render(run).await,
            Self::Rust(code) => code.render(run).await,
        }
    }

    /// Calls the function of a task, or of the part of the task that `work` specifies. Dropping the
    /// future aborts the call. `heartbeats` is notified with each heartbeat of the function.
    pub(crate) async fn work(
        &self,
        call: TaskCall<'_>,
        work: &Work,
        heartbeats: &Arc<Notify>,
    ) -> Result<Value, Error> {
        match self {
            Self::Script(code) => code.work(call, work, heartbeats).await,
            Self::Rust(code) => code.work(call, work, heartbeats).await,
        }
    }

    /// Reads the answer of an agent that is a command, by calling a function of the run.
    pub(crate) async fn read(
        &self,
        call: TaskCall<'_>,
        function: Function,
        text: &str,
    ) -> Result<Value, Error> {
        match self {
            Self::Script(code) => code.read(call.run, function, text.into()).await,
            Self::Rust(code) => code.read(call, function, text).await,
        }
    }

    /// The row of a raw answer, made by the function of the author's schema.
    pub(crate) async fn accept(
        &self,
        run: &str,
        function: Function,
        value: Value,
    ) -> Result<Value, Error> {
        match self {
            Self::Script(code) => code.read(run, function, value).await,
            Self::Rust(_) => Ok(value),
        }
    }

    /// A program that exports the workflow of an element in the rendering of a run, such as a
    /// `<Sandbox>`: a map from names to files, which contain no other path. It has the modules that the
    /// workflow needs, as they were when the run started, and nothing of the environment.
    pub(crate) async fn child_program(
        &self,
        run: &str,
        node: &str,
    ) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        match self {
            Self::Script(code) => code.child_program(run, node).await,
            Self::Rust(_) => Err(rust::not_portable(node)),
        }
    }

    /// The provider of a `<Sandbox>`; `named` is its id in the rendering.
    pub(crate) async fn provider(
        &self,
        run: &str,
        sandbox: &str,
        named: Option<&str>,
    ) -> Result<ProviderName, Error> {
        match self {
            Self::Script(code) => code.provider(run, sandbox).await,
            Self::Rust(_) => {
                let id = named.ok_or_else(|| rust::not_portable(sandbox))?.to_owned();
                Ok(ProviderName { id, is_known: false })
            }
        }
    }

    /// Makes the provider of a `<Sandbox>` do its work; returns its output, which may be any JSON.
    /// `request` is the part of the provider's request that is data. Dropping the future aborts the
    /// provider.
    pub(crate) async fn provide(
        &self,
        run: &str,
        sandbox: &str,
        request: &Value,
        host: &dyn ProviderHost,
    ) -> Result<Value, Error> {
        match self {
            Self::Script(code) => code.provide(run, sandbox, request, host).await,
            Self::Rust(_) => Err(rust::not_portable(sandbox)),
        }
    }

    /// Makes the provider of a `<Sandbox>` clean up after a [request](Self::provide), no matter how the
    /// request ended, also in another realm or process. Does nothing if the provider has no `cleanup`.
    pub(crate) async fn clean_up(
        &self,
        run: &str,
        sandbox: &str,
        request: &Value,
    ) -> Result<(), Error> {
        match self {
            Self::Script(code) => code.clean_up(run, sandbox, request).await,
            Self::Rust(_) => Ok(()),
        }
    }

    /// Ends the realm while it is idle. The next call starts it again.
    pub(crate) async fn rest(&self) {
        if let Self::Script(code) = self {
            code.rest().await;
        }
    }

    /// Ends a realm that does not respond, because one of its functions never returns.
    pub(crate) async fn kill_if_stuck(&self) {
        if let Self::Script(code) = self {
            code.kill_if_stuck().await;
        }
    }
}
