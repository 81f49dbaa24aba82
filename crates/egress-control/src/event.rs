//! The events of a sandbox's traffic: the requested host, how it was requested, and the outcome.
//! Never the content; methods and paths only where they were asked for.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stockade_core::network::{DeniedConnection, Host, Misdirection, Reason, Refusal, Transport};
use stockade_core::{Code, SandboxId};

/// The outcome of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Outcome {
    /// A connection was made.
    Opened {
        /// The address.
        address: IpAddr,
    },
    /// A connection that was made ended.
    Closed {
        /// The address.
        address: IpAddr,
        /// How many bytes were sent outside.
        sent_bytes: u64,
        /// How many bytes came from outside.
        received_bytes: u64,
    },
    /// A request of HTTP, in a form that a rule can name. Its path has no values of secrets.
    Requested {
        /// The method.
        method: String,
        /// The path, without the query.
        path: String,
    },
    /// Bytes that no rule about requests could allow: they are not read, or are no such request.
    Unread,
    /// The placeholder of a secret was sent, or was to be sent, to a host that the secret is not
    /// bound to.
    Misdirected {
        /// The name of the secret.
        secret: String,
        /// Whether it was not sent.
        blocked: bool,
    },
    /// It was refused.
    Refused {
        /// The name of the reason.
        reason: Reason,
        /// The code of the problem.
        code: Code,
        /// The refusal in words.
        message: String,
        /// The argument that allows it, if the reason alone does not say which.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        allow: Option<String>,
    },
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The time.
    pub at: Timestamp,
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// How the host was requested.
    pub way: Transport,
    /// The host, where it could be parsed.
    pub host: Option<Host>,
    /// The port, where one was named.
    pub port: Option<u16>,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How many events before this one were dropped because the queue was full.
    #[serde(default)]
    pub lost: u64,
}

impl Event {
    /// The denied connection, if it was denied.
    pub fn denied_connection(&self) -> Option<DeniedConnection> {
        let Outcome::Refused { reason, code, message, allow } = &self.outcome else { return None };
        let why = (*reason, *code, message.clone());
        let denied = DeniedConnection::new((self.host.clone(), self.port), self.way, why);
        Some(denied.with_allow(allow.clone()))
    }
}

impl Event {
    /// The secret whose placeholder was sent elsewhere, if that is the event.
    pub fn misdirection(&self) -> Option<Misdirection> {
        let Outcome::Misdirected { secret, blocked } = &self.outcome else { return None };
        let (secret, blocked) = (secret.clone(), *blocked);
        Some(Misdirection { secret, host: self.host.clone()?, port: self.port?, blocked, times: 1 })
    }
}

impl From<&Refusal> for Outcome {
    fn from(refusal: &Refusal) -> Self {
        Self::Refused {
            reason: refusal.reason(),
            code: refusal.code(),
            message: refusal.to_string(),
            allow: refusal.allow(),
        }
    }
}
