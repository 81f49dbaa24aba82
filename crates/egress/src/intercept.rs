//! Intercepts connections to hosts whose requests are read: terminates TLS with the sandbox's own
//! authority, checks each request and puts the credentials into it, and makes a TLS connection to the
//! host, in the protocol that client and host both speak.

use std::io::{self, Cursor};
use std::sync::Arc;

use stockade_core::network::{Host, Name, Policy, Refusal, Transport};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, TlsConnector, client};

use crate::authority::Protocol;

use crate::carried::Carried;
use crate::credentials::Credentials;
use crate::first_bytes::http::Head;
use crate::first_bytes::{check, check_port, http};
use crate::http2::Streams;
use crate::limits::Limits;
use crate::negotiation;
use crate::placeholders::Search;
use crate::redaction::Redaction;
use crate::rejection;
use crate::relay::{Halves, RelayError, Traffic};
use crate::response::Exchange;
use crate::round_trip::{Outgoing, round_trip};
use crate::sandbox::{Sandbox, check_request};
use crate::trust::Trust;

/// How much is read of a connection at once: the library for TLS asks for a part of a record.
const RECORDS_BYTES: usize = 64 << 10;

/// A TLS connection to a host.
type Secured<'a> = client::TlsStream<BufReader<&'a mut TcpStream>>;

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
    /// Relays the requests of a connection and their responses. `hello` has been received already, and
    /// is for the host.
    pub(crate) async fn relay(
        &self,
        (inside, outside): (&mut TcpStream, &mut TcpStream),
        hello: Vec<u8>,
        (transport, search): (Transport, Search<'_>),
        limits: &Limits,
        (traffic, carried): (&Traffic, &Carried),
    ) -> Result<(), RelayError> {
        let (from, to) = inside.split();
        let from = BufReader::with_capacity(RECORDS_BYTES, Cursor::new(hello).chain(from));
        let inside = tokio::io::join(from, to);
        let starting = LazyConfigAcceptor::new(Acceptor::default(), inside);
        let started = timeout(limits.first_bytes, starting).await.map_err(|_| RelayError::Io)?;
        let start = started.map_err(|error| self.handshake_failure(&error))?;
        let offered = Offered::of(&start);
        // A client that speaks HTTP/2 gets what its host speaks, so this comes first.
        let secured = match offered.version2 {
            true => Some(self.secure(outside, limits, &offered.protocols()).await),
            false => None,
        };
        let protocol = match &secured {
            Some(Ok(outside)) if is_version2(outside) => Protocol::Http2,
            // No connection to the host: the client hears that in a protocol that it speaks.
            Some(Err(failure)) if !offered.version1 && !failure.is_protocol => Protocol::Http2,
            _ => Protocol::Http1,
        };
        let authority = &self.credentials.authority;
        let server = authority.server(&self.name, protocol).map_err(|_| RelayError::Io)?;
        let accepted = timeout(limits.first_bytes, start.into_stream(server)).await;
        let accepted = accepted.map_err(|_| RelayError::Io)?;
        let inside = accepted.map_err(|error| self.handshake_failure(&error))?;
        let secured = secured.map(|secured| secured.map_err(|failure| self.unreachable(failure)));
        match (protocol, secured) {
            (Protocol::Http2, Some(outside)) => {
                let (name, port) = (&self.name, self.port);
                let sandbox = self.sandbox;
                let streams = Streams { sandbox, transport, name, port, is_tls: true, traffic };
                streams.relay(inside, outside).await
            }
            (_, Some(outside)) => {
                let outside = std::future::ready(outside);
                let relaying = (transport, search);
                self.relay_request(inside, outside, relaying, limits, (traffic, carried)).await
            }
            (_, None) => {
                let outside = async {
                    let secured = self.secure(outside, limits, &[]).await;
                    secured.map_err(|failure| self.unreachable(failure))
                };
                let relaying = (transport, search);
                self.relay_request(inside, outside, relaying, limits, (traffic, carried)).await
            }
        }
    }

    /// Relays one request of HTTP/1 and its response. `outside` becomes the TLS connection to the host,
    /// once the request is allowed.
    async fn relay_request<O: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut inside: impl AsyncRead + AsyncWrite + Unpin,
        outside: impl Future<Output = Result<O, Refusal>>,
        (transport, search): (Transport, Search<'_>),
        limits: &Limits,
        (traffic, carried): (&Traffic, &Carried),
    ) -> Result<(), RelayError> {
        let read = match timeout(limits.first_bytes, http::head(&mut inside)).await {
            // The client sent nothing, or has disconnected.
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(read))) => Ok(read),
            Ok(Err(refusal)) => Err(refusal),
            Err(_) => {
                Err(Refusal::InvalidRequest { what: "the request head did not arrive in time" })
            }
        };
        let outgoing =
            read.and_then(|(head, rest)| self.outgoing(head, &rest, (transport, carried)));
        let opened = match outgoing {
            Ok(outgoing) => outside.await.map(|outside| (outside, outgoing)),
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

    fn unreachable(&self, failure: NotSecured) -> Refusal {
        Refusal::Unreachable { host: self.host(), port: self.port, cause: failure.cause }
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
        (transport, carried): (Transport, &Carried),
    ) -> Result<Outgoing, Refusal> {
        let host = self.host();
        if head.method == "CONNECT" {
            let what = "CONNECT cannot be sent to a host that has a secret";
            return Err(Refusal::InvalidRequest { what });
        }
        let has_host = head.host()?.is_some() || head.target_authority()?.is_some();
        let (rest, body) = check(&host, &self.name, &mut head)?.split(rest)?;
        check_port(&host, self.port, &head)?;
        // They may have changed since the connection was made; there is none if nothing is about the
        // host any more.
        let now = Self::of(self.sandbox, &host, self.port);
        if let Some(now) = &now {
            check_request(&now.policy, &self.name, self.port, &head)?;
        }
        carried.is_request(&head);
        self.sandbox.report_request(transport, (&self.name, self.port), &head);
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
        protocols: &[Protocol],
    ) -> Result<Secured<'a>, NotSecured> {
        let server = ServerName::try_from(self.name.as_str().to_owned());
        let server = server.map_err(|error| NotSecured::because(error.to_string()))?;
        let config = self.trust.offering(protocols);
        let outside = BufReader::with_capacity(RECORDS_BYTES, outside);
        let connecting = TlsConnector::from(config).connect(server, outside);
        let connected = timeout(limits.connect, connecting).await;
        let connected =
            connected.map_err(|_| NotSecured::because("no answer in time".to_owned()))?;
        connected.map_err(|error| {
            let is_unknown = matches!(
                tls_error(&error),
                Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
            );
            let remedy = if is_unknown { "; SSL_CERT_FILE=FILE adds its authority" } else { "" };
            let alert = AlertDescription::NoApplicationProtocol;
            let is_protocol = matches!(
                tls_error(&error),
                Some(rustls::Error::AlertReceived(received)) if *received == alert
            );
            NotSecured { cause: format!("{error}{remedy}"), is_protocol }
        })
    }
}

/// Why there is no TLS connection to a host.
struct NotSecured {
    cause: String,
    /// Whether the host speaks none of the protocols.
    is_protocol: bool,
}

impl NotSecured {
    const fn because(cause: String) -> Self {
        Self { cause, is_protocol: false }
    }
}

/// The protocols that a program inside offers.
struct Offered {
    version1: bool,
    version2: bool,
}

impl Offered {
    fn of<S: AsyncRead + AsyncWrite + Unpin>(start: &StartHandshake<S>) -> Self {
        let hello = start.client_hello();
        let Some(offered) = hello.alpn() else { return Self { version1: true, version2: false } };
        let (mut version1, mut version2) = (false, false);
        for protocol in offered {
            version1 |= protocol == Protocol::Http1.name();
            version2 |= protocol == Protocol::Http2.name();
        }
        Self { version1, version2 }
    }

    /// What is offered to the host. A host that speaks neither answers as one of HTTP/1.
    fn protocols(&self) -> Vec<Protocol> {
        let version2 = self.version2.then_some(Protocol::Http2);
        version2.into_iter().chain(self.version1.then_some(Protocol::Http1)).collect()
    }
}

/// Whether a host has chosen HTTP/2.
fn is_version2(outside: &Secured<'_>) -> bool {
    outside.get_ref().1.alpn_protocol() == Some(Protocol::Http2.name())
}

/// The TLS error in an I/O error.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}
