//! [`Wait`]: what a workflow run waits for, and where the answer goes.
//!
//! A child in a sandbox that needs such answers to continue writes [`WaitList`] into its result
//! directory, as [`WAITING`], and exits with code 3. It is executed again in the same sandbox once
//! there is an answer, and finds [`Answers`] in that directory, as [`ANSWERS`].

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of the file in which a child writes what it waits for.
pub const WAITING: &str = "waiting.json";
/// The name of the file with the answers.
pub const ANSWERS: &str = "answers.json";

/// The file of a child that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitList {
    /// The id of its run.
    pub run: String,
    /// Everything that the run waits for.
    pub waits: Vec<Wait>,
}

/// The answers for a child that waited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// The id of its run.
    pub run: String,
    /// How often it has waited so far, including this time.
    pub round: u32,
    /// The answers, in the order of the requests. Empty if a timer has expired.
    pub answers: Vec<Answer>,
}

/// An answer to one [`Wait`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Answer {
    /// A decision.
    Approval {
        /// The node of the wait.
        node: String,
        /// See `node`.
        iteration: u32,
        /// Whether it is approved.
        approved: bool,
        /// The note of the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// The complete decision, if it is about the changes of a sandbox. No child receives it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision: Option<Value>,
    },
    /// A signal.
    Signal {
        /// See `Approval`.
        node: String,
        /// See `Approval`.
        iteration: u32,
        /// Its name, with the ids of the outer tasks as a prefix.
        name: String,
        /// The correlation id among signals of that name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        correlation: Option<String>,
        /// Its payload.
        #[serde(default)]
        payload: Value,
    },
    /// The result of a sandbox that was requested from the host is available.
    Sandbox {
        /// See `Approval`.
        node: String,
        /// See `Approval`.
        iteration: u32,
        /// The id of the request.
        request: String,
    },
}

impl Answer {
    /// The address of the task that waits, and the iteration of its loop.
    pub fn origin(&self) -> (&str, u32) {
        match self {
            Self::Approval { node, iteration, .. }
            | Self::Signal { node, iteration, .. }
            | Self::Sandbox { node, iteration, .. } => (node, *iteration),
        }
    }

    /// Whether it answers this wait.
    pub fn answers(&self, wait: &Wait) -> bool {
        let is_same = match (self, wait) {
            (Self::Sandbox { request, .. }, Wait::Sandbox { request: asked, .. }) => {
                request == asked
            }
            (Self::Sandbox { .. }, _) | (_, Wait::Sandbox { .. }) => false,
            _ => true,
        };
        is_same && self.origin() == (wait.node(), wait.iteration())
    }

    /// The same answer, as seen from inside the task of that name; `None` if it is for another
    /// task.
    #[must_use]
    pub fn strip_outer(mut self, outer: &str) -> Option<Self> {
        let below =
            |address: &str| Some(address.strip_prefix(outer)?.strip_prefix('/')?.to_owned());
        match &mut self {
            Self::Approval { node, .. } | Self::Sandbox { node, .. } => *node = below(node)?,
            Self::Signal { node, name, .. } => (*node, *name) = (below(node)?, below(name)?),
        }
        Some(self)
    }
}

/// What a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Wait {
    /// A decision of a user.
    Approval {
        /// The id of the task, after those of its outer tasks: `BOX/DEPLOY` for the task `DEPLOY`
        /// of the child of the `<Sandbox>` or `<Subflow>` `BOX`.
        node: String,
        /// The iteration of its loop, else 0.
        #[serde(default)]
        iteration: u32,
        /// Its label for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// The question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The text with the question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// When the run continues without an answer, in milliseconds since 1970.
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
        /// The correlation id among signals of that name.
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
        /// When it expires, in milliseconds since 1970.
        due_ms: i64,
    },
    /// A sandbox, which only the host can create.
    Sandbox {
        /// See `Approval`.
        node: String,
        /// See `Approval`.
        #[serde(default)]
        iteration: u32,
        /// The attempt of its task, from 1.
        attempt: u32,
        /// The name of the request below `nested` in the child's result: hexadecimal digits.
        request: String,
    },
}

impl Wait {
    /// The address of the task that waits.
    pub fn node(&self) -> &str {
        match self {
            Self::Approval { node, .. }
            | Self::Signal { node, .. }
            | Self::Timer { node, .. }
            | Self::Sandbox { node, .. } => node,
        }
    }

    /// The iteration of its loop.
    pub const fn iteration(&self) -> u32 {
        match self {
            Self::Approval { iteration, .. }
            | Self::Signal { iteration, .. }
            | Self::Timer { iteration, .. }
            | Self::Sandbox { iteration, .. } => *iteration,
        }
    }

    /// When it continues without an answer, in milliseconds since 1970.
    pub const fn due_ms(&self) -> Option<i64> {
        match self {
            Self::Approval { due_ms, .. } | Self::Signal { due_ms, .. } => *due_ms,
            Self::Timer { due_ms, .. } => Some(*due_ms),
            Self::Sandbox { .. } => None,
        }
    }

    /// Whether only the host can answer it.
    pub const fn is_for_host(&self) -> bool {
        matches!(self, Self::Sandbox { .. })
    }

    /// Whether another wait is of the same task, in the same iteration.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.node(), self.iteration()) == (other.node(), other.iteration())
    }

    /// The same wait, as seen from outside of the task with that name.
    #[must_use]
    pub fn with_outer(mut self, outer: &str) -> Self {
        let (Self::Approval { node, .. }
        | Self::Signal { node, .. }
        | Self::Timer { node, .. }
        | Self::Sandbox { node, .. }) = &mut self;
        *node = format!("{outer}/{node}");
        self
    }

    /// The name for an answer to it: the address of the task, or the name of the signal with the
    /// ids of the outer tasks as a prefix.
    pub fn answer_name(&self) -> Option<String> {
        match self {
            Self::Approval { node, .. } => Some(node.clone()),
            Self::Signal { node, name, .. } => Some(match node.rsplit_once('/') {
                Some((outer, _)) => format!("{outer}/{name}"),
                None => name.clone(),
            }),
            Self::Timer { .. } | Self::Sandbox { .. } => None,
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
        let wait = wait.with_outer("sub").with_outer("box");
        assert_eq!(wait.node(), "box/sub/word");
        assert_eq!(wait.answer_name().as_deref(), Some("box/sub/go"));
        let text = r#"{"kind":"timer","node":"rest","iteration":2,"dueMs":7}"#;
        let timer: Wait = serde_json::from_str(text).unwrap();
        assert_eq!((timer.due_ms(), timer.answer_name()), (Some(7), None));
        assert_eq!(serde_json::to_string(&timer).unwrap(), text);
    }

    #[test]
    fn an_answer_finds_what_asked() {
        let text = r#"{"kind":"signal","node":"box/sub/word","iteration":0,"name":"box/sub/go"}"#;
        let answer: Answer = serde_json::from_str(text).unwrap();
        assert_eq!(answer.clone().strip_outer("bo"), None);
        let inside =
            answer.strip_outer("box").and_then(|answer| answer.strip_outer("sub")).unwrap();
        assert_eq!(inside.origin(), ("word", 0));
        assert!(matches!(inside, Answer::Signal { name, .. } if name == "go"));
        let asked = |request: &str| Wait::Sandbox {
            node: "inner".to_owned(),
            iteration: 0,
            attempt: 1,
            request: request.to_owned(),
        };
        let (node, request) = ("inner".to_owned(), "ab".to_owned());
        let answer = Answer::Sandbox { node, iteration: 0, request };
        assert!(answer.answers(&asked("ab")) && !answer.answers(&asked("cd")));
    }
}
