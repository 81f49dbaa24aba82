//! The messages between the egress process and its owner, as JSON. [`socket`](crate::socket) says how
//! they travel.
//!
//! The owner numbers its requests; each gets one response with its number. Events come between the
//! responses. When the owner closes its end, the process ends.

use serde::{Deserialize, Serialize};
use stockade_core::network::{Policy, Upstream};
use stockade_core::{Problem, SandboxId};

use crate::credential::Credential;
use crate::event::Event;

/// The version of the messages. Both ends belong to the same build, so they agree; where they do not,
/// the request is refused.
pub const VERSION: u32 = 5;

/// The longest message, in bytes.
pub const MESSAGE_BYTES: usize = 128 << 10;

/// How many listeners one sandbox has, which is also the most descriptors that go with a message.
pub const LISTENERS: usize = 4;

/// A numbered request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// [`VERSION`].
    pub version: u32,
    /// Its number, which the response repeats.
    pub number: u64,
    /// The request.
    pub request: Request,
}

/// A request to the egress process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// Serve a sandbox, whose listeners come with this message: everything, proxy, resolver for
    /// datagrams, resolver for streams. Without listeners the sandbox is only known until
    /// [`Request::Listen`].
    Add {
        /// The sandbox.
        sandbox: SandboxId,
        /// Its network policy.
        policy: Policy,
    },
    /// Serve a sandbox that was added without listeners, which come with this message.
    Listen {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// Replace a sandbox's policy.
    Change {
        /// The sandbox.
        sandbox: SandboxId,
        /// Its new network policy.
        policy: Policy,
    },
    /// Reach hosts through a proxy.
    UseUpstream {
        /// The sandbox.
        sandbox: SandboxId,
        /// The proxy.
        proxy: Upstream,
    },
    /// Report the requests of a sandbox that are read, for a policy that is learned.
    ReportRequests {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// Replace a sandbox's policy and its credentials, which the process puts into requests to the
    /// hosts that they are bound to. With this message comes the file of certificate authorities
    /// (PEM) that verifies those hosts.
    Credentials {
        /// The sandbox.
        sandbox: SandboxId,
        /// Its network policy.
        policy: Policy,
        /// The credentials.
        credentials: Vec<Credential>,
    },
    /// Stop serving a sandbox.
    Remove {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// Resolve names as these files say.
    Names {
        /// The text of `/etc/resolv.conf`.
        resolv_conf: String,
        /// The text of `/etc/hosts`.
        hosts: String,
    },
}

/// The state of a sandbox's credentials in the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Installed {
    /// The certificates (PEM) that programs inside have to trust: in a message the one of the
    /// process's own authority, in a report of the owner also those of this host.
    pub authorities: String,
    /// The names of the credentials without a value.
    pub missing: Vec<String>,
}

/// A message from the egress process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Message {
    /// The response to a request.
    Response {
        /// The request's number.
        number: u64,
        /// Why the request was refused; `None` when it was carried out.
        problem: Option<Problem>,
        /// What results from [`Request::Credentials`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        installed: Option<Installed>,
    },
    /// Something that happened.
    Event(Box<Event>),
}
