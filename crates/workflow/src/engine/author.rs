//! Whoever wrote a workflow, as the engine sees them: they are asked for renderings, and to do what
//! their functions do. Nothing else of the engine knows in which language they write.

mod built;
mod scripted;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stockade_script::worker::Raised;
use tokio::sync::Notify;

use self::built::Building;
use self::provide::{Host, Named};
use self::scripted::Scripted;
use super::program::Program;
use crate::authoring::{Error, Processes};
use crate::built::Built;
use crate::graph::{Function, Graph, Task, Work};
use crate::journal::SharedJournal;
use crate::schedule::Key;

pub(crate) use self::scripted::provide;

/// How long a rendering may take, and everything else that does no task.
const SOON: Duration = Duration::from_secs(30);

/// A workflow as it is to be done now.
#[derive(Debug)]
pub(crate) struct View {
    /// What is to be done; where that has not changed, it is the same value.
    pub(crate) graph: Arc<Graph>,
    /// The tables that it depends on.
    pub(crate) read: BTreeSet<String>,
}

impl View {
    /// Whether each later rendering says the same: it depends on nothing that changes.
    pub(crate) fn is_settled(&self) -> bool {
        self.read.is_empty() && !self.graph.has_loops()
    }
}

/// What is known of a workflow before it is rendered.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// What its input must be.
    pub(crate) input: Option<Value>,
    /// The table that holds its result.
    pub(crate) output: Option<String>,
}

/// For whom an author does something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Errand<'a> {
    /// The run.
    pub(crate) run: &'a str,
    /// Its doing of a task.
    pub(crate) key: &'a Key,
    /// The task.
    pub(crate) task: &'a Arc<Task>,
}

/// The author of one program.
#[derive(Debug)]
pub(crate) enum Author {
    /// That of a workflow file.
    Scripted(Scripted),
    /// That of a workflow in Rust.
    Built(Building),
}

impl Author {
    /// The author of a workflow file, whose realm is loaded from the files on disk.
    pub(crate) async fn load(
        realms: Processes,
        file: &Path,
        environment: BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        Ok(Self::Scripted(Scripted::load(realms, file, environment).await?))
    }

    /// The author of a program that is kept. `known` are the workflows in Rust that there are.
    pub(crate) fn of(
        program: Program,
        realms: &Processes,
        environment: BTreeMap<String, String>,
        known: &[Built],
    ) -> Result<Self, Error> {
        match program {
            Program::Files(sources) => {
                Ok(Self::Scripted(Scripted::new(realms.clone(), sources, environment)))
            }
            Program::Built(name) => Ok(Self::Built(Building::new(name.found(known)?))),
        }
    }

    /// The author of a workflow in Rust.
    pub(crate) fn built(workflow: Built) -> Self {
        Self::Built(Building::new(workflow))
    }

    /// The program, as it is kept.
    pub(crate) fn program(&self) -> Program {
        match self {
            Self::Scripted(author) => Program::Files(author.sources().clone()),
            Self::Built(author) => Program::Built(author.name()),
        }
    }

    /// What the author wrote to the console since this was last asked: levels and texts.
    pub(crate) fn take_lines(&self) -> Vec<(String, String)> {
        match self {
            Self::Scripted(author) => author.take_lines(),
            Self::Built(_) => Vec::new(),
        }
    }

    /// What stands around its realm, while there is one.
    pub(crate) async fn raised(&self) -> Option<Raised> {
        match self {
            Self::Scripted(author) => author.raised().await,
            Self::Built(_) => None,
        }
    }

    /// Begins with a run.
    pub(crate) async fn open(&self, journal: &SharedJournal) -> Result<About, Error> {
        match self {
            Self::Scripted(author) => author.open(journal).await,
            Self::Built(author) => author.open(journal),
        }
    }

    /// Renders a run.
    pub(crate) async fn render(&self, run: &str) -> Result<View, Error> {
        match self {
            Self::Scripted(author) => author.render(run).await,
            Self::Built(author) => author.render(run).await,
        }
    }

    /// Does what a task does, or the part of it that `work` is. It is given up when the
    /// answer is not waited for. `beats` is told each time that the function tells that it is alive.
    pub(crate) async fn work(
        &self,
        errand: Errand<'_>,
        work: &Work,
        beats: &Arc<Notify>,
    ) -> Result<Value, Error> {
        match self {
            Self::Scripted(author) => author.work(errand.run, work, beats).await,
            Self::Built(author) => author.work(errand, work, beats).await,
        }
    }

    /// Reads what an agent wrote that is a command, by a function of a run.
    pub(crate) async fn read(
        &self,
        errand: Errand<'_>,
        function: Function,
        text: &str,
    ) -> Result<Value, Error> {
        match self {
            Self::Scripted(author) => author.read(errand.run, function, text).await,
            Self::Built(author) => author.read(errand, function, text).await,
        }
    }

    /// A program that exports the workflow of an element in the rendering of a run, such as a
    /// `<Sandbox>`: files by their names, which hold no other path. It has the modules that the
    /// workflow needs, as they were when the run began, and nothing of the environment.
    pub(crate) async fn child_program(
        &self,
        run: &str,
        node: &str,
    ) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        match self {
            Self::Scripted(author) => author.child_program(run, node).await,
            Self::Built(_) => Err(built::stays_here(node)),
        }
    }

    /// What the provider of a `<Sandbox>` calls itself, and whether its author has it now; `named` is
    /// what the rendering called it.
    pub(crate) async fn provider(
        &self,
        run: &str,
        sandbox: &str,
        named: Option<&str>,
    ) -> Result<Named, Error> {
        match self {
            Self::Scripted(author) => author.provider(run, sandbox).await,
            Self::Built(_) => {
                let id = named.ok_or_else(|| built::stays_here(sandbox))?.to_owned();
                Ok(Named { id, is_known: false })
            }
        }
    }

    /// Has the provider of a `<Sandbox>` do its work; what it gave, of which nothing is known but
    /// that it is JSON. `request` is the plain part of what the provider is given. The provider is
    /// told when this is dropped.
    pub(crate) async fn provide(
        &self,
        run: &str,
        sandbox: &str,
        request: &Value,
        host: &dyn Host,
    ) -> Result<Value, Error> {
        match self {
            Self::Scripted(author) => author.provide(run, sandbox, request, host).await,
            Self::Built(_) => Err(built::stays_here(sandbox)),
        }
    }

    /// Lets the provider of a `<Sandbox>` clean up after a [request](Self::provide), in whatever way
    /// that ended; also in another realm or process. Does nothing where it has no `cleanup`.
    pub(crate) async fn clean_up(
        &self,
        run: &str,
        sandbox: &str,
        request: &Value,
    ) -> Result<(), Error> {
        match self {
            Self::Scripted(author) => author.clean_up(run, sandbox, request).await,
            Self::Built(_) => Ok(()),
        }
    }

    /// Ends the realm while nothing is asked of it. It is made again when something is.
    pub(crate) async fn rest(&self) {
        if let Self::Scripted(author) = self {
            author.rest().await;
        }
    }

    /// Ends a realm that does not hear any more: a function in it goes on for ever.
    pub(crate) async fn look_after(&self) {
        if let Self::Scripted(author) = self {
            author.look_after().await;
        }
    }
}
