//! Failures of requests over TCP, in the form of OpenSandbox: `{code, message}`, with our code and our further members.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use stockade_api::Problem;
use stockade_core::Code;

/// The response to a path that is no route.
pub(crate) async fn unknown(request: Request) -> Failure {
    let message = format!("there is no path {}", request.uri().path());
    Failure(Problem::new(Code::NotFound, message))
}

/// The response to a method that a route does not have.
pub(crate) async fn wrong_method(request: Request) -> Response {
    let message = format!("the path {} has no method {}", request.uri().path(), request.method());
    method_not_allowed(Problem::new(Code::InvalidInput, message))
}

/// The problem that a response reports; part of the response.
#[derive(Debug, Clone)]
pub(crate) struct Reported(pub(crate) Problem);

/// A failure as a response.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Problem);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0.code {
            // The clients know no other status for a sandbox that no longer exists.
            Code::SandboxTerminated => StatusCode::NOT_FOUND,
            code => StatusCode::from_u16(code.http_status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        respond(status, &self.0)
    }
}

/// The response to a method that a path does not have.
fn method_not_allowed(problem: Problem) -> Response {
    respond(StatusCode::METHOD_NOT_ALLOWED, &problem)
}

fn respond(status: StatusCode, problem: &Problem) -> Response {
    let mut response = (status, Json(body(problem))).into_response();
    response.extensions_mut().insert(Reported(problem.clone()));
    let headers = response.headers_mut();
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// The clients show only the message, so that it contains the cause.
fn body(problem: &Problem) -> Value {
    let message = match &problem.cause {
        Some(cause) => format!("{}: {cause}", problem.message),
        None => problem.message.clone(),
    };
    json!({
        "code": problem.code,
        "message": message,
        "remediation": problem.remediation,
        "retryable": problem.retryable,
    })
}

/// The failure for what is not available.
pub(crate) fn unsupported(what: impl std::fmt::Display) -> Failure {
    Failure(Problem::new(Code::Unsupported, format!("{what} is not supported")))
}

/// The failure for an invalid request.
pub(crate) fn invalid(message: impl Into<String>) -> Failure {
    Failure(Problem::new(Code::InvalidInput, message))
}
