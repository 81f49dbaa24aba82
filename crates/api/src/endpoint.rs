//! Ports inside a sandbox: requests to servers that listen there. Their addresses are never
//! revealed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::SandboxId;

use crate::files::FileContent;
use crate::stream::Duplex;
use stockade_core::Bytes;

/// Resolves the endpoint of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveEndpoint {
    /// The sandbox.
    pub id: SandboxId,
    /// The port.
    pub port: u16,
}

/// The endpoint of a port, which is reachable only through these operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The port.
    pub port: u16,
    /// Whether a process listens there now.
    pub listening: bool,
}

/// An HTTP method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// GET.
    #[default]
    Get,
    /// HEAD.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
    /// OPTIONS.
    Options,
}

/// A request to a port inside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpRequest {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The port.
    pub port: u16,
    /// The method.
    #[serde(default)]
    pub method: Method,
    /// The path and query, starting with `/`.
    pub path: String,
    /// Additional headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body. Never recorded.
    #[serde(default)]
    pub body: Option<Bytes>,
    /// The timeout, in seconds; 30 when absent.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// The most bytes of the response body to return; 10 MiB when absent.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
    /// Whether HTML is converted to Markdown.
    #[serde(default)]
    pub markdown: bool,
}

/// A response from a port inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The headers; repeated ones are joined by a comma.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Bytes,
    /// Whether the body was truncated.
    pub truncated: bool,
    /// Whether the body was converted from HTML to Markdown.
    pub markdown: bool,
}

/// The head of a response from a port inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpHead {
    /// The status.
    pub status: u16,
    /// The headers; repeated ones are joined by a comma.
    pub headers: BTreeMap<String, String>,
}

/// A response from a port inside with a streamed body. Dropping it ends the request.
#[derive(Debug)]
pub struct HttpStream {
    /// Its head.
    pub head: HttpHead,
    /// Its body. An incomplete body is an error, not an end of file.
    pub body: FileContent,
}

/// A WebSocket to a port inside (RFC 6455).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebSocket {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The port.
    pub port: u16,
    /// The path and query, starting with `/`.
    pub path: String,
    /// Additional headers. Those of the handshake are generated.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The offered protocols, the preferred one first.
    #[serde(default)]
    pub protocols: Vec<String>,
    /// How long the handshake may take, in seconds; 30 when absent.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
}

/// An open WebSocket.
#[derive(Debug)]
pub struct OpenWebSocket {
    /// The selected protocol, if there is one.
    pub protocol: Option<String>,
    /// Its frames, in both directions. The writer masks the frames that it sends.
    pub connection: Box<dyn Duplex>,
}

/// Connects to a port inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Connect {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The port.
    pub port: u16,
}
