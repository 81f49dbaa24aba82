//! A waiting child: its command has ended, and its result lists what it waits for. Its sandbox is
//! retained, without processes, and the task waits. When there is an answer or a time has come, the
//! command is executed again, in the same sandbox and on the child's own durable state: finished tasks
//! are not executed again.
//!
//! The result of a child is untrusted: it is limited, and only ever displayed and compared.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use stockade_api::{ANSWERS, Answer, Answers, Ending, FileKind, WAITING, Wait, WaitList};

use super::attempt::{AttemptOutcome, SandboxAttempt, failed};
use super::handle::SandboxHandle;
use super::request::RESULT;
use crate::engine::clock::now_ms;
use crate::engine::commands::CommandOutput;
use crate::engine::task_error::TaskError;
use crate::store::sandboxes::{self, Pause};

/// The exit code of a child that waits.
const EXIT_CODE: i32 = 3;
/// How long a sandbox is retained for a waiting child after its lease was last renewed: the maximum
/// lifetime of a sandbox.
pub(crate) const WAIT_LEASE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How often a child may wait.
const MAX_ROUNDS: u32 = 10_000;
/// The maximum number of simultaneous waits of a child, and the longest text and file about them, in
/// bytes.
const MAX_WAITS: usize = 64;
const MAX_TEXT_BYTES: usize = 4 << 10;
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The waits of a child, if its command ended because of them.
///
/// # Errors
/// `INVALID_INPUT` for an invalid file.
pub(super) async fn read(
    handle: &SandboxHandle,
    output: &CommandOutput,
) -> Result<Option<WaitList>, TaskError> {
    if output.end.ending != Ending::Exited || output.end.exit_code != Some(EXIT_CODE) {
        return Ok(None);
    }
    let path = format!("{RESULT}/{WAITING}");
    let entries = handle.list(RESULT, 1).await?.unwrap_or_default();
    let is_it = |kind: FileKind, name: &[u8]| kind == FileKind::File && name == path.as_bytes();
    if !entries.iter().any(|entry| is_it(entry.kind, &entry.path.0)) {
        return Ok(None);
    }
    let text = handle.read(path.as_bytes(), MAX_FILE_BYTES + 1).await?;
    parse(&text).map(Some)
}

fn parse(text: &[u8]) -> Result<WaitList, TaskError> {
    let refused =
        |why: &str| TaskError::new("INVALID_INPUT", format!("{WAITING} of the child {why}"));
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(refused(&format!("exceeds {MAX_FILE_BYTES} bytes")));
    }
    let waiting: WaitList = serde_json::from_slice(text)
        .map_err(|error| refused(&format!("cannot be read: {error}")))?;
    if waiting.waits.is_empty() {
        return Err(refused("lists no waits"));
    }
    if waiting.waits.len() > MAX_WAITS {
        return Err(refused(&format!("has more than {MAX_WAITS} waits")));
    }
    let mut known = BTreeSet::new();
    for wait in &waiting.waits {
        let (label, texts) = match wait {
            Wait::Approval { label, title, summary, .. } => (label, [title, summary]),
            Wait::Signal { label, correlation, .. } => (label, [correlation, &None]),
            Wait::Timer { .. } | Wait::Sandbox { .. } => (&None, [&None, &None]),
        };
        let name = wait.answer_name().unwrap_or_default();
        let named = [wait.node(), name.as_str(), waiting.run.as_str()];
        if named.iter().any(|name| name.chars().any(char::is_control)) || wait.node().is_empty() {
            return Err(refused("contains an invalid name"));
        }
        let texts_shown =
            [Some(label), Some(texts[0]), Some(texts[1])].into_iter().flatten().flatten();
        let mut all = named.into_iter().chain(texts_shown.map(String::as_str));
        if all.any(|text| text.len() > MAX_TEXT_BYTES) {
            return Err(refused(&format!("has a string of more than {MAX_TEXT_BYTES} bytes")));
        }
        if !known.insert((wait.node(), wait.iteration())) {
            return Err(refused(&format!("has two waits of {:?}", wait.node())));
        }
    }
    Ok(waiting)
}

/// The failure of a child that waited, and whose sandbox does not exist any more.
pub(super) fn lost_error(error: TaskError) -> TaskError {
    let why = "the sandbox of a waiting child no longer exists, and the child's work is lost";
    TaskError { message: format!("{why}: {}", error.message), ..error }
}

impl SandboxAttempt {
    /// Makes the task wait for the child. From now on, its sandbox is retained and needs no slot.
    pub(super) async fn pause(
        &self,
        handle: &SandboxHandle,
        pause: Pause,
    ) -> Result<AttemptOutcome, TaskError> {
        if pause.rounds > MAX_ROUNDS {
            return Err(failed(format!("the child has waited {MAX_ROUNDS} times")));
        }
        handle.renew(WAIT_LEASE, false).await.map_err(lost_error)?;
        let waits = json!({ "remoteRunId": pause.child, "waits": pause.waits });
        let events = vec![self.recorder.event("SandboxWaiting", waits)];
        let row = sandboxes::wait(&self.run, &self.key, &pause, now_ms());
        self.recorder.record(events, vec![row]).await?;
        Ok(AttemptOutcome::Waits(pause))
    }

    /// Writes the answers for a child into its sandbox, before the child is executed again. They are
    /// written once: when this is called again after a crash, the child may already be reading them.
    pub(super) async fn write_answers(
        &self,
        handle: &SandboxHandle,
        pause: &Pause,
    ) -> Result<(), TaskError> {
        let answers = Answers {
            run: pause.child.clone(),
            round: pause.rounds,
            answers: pause.answers.iter().cloned().map(without_decision).collect(),
        };
        let text = serde_json::to_vec(&answers).map_err(|error| failed(error.to_string()))?;
        let path = format!("{RESULT}/{ANSWERS}");
        handle.write_again(&format!("answers-{}", pause.rounds), &path, &text).await
    }
}

/// An answer in the form that a child receives.
fn without_decision(mut answer: Answer) -> Answer {
    if let Answer::Approval { decision, .. } = &mut answer {
        *decision = None;
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, why: &str) {
        let error = parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.code, "INVALID_INPUT", "{error:?}");
        assert!(error.message.contains(why), "{error:?}");
    }

    #[test]
    fn what_a_child_says_is_bounded() {
        let text = r#"{"run":"r","waits":[{"kind":"approval","node":"deploy"},
            {"kind":"timer","node":"rest","dueMs":5}]}"#;
        assert_eq!(parse(text.as_bytes()).unwrap().waits.len(), 2);
        refused("{", "cannot be read");
        refused(r#"{"run":"r","waits":[]}"#, "lists no waits");
        refused(r#"{"run":"r","waits":[{"kind":"word","node":"x"}]}"#, "cannot be read");
        refused(r#"{"run":"r","waits":[{"kind":"approval","node":""}]}"#, "name");
        refused(r#"{"run":"r","waits":[{"kind":"approval","node":"a\u001b[2J"}]}"#, "name");
        let twice = r#"{"kind":"approval","node":"a"}"#;
        refused(&format!(r#"{{"run":"r","waits":[{twice},{twice}]}}"#), "two waits");
        let long = format!(r#"{{"kind":"approval","node":"{}"}}"#, "x".repeat(5_000));
        refused(&format!(r#"{{"run":"r","waits":[{long}]}}"#), "a string of more than");
        let many = (0..65).map(|n| format!(r#"{{"kind":"approval","node":"{n}"}}"#));
        let many = many.collect::<Vec<_>>().join(",");
        refused(&format!(r#"{{"run":"r","waits":[{many}]}}"#), "more than 64");
        refused(&" ".repeat((1 << 20) + 1), "exceeds");
    }
}
