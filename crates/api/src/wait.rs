//! [`Wait`]: what a run waits for from outside, and where an answer to it goes.
//!
//! A child in a sandbox that can go on only with such answers writes [`Waiting`] into its result
//! directory, as [`WAITING`], and ends with exit code 3. It is executed again in the same sandbox
//! when there is one, and finds [`Answers`] there, as [`ANSWERS`].

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of the file in which a child says what it waits for.
pub const WAITING: &str = "waiting.json";
/// The name of the file in which it is answered.
pub const ANSWERS: &str = "answers.json";

/// What a child says of itself when it waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Its run.
    pub run: String,
    /// What that waits for, all of it.
    pub waits: Vec<Wait>,
}

/// What a child is told that waited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// Its run.
    pub run: String,
    /// How often it has waited, with this time.
    pub round: u32,
    /// What came of it, in the order in which it was asked for. None when a time has come.
    pub answers: Vec<Answer>,
}

/// An answer to one [`Wait`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Answer {
    /// A decision.
    Approval {
        /// What asked, as the wait has it.
        node: String,
        /// See `node`.
        iteration: u32,
        /// Yes or no.
        approved: bool,
        /// What was said with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A signal.
    Signal {
        /// See `Approval`.
        node: String,
        /// See `Approval`.
        iteration: u32,
        /// Its name, behind what the asking task is in.
        name: String,
        /// Which one of that name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        correlation: Option<String>,
        /// What it says.
        #[serde(default)]
        payload: Value,
    },
}

impl Answer {
    /// What asked: its address, and the iteration of the loop that it is in.
    pub fn asked_by(&self) -> (&str, u32) {
        match self {
            Self::Approval { node, iteration, .. } | Self::Signal { node, iteration, .. } => {
                (node, *iteration)
            }
        }
    }
}

/// Something that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Wait {
    /// Somebody's decision.
    Approval {
        /// The task, by its id; behind those of what it is in: `BOX/DEPLOY` for the task `DEPLOY` of
        /// the child of the `<Sandbox>` or `<Subflow>` `BOX`.
        node: String,
        /// The iteration of the loop that it is in, else 0.
        #[serde(default)]
        iteration: u32,
        /// What it is called for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// The question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// What is said with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// When it goes on without an answer, in milliseconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        due_ms: Option<i64>,
    },
    /// A signal.
    Signal {
        /// See `Approval`.
        node: String,
        /// See `Approval`.
        #[serde(default)]
        iteration: u32,
        /// See `Approval`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// The name of the signal.
        name: String,
        /// Which one of that name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        correlation: Option<String>,
        /// See `Approval`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        due_ms: Option<i64>,
    },
    /// A time.
    Timer {
        /// See `Approval`.
        node: String,
        /// See `Approval`.
        #[serde(default)]
        iteration: u32,
        /// When it is, in milliseconds since 1970.
        due_ms: i64,
    },
}

impl Wait {
    /// The address of what waits.
    pub fn node(&self) -> &str {
        match self {
            Self::Approval { node, .. } | Self::Signal { node, .. } | Self::Timer { node, .. } => {
                node
            }
        }
    }

    /// The iteration of the loop that it is in.
    pub const fn iteration(&self) -> u32 {
        match self {
            Self::Approval { iteration, .. }
            | Self::Signal { iteration, .. }
            | Self::Timer { iteration, .. } => *iteration,
        }
    }

    /// When it goes on by itself, in milliseconds since 1970.
    pub const fn due_ms(&self) -> Option<i64> {
        match self {
            Self::Approval { due_ms, .. } | Self::Signal { due_ms, .. } => *due_ms,
            Self::Timer { due_ms, .. } => Some(*due_ms),
        }
    }

    /// The same, seen from where what has it is called so.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        let (Self::Approval { node, .. } | Self::Signal { node, .. } | Self::Timer { node, .. }) =
            &mut self;
        *node = format!("{outer}/{node}");
        self
    }

    /// The name that an answer to it has: the address of what asks, or the name of the signal
    /// behind what the asking task is in.
    pub fn answer_name(&self) -> Option<String> {
        match self {
            Self::Approval { node, .. } => Some(node.clone()),
            Self::Signal { node, name, .. } => Some(match node.rsplit_once('/') {
                Some((outer, _)) => format!("{outer}/{name}"),
                None => name.clone(),
            }),
            Self::Timer { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_has_an_address_and_its_answer_a_name() {
        let text = r#"{"kind":"signal","node":"word","name":"go"}"#;
        let wait: Wait = serde_json::from_str(text).unwrap();
        assert_eq!((wait.node(), wait.answer_name().as_deref()), ("word", Some("go")));
        let wait = wait.within("sub").within("box");
        assert_eq!(wait.node(), "box/sub/word");
        assert_eq!(wait.answer_name().as_deref(), Some("box/sub/go"));
        let text = r#"{"kind":"timer","node":"rest","iteration":2,"dueMs":7}"#;
        let timer: Wait = serde_json::from_str(text).unwrap();
        assert_eq!((timer.due_ms(), timer.answer_name()), (Some(7), None));
        assert_eq!(serde_json::to_string(&timer).unwrap(), text);
    }
}
