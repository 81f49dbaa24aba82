//! Browsers that use ports of sandboxes. Each port has a host name of its own, and a browser has a
//! session for each host name. It gets one in exchange for a code, which an owner gets from a link
//! that works once, or from a login.

use std::fmt::{self, Debug, Display};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::{OwnerId, SandboxId, Time};

use crate::Result;
use crate::caller::Caller;
use crate::sandbox::Sandbox;

/// The longest label of a host name (RFC 1035).
const LABEL: usize = 63;

/// The path at which a link with a code is exchanged for a session, on the host name of a port.
pub const OPEN_PATH: &str = "/.stockade/open";
/// The path at which a login ends, on the host name of a port.
pub const CALLBACK_PATH: &str = "/.stockade/callback";

/// How long a signed link may be valid, in seconds.
pub const LINK_SECONDS: i64 = 7 * 24 * 60 * 60;

/// The part of a host name that names a port of a sandbox: `PORT-ID`, or `ID` for its default port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortName {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The port; the default port of the sandbox when absent.
    pub port: Option<u16>,
}

impl PortName {
    /// Parses the first label of a host name. An id that starts with a number and a hyphen has no
    /// name for its default port.
    pub fn parse(label: &str) -> Option<Self> {
        if label.len() > LABEL {
            return None;
        }
        let (port, id) = match label.split_once('-') {
            Some((port, id)) if is_port(port) => (Some(port.parse().ok()?), id),
            _ => (None, label),
        };
        Some(Self { sandbox_id: SandboxId::new(id).ok()?, port })
    }

    /// The label, if it fits into a host name.
    pub fn label(&self) -> Option<String> {
        let label = self.to_string();
        (Self::parse(&label).as_ref() == Some(self)).then_some(label)
    }
}

impl Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{port}-{}", self.sandbox_id),
            None => write!(f, "{}", self.sandbox_id),
        }
    }
}

/// Whether a text is the number of a port, in its only form.
fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && !text.starts_with('0')
        && text.parse::<u16>().is_ok()
}

/// Where browsers reach the ports of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSite {
    /// `http` or `https`.
    pub scheme: String,
    /// The domain whose names are those of ports.
    pub domain: String,
    /// The port of the server; that of the scheme when absent.
    pub port: Option<u16>,
}

impl PortSite {
    /// The origin of a port; `None` if its name is too long for a host name.
    pub fn origin(&self, name: &PortName) -> Option<String> {
        let Self { scheme, domain, port } = self;
        let label = name.label()?;
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        Some(format!("{scheme}://{label}.{domain}{port}"))
    }
}

/// Creates a link that opens a port in a browser. It works once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenPort {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The port; the default port of the sandbox when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The path and query that the browser shows then; `/` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A link that opens a port in a browser.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenedPort {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The port.
    pub port: u16,
    /// The link. It is a secret until it is used.
    pub url: String,
    /// Until when it can be used.
    pub expires_at: Time,
}

impl Debug for OpenedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sandbox_id, port, .. } = self;
        f.debug_struct("OpenedPort")
            .field("sandbox_id", sandbox_id)
            .field("port", port)
            .finish_non_exhaustive()
    }
}

/// A new session of a browser.
pub struct BrowserSession {
    /// What the browser sends with each request. It is stored only as a hash.
    pub token: String,
    /// How many seconds it lasts.
    pub seconds: u64,
}

impl Debug for BrowserSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrowserSession").field("seconds", &self.seconds).finish_non_exhaustive()
    }
}

/// A port that a request may use.
#[derive(Debug, Clone)]
pub struct PortGrant {
    /// On whose behalf the request is executed.
    pub caller: Caller,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The port.
    pub port: u16,
}

/// A key that signs links.
#[derive(Clone)]
pub struct LinkKey {
    /// Its id, which a link names.
    pub id: String,
    /// The key.
    pub secret: [u8; 32],
}

impl Debug for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What a server asks about requests to ports of sandboxes.
#[async_trait]
pub trait PortAccess: Debug + Send + Sync {
    /// Whether a port of a sandbox may be reached, and which it is; the default port if `port` is
    /// absent.
    fn check_port(&self, sandbox: &Sandbox, port: Option<u16>) -> Result<u16>;

    /// Waits until the sandbox does not run any more, or has another owner.
    async fn wait_until_closed(&self, caller: &Caller, sandbox: &Sandbox);

    /// The key for new links; it changes from time to time.
    async fn newest_link_key(&self) -> Result<LinkKey>;

    /// The key with this id, as long as its links may be valid.
    async fn find_link_key(&self, id: &str) -> Result<Option<LinkKey>>;

    /// A code for the session of an owner with a port. With a challenge (RFC 7636), only the holder
    /// of its verifier can use it.
    async fn create_code(
        &self,
        owner: &OwnerId,
        name: &PortName,
        challenge: Option<&str>,
    ) -> Result<String>;

    /// Exchanges a code for a session. A code that is sent again ends the session that it gave.
    async fn redeem_code(
        &self,
        name: &PortName,
        code: &str,
        verifier: Option<&str>,
    ) -> Result<BrowserSession>;

    /// The port of a session, if the session exists, and its owner may still use the port.
    async fn find_session(&self, name: &PortName, token: &str) -> Result<Option<PortGrant>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(label: &str) -> Option<(Option<u16>, String)> {
        PortName::parse(label).map(|name| (name.port, name.sandbox_id.to_string()))
    }

    #[test]
    fn a_label_names_a_port_of_a_sandbox() {
        let some = |port, id: &str| Some((port, id.to_owned()));
        assert_eq!(parse("3000-box"), some(Some(3000), "box"));
        assert_eq!(parse("3000-22-box"), some(Some(3000), "22-box"));
        assert_eq!(parse("box"), some(None, "box"));
        assert_eq!(parse("my-box"), some(None, "my-box"));
        // These are no ports, so that they belong to the id.
        for label in ["65536-box", "0-box", "080-box", "0194f2ab-box", "123456-box"] {
            assert_eq!(parse(label), some(None, label), "{label}");
        }
        for label in ["", "3000-", "3000-Box", "Box", "a_b", "-a", "a.b", &"a".repeat(64)] {
            assert_eq!(parse(label), None, "{label}");
        }
    }

    #[test]
    fn only_names_that_are_read_as_they_were_meant_are_written() {
        let name = |port, id: &str| PortName { sandbox_id: SandboxId::new(id).unwrap(), port };
        assert_eq!(name(Some(80), "box").label().as_deref(), Some("80-box"));
        assert_eq!(name(None, "80-box").label(), None);
        assert_eq!(name(Some(8080), &"a".repeat(60)).label(), None);
        let site = |port| PortSite { scheme: "http".into(), domain: "localhost".into(), port };
        let origin = site(Some(8080)).origin(&name(Some(80), "box"));
        assert_eq!(origin.as_deref(), Some("http://80-box.localhost:8080"));
        let origin = site(None).origin(&name(None, "box"));
        assert_eq!(origin.as_deref(), Some("http://box.localhost"));
    }
}
