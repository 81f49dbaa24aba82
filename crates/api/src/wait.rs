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
        /// All that was said, where it is about the changes of a sandbox. No child is told that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision: Option<Value>,
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
    /// What came of a sandbox that the host was asked for is there.
    Sandbox {
        /// See `Approval`.
        node: String,
        /// See `Approval`.
        iteration: u32,
        /// Which request that answers.
        request: String,
    },
}

impl Answer {
    /// What asked: its address, and the iteration of the loop that it is in.
    pub fn asked_by(&self) -> (&str, u32) {
        match self {
            Self::Approval { node, iteration, .. }
            | Self::Signal { node, iteration, .. }
            | Self::Sandbox { node, iteration, .. } => (node, *iteration),
        }
    }

    /// Whether it is to what waits there.
    pub fn is_to(&self, wait: &Wait) -> bool {
        let is_same = match (self, wait) {
            (Self::Sandbox { request, .. }, Wait::Sandbox { request: asked, .. }) => {
                request == asked
            }
            (Self::Sandbox { .. }, _) | (_, Wait::Sandbox { .. }) => false,
            _ => true,
        };
        is_same && self.asked_by() == (wait.node(), wait.iteration())
    }

    /// The same, seen from inside what is called so; `None` for what is elsewhere.
    #[must_use]
    pub fn inside(mut self, outer: &str) -> Option<Self> {
        let below =
            |address: &str| Some(address.strip_prefix(outer)?.strip_prefix('/')?.to_owned());
        match &mut self {
            Self::Approval { node, .. } | Self::Sandbox { node, .. } => *node = below(node)?,
            Self::Signal { node, name, .. } => (*node, *name) = (below(node)?, below(name)?),
        }
        Some(self)
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
    /// A sandbox, which only the host can make.
    Sandbox {
        /// See `Approval`.
        node: String,
        /// See `Approval`.
        #[serde(default)]
        iteration: u32,
        /// Which try of its task it is, from 1.
        attempt: u32,
        /// Names the request below `nested` in the child's result: hexadecimal digits.
        request: String,
    },
}

impl Wait {
    /// The address of what waits.
    pub fn node(&self) -> &str {
        match self {
            Self::Approval { node, .. }
            | Self::Signal { node, .. }
            | Self::Timer { node, .. }
            | Self::Sandbox { node, .. } => node,
        }
    }

    /// The iteration of the loop that it is in.
    pub const fn iteration(&self) -> u32 {
        match self {
            Self::Approval { iteration, .. }
            | Self::Signal { iteration, .. }
            | Self::Timer { iteration, .. }
            | Self::Sandbox { iteration, .. } => *iteration,
        }
    }

    /// When it goes on by itself, in milliseconds since 1970.
    pub const fn due_ms(&self) -> Option<i64> {
        match self {
            Self::Approval { due_ms, .. } | Self::Signal { due_ms, .. } => *due_ms,
            Self::Timer { due_ms, .. } => Some(*due_ms),
            Self::Sandbox { .. } => None,
        }
    }

    /// Whether nobody but the host can do anything about it.
    pub const fn is_of_host(&self) -> bool {
        matches!(self, Self::Sandbox { .. })
    }

    /// Whether the same task, in the same iteration, waits for this too.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.node(), self.iteration()) == (other.node(), other.iteration())
    }

    /// The same, seen from where what has it is called so.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        let (Self::Approval { node, .. }
        | Self::Signal { node, .. }
        | Self::Timer { node, .. }
        | Self::Sandbox { node, .. }) = &mut self;
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
        let wait = wait.within("sub").within("box");
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
        assert_eq!(answer.clone().inside("bo"), None);
        let inside = answer.inside("box").and_then(|answer| answer.inside("sub")).unwrap();
        assert_eq!(inside.asked_by(), ("word", 0));
        assert!(matches!(inside, Answer::Signal { name, .. } if name == "go"));
        let asked = |request: &str| Wait::Sandbox {
            node: "inner".to_owned(),
            iteration: 0,
            attempt: 1,
            request: request.to_owned(),
        };
        let (node, request) = ("inner".to_owned(), "ab".to_owned());
        let answer = Answer::Sandbox { node, iteration: 0, request };
        assert!(answer.is_to(&asked("ab")) && !answer.is_to(&asked("cd")));
    }
}
