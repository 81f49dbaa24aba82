//! A run that ends and continues as a new run of the same program, which gets a state and none of the rows.

use serde_json::{Value, json};
use stockade_durable::{Failure, StartOptions};

use super::outcome::End;
use super::state::Execution;
use crate::engine::clock::now_ms;
use crate::engine::durable_run::{Input, NAME, workflow_id};
use crate::engine::task_error::TaskError;
use crate::journal::CONTINUATION;
use crate::store::runs::NewRun;
use crate::store::{events, runs};
use crate::sync::lock;

/// The largest state, in bytes of JSON.
const MAX_BYTES: usize = 10 << 20;

impl Execution {
    /// Starts the new run; returns the end of this one. After a crash, the same run is found again.
    pub(super) async fn continue_as_new(&mut self, state: Value) -> Result<End, Failure> {
        let refused =
            |message: String| Ok(End::Failed(TaskError::new("INVALID_INPUT", message).to_json()));
        if self.children.siblings.is_some() || self.sandboxes.enclosing.is_some() {
            return refused(
                "<ContinueAsNew> is not for a child run: its parent waits for its end".to_owned(),
            );
        }
        if state.to_string().len() > MAX_BYTES {
            return refused(format!(
                "the state of <ContinueAsNew> has more than {} MiB",
                MAX_BYTES >> 20
            ));
        }
        let mut input = lock(&self.run.journal).input.clone();
        if let Value::Object(input) = &mut input {
            input
                .insert(CONTINUATION.to_owned(), json!({ "payload": state, "runId": self.run.id }));
        } else {
            return refused("<ContinueAsNew> needs an input that is an object".to_owned());
        }
        let id = next_id(&self.run.id);
        let store = self.state.store();
        let known = runs::find(store, &id).await?;
        if known
            .as_ref()
            .is_some_and(|known| known.run.input[CONTINUATION]["runId"] != self.run.id.as_str())
        {
            return refused(format!(
                "the run cannot continue as {id}, because another run has that id"
            ));
        }
        if known.is_none() {
            let (now, name) = (now_ms(), self.plan.graph().name.clone());
            let origin = &self.run.origin;
            let environment = self.run.environment();
            let row = NewRun {
                id: &id,
                owner: &origin.owner,
                name: &name,
                file: origin.file.clone(),
                program: origin.program.clone(),
                input: &input,
                environment: &environment,
                max_concurrency: self.run.max_concurrency,
                idempotency_key: None,
            };
            let started = json!({
                "type": "RunStarted", "runId": id, "timestampMs": now, "name": name,
                "continuedFrom": self.run.id,
            });
            let options = StartOptions {
                id: Some(workflow_id(&id, 1)?),
                owner: Some(origin.owner.clone()),
                statements: vec![runs::insert(row, now), events::insert(&id, 0, now, &started)],
                ..StartOptions::default()
            };
            self.state.secrets.copy(&self.run.id, &id);
            self.state.servers.copy(&self.run.id, &id, &environment);
            let input = Input { run: id.clone() };
            self.context.engine().start(NAME, &input, options).await?;
        }
        self.ledger.event(json!({ "type": "RunContinuedAsNew", "newRunId": id }));
        Ok(End::Finished(json!({ "continuedAs": id })))
    }
}

/// The id of the run that continues another one: `r`, `r.2`, `r.3`.
fn next_id(id: &str) -> String {
    let numbered = id.rsplit_once('.').and_then(|(first, number)| {
        let number: u64 = number.parse().ok().filter(|number| *number >= 2)?;
        Some(format!("{first}.{}", number + 1))
    });
    numbered.unwrap_or_else(|| format!("{id}.2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_numbered() {
        for (id, next) in
            [("r", "r.2"), ("r.2", "r.3"), ("r.9", "r.10"), ("a.b", "a.b.2"), ("v.1", "v.1.2")]
        {
            assert_eq!(next_id(id), next);
        }
    }
}
