//! One inner sandbox, by the host: what is asked for is read and narrowed, the sandbox is made and
//! executed as any other is, on a copy of the workspace around it, and what came of it is handed back
//! to the child that waits. What was done before a crash is found in its place on the host.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stockade_api::{Answer, Wait};

use super::super::held::Held;
use super::super::notes::Notes;
use super::super::place::{Place, sandbox_name};
use super::super::request::RESULT as RESULTS;
use super::super::{Given, Try, result};
use super::asked::{self, Asked, Which};
use super::{Around, Grant, Lineage, fork};
use crate::engine::clock::now_ms;
use crate::engine::timings::Timings;
use crate::engine::trouble::Trouble;
use crate::graph::{Retry, Task, Work};
use crate::schedule::Key;
use crate::store::sandboxes::{self, Stage};

/// How many inner sandboxes one try of a sandbox may have had.
const MAX_INNER: usize = 64;

/// What became of an inner sandbox.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// It is over, and what came of it is in the sandbox around it.
    HandedBack,
    /// Somebody has to say something of this first.
    Waits(Vec<Wait>),
}

/// What an inner sandbox has of its own that others have from their author and project.
#[derive(Debug)]
pub(crate) struct Carried {
    /// The child's program.
    pub(crate) program: BTreeMap<String, Vec<u8>>,
    /// What its workspace begins with.
    pub(crate) workspace: PathBuf,
    /// The name of its try.
    pub(super) name: String,
}

/// One that a child has asked for.
pub(crate) struct Inner<'t> {
    outer: &'t Try,
    pub(super) held: &'t Held,
    grant: &'t Grant,
    pub(super) which: Which,
    /// What the sandbox is called in the run of the host.
    key: Key,
    /// Names its try, and no other.
    pub(super) name: String,
    pub(super) place: Place,
}

pub(super) fn failed(error: impl std::fmt::Display) -> Trouble {
    let message = format!("the nested <Sandbox> cannot be done: {error}");
    Trouble::new("SANDBOX_EXECUTION_FAILED", message).retryable()
}

/// The directories that one has on the host while it is done, and until its child has what came of it.
const WORKING: [&str; 7] =
    ["asking", "asked", "workspace-new", "workspace", "noting", "noted", "giving"];
pub(super) const GIVEN: &str = "given";

pub(super) fn part(what: &str, name: &str) -> String {
    format!("{what}-{}", &name[..name.len().min(12)])
}

/// Removes what one has on the host besides its request and its result.
pub(super) fn forget(root: &Path, run: &str, key: &Key, name: &str) -> Result<(), Trouble> {
    // Only who was asked for by a child has any.
    if key.node.contains('/') {
        let place = Place::open_nested(root, run, key)?;
        for what in WORKING.into_iter().chain([GIVEN]) {
            place.remove(&part(what, name))?;
        }
    }
    Ok(())
}

impl<'t> Inner<'t> {
    /// The one that is asked for in the sandbox of a try.
    ///
    /// # Errors
    /// For an id that is none.
    pub(crate) fn new(
        outer: &'t Try,
        held: &'t Held,
        grant: &'t Grant,
        which: &Which,
    ) -> Result<Self, Trouble> {
        let which = which.clone().checked()?;
        let node = format!("{}/{}", sandbox_name(&outer.key), which.node);
        let key = Key { node, iteration: which.iteration };
        let text = format!("{}\0{}", outer.name, which.name);
        let name = blake3::hash(text.as_bytes()).to_hex()[..40].to_owned();
        let place = Place::open_nested(&outer.root, &outer.run, &key)?;
        Ok(Self { outer, held, grant, which, key, name, place })
    }

    /// What the child is told when it has been given what came of it.
    pub(super) fn answer(&self) -> Answer {
        let Which { name: request, node, iteration, .. } = self.which.clone();
        Answer::Sandbox { node, iteration, request }
    }

    /// What is asked for where its changes wait for a decision.
    fn review(&self) -> Wait {
        let Which { node, iteration, .. } = self.which.clone();
        let title = Some("its changes to the workspace around it".to_owned());
        Wait::Approval { node, iteration, label: None, title, summary: None, due_ms: None }
    }

    /// Passes on what came from outside, and that a time has come.
    pub(super) async fn deliver(&self, answers: &[Answer]) -> Result<(), Trouble> {
        let (run, key, which) = (&self.outer.run, &self.key, &self.which);
        let kept = sandboxes::find(self.outer.state.store(), run, key).await.map_err(failed)?;
        let Some(kept) = kept.filter(|kept| kept.name == self.name) else { return Ok(()) };
        let statement = match kept.stage {
            Stage::Review => answers.iter().find_map(|answer| match answer {
                Answer::Approval { node, iteration, decision: Some(decision), .. }
                    if (node, iteration) == (&which.node, &which.iteration) =>
                {
                    Some(sandboxes::decide(run, key, decision))
                }
                _ => None,
            }),
            Stage::Waiting => {
                let mut pause = kept.pause().unwrap_or_default();
                pause.answers = answers
                    .iter()
                    .filter_map(|answer| answer.clone().inside(&which.node))
                    .collect();
                let is_due = |wait: &Wait| wait.due_ms().is_some_and(|due| due <= now_ms());
                let goes_on = !pause.answers.is_empty() || pause.waits.iter().any(is_due);
                goes_on.then(|| sandboxes::resume(run, key, &pause, now_ms()))
            }
            _ => None,
        };
        match statement {
            Some(statement) => self.outer.notes.keep(Vec::new(), vec![statement]).await,
            None => Ok(()),
        }
    }

    /// The name of one of its directories on the host. Another try has others.
    pub(super) fn part(&self, what: &str) -> String {
        part(what, &self.name)
    }

    /// Does it, or what is left of it.
    ///
    /// # Errors
    /// What is the sandbox around's own trouble. A failure of the inner one is handed back.
    pub(crate) async fn go(&self) -> Result<Outcome, Trouble> {
        if !self.place.has(&self.part(GIVEN))? {
            self.end_others().await?;
            let came = match self.begun().await {
                Ok(inner) => Box::pin(inner.go()).await,
                Err(trouble) => Err(trouble),
            };
            match came {
                Err(trouble) if trouble.is_stop() => return Err(trouble),
                Ok(Given::Review) => return Ok(Outcome::Waits(vec![self.review()])),
                Ok(Given::Waits(pause)) => {
                    let seen = pause.waits.into_iter().filter(|wait| !wait.is_of_host());
                    let seen = seen.map(|wait| wait.within(&self.which.node));
                    return Ok(Outcome::Waits(seen.collect()));
                }
                Ok(Given::Host(_)) => return Err(failed("it waits for a host of its own")),
                Ok(Given::Value(outputs)) => {
                    if let Err(trouble) = self.keep(Ok(outputs)) {
                        self.keep(Err(&trouble))?;
                    }
                }
                Err(trouble) => self.keep(Err(&trouble))?,
            }
        }
        self.hand_back().await?;
        for what in WORKING {
            self.place.remove(&self.part(what))?;
        }
        Ok(Outcome::HandedBack)
    }

    /// Ends another try of the same, and removes what such left: whoever asks inside may never have
    /// waited for it.
    async fn end_others(&self) -> Result<(), Trouble> {
        let (outer, key) = (self.outer, &self.key);
        let kept = sandboxes::find(outer.state.store(), &outer.run, key).await.map_err(failed)?;
        if let Some(kept) = kept.filter(|kept| kept.name != self.name && kept.stage.is_open()) {
            outer.within().end_one(&outer.run, key, &kept.name).await?;
        }
        let own = self.part("");
        for name in self.place.names()? {
            let is_part = WORKING
                .iter()
                .chain([&GIVEN])
                .any(|what| name.strip_prefix(what).is_some_and(|rest| rest.starts_with('-')));
            if is_part && !name.ends_with(&own) {
                self.place.remove(&name)?;
            }
        }
        Ok(())
    }

    /// The try that does it. Nothing is made yet but a copy of the workspace.
    async fn begun(&self) -> Result<Try, Trouble> {
        let outer = self.outer;
        let known = sandboxes::list_nested(outer.state.store(), &outer.run, &outer.name).await;
        let known = known.map_err(failed)?;
        if known.len() >= MAX_INNER && !known.iter().any(|nested| nested.key == self.key) {
            let message = format!("a <Sandbox> may have had at most {MAX_INNER} nested ones");
            return Err(Trouble::new("INVALID_INPUT", message));
        }
        let Asked { sandbox, timeout, program, .. } = self.asked().await?;
        let (sandbox, timeout) = self.grant.narrowed(sandbox, timeout)?;
        let workspace = fork::fork(
            self.held,
            &self.place,
            [&self.part("workspace-new"), &self.part("workspace")],
        )
        .await?;
        let depth = self.grant.depth() + 1;
        let lineage = Lineage {
            root_run_id: outer.root_run().to_owned(),
            parent_sandbox_id: self.held.id().to_owned(),
            depth,
            task: Some(outer.notes.task().clone()),
        };
        let task = Task {
            timeout,
            // How often it is tried is for its child to say.
            retry: Retry::NONE,
            ..Task::sandbox(&self.key.node, sandbox)
        };
        let notes = Notes {
            key: self.key.clone(),
            attempt: self.which.attempt,
            lineage: Some(lineage.clone()),
            timings: Timings::default(),
            ..outer.notes.clone()
        };
        Ok(Try {
            state: Arc::clone(&outer.state),
            user_code: Arc::clone(&outer.user_code),
            run: outer.run.clone(),
            name: self.name.clone(),
            owner: outer.owner.clone(),
            root: outer.root.clone(),
            // Nothing of the run's own environment is for what somebody inside has asked for.
            environment: BTreeMap::new(),
            key: self.key.clone(),
            task: Arc::new(task),
            notes,
            places: Arc::clone(&outer.places),
            child_runs: Arc::clone(&outer.child_runs),
            around: Some(Around { grant: self.grant.clone(), lineage }),
            carried: Some(Carried { program, workspace, name: self.name.clone() }),
        })
    }

    /// What is asked for: copied out first, whatever becomes of it inside.
    async fn asked(&self) -> Result<Asked, Trouble> {
        let part = self.part("asked");
        if !self.place.has(&part)? {
            let copying = self.part("asking");
            let into = self.place.fresh(&copying)?;
            let from = format!("{RESULTS}/{}/{}", self.which.directory(), asked::REQUEST);
            let files = result::copied_out(self.held, &from, &into, |_| true).await?;
            result::sync(&into, &files).await?;
            self.place.rename(&copying, &part)?;
        }
        Asked::read(&self.place.open_part(&part)?, &self.which)
    }
}

impl Try {
    /// Takes no more than what is around it leaves, where that is a sandbox whose child is done here.
    pub(in super::super) fn narrow(&mut self) -> Result<(), Trouble> {
        let (Some(around), None) = (&self.around, &self.carried) else { return Ok(()) };
        let Work::Sandbox(asked) = &self.task.work else { return Ok(()) };
        let (sandbox, timeout) = around.grant.narrowed((**asked).clone(), self.task.timeout)?;
        let work = Work::Sandbox(Box::new(sandbox));
        self.task = Arc::new(Task { work, timeout, ..(*self.task).clone() });
        Ok(())
    }

    /// The run that all is done for.
    pub(in super::super) fn root_run(&self) -> &str {
        self.run.split(":child:").next().unwrap_or(&self.run)
    }

    /// The directory of the host that it works on a view of, and that its changes are applied to.
    pub(in super::super) fn project(&self) -> &Path {
        self.carried.as_ref().map_or(self.root.as_path(), |carried| carried.workspace.as_path())
    }
}
