//! The Model Context Protocol: tools for agents, over a pair of byte streams or over HTTP. The caller
//! chooses the tools; each is a [`Tool`] in the list of [`Tools`].
//!
//! Reading order: this file (tools and serving), `call` (a call and what it may ask its client),
//! `handler` (the protocol), `sandbox` (the tools on sandboxes), `resources`, `http`.

mod call;
mod decision;
mod handler;
mod http;
mod lines;
mod lz;
mod playground;
mod resources;
mod run_in_sandbox;
mod sandbox;
mod untrusted;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rmcp::service::{ServerInitializeError, serve_server};
use serde_json::{Map, Value};
use stockade_api::Caller;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};

use handler::{Callers, Handler, OwnerStates};

pub use call::{Call, Interrupt};
pub(crate) use http::{Backend, PATH, SESSION, api, no_session};
pub use playground::{PlaygroundLink, use_playground_of};
pub use resources::Resources;
pub use run_in_sandbox::{RunInSandbox, Snippets};
pub use sandbox::{Grants, WorkspaceSandbox, tools_for_sandboxes, tools_for_workspace};

/// How long what was started by calls may take to end after the input has ended.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A tool that an agent can call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Its description for agents.
    fn description(&self) -> Description;

    /// Calls it. A cancelled call is dropped.
    ///
    /// # Errors
    /// If the client has to be asked first.
    async fn call(
        &self,
        call: &Call,
        arguments: Map<String, Value>,
    ) -> Result<ToolResult, Interrupt>;
}

/// The description of a tool for agents.
#[derive(Debug, Clone)]
pub struct Description {
    /// Its name, unique among the tools.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What it does, and when it is useful.
    pub text: Cow<'static, str>,
    /// The JSON schema of its arguments, an object.
    pub input: Map<String, Value>,
    /// The JSON schema of [`ToolResult::structured`], an object.
    pub output: Map<String, Value>,
    /// What its calls do.
    pub effects: Effects,
    /// Whether a call may last so long that it continues as a task.
    pub is_long: bool,
}

/// What the calls of a tool do, as hosts show it before they allow a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects {
    /// Whether it changes nothing outside itself.
    pub is_read_only: bool,
    /// Whether it may remove or overwrite something.
    pub is_destructive: bool,
    /// Whether the same call again changes nothing more.
    pub is_idempotent: bool,
    /// Whether it may reach what is outside this machine.
    pub is_open_world: bool,
}

impl Effects {
    /// Nothing is changed, and nothing outside is reached.
    pub const READ_ONLY: Self = Self {
        is_read_only: true,
        is_destructive: false,
        is_idempotent: true,
        is_open_world: false,
    };
    /// Something is added.
    pub const ADDS: Self = Self {
        is_read_only: false,
        is_destructive: false,
        is_idempotent: false,
        is_open_world: false,
    };
    /// Something may be overwritten or removed.
    pub const CHANGES: Self = Self { is_destructive: true, ..Self::ADDS };

    /// The same call again changes nothing more.
    #[must_use]
    pub const fn idempotent(mut self) -> Self {
        self.is_idempotent = true;
        self
    }

    /// It may reach what is outside.
    #[must_use]
    pub const fn open_world(mut self) -> Self {
        self.is_open_world = true;
        self
    }
}

/// The response of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The text for the agent.
    pub text: String,
    /// The value for programs; only if there is no error.
    pub structured: Option<Value>,
    /// Whether the call failed.
    pub is_error: bool,
    /// Links to resources: each is an URI, a name and a MIME type.
    pub links: Vec<(String, String, &'static str)>,
}

impl ToolResult {
    /// A response.
    pub const fn new(text: String, structured: Value) -> Self {
        Self { text, structured: Some(structured), is_error: false, links: Vec::new() }
    }

    /// A response with an error.
    pub const fn error(text: String) -> Self {
        Self { text, structured: None, is_error: true, links: Vec::new() }
    }
}

/// The tools of a server.
#[derive(Clone, Default)]
pub struct Tools(BTreeMap<&'static str, Arc<dyn Tool>>);

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Tools {
    /// The same tools and one more, which replaces one with the same name.
    #[must_use]
    pub fn with(mut self, tool: impl Tool + 'static) -> Self {
        self.0.insert(tool.description().name, Arc::new(tool));
        self
    }
}

/// What a server offers to its clients.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The tools.
    pub tools: Tools,
    /// The resources; none when absent.
    pub resources: Option<Resources>,
    /// The advice for agents about all tools.
    pub instructions: Option<String>,
    /// The version of the program.
    pub version: String,
}

/// Why serving ended before the end of the input.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The handshake with the client failed.
    #[error("start a session of the Model Context Protocol")]
    Initialize(#[source] Box<ServerInitializeError>),
    /// The task that reads and responds failed.
    #[error("serve the Model Context Protocol")]
    Serve(#[source] tokio::task::JoinError),
}

/// Serves one client, until its input ends and all earlier requests have responses. A line that is
/// not a message gets a JSON-RPC 2.0 error. Only the protocol is written to the output.
///
/// # Errors
/// If the client uses another protocol.
pub async fn serve<I, O>(offer: Offer, caller: Caller, input: I, output: O) -> Result<(), Error>
where
    I: AsyncRead + Send + Unpin + 'static,
    O: AsyncWrite + Send + Unpin + 'static,
{
    let states = OwnerStates::default();
    let server = Handler::new(Arc::new(offer), Callers::One(caller), states.clone());
    let (messages, answers, relay) = lines::relay(input, output);
    let served = run_server(server, messages, answers).await;
    relay.end().await;
    // Commands of calls that were not completed are being ended.
    let _ = tokio::time::timeout(END_TIMEOUT, states.end()).await;
    served
}

async fn run_server(server: Handler, from: DuplexStream, to: DuplexStream) -> Result<(), Error> {
    let running = match serve_server::<_, _, io::Error, _>(server, (from, to)).await {
        Ok(running) => running,
        // The client disconnected before the handshake, which is not an error.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(Error::Initialize(Box::new(error))),
    };
    running.waiting().await.map(drop).map_err(Error::Serve)
}

/// The fields of a schema, from an object literal.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
