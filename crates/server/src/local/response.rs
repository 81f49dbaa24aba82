//! Responses: JSON, lines of JSON, bytes, and failures.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stockade_api::body::FileBody;
use stockade_api::wire::ErrorBody;
use stockade_api::{FileContent, Items, Problem};

use crate::failure::Reported;
use crate::stream::Lines;

/// A failure as a response.
pub(crate) struct Failure(pub(crate) Problem);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.http_status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let reported = Reported(self.0.clone());
        let mut response = (status, axum::Json(ErrorBody { error: self.0 })).into_response();
        response.extensions_mut().insert(reported);
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// Items as lines of JSON, streamed. A failure is the last line.
pub(crate) fn json_lines<T: Serialize + Send + 'static>(items: Items<T>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (kind, Body::new(Lines::new(items))).into_response()
}

/// The unchanged content of a file.
pub(crate) fn content(content: FileContent) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    (kind, Body::new(FileBody(content))).into_response()
}
