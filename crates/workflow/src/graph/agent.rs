//! Agents that are commands: a command line, or the name of an adapter that has one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use stockade_api::CommandLine;

use super::function::Function;

/// An agent that is a command: it reads a prompt and writes an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// The command line, or its adapter.
    pub program: Program,
    /// The model that it uses, if its adapter can choose one.
    pub model: Option<String>,
    /// What precedes each prompt.
    pub system_prompt: Option<String>,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// The image of its file system.
    pub image: Option<String>,
    /// Variables of its environment.
    pub environment: Variables,
    /// Its time limit.
    pub timeout: Option<Duration>,
    /// How many bytes its answer may have.
    pub output_bytes: Option<u64>,
    /// Whether it needs a network.
    pub network: bool,
    /// The function that reads its answer.
    pub read: Function,
}

/// The command of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A command line.
    Line(CommandLine),
    /// The command line of the adapter with this name.
    Adapter(String),
}

/// Environment variables, some of which may be secrets: only their names are ever printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(pub BTreeMap<String, String>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
