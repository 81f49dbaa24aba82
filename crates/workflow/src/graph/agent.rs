//! Agents that are commands, as their authors say them: a command line, or the name of an adapter
//! that knows one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use stockade_api::CommandLine;

use super::function::Function;

/// An agent that is a command: it reads a prompt and writes an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// What is run.
    pub program: Program,
    /// The model that it is to use, where its adapter knows how to say so.
    pub model: Option<String>,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// What its file system begins with.
    pub image: Option<String>,
    /// What it finds in its environment.
    pub environment: Variables,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// Whether it cannot work without a network.
    pub network: bool,
    /// The function that reads its answer.
    pub read: Function,
}

/// What an agent's command is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// This.
    Line(CommandLine),
    /// What the adapter of this name says.
    Adapter(String),
}

/// Variables, some of which may be secrets: only their names are ever shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(pub BTreeMap<String, String>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
