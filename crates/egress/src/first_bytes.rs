//! The host that the first bytes of a connection name. A connection is to a name; a TLS handshake
//! and an HTTP request name a host as well. If that is another one, the traffic is for a host that
//! the policy has not allowed ("domain fronting").
//!
//! Nothing is read here: [`admit`] checks the bytes that have arrived so far.

pub mod http;
pub mod tls;

use stockade_core::network::{Evidence, Host, Name, Refusal};

use http::{Body, Head};

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
    /// Nothing is sent outside.
    Refuse(Refusal),
}

/// Checks the first bytes that a program inside sends to a host of that name.
///
/// An HTTP/1 request is forwarded with `Connection: close`, so that it stays the only one of its
/// connection (RFC 9112, section 9.6): the next one could name another host.
pub fn admit(name: &Name, bytes: &[u8]) -> Admission {
    let host = Host::Name(name.clone());
    if tls::is_handshake(bytes) {
        return match tls::server_name(bytes) {
            Ok(None) => more(bytes),
            Ok(Some(tls::Hello { server_name })) => match server_name {
                Some(said) if !is_same(name, &said) => {
                    Admission::Refuse(Refusal::mismatch(&host, Evidence::ServerName, &said))
                }
                _ => forward(bytes),
            },
            Err(what) => Admission::Refuse(Refusal::InvalidRequest { what }),
        };
    }
    match http::guess(bytes) {
        http::Guess::NotHttp => forward(bytes),
        http::Guess::Unknown => more(bytes),
        http::Guess::Version2 => {
            Admission::Refuse(Refusal::NameHidden { host, protocol: "HTTP/2 without TLS" })
        }
        http::Guess::Version1 => match Head::parse(bytes) {
            Ok(None) => more(bytes),
            Ok(Some((head, length))) => match check(&host, name, &head) {
                Ok(body) => {
                    let (rest, body) = body.split(bytes.get(length..).unwrap_or_default());
                    let bytes = [&head.to_origin(None), rest].concat();
                    Admission::Forward { bytes, body }
                }
                Err(refusal) => Admission::Refuse(refusal),
            },
            Err(what) => Admission::Refuse(Refusal::InvalidRequest { what }),
        },
    }
}

fn forward(bytes: &[u8]) -> Admission {
    Admission::Forward { bytes: bytes.to_vec(), body: Body::Open }
}

fn more(bytes: &[u8]) -> Admission {
    if bytes.len() < MAX_BYTES {
        return Admission::More;
    }
    Admission::Refuse(Refusal::InvalidRequest { what: "its first bytes are too long" })
}

/// Checks that a request is for the host that the connection is to.
pub(crate) fn check(host: &Host, name: &Name, head: &Head) -> Result<Body, Refusal> {
    let mismatch = |evidence, said: &str| Err(Refusal::mismatch(host, evidence, said));
    let is_of_name = |text: &str| {
        http::authority(text)
            .is_ok_and(|(said, _)| matches!(said, Host::Name(said) if said == *name))
    };
    let target = head.target_authority()?;
    if let Some(target) = target.filter(|target| !is_of_name(target)) {
        return mismatch(Evidence::RequestTarget, target);
    }
    match head.host()? {
        Some(said) if !is_of_name(&said) => mismatch(Evidence::HostHeader, &said),
        _ => head.body(),
    }
}

fn is_same(name: &Name, claimed: &str) -> bool {
    Name::parse(claimed).is_ok_and(|said| said == *name)
}

#[cfg(test)]
mod tests;
