//! The messages between the host and the process of a realm: one JSON object per line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use stockade_script::realm::Failure;
use stockade_script::{Fault, SourceFile};

/// A message from the host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ToRealm {
    /// Loads a program. This is the first message, and is sent once.
    Load {
        /// The file that exports a workflow.
        entry: SourceFile,
        /// The content of `process.env`.
        environment: BTreeMap<String, String>,
    },
    /// The answer to [`FromRealm::Import`].
    Imported(Result<SourceFile, String>),
    /// Calls a function of `library/start.js`.
    Call {
        /// Identifies the call.
        id: u64,
        /// The name of the function.
        function: String,
        /// Its input.
        argument: Value,
    },
}

/// A message from the process of a realm, which is untrusted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum FromRealm {
    /// The isolation works. This message is sent first, before the program is loaded, so it can be
    /// trusted.
    Raised {
        /// Whether it has namespaces of its own.
        namespaces: bool,
        /// Landlock's version.
        landlock: u32,
    },
    /// The program imports a file. The process sends no other message until it has received the file.
    Import {
        /// The file that imports it.
        importer: String,
        /// The specifier in that file.
        specifier: String,
    },
    /// The program was loaded, or failed to load.
    Loaded(Result<(), Rejection>),
    /// The program wrote to the console.
    Line {
        /// `log`, `warn` or `error`.
        level: String,
        /// What was written.
        text: String,
    },
    /// A message of a running call.
    Said(CallMessage),
    /// A call has ended.
    Done {
        /// Identifies the call.
        id: u64,
        /// The outcome as text: it can be large, and only the caller parses it.
        outcome: Result<Box<RawValue>, Failure>,
    },
}

/// A message of a running call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallMessage {
    /// Identifies the call.
    pub(super) call: u64,
    /// The message.
    pub(super) word: Message,
}

/// The content of a message of a running call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Message {
    /// The call is alive, with this progress.
    Heartbeat(Value),
    /// The agent that was asked has used these tokens.
    Usage(TokenUsage),
    /// The call requests a child run.
    Child {
        /// Identifies the request.
        ask: u32,
        /// The request.
        request: ChildRequest,
    },
    /// The call asks a model.
    Model {
        /// Identifies the request.
        ask: u32,
        /// The request.
        request: ModelRequest,
    },
    /// The call does not need the child run any more.
    Abandon {
        /// Identifies the request.
        ask: u32,
    },
}

/// A request to a model over HTTP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ModelRequest {
    /// The name of the secret that authenticates it.
    pub(crate) secret: String,
    pub(crate) url: String,
    pub(crate) scheme: Scheme,
    /// JSON.
    pub(crate) body: String,
}

/// How a secret is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Scheme {
    /// As `Authorization: Bearer`.
    Bearer,
    /// As the API of Anthropic expects it.
    Anthropic,
}

/// The response of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModelAnswer {
    /// The status of HTTP.
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// The tokens that an agent has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TokenUsage {
    /// Those of its input.
    pub(crate) input_tokens: u64,
    /// Those of its output.
    pub(crate) output_tokens: u64,
}

/// A request for a child run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ChildRequest {
    /// Its name among the child runs of the call; one of them may have none.
    pub(crate) name: Option<String>,
    /// Its input.
    pub(crate) input: Value,
    /// A limit for the output of each of its tools, in bytes, in addition to the limits of the caller.
    #[serde(default)]
    pub(crate) max_output_bytes: Option<u64>,
    /// A time limit of each tool, in milliseconds, in addition to those of the caller.
    #[serde(default)]
    pub(crate) tool_timeout_ms: Option<u64>,
}

/// Why a program cannot run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Rejection {
    /// The files have errors.
    Faults(Vec<Fault>),
    /// An import is missing.
    Missing(Fault),
    /// The program threw before it exported anything.
    Threw(Failure),
    /// The program waits for something that never happens, or the JavaScript engine could not be
    /// started.
    Stuck(String),
}
