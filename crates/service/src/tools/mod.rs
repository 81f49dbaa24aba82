//! Tools: those that `run_tool` can run by name, and the interface of a tool.

mod allowlist;
mod built_in;
mod filesystem;
mod terminal;
mod tokens;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use stockade_api::{Caller, Result, Sandboxes, Tool};
use stockade_core::{Code, OwnerId, Problem, SandboxId};
use stockade_runtime::SandboxPath;

pub use allowlist::AllowlistTool;
pub use built_in::CodeTool;
pub use filesystem::FilesystemTool;
pub use terminal::TerminalTool;

/// The implementation of a tool.
#[async_trait]
pub trait Handler: Debug + Send + Sync {
    /// Runs the tool. It may be called again with the same caller after a crash: an operation that
    /// it starts under the caller's key is started once.
    ///
    /// # Errors
    /// An error becomes the tool's result; [`Code::TimedOut`] becomes the failure of the whole
    /// call.
    async fn call(&self, call: ToolCall) -> Result<Value>;

    /// Whether the arguments and the result may be recorded. If not, as for the contents of files,
    /// a call that a crash interrupts is not resumed, and a second call with the same key is not
    /// answered from the record.
    fn is_recorded(&self) -> bool {
        true
    }
}

/// One call of a tool.
#[derive(Debug)]
pub struct ToolCall {
    /// The operations.
    pub service: Arc<dyn Sandboxes>,
    /// The owner of the call, with an idempotency key for the first operation.
    pub caller: Caller,
    /// The sandbox of the call.
    pub sandbox_id: SandboxId,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The timeout.
    pub timeout: Duration,
    pub(crate) paths: Arc<dyn ResolvePath>,
}

/// Resolves symbolic links in paths of a sandbox.
#[async_trait]
pub(crate) trait ResolvePath: Debug + Send + Sync {
    /// The path that a name leads to. A name that does not exist stays as it is.
    async fn resolve(
        &self,
        owner: &OwnerId,
        sandbox: &SandboxId,
        path: &SandboxPath,
    ) -> Result<SandboxPath>;
}

impl ToolCall {
    /// How long a tool may exceed its timeout to report that it has expired.
    pub(crate) const GRACE: Duration = Duration::from_secs(2);

    /// A required argument, as text.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] when it is missing or not text.
    pub fn text(&self, name: &str) -> Result<&str> {
        self.arguments.get(name).and_then(Value::as_str).ok_or_else(|| {
            Problem::new(Code::InvalidInput, format!("the argument `{name}` must be a string"))
        })
    }
}

/// The tools of a service.
#[derive(Debug)]
pub(crate) struct Tools(RwLock<BTreeMap<String, RegisteredTool>>);

#[derive(Debug, Clone)]
struct RegisteredTool {
    description: String,
    handler: Arc<dyn Handler>,
    /// Whether it is built in, and returns when its replacement is removed.
    built_in: bool,
}

impl Tools {
    /// The tools of every service.
    pub(crate) fn built_in() -> Self {
        let entry = |(name, description, handler): (&str, &str, Arc<dyn Handler>)| {
            let description = description.to_owned();
            (name.to_owned(), RegisteredTool { description, handler, built_in: true })
        };
        Self(RwLock::new(built_in::all().into_iter().map(entry).collect()))
    }

    pub(crate) fn register(&self, name: &str, description: &str, handler: Arc<dyn Handler>) {
        let entry =
            RegisteredTool { description: description.to_owned(), handler, built_in: false };
        let mut tools = self.0.write().unwrap_or_else(PoisonError::into_inner);
        tools.insert(name.to_owned(), entry);
    }

    pub(crate) fn unregister(&self, name: &str) -> Result<()> {
        let mut tools = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if tools.get(name).is_none_or(|tool| tool.built_in) {
            let message = format!("the tool {name:?} is not registered");
            return Err(Problem::new(Code::ToolUnknown, message));
        }
        tools.remove(name);
        let came_with = built_in::all().into_iter().find(|(known, ..)| *known == name);
        if let Some((_, description, handler)) = came_with {
            let description = description.to_owned();
            tools.insert(name.to_owned(), RegisteredTool { description, handler, built_in: true });
        }
        Ok(())
    }

    /// The tool with that name.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<dyn Handler>> {
        let tools = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tools.get(name).map(|tool| tool.handler.clone()).ok_or_else(|| {
            let known = tools.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Problem::new(Code::ToolUnknown, format!("there is no tool {name:?}"))
                .remedied_by(format!("use one of: {known}"))
        })
    }

    pub(crate) fn list(&self) -> Vec<Tool> {
        let tools = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let to_tool = |(name, tool): (&String, &RegisteredTool)| Tool {
            name: name.clone(),
            description: tool.description.clone(),
        };
        tools.iter().map(to_tool).collect()
    }
}
