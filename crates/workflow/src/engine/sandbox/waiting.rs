//! A child that waits: its command has ended, and says what it can go on with. Its sandbox is kept,
//! with nothing under way in it, and the task waits. When there is an answer or a time has come, the
//! command is executed again, in the same sandbox and on the child's own durable state: nothing that
//! it has finished is done again.
//!
//! What a child says is hostile: it is bounded, and only ever shown and compared.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use stockade_api::{ANSWERS, Answer, Answers, Ending, FileKind, WAITING, Wait, Waiting};

use super::held::{Ended, Held};
use super::request::RESULT;
use super::{Given, Try, failed};
use crate::engine::clock::now_ms;
use crate::engine::trouble::Trouble;
use crate::store::sandboxes::{self, Pause};

/// The exit code that says so.
const WAITS: i32 = 3;
/// How long a sandbox is kept for a child that waits, from when somebody last saw to it: as long as
/// any sandbox may be.
pub(crate) const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How often a child may wait.
const MAX_ROUNDS: u32 = 10_000;
/// How much a child may wait for at once, and the longest that it may say of it, in bytes.
const MAX_WAITS: usize = 64;
const MAX_TEXT_BYTES: usize = 4 << 10;
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What a child waits for, if that is how its command ended.
///
/// # Errors
/// `INVALID_INPUT` for what is no such thing.
pub(super) async fn read(held: &Held, ended: &Ended) -> Result<Option<Waiting>, Trouble> {
    if ended.end.ending != Ending::Exited || ended.end.exit_code != Some(WAITS) {
        return Ok(None);
    }
    let path = format!("{RESULT}/{WAITING}");
    let entries = held.list(RESULT, 1).await?.unwrap_or_default();
    let is_it = |kind: FileKind, name: &[u8]| kind == FileKind::File && name == path.as_bytes();
    if !entries.iter().any(|entry| is_it(entry.kind, &entry.path.0)) {
        return Ok(None);
    }
    let text = held.read(path.as_bytes(), MAX_FILE_BYTES + 1).await?;
    parse(&text).map(Some)
}

fn parse(text: &[u8]) -> Result<Waiting, Trouble> {
    let refused =
        |why: &str| Trouble::new("INVALID_INPUT", format!("{WAITING} of the child {why}"));
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(refused(&format!("exceeds {MAX_FILE_BYTES} bytes")));
    }
    let waiting: Waiting = serde_json::from_slice(text)
        .map_err(|error| refused(&format!("cannot be read: {error}")))?;
    if waiting.waits.is_empty() {
        return Err(refused("says of nothing that it waits for it"));
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
            return Err(refused("has a name that cannot be one"));
        }
        let told = [Some(label), Some(texts[0]), Some(texts[1])].into_iter().flatten().flatten();
        let mut all = named.into_iter().chain(told.map(String::as_str));
        if all.any(|text| text.len() > MAX_TEXT_BYTES) {
            return Err(refused(&format!("has a text of more than {MAX_TEXT_BYTES} bytes")));
        }
        if !known.insert((wait.node(), wait.iteration())) {
            return Err(refused(&format!("has two waits of {:?}", wait.node())));
        }
    }
    Ok(waiting)
}

/// Why a child cannot go on whose sandbox is there no more.
pub(super) fn lost(trouble: Trouble) -> Trouble {
    let told = "the sandbox that was kept for a child that waits cannot be used any more, and what \
                the child did is lost with it";
    Trouble { message: format!("{told}: {}", trouble.message), ..trouble }
}

impl Try {
    /// Lets the task wait with the child. Its sandbox is kept from here on, and it needs no place
    /// among those that are under way: nothing is, in it.
    pub(super) async fn pause(&self, held: &Held, pause: Pause) -> Result<Given, Trouble> {
        if pause.rounds > MAX_ROUNDS {
            return Err(failed(format!("the child has waited {MAX_ROUNDS} times")));
        }
        held.renew(KEPT, false).await.map_err(lost)?;
        let waits = json!({ "remoteRunId": pause.child, "waits": pause.waits });
        let events = vec![self.notes.event("SandboxWaiting", waits)];
        let row = sandboxes::wait(&self.run, &self.key, &pause, now_ms());
        self.notes.keep(events, vec![row]).await?;
        Ok(Given::Waits(pause))
    }

    /// Gives a child what it waited for, before it is executed again. That is written once: it may
    /// be reading it already when this is done again after a crash.
    pub(super) async fn hand_over(&self, held: &Held, pause: &Pause) -> Result<(), Trouble> {
        let answers = Answers {
            run: pause.child.clone(),
            round: pause.rounds,
            answers: pause.answers.iter().cloned().map(told).collect(),
        };
        let text = serde_json::to_vec(&answers).map_err(|error| failed(error.to_string()))?;
        let path = format!("{RESULT}/{ANSWERS}");
        held.write_again(&format!("answers-{}", pause.rounds), &path, &text).await
    }
}

/// An answer as a child is told it.
fn told(mut answer: Answer) -> Answer {
    if let Answer::Approval { decision, .. } = &mut answer {
        *decision = None;
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, why: &str) {
        let trouble = parse(text.as_bytes()).unwrap_err();
        assert_eq!(trouble.code, "INVALID_INPUT", "{trouble:?}");
        assert!(trouble.message.contains(why), "{trouble:?}");
    }

    #[test]
    fn what_a_child_says_is_bounded() {
        let text = r#"{"run":"r","waits":[{"kind":"approval","node":"deploy"},
            {"kind":"timer","node":"rest","dueMs":5}]}"#;
        assert_eq!(parse(text.as_bytes()).unwrap().waits.len(), 2);
        refused("{", "cannot be read");
        refused(r#"{"run":"r","waits":[]}"#, "nothing");
        refused(r#"{"run":"r","waits":[{"kind":"word","node":"x"}]}"#, "cannot be read");
        refused(r#"{"run":"r","waits":[{"kind":"approval","node":""}]}"#, "name");
        refused(r#"{"run":"r","waits":[{"kind":"approval","node":"a\u001b[2J"}]}"#, "name");
        let twice = r#"{"kind":"approval","node":"a"}"#;
        refused(&format!(r#"{{"run":"r","waits":[{twice},{twice}]}}"#), "two waits");
        let long = format!(r#"{{"kind":"approval","node":"{}"}}"#, "x".repeat(5_000));
        refused(&format!(r#"{{"run":"r","waits":[{long}]}}"#), "text");
        let many = (0..65).map(|n| format!(r#"{{"kind":"approval","node":"{n}"}}"#));
        let many = many.collect::<Vec<_>>().join(",");
        refused(&format!(r#"{{"run":"r","waits":[{many}]}}"#), "more than 64");
        refused(&" ".repeat((1 << 20) + 1), "exceeds");
    }
}
