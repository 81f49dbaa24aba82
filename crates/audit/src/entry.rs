//! What an audit record says.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stockade_core::{Code, Door, OwnerId, Time};

/// The largest record, in bytes of JSON. The details of a larger one are omitted.
pub const MAX_ENTRY_BYTES: usize = 16 << 10;

/// Who made a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Actor {
    /// The owner on whose behalf it was made; absent if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// The user id of the process, as the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The id of the API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// The address of a client on the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Through what it came.
    pub door: Door,
    /// The name of the request, as in the response's header `x-request-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Actor {
    /// The user of this process.
    pub fn this_user(door: Door) -> Self {
        let uid = stockade_core::caller::outside_user()
            .unwrap_or_else(|| rustix::process::geteuid().as_raw());
        Self {
            owner: Some(OwnerId::from_uid(uid)),
            uid: Some(uid),
            key_id: None,
            address: None,
            door,
            request_id: None,
        }
    }
}

/// The part of an operation that a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It was requested, or was accepted and starts. What a crash interrupts has only this record.
    Started,
    /// It has ended, or was refused.
    Ended,
}

/// How a request was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The checks follow.
    Requested,
    /// It was allowed.
    Allowed,
    /// It was refused, and nothing was changed.
    Refused,
    /// It was allowed, and failed.
    Failed,
}

impl Decision {
    /// The decision about a request that has ended with an error of that code.
    pub const fn of_problem(code: Code) -> Self {
        match code {
            Code::TimedOut
            | Code::OutOfMemory
            | Code::DiskExceeded
            | Code::OutputExceeded
            | Code::LaunchFailed
            | Code::Unreachable
            | Code::OutcomeUnknown
            | Code::DatabaseInvalid
            | Code::Io
            | Code::Cancelled
            | Code::StorageFull
            | Code::EgressUnreachable
            | Code::RegistryUnreachable => Self::Failed,
            _ => Self::Refused,
        }
    }
}

/// Why a request was refused, or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// The error code.
    pub code: String,
    /// The message, redacted.
    pub message: String,
}

/// What an audit record says. It contains no value of a secret, no content of a file, and no output of
/// a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// Its id, which is unique.
    pub id: String,
    /// When it was made.
    pub time: Time,
    /// The operation, such as `create`.
    pub operation: String,
    /// The part of the operation.
    pub phase: Phase,
    /// How it was decided.
    pub decision: Decision,
    /// Who requested it.
    pub actor: Actor,
    /// What it is about: names, ids, paths.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
    /// Why it was refused, or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

impl Entry {
    /// A record of an operation that starts now.
    pub fn new(operation: impl Into<String>, actor: Actor) -> Self {
        Self {
            id: random_id(),
            time: now(),
            operation: operation.into(),
            phase: Phase::Started,
            decision: Decision::Requested,
            actor,
            details: Map::new(),
            reason: None,
        }
    }

    /// The same with a detail, unless it is null.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.details.insert(name.to_owned(), value);
        }
        self
    }

    /// The record of the same operation's end.
    #[must_use]
    pub fn ended(&self, decision: Decision, reason: Option<Reason>) -> Self {
        let reason = reason.map(|reason| Reason {
            code: reason.code,
            message: crate::redact::text(&reason.message),
        });
        let of = [("of".to_owned(), Value::from(self.id.clone()))];
        let details = self.details.clone().into_iter().chain(of).collect();
        Self {
            id: random_id(),
            time: now(),
            phase: Phase::Ended,
            decision,
            details,
            reason,
            ..self.clone()
        }
    }

    /// Its JSON, no larger than [`MAX_ENTRY_BYTES`].
    pub(crate) fn to_json(&self) -> Result<String, serde_json::Error> {
        let text = serde_json::to_string(self)?;
        if text.len() <= MAX_ENTRY_BYTES {
            return Ok(text);
        }
        let mut short = self.clone();
        short.details = Map::from_iter([("omittedBytes".to_owned(), Value::from(text.len()))]);
        short.reason = short
            .reason
            .map(|reason| Reason { message: reason.message.chars().take(500).collect(), ..reason });
        serde_json::to_string(&short)
    }
}

fn now() -> Time {
    Time::from(jiff::Timestamp::now())
}

/// A random id of 24 digits. If the kernel gives no random bytes, the time is unique enough.
fn random_id() -> String {
    let mut bytes = [0_u8; 12];
    let flags = rustix::rand::GetRandomFlags::empty();
    if !matches!(rustix::rand::getrandom(&mut bytes[..], flags), Ok(12)) {
        let now = jiff::Timestamp::now().as_nanosecond().to_be_bytes();
        bytes.copy_from_slice(&now[4..]);
    }
    crate::hex::hex(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_too_large_loses_its_details() {
        let entry = Entry::new("run", Actor::this_user(Door::Command))
            .with("path", "x".repeat(2 * MAX_ENTRY_BYTES));
        let text = entry.to_json().unwrap();
        assert!(text.len() < MAX_ENTRY_BYTES, "{}", text.len());
        assert!(text.contains("omittedBytes"), "{text}");
    }
}
