//! The head of a request as HTTP/2 carries it, and as the rest of this crate checks and changes it.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri, Version, request};
use stockade_core::network::{Evidence, Host, Name, Refusal};

use crate::first_bytes::http::{Head, authority};

const HOST: &str = "host";

/// The head of a request to a host: its authority, in one form, is the header `Host`.
///
/// # Errors
/// Why it is refused: it is for another host, or two servers could read it differently.
pub(super) fn head(name: &Name, scheme: &str, parts: &request::Parts) -> Result<Head, Refusal> {
    let invalid = |what| Refusal::InvalidRequest { what };
    if parts.method == Method::CONNECT {
        return Err(invalid("CONNECT cannot be sent in a stream of HTTP/2"));
    }
    if parts.uri.scheme_str().is_some_and(|own| own != scheme) {
        return Err(invalid("its scheme is not that of its connection"));
    }
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let is_target = target.starts_with('/') || target == "*" && parts.method == Method::OPTIONS;
    if !is_target || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("its path is not one of HTTP"));
    }
    if parts.headers.get_all("expect").iter().any(|value| value != "100-continue") {
        return Err(invalid("its Expect is not exactly `100-continue`"));
    }
    let headers = parts.headers.iter().filter(|(header, _)| header.as_str() != HOST);
    let headers = headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
    let mut head =
        Head::of_stream(parts.method.as_str(), target, headers.collect()).map_err(invalid)?;
    head.set_host(&host(name, parts)?);
    Ok(head)
}

/// The host and the port that a request names, which both of its parts must name alike.
fn host(name: &Name, parts: &request::Parts) -> Result<String, Refusal> {
    let is_for = |evidence, text: &str| match authority(text) {
        Ok((Host::Name(said), port)) if said == *name => Ok(port),
        _ => Err(Refusal::mismatch(&Host::Name(name.clone()), evidence, text)),
    };
    let mut headers = parts.headers.get_all(HOST).iter();
    let header = headers.next().map(|value| String::from_utf8_lossy(value.as_bytes()));
    if headers.next().is_some() {
        return Err(Refusal::InvalidRequest { what: "it has more than one Host header" });
    }
    let header = header.map(|text| is_for(Evidence::HostHeader, &text)).transpose()?;
    let pseudo = parts.uri.authority().map(|authority| authority.as_str());
    let pseudo = pseudo.map(|text| is_for(Evidence::RequestTarget, text)).transpose()?;
    let port = match (pseudo, header) {
        (None, None) => return Err(Refusal::InvalidRequest { what: "it names no host" }),
        (Some(one), Some(other)) if one != other => {
            return Err(Refusal::InvalidRequest { what: "its :authority and its Host differ" });
        }
        (one, other) => one.or(other).flatten(),
    };
    Ok(port.map_or_else(|| name.to_string(), |port| format!("{name}:{port}")))
}

/// The request for the host.
///
/// # Errors
/// A part of it cannot be written.
pub(super) fn request(scheme: &str, head: &Head) -> Result<Request<()>, http::Error> {
    let authority = head.value(HOST).unwrap_or_default();
    let uri = Uri::builder().scheme(scheme).authority(authority);
    let uri = uri.path_and_query(head.target.as_str()).build()?;
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(head.method.as_bytes())?;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    let headers = head.stream_headers();
    *request.headers_mut() = header_map(headers)?;
    Ok(request)
}

/// Headers as HTTP/2 carries them.
///
/// # Errors
/// One of them cannot be written.
pub(super) fn header_map<'a>(
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<HeaderMap, http::Error> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_bytes(value)?);
    }
    Ok(map)
}

/// Whether a message is one of gRPC, or of gRPC-Web.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    kind(headers).starts_with(b"application/grpc")
}

/// Whether a body consists of messages of gRPC, each with its length before it. Those of
/// `grpc-web-text` are written in base64.
pub(super) fn has_messages(headers: &HeaderMap) -> bool {
    is_grpc(headers) && !kind(headers).starts_with(b"application/grpc-web-text")
}

fn kind(headers: &HeaderMap) -> Vec<u8> {
    let kind = headers.get(http::header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.unwrap_or_default().to_ascii_lowercase()
}
