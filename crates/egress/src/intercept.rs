//! Intercepts connections to hosts that have credentials: terminates TLS with the sandbox's own
//! authority, puts the credentials into the one request, and makes a TLS connection to the host.

use std::io::{self, Cursor};
use std::sync::Arc;

use stockade_core::network::{Host, Name, Policy, Refusal};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::carried::Carried;
use crate::credentials::Credentials;
use crate::first_bytes::http::Head;
use crate::first_bytes::{check, http};
use crate::limits::Limits;
use crate::negotiation;
use crate::placeholders::Search;
use crate::redaction::Redaction;
use crate::rejection;
use crate::relay::{Halves, RelayError, Traffic};
use crate::response::Exchange;
use crate::round_trip::{Outgoing, round_trip};
use crate::sandbox::Sandbox;
use crate::trust::Trust;

/// The host, and the credentials for it.
pub(crate) struct Interception<'a> {
    /// Policy and credentials are those of the moment at which a request has arrived.
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) name: Name,
    pub(crate) port: u16,
    pub(crate) credentials: Arc<Credentials>,
    /// Which requests may be sent.
    pub(crate) policy: Arc<Policy>,
    pub(crate) trust: Trust,
}

impl<'a> Interception<'a> {
    /// The interception of connections to a port of a host, if they are intercepted.
    pub(crate) fn of(sandbox: &'a Sandbox, host: &Host, port: u16) -> Option<Self> {
        let Host::Name(name) = host else { return None };
        let (credentials, policy, trust) = sandbox.installed_for(name, port)?;
        Some(Self { sandbox, name: name.clone(), port, credentials, policy, trust })
    }
}

impl Interception<'_> {
    /// Relays one request and its response. `hello` has been received already, and is for the host.
    pub(crate) async fn relay(
        &self,
        (inside, outside): (&mut TcpStream, &mut TcpStream),
        hello: Vec<u8>,
        search: Search<'_>,
        limits: &Limits,
        (traffic, carried): (&Traffic, &Carried),
    ) -> Result<(), RelayError> {
        let server = self.credentials.authority.server(&self.name).map_err(|_| RelayError::Io)?;
        let (from, to) = inside.split();
        let inside = tokio::io::join(Cursor::new(hello).chain(from), to);
        let accepting = TlsAcceptor::from(server).accept(inside);
        let accepted = timeout(limits.first_bytes, accepting).await.map_err(|_| RelayError::Io)?;
        let mut inside = accepted.map_err(|error| self.handshake_failure(&error))?;

        let read = match timeout(limits.first_bytes, http::head(&mut inside)).await {
            // The client sent nothing, or has disconnected.
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(read))) => Ok(read),
            Ok(Err(refusal)) => Err(refusal),
            Err(_) => {
                Err(Refusal::InvalidRequest { what: "the request head did not arrive in time" })
            }
        };
        let outgoing = read.and_then(|(head, rest)| self.outgoing(head, &rest, carried));
        let opened =
            match outgoing {
                Ok(outgoing) => {
                    let secured = self.secure(outside, limits).await;
                    secured.map(|outside| (outside, outgoing)).map_err(|cause| {
                        Refusal::Unreachable { host: self.host(), port: self.port, cause }
                    })
                }
                Err(refusal) => Err(refusal),
            };
        let (outside, outgoing) = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                rejection::write_and_close(&mut inside, &rejection::response(&refusal)).await;
                return Err(RelayError::Reported(refusal));
            }
        };
        let (from_inside, to_inside) = tokio::io::split(inside);
        let (from_outside, to_outside) = tokio::io::split(outside);
        let halves = Halves { from_inside, to_inside, from_outside, to_outside };
        round_trip(halves, (outgoing, search), limits, traffic).await
    }

    /// Why a handshake with a program inside failed, if the user can do something about it.
    fn handshake_failure(&self, error: &io::Error) -> RelayError {
        let host = self.host();
        RelayError::Reported(match tls_error(error) {
            Some(rustls::Error::NoApplicationProtocol) => Refusal::ProtocolUnsupported { host },
            Some(rustls::Error::AlertReceived(
                alert @ (AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA),
            )) => Refusal::CertificateRefused { host, alert: format!("{alert:?}") },
            _ => return RelayError::Io,
        })
    }

    fn host(&self) -> Host {
        Host::Name(self.name.clone())
    }

    /// Puts the credentials into a request, of whose body a part has arrived.
    fn outgoing(
        &self,
        mut head: Head,
        rest: &[u8],
        carried: &Carried,
    ) -> Result<Outgoing, Refusal> {
        let host = self.host();
        if head.method == "CONNECT" {
            let what = "CONNECT cannot be sent to a host that has a secret";
            return Err(Refusal::InvalidRequest { what });
        }
        let has_host = head.host()?.is_some() || head.target_authority()?.is_some();
        let (rest, body) = check(&host, &self.name, &mut head)?.split(rest)?;
        let request = (head.method.as_str(), head.target.as_str());
        // They may have changed since the connection was made; there is none if nothing is about the
        // host any more.
        let now = Self::of(self.sandbox, &host, self.port);
        if let Some(now) = &now {
            now.policy.check_request(&self.name, self.port, request)?;
        }
        carried.is_request(&head);
        if !has_host {
            head.set_host(&format!("{}:{}", self.name, self.port));
        }
        let redaction = match &now {
            Some(now) => now.credentials.insert_into(&self.name, self.port, &mut head)?,
            None => Redaction::default(),
        };
        let is_redacted = !redaction.is_empty();
        let exchange = Exchange::of(&head, is_redacted);
        negotiation::without_compression(&mut head);
        if is_redacted {
            negotiation::as_a_whole(&mut head);
        }
        let bytes = [&head.to_origin(None), rest].concat();
        Ok(Outgoing { host, bytes, body, exchange, redaction })
    }

    /// Makes a TLS connection to the host and verifies its certificate.
    async fn secure<'a>(
        &self,
        outside: &'a mut TcpStream,
        limits: &Limits,
    ) -> Result<tokio_rustls::client::TlsStream<&'a mut TcpStream>, String> {
        let server = ServerName::try_from(self.name.as_str().to_owned());
        let server = server.map_err(|error| error.to_string())?;
        let connecting = TlsConnector::from(self.trust.config()).connect(server, outside);
        let connected = timeout(limits.connect, connecting).await;
        connected.map_err(|_| "no answer in time".to_owned())?.map_err(|error| {
            let is_unknown = matches!(
                tls_error(&error),
                Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
            );
            let remedy = if is_unknown { "; SSL_CERT_FILE=FILE adds its authority" } else { "" };
            format!("{error}{remedy}")
        })
    }
}

/// The TLS error in an I/O error.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}
