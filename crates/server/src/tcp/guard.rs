//! Refuses requests that a web page of another site may have caused: those with an unknown host name
//! (DNS rebinding), and those from another origin.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use stockade_core::{Code, Problem};

use crate::failure::Failure;

/// The names under which clients may address the server.
#[derive(Debug, Clone)]
pub struct AllowedHosts(Arc<BTreeSet<String>>);

impl AllowedHosts {
    /// The names of the loopback, and these, without a port.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let loopback = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
        let all = loopback.into_iter().chain(names.into_iter().map(|name| name.to_lowercase()));
        Self(Arc::new(all.collect()))
    }

    fn contains(&self, authority: &str) -> bool {
        let name = match authority.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => authority,
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        self.0.contains(&name.to_ascii_lowercase())
    }
}

/// The middleware that refuses such requests.
pub(crate) async fn guard(
    State(hosts): State<AllowedHosts>,
    request: Request,
    next: Next,
) -> Response {
    // hyper ignores a length after a coding, which a proxy in front could have read instead: then what
    // follows the body must not be read as another request (RFC 9112, 6.1).
    let is_coded = request.headers().contains_key(header::TRANSFER_ENCODING);
    let mut response = match check(&hosts, request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => Failure(problem).into_response(),
    };
    if is_coded && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn check(hosts: &AllowedHosts, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::TRANSFER_ENCODING)
        && headers.contains_key(header::CONTENT_LENGTH)
    {
        let message = "the request has both a content length and a transfer encoding";
        return Err(Problem::new(Code::InvalidInput, message));
    }
    let mut values = headers.get_all(header::HOST).iter();
    let host = values.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    if values.next().is_some() || uri.authority().is_some_and(|other| other.as_str() != host) {
        return Err(forbidden("the request names several hosts"));
    }
    if !hosts.contains(host) {
        return Err(forbidden(format!("the server does not serve the host name {host:?}"))
            .because("a web page could have made this request with a name of its own")
            .remedied_by(format!("stockade serve --allowed-host {}", name_of(host))));
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let same = origin.split_once("://").is_some_and(|(_, authority)| authority == host);
        if !same {
            return Err(forbidden("the request comes from a web page of another origin"));
        }
    }
    let site = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or_default());
    match site {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(forbidden("the request comes from a web page of another site")),
    }
}

fn forbidden(message: impl Into<String>) -> Problem {
    Problem::new(Code::Forbidden, message)
}

/// The name for the remedy: only what can be a name.
fn name_of(host: &str) -> String {
    let name: String = host
        .chars()
        .take_while(|character| character.is_ascii_alphanumeric() || "-._".contains(*character))
        .collect();
    if name.is_empty() { "NAME".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(pairs: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        let hosts = AllowedHosts::new(["Box.Example".to_owned()]);
        check(&hosts, &Uri::from_static("/v1/sandboxes"), &headers).is_ok()
    }

    #[test]
    fn only_known_names_and_this_origin_are_served() {
        for host in
            ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "[::1]", "box.example"]
        {
            assert!(allowed(&[("host", host)]), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example", "127.0.0.2", "localhost:80:80", "::1"]
        {
            assert!(!allowed(&[("host", host)]), "{host}");
        }
        assert!(!allowed(&[]));
        assert!(!allowed(&[("host", "localhost"), ("host", "localhost")]));
        let local = ("host", "localhost:8080");
        assert!(allowed(&[local, ("transfer-encoding", "chunked")]));
        let both = [local, ("content-length", "5"), ("transfer-encoding", "chunked")];
        assert!(!allowed(&both));
        assert!(allowed(&[local, ("origin", "http://localhost:8080")]));
        assert!(allowed(&[local, ("sec-fetch-site", "same-origin")]));
        assert!(allowed(&[local, ("sec-fetch-site", "none")]));
        for refused in [
            ("origin", "null"),
            ("origin", "http://localhost:8081"),
            ("origin", "http://evil.example"),
            ("origin", ""),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "SAME-ORIGIN"),
        ] {
            assert!(!allowed(&[local, refused]), "{refused:?}");
        }
    }
}
