//! The same dialect on a listener over TCP, below [`TCP_PREFIX`](stockade_api::wire::TCP_PREFIX), for
//! `stockade --server URL`. The caller of each request is determined by its API key, as for every other
//! dialect there, and is one from elsewhere: the service refuses it what names something of this machine.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use stockade_api::Problem;
use stockade_api::wire::{REQUEST_HEADER, VERSION, VERSION_HEADER};
use stockade_core::Code;

use super::response::Failure;
use super::{Operations, routes};
use crate::admission::{Admission, Terms};
use crate::auth::Principal;
use crate::openapi::Api;

/// How requests are admitted.
const TERMS: Terms =
    Terms { is_relayed: false, refuse: |problem| Failure(problem).into_response() };

/// The paths of the dialect, for callers with an API key; without operations only for the document.
pub(crate) fn api(served: Option<(Operations, Admission)>) -> Api {
    let (operations, admission) = served.unzip();
    let api = routes::api().with_state(operations);
    api.layered(admission.as_ref(), |router, admission| {
        router.layer(middleware::from_fn_with_state(admission, admit))
    })
}

/// Determines the caller of a request, and refuses one that no client of this version has sent.
async fn admit(State(admission): State<Admission>, request: Request, next: Next) -> Response {
    let (method, headers) = (request.method(), request.headers());
    let extensions = request.extensions();
    let admitted = async {
        let principal = admission.principal(headers, extensions).await?;
        check(method, headers)?;
        Ok::<_, Problem>(principal)
    };
    match admitted.await {
        Ok(principal) => {
            let serve = |principal: Principal, mut request: Request| {
                request.extensions_mut().insert(principal.caller);
                next.run(request)
            };
            admission.admit(principal, request, TERMS, serve).await
        }
        Err(problem) => Failure(problem).into_response(),
    }
}

fn check(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match text(VERSION_HEADER) {
        Some(VERSION) => {}
        other => {
            let other = other.unwrap_or("an unknown version");
            let message = format!("the client is {other}, and this server is {VERSION}");
            return Err(Problem::new(Code::Unsupported, message)
                .because("another version may send and expect something else")
                .remedied_by(format!("use stockade {VERSION}")));
        }
    }
    // A web page can send other types without asking first.
    let is_json = text(header::CONTENT_TYPE.as_str()) == Some("application/json");
    if *method == Method::GET || is_json || headers.contains_key(REQUEST_HEADER) {
        return Ok(());
    }
    let message = "the request must have the content type application/json";
    Err(Problem::new(Code::InvalidInput, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: &Method, pairs: &[(&'static str, &str)]) -> Option<Code> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        check(method, &headers).err().map(|problem| problem.code)
    }

    #[test]
    fn only_requests_of_this_version_and_of_programs_are_admitted() {
        let version = (VERSION_HEADER, VERSION);
        let json = ("content-type", "application/json");
        assert_eq!(code(&Method::GET, &[version]), None);
        assert_eq!(code(&Method::POST, &[version, json]), None);
        assert_eq!(code(&Method::POST, &[version, (REQUEST_HEADER, "e30=")]), None);
        assert_eq!(code(&Method::POST, &[version]), Some(Code::InvalidInput));
        let plain = ("content-type", "text/plain");
        assert_eq!(code(&Method::POST, &[version, plain]), Some(Code::InvalidInput));
        assert_eq!(code(&Method::POST, &[json]), Some(Code::Unsupported));
        assert_eq!(code(&Method::GET, &[(VERSION_HEADER, "0.0.0")]), Some(Code::Unsupported));
    }
}
