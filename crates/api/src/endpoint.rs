//! Ports inside: requests to what listens there. Their addresses are never given out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stockade_core::SandboxId;

use crate::bytes::Bytes;
use crate::files::FileContent;
use crate::stream::Duplex;

/// Where a port can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolveEndpoint {
    /// Which sandbox.
    pub id: SandboxId,
    /// Which port.
    pub port: u16,
}

/// A port that can be reached, through the operations of this list only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Which sandbox.
    pub sandbox_id: SandboxId,
    /// Which port.
    pub port: u16,
    /// Whether something listens there now.
    pub listening: bool,
}

/// A way to ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpRequest {
    /// Which sandbox.
    pub sandbox_id: SandboxId,
    /// Which port.
    pub port: u16,
    /// How.
    #[serde(default)]
    pub method: Method,
    /// The path and query, with a `/` at its front.
    pub path: String,
    /// What is sent besides.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body. Never recorded.
    #[serde(default)]
    pub body: Option<Bytes>,
    /// How long it may take, in seconds; 30 when absent.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// How much of the answer's body is wanted, in bytes; 10 MiB when absent.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
    /// Whether HTML becomes Markdown.
    #[serde(default)]
    pub markdown: bool,
}

/// An answer from a port inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// The headers; of one that came several times, the values joined by a comma.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Bytes,
    /// Whether the body was longer.
    pub truncated: bool,
    /// Whether the body was HTML and is Markdown now.
    pub markdown: bool,
}

/// The beginning of an answer from a port inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpHead {
    /// The status.
    pub status: u16,
    /// The headers; of one that came several times, the values joined by a comma.
    pub headers: BTreeMap<String, String>,
}

/// An answer from a port inside whose body is read as it comes. Dropping it ends the request.
#[derive(Debug)]
pub struct HttpStream {
    /// Its beginning.
    pub head: HttpHead,
    /// Its body. One that breaks off is an error, not an end.
    pub body: FileContent,
}

/// A WebSocket to a port inside (RFC 6455).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebSocket {
    /// Which sandbox.
    pub sandbox_id: SandboxId,
    /// Which port.
    pub port: u16,
    /// The path and query, with a `/` at its front.
    pub path: String,
    /// What is sent besides. The handshake's own headers are made here.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The protocols that are offered, the best first.
    #[serde(default)]
    pub protocols: Vec<String>,
    /// How long the handshake may take, in seconds; 30 when absent.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
}

/// A WebSocket that is open.
#[derive(Debug)]
pub struct OpenWebSocket {
    /// The protocol that was chosen, where one was.
    pub protocol: Option<String>,
    /// Its frames, both ways. Those that go in are masked by whoever writes them.
    pub connection: Box<dyn Duplex>,
}

/// A connection to a port inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Connect {
    /// Which sandbox.
    pub sandbox_id: SandboxId,
    /// Which port.
    pub port: u16,
}
