//! Why traffic is refused: each case has a reason with a stable name, and a text that tells the
//! client what to do.

use std::net::IpAddr;

use super::name::{Host, InvalidName, Name, escaped};
use super::{AllowedHost, HOST_LOOPBACK, is_internal_network};
use crate::address::Class;
use crate::error::{Code, Problem};
use crate::names::names;

names! {
    /// The name of a reason. A name never changes once released.
    pub enum Reason: "reason" {
        /// No rule allows the host.
        NotAllowed = "not-allowed",
        /// The sandbox has no network access.
        NoNetwork = "no-network",
        /// A rule denies it.
        Denied = "denied",
        /// The host is allowed, but not that port of it.
        PortNotAllowed = "port-not-allowed",
        /// An address was used that no rule allows as an address.
        AddressNotAllowed = "address-not-allowed",
        /// The host's address belongs to the local machine or a private network.
        InternalAddress = "internal-address",
        /// The traffic names another host than the one that the connection is to.
        NameMismatch = "name-mismatch",
        /// The traffic hides which host it is for.
        NameHidden = "name-hidden",
        /// The request is invalid.
        InvalidRequest = "invalid-request",
        /// The name has no address, or no name server answers.
        Unresolved = "unresolved",
        /// No connection could be made.
        Unreachable = "unreachable",
        /// The response to a request with a credential cannot be redacted.
        Unreadable = "unreadable",
        /// A program offers no protocol by which requests with a secret can be sent.
        ProtocolUnsupported = "protocol-unsupported",
        /// A program does not trust the certificate that stands for a host with a secret.
        CertificateRefused = "certificate-refused",
        /// The traffic contains the placeholder of a secret that is not bound to the host.
        SecretMisdirected = "secret-misdirected",
        /// The value of the secret whose placeholder the request contains must be given again.
        SecretMissing = "secret-missing",
        /// The host is allowed, but not that request to it.
        RequestNotAllowed = "request-not-allowed",
        /// The sandbox has reached a limit.
        TooMany = "too-many",
    }
}

/// A refusal with its details.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// [`Reason::NotAllowed`].
    #[error("the sandbox's network policy does not allow {host}")]
    NotAllowed {
        /// The requested host.
        host: Host,
    },
    /// [`Reason::NoNetwork`].
    #[error("the sandbox has no network access, so {host} cannot be reached")]
    NoNetwork {
        /// The requested host.
        host: Host,
        /// The port, if it is known.
        port: Option<u16>,
    },
    /// [`Reason::Denied`].
    #[error("the sandbox's network policy denies {host}: rule `{rule}`")]
    Denied {
        /// The requested host.
        host: Host,
        /// The target of the rule.
        rule: String,
    },
    /// [`Reason::PortNotAllowed`].
    #[error("the sandbox's network policy does not allow port {port} of {host}")]
    PortNotAllowed {
        /// The requested host.
        host: Host,
        /// The port.
        port: u16,
    },
    /// [`Reason::AddressNotAllowed`].
    #[error("the address {address} was used directly, and no rule allows it")]
    AddressNotAllowed {
        /// The address.
        address: IpAddr,
    },
    /// [`Reason::InternalAddress`].
    #[error("{host} resolves to {address}, which is not a public address ({class})")]
    InternalAddress {
        /// The requested host.
        host: Host,
        /// The port, if one was requested.
        port: Option<u16>,
        /// The address that it resolves to.
        address: IpAddr,
        /// The class of the address.
        class: Class,
    },
    /// [`Reason::NameMismatch`].
    #[error("the connection is to {host}, but its {evidence} is `{claimed}`")]
    NameMismatch {
        /// The host that the connection is to.
        host: Host,
        /// The part of the traffic that names another host.
        evidence: Evidence,
        /// The host that it names, shortened and without control characters.
        claimed: String,
    },
    /// [`Reason::NameHidden`].
    #[error("the connection to {host} uses {protocol}, which hides the host name")]
    NameHidden {
        /// The host that the connection is to.
        host: Host,
        /// The protocol of the traffic.
        protocol: &'static str,
    },
    /// [`Reason::InvalidRequest`], for a name.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// [`Reason::InvalidRequest`].
    #[error("the request is invalid: {what}")]
    InvalidRequest {
        /// What is wrong with it.
        what: &'static str,
    },
    /// [`Reason::Unresolved`].
    #[error("the name {name} cannot be resolved: {cause}")]
    Unresolved {
        /// The name.
        name: Name,
        /// Why.
        cause: String,
        /// Whether it is certain that the name does not exist.
        certain: bool,
    },
    /// [`Reason::Unreachable`].
    #[error("port {port} of {host} cannot be reached: {cause}")]
    Unreachable {
        /// The allowed host.
        host: Host,
        /// The port.
        port: u16,
        /// Why.
        cause: String,
    },
    /// [`Reason::Unreadable`].
    #[error("the response of {host} cannot be redacted: {what}")]
    Unreadable {
        /// The allowed host.
        host: Host,
        /// What is wrong with the response.
        what: &'static str,
    },
    /// [`Reason::ProtocolUnsupported`].
    #[error(
        "requests to {host} are read, and a program offers none of the protocols by which they can be sent: HTTP/1.1, and HTTP/2 if the host speaks it"
    )]
    ProtocolUnsupported {
        /// The host.
        host: Host,
    },
    /// [`Reason::CertificateRefused`].
    #[error(
        "a program refused the certificate of {host} ({alert}): it has its own list of authorities, and for a host with a secret it must trust those in the file that SSL_CERT_FILE names"
    )]
    CertificateRefused {
        /// The host.
        host: Host,
        /// How the program said so.
        alert: String,
    },
    /// [`Reason::SecretMisdirected`].
    #[error(
        "what is sent to {host} contains the placeholder of the secret {secret}, which is not bound to it"
    )]
    SecretMisdirected {
        /// The name of the secret.
        secret: String,
        /// The host.
        host: Host,
    },
    /// [`Reason::SecretMissing`].
    #[error("the request to {host} needs the secret {secret}, whose value must be given again")]
    SecretMissing {
        /// The name of the secret.
        secret: String,
        /// The host.
        host: Host,
    },
    /// [`Reason::RequestNotAllowed`].
    #[error("the sandbox's network policy does not allow {method} {path} at {host}")]
    RequestNotAllowed {
        /// The host.
        host: Host,
        /// The method, shortened and without control characters.
        method: String,
        /// The path, in the same way.
        path: String,
    },
    /// [`Reason::TooMany`].
    #[error("the sandbox may have at most {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

names! {
    /// The part of the traffic that names a host.
    pub enum Evidence: "evidence" {
        /// The server name of a TLS handshake (RFC 6066).
        ServerName = "TLS server name",
        /// The header of an HTTP request that names the host.
        HostHeader = "Host header",
        /// The first line of an HTTP request.
        RequestTarget = "request target",
    }
}

impl Refusal {
    /// A mismatch found in the traffic.
    pub fn mismatch(host: &Host, evidence: Evidence, claimed: &str) -> Self {
        Self::NameMismatch { host: host.clone(), evidence, claimed: escaped(claimed) }
    }

    /// The name of the reason.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::NotAllowed { .. } => Reason::NotAllowed,
            Self::NoNetwork { .. } => Reason::NoNetwork,
            Self::Denied { .. } => Reason::Denied,
            Self::PortNotAllowed { .. } => Reason::PortNotAllowed,
            Self::AddressNotAllowed { .. } => Reason::AddressNotAllowed,
            Self::InternalAddress { .. } => Reason::InternalAddress,
            Self::NameMismatch { .. } => Reason::NameMismatch,
            Self::NameHidden { .. } => Reason::NameHidden,
            Self::InvalidName(_) | Self::InvalidRequest { .. } => Reason::InvalidRequest,
            Self::Unresolved { .. } => Reason::Unresolved,
            Self::Unreachable { .. } => Reason::Unreachable,
            Self::Unreadable { .. } => Reason::Unreadable,
            Self::ProtocolUnsupported { .. } => Reason::ProtocolUnsupported,
            Self::CertificateRefused { .. } => Reason::CertificateRefused,
            Self::SecretMisdirected { .. } => Reason::SecretMisdirected,
            Self::SecretMissing { .. } => Reason::SecretMissing,
            Self::RequestNotAllowed { .. } => Reason::RequestNotAllowed,
            Self::TooMany { .. } => Reason::TooMany,
        }
    }

    /// The code of the corresponding problem.
    pub const fn code(&self) -> Code {
        match self.reason() {
            Reason::NotAllowed
            | Reason::NoNetwork
            | Reason::Denied
            | Reason::PortNotAllowed
            | Reason::AddressNotAllowed
            | Reason::SecretMisdirected
            | Reason::RequestNotAllowed => Code::EgressDenied,
            Reason::InternalAddress => Code::EgressInternal,
            Reason::NameMismatch | Reason::NameHidden => Code::EgressMismatch,
            Reason::InvalidRequest => Code::InvalidInput,
            Reason::Unresolved | Reason::Unreachable => Code::EgressUnreachable,
            Reason::Unreadable | Reason::ProtocolUnsupported | Reason::CertificateRefused => {
                Code::EgressUnreadable
            }
            Reason::SecretMissing => Code::SecretMissing,
            Reason::TooMany => Code::QuotaExceeded,
        }
    }

    /// The argument of `stockade run` and `stockade create` that allows it, if its reason alone does
    /// not say which.
    pub fn allow(&self) -> Option<String> {
        let Self::InternalAddress { host, port, class, .. } = self else { return None };
        let argument = match host {
            Host::Name(_) if is_internal_network(*class) => "--allow-internal",
            Host::Address(_) => "--allow",
            Host::Name(_) => return None,
        };
        Some(format!("{argument} {}", AllowedHost::new(host, *port)))
    }

    /// What the client can do about it, if there is something.
    pub fn remediation(&self) -> Option<String> {
        let text = match self {
            Self::NotAllowed { host } => format!(
                "do without {host}, or ask the owner of this sandbox for a rule that allows it"
            ),
            Self::NoNetwork { host, port } => format!(
                "do without {host}, or ask the owner of this sandbox to start it with `--allow {}`",
                AllowedHost::new(host, *port)
            ),
            Self::PortNotAllowed { host, port } => format!(
                "use an allowed port of {host}, or ask the owner of this sandbox to allow port {port}"
            ),
            Self::RequestNotAllowed { host, .. } => format!(
                "use a request that the policy allows at {host}, or ask the owner of this sandbox for a rule"
            ),
            Self::Denied { .. } => "do without it: a deny rule beats every allow rule".to_owned(),
            Self::AddressNotAllowed { .. } => {
                "connect by the host's name, or ask the owner of this sandbox for a rule with the address"
                    .to_owned()
            }
            Self::InternalAddress { address, class: Class::Loopback, .. } => format!(
                "if this is intended, use the name {HOST_LOOPBACK} and ask the owner of this sandbox for `--allow {HOST_LOOPBACK}:PORT`, or for a rule that allows {address} itself"
            ),
            Self::InternalAddress { address, .. } => match self.allow() {
                Some(allow) => format!("if this is intended, ask the owner of this sandbox for `{allow}`"),
                None => format!("if this is intended, the policy must allow {address} itself"),
            },
            Self::NameMismatch { .. } => {
                "send the name of the host that the connection was made to".to_owned()
            }
            Self::NameHidden { host, .. } => {
                format!("use TLS with the server name {host}, or HTTP/1.1")
            }
            Self::Unreadable { .. } => {
                "request it without the secret, or ask the host for a plain response".to_owned()
            }
            Self::SecretMisdirected { secret, host } => format!(
                "send {secret} only to its own hosts, or ask the owner of this sandbox to bind it with `--secret {secret}@{host}`"
            ),
            Self::SecretMissing { secret, .. } => format!(
                "ask the owner of this sandbox to give the value of {secret} again, with `stockade secret set`"
            ),
            Self::ProtocolUnsupported { host } => format!(
                "let the program offer a protocol that {host} speaks, such as HTTP/1.1"
            ),
            Self::CertificateRefused { .. } => {
                "let the program trust the authorities in $SSL_CERT_FILE".to_owned()
            }
            Self::TooMany { what: what @ "connections", .. } => format!(
                "use fewer {what} at a time, or ask the owner of this sandbox for `--max-connections NUMBER`"
            ),
            Self::TooMany { what: "bytes", .. } => {
                "ask the owner of this sandbox for a larger `--max-traffic SIZE`".to_owned()
            }
            Self::TooMany { what, .. } => format!("use fewer {what} at a time"),
            Self::Unresolved { .. }
            | Self::Unreachable { .. }
            | Self::InvalidName(_)
            | Self::InvalidRequest { .. } => return None,
        };
        Some(text)
    }

    /// The problem that the client receives.
    pub fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.code(), self.to_string());
        problem.cause = Some(self.reason().as_str().to_owned());
        problem.remediation = self.remediation();
        if let Self::Unresolved { certain, .. } = self {
            problem.retryable = !certain;
        }
        problem
    }
}

#[cfg(test)]
mod tests {
    use stockade_test_support::assert_snapshot;

    use super::*;

    /// One refusal for each reason, and both forms of an invalid request.
    fn refusals() -> Vec<Refusal> {
        let name = || Name::parse("service.example").unwrap();
        let host = || Host::Name(name());
        let address = || "10.0.0.1".parse().unwrap();
        vec![
            Refusal::NotAllowed { host: host() },
            Refusal::NoNetwork { host: host(), port: Some(443) },
            Refusal::Denied { host: host(), rule: "*.example".to_owned() },
            Refusal::PortNotAllowed { host: host(), port: 80 },
            Refusal::AddressNotAllowed { address: address() },
            Refusal::InternalAddress {
                host: host(),
                port: Some(443),
                address: address(),
                class: Class::Private,
            },
            Refusal::mismatch(&host(), Evidence::ServerName, "other.example"),
            Refusal::NameHidden { host: host(), protocol: "HTTP/2" },
            Refusal::InvalidName(Name::parse("no name").unwrap_err()),
            Refusal::InvalidRequest { what: "it has two Host headers" },
            Refusal::Unresolved { name: name(), cause: "no such name".to_owned(), certain: true },
            Refusal::Unreachable {
                host: host(),
                port: 443,
                cause: "connection refused".to_owned(),
            },
            Refusal::Unreadable { host: host(), what: "it has a content encoding" },
            Refusal::ProtocolUnsupported { host: host() },
            Refusal::CertificateRefused { host: host(), alert: "UnknownCA".to_owned() },
            Refusal::SecretMisdirected { secret: "API_KEY".to_owned(), host: host() },
            Refusal::SecretMissing { secret: "API_KEY".to_owned(), host: host() },
            Refusal::RequestNotAllowed {
                host: host(),
                method: "DELETE".to_owned(),
                path: "/repository".to_owned(),
            },
            Refusal::TooMany { what: "connections", limit: 64 },
        ]
    }

    #[test]
    fn the_problems_of_all_reasons_match_their_snapshots() {
        let refusals = refusals();
        for reason in Reason::ALL {
            assert!(refusals.iter().any(|refusal| refusal.reason() == *reason), "{reason}");
        }
        let problems: Vec<_> = refusals.iter().map(Refusal::problem).collect();
        assert_snapshot("errors/network", &serde_json::to_string_pretty(&problems).unwrap());
    }
}
