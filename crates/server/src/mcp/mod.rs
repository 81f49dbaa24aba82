//! The Model Context Protocol: tools for agents, over a pair of byte streams. The caller chooses
//! the tools; each is a [`Tool`] in the list of [`Tools`].

mod lines;
mod lz;
mod playground;
mod run_in_sandbox;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer, ServerInitializeError, serve_server};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};

pub use playground::{PlaygroundLink, use_playground_of};
pub use run_in_sandbox::{RunInSandbox, Snippets};

/// A tool that an agent can call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Its description for agents.
    fn description(&self) -> Description;

    /// Calls it. A cancelled call is dropped.
    async fn call(&self, arguments: Map<String, Value>) -> ToolResult;
}

/// The description of a tool for agents.
#[derive(Debug, Clone)]
pub struct Description {
    /// Its name, unique among the tools.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What it does, and when it is useful.
    pub text: &'static str,
    /// The JSON schema of its arguments, an object.
    pub input: Map<String, Value>,
    /// The JSON schema of [`ToolResult::structured`], an object.
    pub output: Map<String, Value>,
    /// Whether it changes nothing outside itself.
    pub is_read_only: bool,
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
}

impl ToolResult {
    /// A response with an error.
    pub fn error(text: String) -> Self {
        Self { text, structured: None, is_error: true }
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
pub async fn serve<I, O>(tools: Tools, version: &str, input: I, output: O) -> Result<(), Error>
where
    I: AsyncRead + Send + Unpin + 'static,
    O: AsyncWrite + Send + Unpin + 'static,
{
    let server = Server { tools, version: version.to_owned() };
    let (messages, answers, relay) = lines::relay(input, output);
    let served = run_server(server, messages, answers).await;
    relay.end().await;
    served
}

async fn run_server(server: Server, from: DuplexStream, to: DuplexStream) -> Result<(), Error> {
    let running = match serve_server::<_, _, io::Error, _>(server, (from, to)).await {
        Ok(running) => running,
        // The client disconnected before the handshake, which is not an error.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(Error::Initialize(Box::new(error))),
    };
    running.waiting().await.map(drop).map_err(Error::Serve)
}

struct Server {
    tools: Tools,
    version: String,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let mut config = ServerConfig::new(capabilities);
        config.server_info = Implementation::new("stockade", self.version.clone());
        config
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.0.values().map(|tool| rmcp_tool(tool.description())).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.tools.0.get(request.name.as_ref()).cloned() else {
            let message = format!("there is no tool {}", request.name);
            return Err(ErrorData::invalid_params(message, None));
        };
        let arguments = request.arguments.unwrap_or_default();
        tokio::select! {
            answer = tool.call(arguments) => Ok(result(answer).into()),
            // No client waits for the response any more.
            () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
        }
    }
}

fn rmcp_tool(description: Description) -> rmcp::model::Tool {
    let Description { name, title, text, input, output, is_read_only } = description;
    let annotations = ToolAnnotations::with_title(title)
        .read_only(is_read_only)
        .destructive(!is_read_only)
        .open_world(false);
    rmcp::model::Tool::new(name, text, Arc::new(input))
        .with_title(title)
        .with_raw_output_schema(Arc::new(output))
        .with_annotations(annotations)
}

fn result(answer: ToolResult) -> CallToolResult {
    let content = vec![ContentBlock::text(answer.text)];
    if answer.is_error {
        return CallToolResult::error(content);
    }
    let mut result = CallToolResult::success(content);
    result.structured_content = answer.structured;
    result
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
