//! Refuses requests that a web page of another site may have caused: those with an unknown host name
//! (DNS rebinding), and those from another origin.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use stockade_core::{Code, Problem};

use super::pages::{self, AllowedOrigins};
use crate::auth::is_link;
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
        self.0.contains(&host_name(authority))
    }
}

/// Whose requests are served.
#[derive(Debug, Clone)]
pub(crate) struct Allowed {
    /// The names of the server.
    pub(crate) hosts: AllowedHosts,
    /// The origins of pages, beside that of the server.
    pub(crate) origins: AllowedOrigins,
}

/// The host name of an authority: in lower case, without a port.
pub(crate) fn host_name(authority: &str) -> String {
    let name = match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// The one host that a request names.
pub(crate) fn authority<'r>(uri: &Uri, headers: &'r HeaderMap) -> Result<&'r str, Problem> {
    let mut values = headers.get_all(header::HOST).iter();
    let host = values.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    if values.next().is_some() || uri.authority().is_some_and(|other| other.as_str() != host) {
        return Err(forbidden("the request names several hosts"));
    }
    Ok(host)
}

/// Serves a request whose end is where every server sees it (RFC 9112, section 6).
pub(crate) async fn framed<F: Future<Output = Response>>(
    request: Request,
    serve: impl FnOnce(Request) -> F,
) -> Response {
    let headers = request.headers();
    let is_coded = headers.contains_key(header::TRANSFER_ENCODING);
    if is_coded && headers.contains_key(header::CONTENT_LENGTH) {
        let message = "the request has both a content length and a transfer encoding";
        return closing(Failure(Problem::new(Code::InvalidInput, message)).into_response());
    }
    let response = serve(request).await;
    // hyper ignores a length after a coding, which a proxy in front could have read instead: then what
    // follows the body must not be read as another request.
    if is_coded && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return closing(response);
    }
    response
}

fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The middleware that refuses such requests.
pub(crate) async fn guard(
    State(allowed): State<Allowed>,
    request: Request,
    next: Next,
) -> Response {
    let serve = |request: Request| async move {
        if let Err(problem) = check_host(&allowed.hosts, request.uri(), request.headers()) {
            return Failure(problem).into_response();
        }
        if let Some(origin) = allowed.origins.of(request.headers()) {
            return pages::serve(origin, request, next).await;
        }
        match check_origin(request.method(), request.uri(), request.headers()) {
            Ok(()) => next.run(request).await,
            Err(problem) => Failure(problem).into_response(),
        }
    };
    framed(request, serve).await
}

fn check_host(hosts: &AllowedHosts, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let host = authority(uri, headers)?;
    if hosts.contains(host) {
        return Ok(());
    }
    Err(forbidden(format!("the server does not serve the host name {host:?}"))
        .because("a web page could have made this request with a name of its own")
        .remedied_by(format!("stockade serve --allowed-host {}", name_of(host))))
}

fn check_origin(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let host = authority(uri, headers)?;
    if needs_no_origin(method, uri, headers) {
        return Ok(());
    }
    for name in [header::ORIGIN.as_str(), "sec-fetch-site"] {
        if headers.get_all(name).iter().nth(1).is_some() {
            // Two servers would read different ones.
            return Err(forbidden(format!("the request has several headers `{name}`")));
        }
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let same = origin.split_once("://").is_some_and(|(_, authority)| authority == host);
        if !same {
            return Err(forbidden("the request comes from a web page of another origin")
                .remedied_by("stockade serve --allowed-origin ORIGIN"));
        }
    }
    let site = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or_default());
    match site {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(forbidden("the request comes from a web page of another site")),
    }
}

/// Whether any page may cause a request: one to a link, which alone gives access; and one that shows the
/// page of the playground, which does nothing by itself.
fn needs_no_origin(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let mut parts = uri.path().splitn(7, '/').skip(1);
    let is_port = parts.by_ref().take(2).eq(["v1", "sandboxes"])
        && parts.nth(1) == Some("proxy")
        && parts.next().is_some_and(is_link);
    let is_page = matches!(uri.path(), "/playground" | "/run")
        && method == Method::GET
        && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
        && headers.get("sec-fetch-dest").is_some_and(|target| target == "document");
    is_port || is_page
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
        {
            let uri = Uri::from_static("/v1/sandboxes");
            check_host(&hosts, &uri, &headers).is_ok()
                && check_origin(&Method::GET, &uri, &headers).is_ok()
        }
    }

    #[tokio::test]
    async fn a_request_has_one_length() {
        let answer = async |pairs: &[(&str, &str)]| {
            let request = pairs
                .iter()
                .fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
            let request = request.body(axum::body::Body::empty()).unwrap();
            framed(request, async |_| StatusCode::OK.into_response()).await
        };
        let (length, coding) = (("content-length", "5"), ("transfer-encoding", "chunked"));
        let plain = answer(&[length]).await;
        assert!(plain.status() == 200 && !plain.headers().contains_key("connection"));
        let coded = answer(&[coding]).await;
        assert!(coded.status() == 200 && coded.headers()["connection"] == "close");
        assert_eq!(answer(&[length, coding]).await.status(), 400);
    }

    #[test]
    fn links_and_pages_may_be_opened_from_anywhere() {
        let free = |method: &str, path: &str, mode: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("sec-fetch-mode", mode.parse().unwrap());
            headers.insert("sec-fetch-dest", "document".parse().unwrap());
            let method: Method = method.parse().unwrap();
            needs_no_origin(&method, &path.parse().unwrap(), &headers)
        };
        assert!(free("POST", "/v1/sandboxes/a/proxy/80~1~k~s~x/y", "cors"));
        assert!(free("GET", "/v1/sandboxes/a/proxy/80~1~k~s~x", "no-cors"));
        assert!(free("GET", "/playground", "navigate"));
        for (method, path, mode) in [
            ("POST", "/playground", "navigate"),
            ("GET", "/playground", "no-cors"),
            ("GET", "/api/sandbox", "navigate"),
            ("GET", "/v1/sandboxes/a/proxy/80/~", "navigate"),
            ("GET", "/v1/sandboxes/~/proxy/80", "navigate"),
            ("GET", "/v1/sandboxes", "navigate"),
        ] {
            assert!(!free(method, path, mode), "{method} {path}");
        }
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
        assert!(allowed(&[local, ("origin", "http://localhost:8080")]));
        assert!(allowed(&[local, ("sec-fetch-site", "same-origin")]));
        let own = ("origin", "http://localhost:8080");
        for pair in [own, ("origin", "http://evil.example")] {
            assert!(!allowed(&[local, own, pair]) && !allowed(&[local, pair, own]), "{pair:?}");
        }
        let same = ("sec-fetch-site", "same-origin");
        assert!(!allowed(&[local, same, ("sec-fetch-site", "cross-site")]));
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
