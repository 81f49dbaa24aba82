//! Access rules: which paths of a sandbox may be read, changed or executed. Only the rules are
//! here; code that opens a path checks the requested name, and again the name of the file that it
//! opened.
//!
//! - Any deny beats any allow; the order of rules never matters.
//! - No rules allow everything; as soon as there is one, what no rule allows is denied.
//! - An allow grants the levels that its own level includes; a deny blocks every level that
//!   includes its own. So `deny read` closes a path, `deny readwrite` leaves it readable, and
//!   `deny execute` stops nothing but execution.
//! - A rule applies to its path and everything below it, component by component.

mod path;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use crate::error::{Code, Problem};
use crate::names::names;

/// The most rules that one sandbox may have.
const MAX_RULES: usize = 1_000;

/// The system directories that a sandbox runs on. Processes may read and execute their content
/// without a rule, because without it no program would run.
pub const SYSTEM: &[&str] =
    &["/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/sbin", "/usr"];

names! {
    /// What a rule does.
    pub enum Effect: "effect" {
        /// Grants a level.
        Allow = "allow",
        /// Blocks a level, whatever else is allowed.
        Deny = "deny",
    }
}

names! {
    /// How a path is used.
    pub enum Level: "level" {
        /// Reading: content, attributes, directory entries.
        Read = "read",
        /// Reading and writing.
        ReadWrite = "readwrite",
        /// Reading and executing, or using as the working directory.
        Execute = "execute",
    }
}

impl Level {
    /// Whether this level also grants the other one. `readwrite` and `execute` include `read`, and
    /// do not include each other.
    pub const fn includes(self, other: Self) -> bool {
        matches!(other, Self::Read) || self as u8 == other as u8
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What the rule does.
    pub effect: Effect,
    /// The level that it grants or blocks.
    pub level: Level,
    /// The path, which includes everything below it: absolute, inside the sandbox.
    pub path: String,
}

/// A rule that is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {index}: {reason}")]
pub struct InvalidRule {
    /// Its index, from 0.
    pub index: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Why a path may not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The rules do not allow it. Does not reveal whether the path exists.
    #[error("the sandbox's rules deny {level} of {path}")]
    Denied {
        /// The requested level.
        level: Level,
        /// The path; for an operation on a whole tree, the path in it that is denied.
        path: String,
    },
    /// It is not an absolute path in normal form.
    #[error("{path:?} is not a valid path in a sandbox: {reason}")]
    InvalidPath {
        /// The path.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The sandbox's own rules are invalid, so everything is denied.
    #[error("the sandbox's stored rules cannot be read: {0}")]
    Unreadable(InvalidRule),
}

impl From<InvalidRule> for Problem {
    fn from(invalid: InvalidRule) -> Self {
        Self::new(Code::RuleInvalid, format!("the access rule {} is invalid", invalid.index))
            .because(invalid.reason)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Denied { .. } => Code::AccessDenied,
            Error::InvalidPath { .. } => Code::PathInvalid,
            Error::Unreadable(_) => Code::RuleInvalid,
        };
        Self::new(code, error.to_string())
    }
}

/// The rules of one sandbox, validated: every path in them is absolute and in normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules(Result<Vec<Rule>, InvalidRule>);

impl Default for Rules {
    /// No rules: everything is allowed.
    fn default() -> Self {
        Self(Ok(Vec::new()))
    }
}

impl Rules {
    /// Validates rules, and brings their paths into normal form.
    ///
    /// # Errors
    /// [`InvalidRule`] for the first rule whose path is empty, relative, or contains `..` or a NUL,
    /// and for the first one over the limit.
    pub fn new(rules: Vec<Rule>) -> Result<Self, InvalidRule> {
        let check = |(index, rule): (usize, Rule)| {
            if index >= MAX_RULES {
                let reason = format!("a sandbox has at most {MAX_RULES} rules");
                return Err(InvalidRule { index, reason });
            }
            let path = path::normalize(rule.path.as_bytes());
            let path = path.map_err(|reason| InvalidRule { index, reason: reason.to_owned() })?;
            Ok(Rule { path: String::from_utf8_lossy(&path).into_owned(), ..rule })
        };
        rules
            .into_iter()
            .enumerate()
            .map(check)
            .collect::<Result<_, _>>()
            .map(|rules| Self(Ok(rules)))
    }

    /// Parses rules from a JSON text, a list of `{effect, level, path}`.
    ///
    /// # Errors
    /// [`InvalidRule`] for the first rule with another shape, and as [`Rules::new`]. A text that is
    /// not a list is refused as its rule 0.
    pub fn from_json(text: &str) -> Result<Self, InvalidRule> {
        let invalid = |index: usize, error: &serde_json::Error| InvalidRule {
            index,
            reason: error.to_string(),
        };
        let values: Vec<serde_json::Value> =
            serde_json::from_str(text).map_err(|error| invalid(0, &error))?;
        Self::from_values(values)
    }

    /// The same, from parsed values.
    ///
    /// # Errors
    /// As [`Rules::from_json`].
    pub fn from_values(values: Vec<serde_json::Value>) -> Result<Self, InvalidRule> {
        let rule = |(index, value)| {
            serde_json::from_value(value)
                .map_err(|error| InvalidRule { index, reason: error.to_string() })
        };
        Self::new(values.into_iter().enumerate().map(rule).collect::<Result<_, _>>()?)
    }

    /// Reads rules that were stored as JSON. Invalid rules deny everything, with an error that says
    /// why.
    pub fn from_stored(text: &str) -> Self {
        Self::from_json(text).unwrap_or_else(|error| Self(Err(error)))
    }

    /// The rules, in the order they were given.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if they were stored and are invalid.
    pub fn as_slice(&self) -> Result<&[Rule], Error> {
        self.0.as_deref().map_err(|error| Error::Unreadable(error.clone()))
    }

    /// Whether there is no rule at all, so that everything is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_ok_and(Vec::is_empty)
    }

    /// Whether the rules allow this use of a path. Checks only the name: code that follows a link
    /// checks again with the name of its target.
    ///
    /// # Errors
    /// [`Error::Denied`], and the other variants for an invalid path or invalid rules.
    pub fn allows(&self, level: Level, path: &[u8]) -> Result<(), Error> {
        self.allows_normalized(level, &normalize(path)?)
    }

    /// Whether the rules allow the sandbox's own processes this use of a path: like
    /// [`Rules::allows`], but processes may also read and execute the content of a directory of
    /// [`SYSTEM`], unless a rule names that directory itself or denies the path explicitly.
    ///
    /// # Errors
    /// As [`Rules::allows`].
    pub fn allows_processes(&self, level: Level, path: &[u8]) -> Result<(), Error> {
        let path = normalize(path)?;
        let rules = self.as_slice()?;
        let is_of_system = SYSTEM.iter().any(|top| {
            path::is_at_or_below(&path, top.as_bytes())
                && rules.iter().all(|rule| rule.path != *top)
        });
        if is_of_system && Level::Execute.includes(level) && !self.denies(level, &path)? {
            return Ok(());
        }
        self.allows_normalized(level, &path)
    }

    /// Whether the rules allow this use of a path and everything below it, for an operation that
    /// processes a whole tree and must not stop in the middle.
    ///
    /// # Errors
    /// As [`Rules::allows`]; a denial names the path of the rule if that is below.
    pub fn allows_tree(&self, level: Level, path: &[u8]) -> Result<(), Error> {
        let path = normalize(path)?;
        self.allows_normalized(level, &path)?;
        match self.denied_below(level, &path)? {
            Some(denied) => Err(Error::Denied { level, path: denied.to_owned() }),
            None => Ok(()),
        }
    }

    /// Whether the rules allow moving a path with everything below it: both paths must be writable,
    /// and no deny rule may name a path inside the tree. A move would separate a tree from the
    /// rules about its parts, so rules that deny execution prevent it too.
    ///
    /// # Errors
    /// As [`Rules::allows_tree`].
    pub fn allows_move(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        for path in [from, to] {
            self.allows_tree(Level::ReadWrite, path)?;
            if let Some(denied) = self.denied_below(Level::Execute, &normalize(path)?)? {
                let path = denied.to_owned();
                return Err(Error::Denied { level: Level::ReadWrite, path });
            }
        }
        Ok(())
    }

    /// The path of a rule that denies a level somewhere below a path, if there is one. The path of
    /// such a rule need not exist.
    ///
    /// # Errors
    /// For an invalid path or invalid rules.
    pub fn denies_below(&self, level: Level, path: &[u8]) -> Result<Option<&str>, Error> {
        self.denied_below(level, &normalize(path)?)
    }

    /// Whether a rule explicitly denies a level of a path, so that no other rule can grant it. A
    /// path that no rule allows is not explicitly denied.
    ///
    /// # Errors
    /// For an invalid path or invalid rules.
    pub fn denies(&self, level: Level, path: &[u8]) -> Result<bool, Error> {
        let path = normalize(path)?;
        let denies = |rule: &Rule| {
            rule.effect == Effect::Deny
                && level.includes(rule.level)
                && path::is_at_or_below(&path, rule.path.as_bytes())
        };
        Ok(self.as_slice()?.iter().any(denies))
    }

    fn allows_normalized(&self, level: Level, path: &[u8]) -> Result<(), Error> {
        let rules = self.as_slice()?;
        let mut allowed = rules.is_empty();
        for rule in rules.iter().filter(|rule| path::is_at_or_below(path, rule.path.as_bytes())) {
            match rule.effect {
                Effect::Allow => allowed |= rule.level.includes(level),
                Effect::Deny if level.includes(rule.level) => {
                    allowed = false;
                    break;
                }
                Effect::Deny => {}
            }
        }
        let denied = || Error::Denied { level, path: String::from_utf8_lossy(path).into_owned() };
        if allowed { Ok(()) } else { Err(denied()) }
    }

    fn denied_below(&self, level: Level, path: &[u8]) -> Result<Option<&str>, Error> {
        let denies = |rule: &&Rule| {
            rule.effect == Effect::Deny
                && level.includes(rule.level)
                && rule.path.as_bytes() != path
                && path::is_at_or_below(rule.path.as_bytes(), path)
        };
        Ok(self.as_slice()?.iter().find(denies).map(|rule| rule.path.as_str()))
    }
}

fn normalize(path: &[u8]) -> Result<Vec<u8>, Error> {
    path::normalize(path).map_err(|reason| Error::InvalidPath {
        path: String::from_utf8_lossy(path).into_owned(),
        reason,
    })
}

impl Serialize for Rules {
    /// Fails for invalid stored rules: no other rules may be stored instead of them.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().map_err(ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_values(Vec::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
