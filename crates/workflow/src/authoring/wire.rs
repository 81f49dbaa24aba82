//! What the host and the process of a realm say to each other: one JSON object a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use stockade_script::realm::Failure;
use stockade_script::{Fault, SourceFile};

/// What the host says.
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
        /// What it is given.
        argument: Value,
    },
}

/// What the process of a realm says. Every word may be a lie.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum FromRealm {
    /// Its walls stand. Comes first, before anything of the program is there that could lie.
    Raised {
        /// Whether it has namespaces of its own.
        namespaces: bool,
        /// Landlock's version.
        landlock: u32,
    },
    /// A file is wanted; nothing else is said until it is there.
    Import {
        /// The file that imports it.
        importer: String,
        /// What it is called there.
        specifier: String,
    },
    /// What came of the program.
    Loaded(Result<(), Rejection>),
    /// The console was written to.
    Line {
        /// `log`, `warn` or `error`.
        level: String,
        /// What was written.
        text: String,
    },
    /// A call that is under way says something.
    Said(WordOfCall),
    /// A call has ended.
    Done {
        /// Which one.
        id: u64,
        /// What came of it, as text: it is large, and read only by whoever asked.
        outcome: Result<Box<RawValue>, Failure>,
    },
}

/// What a call says while it is under way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WordOfCall {
    /// Which one.
    pub(super) call: u64,
    /// What it says.
    pub(super) word: Word,
}

/// A word of a call that is under way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Word {
    /// It is alive, and says this of its progress.
    Heartbeat(Value),
    /// It wants a workflow to be run.
    Child {
        /// Names the wish.
        ask: u32,
        /// What is wanted.
        request: ChildRequest,
    },
    /// It does not want it any more.
    Abandon {
        /// Which.
        ask: u32,
    },
}

/// A workflow that is to be run below the run of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ChildRequest {
    /// Tells it from other children of the call; `None` for the one that has no name.
    pub(crate) name: Option<String>,
    /// What it is given.
    pub(crate) input: Value,
    /// How much each of its tools may write, in bytes, where that is less than the caller's may.
    #[serde(default)]
    pub(crate) max_output_bytes: Option<u64>,
    /// How long each may take, in milliseconds, where that is less.
    #[serde(default)]
    pub(crate) tool_timeout_ms: Option<u64>,
}

/// Why a program cannot be run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Rejection {
    /// Its files cannot be read as what they are.
    Faults(Vec<Fault>),
    /// Something that it imports is not there.
    Missing(Fault),
    /// It threw before it exported anything.
    Threw(Failure),
    /// It waits for something that never comes, or the engine could not be started.
    Stuck(String),
}
