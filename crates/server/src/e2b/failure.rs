//! Failures in the forms of E2B: `{code, message}` with the HTTP status, and `{code, message}` with the
//! code of the Connect protocol. Clients choose their exceptions by these.

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Html;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use stockade_api::{Problem, Sandbox};
use stockade_core::Code;

use crate::failure::{Failure, Reported};

/// What clients look for in the message about a sandbox that does not run.
const NOT_RUNNING: &str = "The sandbox was not found";
/// What clients expect to read about a signature whose time is over.
const EXPIRED: &str = "signature is already expired";
/// What clients look for in the message about a port on which nothing listens.
const CLOSED: &str = "The sandbox is running but port is not open";
/// The title of the page about it.
const CLOSED_TITLE: &str = "Closed Port Error";
/// Tells clients whether a request is worth another try.
const RETRY: &str = "should-retry";

/// A failure of a request with an HTTP status.
#[derive(Debug)]
pub(super) struct Refused(pub(super) Problem);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<Failure> for Refused {
    fn from(Failure(problem): Failure) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        refuse(self.0)
    }
}

/// The HTTP status for a problem.
fn status(code: Code) -> StatusCode {
    match code {
        Code::SandboxTerminated => StatusCode::NOT_FOUND,
        // The clients repeat a request for an unavailable server.
        Code::SecretMissing => StatusCode::BAD_REQUEST,
        code => {
            StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

/// The response to a refused request.
pub(super) fn refuse(problem: Problem) -> Response {
    respond(status(problem.code), problem)
}

pub(super) fn respond(status: StatusCode, problem: Problem) -> Response {
    let body = json!({
        "code": status.as_u16(),
        "message": message(&problem),
        "error_code": problem.code,
        "remediation": problem.remediation,
    });
    let mut response = (status, Json(body)).into_response();
    let headers = response.headers_mut();
    headers
        .insert(RETRY, HeaderValue::from_static(if problem.retryable { "true" } else { "false" }));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if status == StatusCode::TOO_MANY_REQUESTS && problem.retryable {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response.extensions_mut().insert(Reported(problem));
    response
}

/// The clients show only the message, so that it contains the cause.
pub(super) fn message(problem: &Problem) -> String {
    match &problem.cause {
        Some(cause) => format!("{}: {cause}", problem.message),
        None => problem.message.clone(),
    }
}

/// The response to every request to a sandbox that does not run.
pub(crate) fn not_running(id: &str) -> Response {
    let body = json!({ "sandboxId": id, "message": NOT_RUNNING, "code": 502 });
    bad_gateway(NOT_RUNNING, Json(body))
}

fn bad_gateway(message: &str, body: impl IntoResponse) -> Response {
    let mut response = (StatusCode::BAD_GATEWAY, body).into_response();
    response.extensions_mut().insert(Reported(Problem::new(Code::Unreachable, message)));
    response
}

/// The response to a request to a port on which nothing listens: a page, if a person reads it.
pub(crate) fn closed_port(sandbox: &Sandbox, port: u16, request: &HeaderMap) -> Response {
    let id = sandbox.id.as_str();
    if !is_browser(request) {
        let body = json!({ "sandboxId": id, "message": CLOSED, "port": port, "code": 502 });
        return bad_gateway(CLOSED, Json(body));
    }
    let page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{CLOSED_TITLE}</title>\n\
         <h1>{CLOSED_TITLE}</h1>\n<p>Nothing listens on port {port} of the sandbox {id}. The sandbox runs: start the \
         program that is to listen there, and load the page again.</p>\n"
    );
    let policy = [(header::CONTENT_SECURITY_POLICY, "default-src 'none'")];
    bad_gateway(CLOSED, (policy, Html(page)))
}

/// Whether a browser sends a request, as all of them say.
fn is_browser(request: &HeaderMap) -> bool {
    let agent = request.get(header::USER_AGENT).map(HeaderValue::as_bytes);
    agent.is_some_and(|agent| agent.starts_with(b"Mozilla/"))
}

/// The response to a signed URL whose time is over, without members of our own: clients compare it as a whole.
pub(super) fn expired_signature() -> Response {
    let problem = Problem::new(Code::Unauthenticated, EXPIRED);
    let body = json!({ "code": 401, "message": EXPIRED });
    let scheme = [(header::WWW_AUTHENTICATE, "Bearer")];
    let mut response = (StatusCode::UNAUTHORIZED, scheme, Json(body)).into_response();
    response.extensions_mut().insert(Reported(problem));
    response
}

/// A code of the Connect protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RpcCode {
    Canceled,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

impl RpcCode {
    const fn name(self) -> &'static str {
        match self {
            Self::Canceled => "canceled",
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    fn status(self) -> StatusCode {
        let number = match self {
            Self::Canceled => 499,
            Self::InvalidArgument | Self::FailedPrecondition => 400,
            Self::DeadlineExceeded => 504,
            Self::NotFound => 404,
            Self::AlreadyExists => 409,
            Self::PermissionDenied => 403,
            Self::ResourceExhausted => 429,
            Self::Unimplemented => 501,
            Self::Internal => 500,
            Self::Unavailable => 503,
            Self::Unauthenticated => 401,
        };
        StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    const fn of(code: Code) -> Self {
        match code {
            Code::InvalidInput | Code::RuleInvalid | Code::PathInvalid => Self::InvalidArgument,
            Code::Unauthenticated => Self::Unauthenticated,
            Code::NotFound | Code::FileNotFound => Self::NotFound,
            Code::AccessDenied | Code::Forbidden | Code::PathRefused => Self::PermissionDenied,
            Code::TimedOut => Self::DeadlineExceeded,
            Code::Cancelled => Self::Canceled,
            Code::Conflict | Code::InvalidState | Code::Busy => Self::FailedPrecondition,
            Code::RateLimited | Code::QuotaExceeded => Self::ResourceExhausted,
            Code::Unsupported | Code::WallUnavailable | Code::LimitUnavailable => {
                Self::Unimplemented
            }
            Code::SandboxTerminated | Code::Unreachable => Self::Unavailable,
            _ => Self::Internal,
        }
    }
}

/// A failure of a call of the Connect protocol.
#[derive(Debug)]
pub(super) struct RpcError {
    pub(super) code: RpcCode,
    pub(super) problem: Problem,
}

impl RpcError {
    /// A failure with another code than that of its problem.
    pub(super) fn new(code: RpcCode, message: impl Into<String>) -> Self {
        let of = match code {
            RpcCode::NotFound => Code::NotFound,
            RpcCode::Unauthenticated => Code::Unauthenticated,
            RpcCode::DeadlineExceeded => Code::TimedOut,
            RpcCode::Unavailable => Code::Unreachable,
            RpcCode::AlreadyExists | RpcCode::FailedPrecondition => Code::Conflict,
            _ => Code::InvalidInput,
        };
        Self { code, problem: Problem::new(of, message) }
    }

    /// The failure as JSON.
    pub(super) fn json(&self) -> serde_json::Value {
        json!({ "code": self.code.name(), "message": message(&self.problem) })
    }
}

impl From<Problem> for RpcError {
    fn from(problem: Problem) -> Self {
        Self { code: RpcCode::of(problem.code), problem }
    }
}

impl From<Failure> for RpcError {
    fn from(Failure(problem): Failure) -> Self {
        problem.into()
    }
}

impl IntoResponse for RpcError {
    fn into_response(self) -> Response {
        let mut response = (self.code.status(), Json(self.json())).into_response();
        response.extensions_mut().insert(Reported(self.problem));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_see_the_status_that_their_exceptions_are_chosen_by() {
        for (code, expected) in [
            (Code::InvalidInput, 400),
            (Code::Unauthenticated, 401),
            (Code::NotFound, 404),
            (Code::SandboxTerminated, 404),
            (Code::InvalidState, 409),
            (Code::RateLimited, 429),
            (Code::StorageFull, 507),
        ] {
            assert_eq!(refuse(Problem::new(code, "x")).status().as_u16(), expected, "{code}");
        }
        assert_eq!(not_running("a").status(), 502);
    }

    #[test]
    fn a_call_has_the_code_of_its_problem() {
        for (code, name) in [
            (Code::InvalidInput, "invalid_argument"),
            (Code::FileNotFound, "not_found"),
            (Code::TimedOut, "deadline_exceeded"),
            (Code::RateLimited, "resource_exhausted"),
            (Code::SandboxTerminated, "unavailable"),
            (Code::Io, "internal"),
        ] {
            assert_eq!(RpcError::from(Problem::new(code, "x")).json()["code"], name);
        }
    }
}
