//! Orbiter's `Sandbox` over any [`Sandboxes`]: an object with Orbiter's five states, its table of
//! transitions, and a scope that cleans up once.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};
use stockade_api::{
    ById, Caller, CreateSandbox, KillSandbox, Result, RunTool, Sandboxes, ToolResult,
};
use stockade_core::{Code, Problem, SandboxId};
use tokio::sync::{Mutex, watch};

use super::settings::{Description, Settings};
use super::status::{Call, Status};

/// A sandbox that is created when it is first started, and closed for good by [`Self::cleanup`].
pub struct ScopedSandbox {
    sandboxes: Arc<dyn Sandboxes>,
    caller: Caller,
    id: SandboxId,
    settings: Settings,
    request: CreateSandbox,
    status: watch::Sender<Status>,
    /// Whether the sandbox was created, so that it can be restarted or ended. Locked during each
    /// call, which serializes the calls.
    is_created: Mutex<bool>,
}

impl fmt::Debug for ScopedSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scoped").field("id", &self.id).field("status", &self.status()).finish()
    }
}

impl ScopedSandbox {
    /// A sandbox in the status `init`: nothing is created yet.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for an invalid id, or a timeout that is not a positive number.
    pub fn new(sandboxes: Arc<dyn Sandboxes>, caller: Caller, settings: Settings) -> Result<Self> {
        Self::with_request(sandboxes, caller, settings, CreateSandbox::default())
    }

    /// The same, with a given request instead of the defaults. The settings determine its id.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_request(
        sandboxes: Arc<dyn Sandboxes>,
        caller: Caller,
        settings: Settings,
        request: CreateSandbox,
    ) -> Result<Self> {
        let invalid = |message: String| Problem::new(Code::InvalidInput, message);
        if !(settings.timeout.is_finite() && settings.timeout > 0.0) {
            return Err(invalid(format!("{} is not a time in seconds", settings.timeout)));
        }
        let id = settings.id(random_bytes()).map_err(|error| invalid(error.to_string()))?;
        let request = CreateSandbox { id: Some(id.clone()), ..request };
        let status = watch::Sender::new(Status::Init);
        Ok(Self { sandboxes, caller, id, settings, request, status, is_created: Mutex::new(false) })
    }

    /// Its id.
    pub const fn sandbox_id(&self) -> &SandboxId {
        &self.id
    }

    /// Its status: `running` only once commands can run in it.
    pub fn status(&self) -> Status {
        *self.status.borrow()
    }

    /// The directories that its tools may use: a copy.
    pub fn workspace(&self) -> Vec<String> {
        self.settings.workspace.clone()
    }

    /// The configuration of MCP servers for its agents: a copy.
    pub fn mcp_config(&self) -> Map<String, Value> {
        self.settings.mcp_config.clone()
    }

    /// Its agents: a copy.
    pub fn agents(&self) -> Map<String, Value> {
        self.settings.agents.clone()
    }

    /// How long one call of a tool may take, in seconds.
    pub const fn timeout(&self) -> f64 {
        self.settings.timeout
    }

    /// Its description: a copy.
    pub fn describe(&self) -> Description {
        self.settings.describe(self.id.clone(), self.status())
    }

    /// Creates it, or restarts it.
    ///
    /// # Errors
    /// "Cannot transition" if the table has no such transition; [`Code::Unsupported`] with MCP servers or
    /// agents, which this object cannot start; else why it could not be started, and its status is `error`
    /// then.
    pub async fn start(&self) -> Result<()> {
        let mut is_created = self.is_created.lock().await;
        let target = self.target(Call::Start)?;
        self.settings.require_supported()?;
        let started = if *is_created { self.restart().await } else { self.create().await };
        *is_created = true;
        self.status.send_replace(if started.is_ok() { target } else { Status::Error });
        started
    }

    async fn create(&self) -> Result<()> {
        self.sandboxes.create(&self.caller, self.request.clone()).await.map(drop)
    }

    async fn restart(&self) -> Result<()> {
        match self.sandboxes.start(&self.caller, self.by_id()).await {
            // The earlier failure happened before the sandbox was created.
            Err(problem) if problem.code == Code::NotFound => self.create().await,
            started => started.map(drop),
        }
    }

    /// Stops it; it may be started again.
    ///
    /// # Errors
    /// "Cannot transition" if the table has no such transition; else why it could not be stopped.
    pub async fn stop(&self) -> Result<()> {
        let _made = self.is_created.lock().await;
        let target = self.target(Call::Stop)?;
        self.sandboxes.stop(&self.caller, self.by_id()).await?;
        self.status.send_replace(target);
        Ok(())
    }

    /// Releases all its resources, and closes it for good.
    ///
    /// # Errors
    /// "Cannot transition" when it is closed already; else why it could not be closed.
    pub async fn cleanup(&self) -> Result<()> {
        let is_created = self.is_created.lock().await;
        let target = self.target(Call::Cleanup)?;
        if *is_created {
            match self.sandboxes.kill(&self.caller, KillSandbox::new(self.id.clone())).await {
                Err(problem) if problem.code == Code::NotFound => {}
                killed => drop(killed?),
            }
        }
        self.status.send_replace(target);
        Ok(())
    }

    /// Runs a tool in it.
    ///
    /// # Errors
    /// [`Code::InvalidState`] unless it is running, [`Code::ToolUnknown`] for a tool that is not
    /// registered, [`Code::TimedOut`] when it timed out.
    pub async fn run_tool(&self, tool: &str, arguments: Map<String, Value>) -> Result<ToolResult> {
        let status = self.status();
        if status != Status::Running {
            let message = format!("the sandbox must be running to run a tool, and is {status}");
            return Err(Problem::new(Code::InvalidState, message));
        }
        let request = RunTool {
            sandbox_id: self.id.clone(),
            tool: tool.to_owned(),
            arguments,
            timeout_seconds: Some(self.settings.timeout),
        };
        self.sandboxes.run_tool(&self.caller, request).await
    }

    /// Starts it, runs `work` with it, and cleans up once: when `work` ends in any way, also when
    /// it is dropped or panics. An error of `work` is never replaced by one of the cleanup.
    ///
    /// # Errors
    /// Why it could not be started; the error of `work`; why it could not be closed.
    pub async fn scope<T, E: From<Problem>>(
        self,
        work: impl AsyncFnOnce(&Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut scope = ScopeGuard(Some(Arc::new(self)));
        let Some(sandbox) = scope.0.clone() else {
            return Err(Problem::new(Code::InvalidState, "the scope has ended").into());
        };
        let result = match sandbox.start().await {
            Ok(()) => work(&sandbox).await,
            Err(problem) => Err(problem.into()),
        };
        scope.0 = None;
        let cleaned = sandbox.cleanup_unless_closed().await;
        let value = result?;
        cleaned?;
        Ok(value)
    }

    async fn cleanup_unless_closed(&self) -> Result<()> {
        if self.status() == Status::Closed { Ok(()) } else { self.cleanup().await }
    }

    fn target(&self, call: Call) -> Result<Status> {
        Ok(self.status().transition_to(call.target())?)
    }

    fn by_id(&self) -> ById {
        ById { id: self.id.clone() }
    }
}

/// Cleans up after a use that was dropped or panicked.
struct ScopeGuard(Option<Arc<ScopedSandbox>>);

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        if let Some(sandbox) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                // The error cannot be reported; the service's TTL ends the sandbox later.
                let _ = sandbox.cleanup_unless_closed().await;
            });
        }
    }
}

/// Six random bytes.
fn random_bytes() -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = RandomState::new().hash_one(std::process::id()).to_be_bytes();
    [a, b, c, d, e, f]
}

/// Builds a [`ScopedSandbox`] when it is first needed.
pub struct Builder {
    sandboxes: Arc<dyn Sandboxes>,
    caller: Caller,
    settings: Settings,
    extra: Map<String, Value>,
    built: OnceLock<Arc<ScopedSandbox>>,
}

impl fmt::Debug for Builder {
    /// Shows whether it has built; never builds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.built.get().is_some() { "built" } else { "pending" };
        write!(f, "Builder({state})")
    }
}

impl Builder {
    /// A builder with the defaults.
    pub fn new(sandboxes: Arc<dyn Sandboxes>, caller: Caller) -> Self {
        let (settings, extra) = (Settings::default(), Map::new());
        Self { sandboxes, caller, settings, extra, built: OnceLock::new() }
    }

    /// Sets the id.
    pub fn with_sandbox_id(&mut self, id: &str) -> &mut Self {
        self.settings.sandbox_id = id.to_owned();
        self
    }

    /// Sets the directories that tools may use.
    pub fn with_workspace(&mut self, workspace: Vec<String>) -> &mut Self {
        self.settings.workspace = workspace;
        self
    }

    /// Sets the configuration of MCP servers for agents.
    pub fn with_mcp_config(&mut self, config: Map<String, Value>) -> &mut Self {
        self.settings.mcp_config = config;
        self
    }

    /// Sets the agents.
    pub fn with_agents(&mut self, agents: Map<String, Value>) -> &mut Self {
        self.settings.agents = agents;
        self
    }

    /// Sets how long one call of a tool may take, in seconds.
    pub fn with_timeout(&mut self, seconds: f64) -> &mut Self {
        self.settings.timeout = seconds;
        self
    }

    /// Sets settings by their names. They override the other setters.
    pub fn with_extra(&mut self, extra: Map<String, Value>) -> &mut Self {
        self.extra.extend(extra);
        self
    }

    /// The sandbox; the same in each call. Settings that change after the first call have no
    /// effect.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for an unknown setting, or one with an invalid value.
    pub fn build(&self) -> Result<Arc<ScopedSandbox>> {
        if let Some(built) = self.built.get() {
            return Ok(built.clone());
        }
        let scoped =
            ScopedSandbox::new(self.sandboxes.clone(), self.caller.clone(), self.merged()?)?;
        Ok(self.built.get_or_init(|| Arc::new(scoped)).clone())
    }

    fn merged(&self) -> Result<Settings> {
        let refused = |error: serde_json::Error| {
            Problem::new(Code::InvalidInput, "the settings of the sandbox cannot be read")
                .because(error.to_string())
        };
        let mut values = serde_json::to_value(&self.settings).map_err(refused)?;
        if let Value::Object(values) = &mut values {
            values.extend(self.extra.clone());
        }
        serde_json::from_value(values).map_err(refused)
    }

    /// Builds the sandbox if that was not done yet, and starts it.
    ///
    /// # Errors
    /// As [`Self::build`] and [`ScopedSandbox::start`].
    pub async fn start(&self) -> Result<Arc<ScopedSandbox>> {
        let scoped = self.build()?;
        scoped.start().await?;
        Ok(scoped)
    }
}
