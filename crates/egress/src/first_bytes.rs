//! The host that the first bytes of a connection name. A connection is to a name; a TLS handshake
//! and an HTTP request name a host as well. If that is another one, the traffic is for a host that
//! the policy has not allowed ("domain fronting").
//!
//! Nothing is read here: [`admit`] checks the bytes that have arrived so far.

pub mod body;
pub(crate) mod grammar;
pub mod http;
pub(crate) mod names;
pub mod other;
pub mod tls;

use stockade_core::network::{Evidence, Host, Name, Refusal};

use body::Body;
use http::{Guess, Head};
use other::Other;

/// The most bytes that may be needed to recognize the protocol.
pub const MAX_BYTES: usize = 64 << 10;

/// The decision about the first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// More bytes are needed.
    More,
    /// These bytes are sent outside instead.
    Forward {
        /// The first bytes to send.
        bytes: Vec<u8>,
        /// How much may follow.
        body: Body,
    },
    /// They begin a connection of HTTP/2, each of whose streams is checked.
    Version2,
    /// Nothing is sent outside.
    Refuse(Refusal),
}

/// Checks the first bytes that a program inside sends to a host of that name. `has_answered` says
/// that the host has sent something else than HTTP before: then it does not read a request in text
/// that is not exactly one.
///
/// An HTTP/1 request is forwarded with `Connection: close`, so that it stays the only one of its
/// connection (RFC 9112, section 9.6): the next one could name another host.
pub fn admit(name: &Name, bytes: &[u8], has_answered: bool) -> Admission {
    let host = Host::Name(name.clone());
    let hidden = |protocol| Admission::Refuse(Refusal::NameHidden { host: host.clone(), protocol });
    if tls::is_handshake(bytes) {
        return match tls::server_name(bytes) {
            Ok(None) => more(bytes),
            Ok(Some(tls::Hello { server_name: None })) => hidden("TLS without a server name"),
            Ok(Some(tls::Hello { server_name: Some(said) })) if !is_same(name, &said) => {
                Admission::Refuse(Refusal::mismatch(&host, Evidence::ServerName, &said))
            }
            Ok(Some(_)) => Admission::Forward { bytes: bytes.to_vec(), body: Body::Open },
            Err(what) => Admission::Refuse(Refusal::InvalidRequest { what }),
        };
    }
    let guess = http::guess(bytes);
    if has_answered && !bytes.is_empty() && !matches!(guess, Guess::Version1 | Guess::Version2) {
        return Admission::Forward { bytes: bytes.to_vec(), body: Body::Open };
    }
    match tls::is_nameless(bytes) {
        Some(true) => return hidden("TLS without a server name"),
        Some(false) => {}
        None => return more(bytes),
    }
    match guess {
        Guess::NotHttp => match Body::Other(Other::default()).split(bytes) {
            Ok((bytes, body)) => Admission::Forward { bytes: bytes.to_vec(), body },
            Err(refusal) => Admission::Refuse(refusal),
        },
        Guess::Unknown => more(bytes),
        Guess::Version2 => Admission::Version2,
        Guess::Invalid => Admission::Refuse(Refusal::InvalidRequest { what: grammar::FIRST_LINE }),
        Guess::Version1 => match Head::parse(bytes) {
            Ok(None) => more(bytes),
            Ok(Some((head, length))) => {
                let rest = bytes.get(length..).unwrap_or_default();
                match forward(&host, name, head, rest) {
                    Ok((bytes, body)) => Admission::Forward { bytes, body },
                    Err(refusal) => Admission::Refuse(refusal),
                }
            }
            Err(what) => Admission::Refuse(Refusal::InvalidRequest { what }),
        },
    }
}

/// What is sent outside for a request and the bytes after its head.
fn forward(
    host: &Host,
    name: &Name,
    mut head: Head,
    rest: &[u8],
) -> Result<(Vec<u8>, Body), Refusal> {
    let (rest, body) = check(host, name, &mut head)?.split(rest)?;
    Ok(([&head.to_origin(None), rest].concat(), body))
}

fn more(bytes: &[u8]) -> Admission {
    if bytes.len() < MAX_BYTES {
        return Admission::More;
    }
    Admission::Refuse(Refusal::InvalidRequest { what: "its first bytes are too long" })
}

/// Checks that a request is for the host that the connection is to, and writes that host in one
/// form, as no two servers read it differently.
pub(crate) fn check(host: &Host, name: &Name, head: &mut Head) -> Result<Body, Refusal> {
    let port = |evidence, text: &str| match http::authority(text) {
        Ok((Host::Name(said), port)) if said == *name => Ok(port),
        _ => Err(Refusal::mismatch(host, evidence, text)),
    };
    let target = head.target_authority()?;
    let target = target.map(|text| port(Evidence::RequestTarget, text)).transpose()?;
    let header = head.host()?.map(|text| port(Evidence::HostHeader, &text)).transpose()?;
    if header.is_none() && head.minor > 0 {
        return Err(Refusal::InvalidRequest { what: "it is of HTTP/1.1, and has no Host header" });
    }
    head.target = head.origin_target()?;
    match target.or(header).flatten() {
        Some(port) => head.set_host(&format!("{name}:{port}")),
        None => head.set_host(name.as_str()),
    }
    head.body()
}

/// Checks that a request names no other port than that of its connection: a gateway may choose by it
/// what it is for. `head` has been checked.
pub(crate) fn check_port(host: &Host, port: u16, head: &Head) -> Result<(), Refusal> {
    let Some(text) = head.host()? else { return Ok(()) };
    match http::authority(&text)?.1 {
        Some(own) if own != port => Err(Refusal::mismatch(host, Evidence::HostHeader, &text)),
        _ => Ok(()),
    }
}

fn is_same(name: &Name, claimed: &str) -> bool {
    Name::parse(claimed).is_ok_and(|said| said == *name)
}

#[cfg(test)]
mod tests;
