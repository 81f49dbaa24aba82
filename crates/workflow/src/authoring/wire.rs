//! The messages between the host and the process of a realm: one JSON object a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use stockade_script::realm::Failure;
use stockade_script::{Fault, SourceFile};

/// A message of the host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ToRealm {
    /// Load a program. Comes first, once.
    Load {
        /// The file that exports a workflow.
        entry: SourceFile,
        /// What `process.env` holds.
        environment: BTreeMap<String, String>,
    },
    /// The answer to [`FromRealm::Import`].
    Imported(Result<SourceFile, String>),
    /// Call a function of `library/start.js`.
    Call {
        /// Names the call.
        id: u64,
        /// Which function.
        function: String,
        /// Its input.
        argument: Value,
    },
}

/// A message of the process of a realm, which is untrusted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum FromRealm {
    /// Its walls are raised. It comes first, before the program is loaded, so it can be trusted.
    Raised {
        /// Whether it has namespaces of its own.
        namespaces: bool,
        /// Landlock's version.
        landlock: u32,
    },
    /// A file is imported. No other message follows until it is sent.
    Import {
        /// The file that imports it.
        importer: String,
        /// What it is called there.
        specifier: String,
    },
    /// The program was loaded, or not.
    Loaded(Result<(), Rejection>),
    /// The console was written to.
    Line {
        /// `log`, `warn` or `error`.
        level: String,
        /// What was written.
        text: String,
    },
    /// A message of a call that is under way.
    Said(WordOfCall),
    /// A call has ended.
    Done {
        /// Which one.
        id: u64,
        /// The outcome as text: it is large, and only the caller parses it.
        outcome: Result<Box<RawValue>, Failure>,
    },
}

/// A message of a call that is under way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WordOfCall {
    /// Which one.
    pub(super) call: u64,
    /// The message.
    pub(super) word: Word,
}

/// The content of such a message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Word {
    /// The call is alive, with this progress.
    Heartbeat(Value),
    /// It requests a child run.
    Child {
        /// Names the request.
        ask: u32,
        /// The request.
        request: ChildRequest,
    },
    /// It does not need the child run any more.
    Abandon {
        /// Which.
        ask: u32,
    },
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

/// Why a program cannot be run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Rejection {
    /// Its files have errors.
    Faults(Vec<Fault>),
    /// An import is missing.
    Missing(Fault),
    /// It threw before it exported anything.
    Threw(Failure),
    /// It waits for something that never happens, or the engine could not be started.
    Stuck(String),
}
