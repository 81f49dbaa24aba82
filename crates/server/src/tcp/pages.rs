//! Web pages of other origins that may use the server: what a browser asks before a request, and what it needs to
//! give a page the response. Such a page gets nothing by being in the browser of a user: its cookies are dropped, and
//! `auth` serves it with a key or a token only.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use stockade_core::{Code, Problem};
use url::Url;

/// How long a browser need not ask again, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// A page that a browser got from the internet asks whether it may use a server of this network.
const ASKS_FOR_PRIVATE: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOWS_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// The origins whose pages may use the server, beside its own.
#[derive(Debug, Clone, Default)]
pub struct AllowedOrigins(Arc<BTreeSet<String>>);

impl AllowedOrigins {
    /// These origins, such as `https://app.example`.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a text that no browser sends as an origin.
    pub fn new(origins: impl IntoIterator<Item = String>) -> Result<Self, Problem> {
        let check = |origin: String| match Url::parse(&origin) {
            Ok(url)
                if url.origin().is_tuple()
                    && url.origin().ascii_serialization() == origin
                    && !origin.contains('*') =>
            {
                Ok(origin)
            }
            _ => {
                let message = format!("{origin:?} is not the origin of a web page");
                Err(Problem::new(Code::InvalidInput, message)
                    .because("an origin has a scheme, a host name and, if it is unusual, a port")
                    .remedied_by("stockade serve --allowed-origin https://app.example"))
            }
        };
        let all: BTreeSet<String> = origins.into_iter().map(check).collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(all)))
    }

    /// The origin of a request, if it is one of them.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut values = headers.get_all(header::ORIGIN).iter();
        let origin = values.next().filter(|_| values.next().is_none())?;
        let is_allowed = origin.to_str().is_ok_and(|origin| self.0.contains(origin));
        is_allowed.then(|| origin.clone())
    }
}

/// The middleware for routes that nothing else guards.
pub(crate) async fn share(
    State(origins): State<AllowedOrigins>,
    request: Request,
    next: Next,
) -> Response {
    match origins.of(request.headers()) {
        Some(origin) => serve(origin, request, next).await,
        None => next.run(request).await,
    }
}

/// Serves a request of a page of this origin.
pub(super) async fn serve(origin: HeaderValue, mut request: Request, next: Next) -> Response {
    let headers = request.headers_mut();
    headers.remove(header::COOKIE);
    let asked = headers.remove(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match asked {
        Some(method) if request.method() == Method::OPTIONS => permit(method, request.headers()),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}

/// Permits the request that a browser asks for. The request itself is what is authenticated.
fn permit(method: HeaderValue, asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, method);
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    if asked.contains_key(ASKS_FOR_PRIVATE) {
        headers.insert(ALLOWS_PRIVATE, HeaderValue::from_static("true"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins(texts: &[&str]) -> Result<AllowedOrigins, Code> {
        let texts = texts.iter().map(|&text| text.to_owned());
        AllowedOrigins::new(texts).map_err(|problem| problem.code)
    }

    #[test]
    fn only_what_browsers_send_is_an_origin() {
        assert!(
            origins(&["https://app.example", "http://localhost:3000", "http://[::1]:1"]).is_ok()
        );
        for refused in [
            "*",
            "null",
            "",
            "app.example",
            "https://app.example/",
            "https://app.example:443",
            "https://App.example",
            "https://a@app.example",
            "file:///x",
            "https://*.example",
        ] {
            assert_eq!(origins(&[refused]).err(), Some(Code::InvalidInput), "{refused}");
        }
    }

    #[test]
    fn a_request_has_one_origin_that_is_named() {
        let allowed = origins(&["https://app.example"]).unwrap();
        let is_allowed = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ORIGIN, HeaderValue::from_static(value));
            }
            allowed.of(&headers).is_some()
        };
        assert!(is_allowed(&["https://app.example"]));
        assert!(!is_allowed(&[]));
        for other in ["http://app.example", "https://app.example:444", "null", "https://b.example"]
        {
            assert!(!is_allowed(&[other]), "{other}");
        }
        assert!(!is_allowed(&["https://app.example", "https://b.example"]));
    }
}
