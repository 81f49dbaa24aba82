//! What is done for a child on the host when it waits: the sandboxes that it asked for, side by side,
//! and whom each answer from outside is for. Ends them, too, always before the one around them.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use stockade_api::{Answer, Wait};

use super::super::held::Held;
use super::super::review;
use super::super::{Try, failed};
use super::grant::disabled;
use super::inner::{Inner, Outcome, forget};
use super::{Grant, Which};
use crate::engine::clock::now_ms;
use crate::engine::state::EngineState;
use crate::engine::trouble::Trouble;
use crate::graph::Sandbox;
use crate::schedule::Key;
use crate::store::sandboxes::{self, NestedSandbox, Pause, Stage};

/// How many a child may wait for at once.
const MAX_AT_ONCE: usize = 16;

/// How a child goes on.
pub(in super::super) enum Next {
    /// It is executed again, with these answers.
    Resume(Pause),
    /// Somebody has to say something first.
    Wait(Pause),
}

/// The sandboxes that a child waits for.
fn asked(pause: &Pause) -> Vec<Which> {
    let which = |wait: &Wait| match wait {
        Wait::Sandbox { node, iteration, attempt, request } => Some(Which {
            name: request.clone(),
            node: node.clone(),
            iteration: *iteration,
            attempt: *attempt,
        }),
        _ => None,
    };
    pause.waits.iter().filter_map(which).collect()
}

/// Whether something is said of, or in, an inner sandbox.
fn is_of(which: &Which, node: &str, iteration: u32) -> bool {
    let below = node.strip_prefix(which.node.as_str());
    below.is_some_and(|rest| {
        rest.starts_with('/') || (rest.is_empty() && iteration == which.iteration)
    })
}

impl Try {
    /// Sees to the sandboxes that a child waits for, as far as that can be done now.
    ///
    /// # Errors
    /// `INVALID_INPUT` for a child that asks and may not.
    pub(in super::super) async fn see_to_inner(
        &self,
        sandbox: &Sandbox,
        held: &Held,
        pause: Pause,
    ) -> Result<Next, Trouble> {
        let asked = asked(&pause);
        let is_own = |node: &str, iteration| !asked.iter().any(|it| is_of(it, node, iteration));
        let is_due = |wait: &Wait| wait.due_ms().is_some_and(|due| due <= now_ms());
        let own: Vec<Wait> = pause
            .waits
            .iter()
            .filter(|wait| {
                matches!(wait, Wait::Sandbox { .. }) || is_own(wait.node(), wait.iteration())
            })
            .cloned()
            .collect();
        if asked.is_empty() {
            let goes_on = !pause.answers.is_empty() || own.iter().any(is_due);
            return Ok(if goes_on { Next::Resume(pause) } else { Next::Wait(pause) });
        }
        if !sandbox.allow_nested {
            return Err(disabled("a child asks for one, and its own has no allowNested"));
        }
        if asked.len() > MAX_AT_ONCE {
            let message =
                format!("a child asks for more than {MAX_AT_ONCE} nested <Sandbox> at once");
            return Err(Trouble::new("INVALID_INPUT", message));
        }
        let depth = self.around.as_ref().map_or(0, |around| around.lineage.depth);
        let grant = Grant::of(sandbox, self.task.timeout, self.tools(sandbox), depth)?;
        let inner = asked.iter().map(|which| Inner::new(self, held, &grant, which));
        let inner = inner.collect::<Result<Vec<_>, _>>()?;
        for one in &inner {
            one.deliver(&pause.answers).await?;
        }
        let is_for_child = |answer: &&Answer| {
            let (node, iteration) = answer.asked_by();
            matches!(answer, Answer::Sandbox { .. }) || is_own(node, iteration)
        };
        let mut answers: Vec<Answer> = pause.answers.iter().filter(is_for_child).cloned().collect();
        let mut waits = own;
        if answers.is_empty() && !waits.iter().any(is_due) {
            let all = join_all(inner.iter().map(Inner::go));
            for (one, outcome) in inner.iter().zip(self.alive(held, all).await?) {
                match outcome? {
                    Outcome::HandedBack => answers.push(one.answer()),
                    Outcome::Waits(more) => waits.extend(more),
                }
            }
            if answers.is_empty() {
                return Ok(Next::Wait(Pause { waits, answers, ..pause }));
            }
        }
        let pause = Pause { waits, answers, ..pause };
        let resumed = sandboxes::resume(&self.run, &self.key, &pause, now_ms());
        self.notes.keep(Vec::new(), vec![resumed]).await?;
        Ok(Next::Resume(pause))
    }

    /// Keeps the sandbox of a child that waits for what is done on the host.
    async fn alive<T>(&self, held: &Held, work: impl Future<Output = T>) -> Result<T, Trouble> {
        let mut work = std::pin::pin!(work);
        loop {
            if let Some(done) = held.while_alive(work.as_mut()).await? {
                return Ok(done);
            }
            let beat = sandboxes::heartbeat(&self.run, &self.key, now_ms());
            self.notes.keep(Vec::new(), vec![beat]).await?;
        }
    }

    /// Ends the sandboxes within that of a try, the innermost first.
    pub(in super::super) async fn end_inner(&self) {
        self.within().end(&self.run, &self.name).await;
    }

    pub(super) fn within(&self) -> Within<'_> {
        Within { engine: &self.state, owner: &self.owner, root: &self.root }
    }
}

/// What is needed to end the sandboxes within others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Within<'a> {
    pub(crate) engine: &'a EngineState,
    pub(crate) owner: &'a str,
    /// The project's directory.
    pub(crate) root: &'a Path,
}

impl Within<'_> {
    /// Ends what is within the sandbox of a try of a run, by the try's name. What cannot be ended now
    /// ends with its lease.
    pub(crate) async fn end(self, run: &str, name: &str) {
        if let Err(trouble) = self.ended(run, name).await {
            tracing::warn!(run, trouble.message, "nested sandboxes are left");
        }
    }

    fn ended<'a>(self, run: &'a str, name: &'a str) -> BoxFuture<'a, Result<(), Trouble>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let store = self.engine.store();
            let lost = |error: stockade_durable::Error| failed(error.to_string());
            let nested = sandboxes::list_nested(store, run, name).await.map_err(lost)?;
            for NestedSandbox { key, name: inner, is_open } in nested {
                if is_open {
                    self.end_one(run, &key, &inner).await?;
                }
                forget(self.root, run, &key, &inner)?;
            }
            Ok(())
        })
    }

    /// Ends one, by the name of its try, with what is within.
    pub(super) async fn end_one(self, run: &str, key: &Key, name: &str) -> Result<(), Trouble> {
        self.ended(run, name).await?;
        let store = self.engine.store();
        let lost = |error: stockade_durable::Error| failed(error.to_string());
        let Some(sandboxes) = &self.engine.options.sandboxes else { return Ok(()) };
        let held = Held::of(Arc::clone(sandboxes), self.owner, name)?;
        held.end_for_good().await;
        let kept = sandboxes::find(store, run, key).await.map_err(lost)?;
        if let Some(left) = kept.and_then(|kept| kept.review) {
            // They are changes to what goes with the sandbox around.
            review::discard(&held, left.bundles.iter().map(String::as_str)).await;
        }
        let end = sandboxes::end(run, key, Stage::Cancelled, now_ms());
        store.execute(vec![end]).await.map(drop).map_err(lost)
    }
}
