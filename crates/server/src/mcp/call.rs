//! One call of a tool: on whose behalf it is executed, whether its client still waits, the progress that
//! the client sees, and the questions that the client puts to its user.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientCapabilities, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputResponses, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::{Peer, RoleServer};
use serde_json::Value;
use stockade_api::Caller;
use tokio_util::task::TaskTracker;

use super::decision::{Decisions, Subject};

/// How long a user may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// The name of an answer that a client sends with its next request.
pub(super) const ANSWER: &str = "decision";
/// The members of the form.
const CONFIRM: &str = "confirm";
const EXTRA: &str = "alsoExecuted";

/// A call.
#[derive(Debug)]
pub struct Call {
    pub(super) caller: Caller,
    pub(super) tool: &'static str,
    pub(super) client: Option<Client>,
    /// Tasks that have to end before the program does.
    pub(super) ending: TaskTracker,
}

/// The client of a call.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) peer: Peer<RoleServer>,
    pub(super) progress: Option<ProgressToken>,
    pub(super) capabilities: ClientCapabilities,
    /// Whether the protocol has no requests from the server to the client, so that a question is a
    /// response, and its answer comes with the same call again.
    pub(super) asks_by_response: bool,
    pub(super) answers: Option<InputResponses>,
    pub(super) state: Option<String>,
    pub(super) decisions: Arc<Decisions>,
}

/// Why a call ended without a result.
#[derive(Debug)]
#[non_exhaustive]
pub enum Interrupt {
    /// The client must send the call again, with the answer to this question.
    Ask(Box<Ask>),
}

/// A question that is a response.
#[derive(Debug)]
pub struct Ask {
    pub(super) request: ElicitRequest,
    pub(super) state: String,
}

/// A question for the user of the client.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// The question.
    pub(super) message: String,
    /// The title of the answer yes.
    pub(super) confirm: &'static str,
    /// The title of a second choice, if there is one.
    pub(super) extra: Option<&'static str>,
    /// What the answer is about. An answer to a question about something else is not used.
    pub(super) subject: String,
}

/// The answer of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Yes; also to the second choice?
    Yes { extra: bool },
    /// No.
    No,
    /// The client cannot ask its user.
    Unavailable,
}

impl Call {
    /// The caller, for an operation that only reads.
    pub fn reader(&self) -> &Caller {
        &self.caller
    }

    /// The caller with a new idempotency key, for an operation that changes something: however often it is
    /// sent, it is executed once.
    pub fn writer(&self) -> Caller {
        self.caller.clone().with_key(uuid::Uuid::now_v7().simple().to_string())
    }

    /// Whether the client wants to see progress.
    pub(super) fn shows_progress(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.progress.is_some())
    }

    /// Sends progress, if the client wants to see it.
    pub(super) async fn progress(&self, done: f64, message: String) {
        let Some(client) = &self.client else { return };
        let Some(token) = client.progress.clone() else { return };
        let progress = ProgressNotificationParam::new(token, done).with_message(message);
        // A client that has disconnected misses it.
        let _ = client.peer.notify_progress(progress).await;
    }

    /// Asks the user of the client.
    pub(super) async fn ask(&self, question: Question) -> Result<Answer, Interrupt> {
        let Some(client) = &self.client else { return Ok(Answer::Unavailable) };
        let can_ask = client.capabilities.elicitation.as_ref().is_some_and(|elicitation| {
            // A client that names no mode has the one with a form.
            elicitation.form.is_some() || elicitation.url.is_none()
        });
        if !can_ask {
            return Ok(Answer::Unavailable);
        }
        let Some(schema) = schema(&question) else { return Ok(Answer::Unavailable) };
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: question.message.clone(),
            requested_schema: schema,
        };
        if client.asks_by_response {
            let asked = Subject {
                owner: self.caller.owner.clone(),
                tool: self.tool,
                subject: question.subject,
            };
            if let (Some(state), Some(answers)) = (&client.state, &client.answers)
                && client.decisions.take(state, &asked)
            {
                return Ok(answers.get(ANSWER).map_or(Answer::No, parse));
            }
            let state = client.decisions.add(asked);
            let request = ElicitRequest::new(params);
            return Err(Interrupt::Ask(Box::new(Ask { request, state })));
        }
        let asked = client.peer.create_elicitation_with_timeout(params, Some(ANSWER_TIMEOUT)).await;
        Ok(match asked {
            Ok(result) => answer(&result),
            // No answer is not a yes.
            Err(_) => Answer::No,
        })
    }
}

fn schema(question: &Question) -> Option<ElicitationSchema> {
    let builder = ElicitationSchema::builder()
        .required_bool_property(CONFIRM, |choice| choice.title(question.confirm));
    let builder = match question.extra {
        Some(title) => {
            builder.bool_property(EXTRA, |choice| choice.title(title).with_default(false))
        }
        None => builder,
    };
    builder.build().ok()
}

fn parse(value: &Value) -> Answer {
    match serde_json::from_value::<ElicitResult>(value.clone()) {
        Ok(result) => answer(&result),
        Err(_) => Answer::No,
    }
}

fn answer(result: &ElicitResult) -> Answer {
    let is = |name: &str| {
        let value = result.content.as_ref().and_then(|content| content.get(name));
        value == Some(&Value::Bool(true))
    };
    if matches!(result.action, ElicitationAction::Accept) && is(CONFIRM) {
        return Answer::Yes { extra: is(EXTRA) };
    }
    Answer::No
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_confirmed_form_is_a_yes() {
        let yes = |extra| Answer::Yes { extra };
        for (value, expected) in [
            (json!({"action": "accept", "content": {"confirm": true}}), yes(false)),
            (
                json!({"action": "accept", "content": {"confirm": true, "alsoExecuted": true}}),
                yes(true),
            ),
            (json!({"action": "accept", "content": {"confirm": false}}), Answer::No),
            (json!({"action": "accept", "content": {"confirm": "true"}}), Answer::No),
            (json!({"action": "accept", "content": {"alsoExecuted": true}}), Answer::No),
            (json!({"action": "accept"}), Answer::No),
            (json!({"action": "decline", "content": {"confirm": true}}), Answer::No),
            (json!({"action": "cancel"}), Answer::No),
            (json!({}), Answer::No),
            (json!(true), Answer::No),
        ] {
            assert_eq!(parse(&value), expected, "{value}");
        }
    }
}
