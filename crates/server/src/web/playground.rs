//! The playground: a page with an editor, and `POST /api/sandbox`, which runs its snippet. The response
//! is the result of the reference: six fields, in its order. The request is authenticated as each
//! other one: the page sends the API key that its user has entered, and no cookie.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};
use stockade_api::Problem;
use stockade_core::Code;
use stockade_snippet::{Input, Payload, Transcript};

use super::pages;
use crate::admission::{Admission, authenticate};
use crate::failure::{Failure, invalid, wrong_method};
use crate::mcp::Snippets;
use crate::openapi::{Api, Security, get, post};

/// The largest request: a payload in JSON, each byte of which may be an escape.
const REQUEST_BYTES: usize = 2 << 20;

/// The shared state.
type Shared = Arc<dyn Snippets>;

/// The paths of the playground; without snippets only for the document.
pub(crate) fn api(served: Option<(Shared, Admission)>) -> Api {
    let (snippets, admission) = served.unzip();
    let pages = Api::new(Security::None)
        .route("/playground", get(pages::page))
        .route("/run", get(pages::page))
        .route("/playground/{file}", get(pages::file))
        .method_not_allowed_fallback(wrong_method);
    let run = Api::new(Security::Key)
        .route("/api/sandbox", post(run).body::<Value>(&json!({ "source": "" })))
        .method_not_allowed_fallback(wrong_method)
        .layered(admission.as_ref(), |router, admission| {
            router.layer(middleware::from_fn_with_state(admission, authenticate))
        });
    let all = pages.merge(run).map(|router| router.layer(DefaultBodyLimit::max(REQUEST_BYTES)));
    all.with_state(snippets)
}

/// The result of a snippet, as the reference has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SandboxResult {
    logs: Vec<String>,
    facts: Map<String, Value>,
    derived: Map<String, Value>,
    errors: Vec<String>,
    duration_ms: u64,
    timed_out: bool,
}

impl From<Transcript> for SandboxResult {
    fn from(transcript: Transcript) -> Self {
        let Transcript { logs, facts, derived, errors, duration_ms, timed_out, .. } = transcript;
        Self { logs, facts, derived, errors, duration_ms, timed_out }
    }
}

impl SandboxResult {
    /// The result of a snippet that did not run.
    fn refused(error: String) -> Self {
        Self {
            logs: Vec::new(),
            facts: Map::new(),
            derived: Map::new(),
            errors: vec![error],
            duration_ms: 0,
            timed_out: false,
        }
    }
}

/// Runs a snippet. One that breaks a limit is not run: the response has the status 400, and the same
/// fields.
async fn run(
    State(snippets): State<Shared>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(invalid("the content type of the request must be application/json"));
    }
    let input: Input = serde_json::from_slice(&body).map_err(|error| {
        let problem = Problem::new(Code::InvalidInput, "the request cannot be read");
        Failure(problem.because(error.to_string()))
    })?;
    let (status, result) = match Payload::new(input.clone()) {
        Ok(_) => (StatusCode::OK, snippets.run(input).await?.into()),
        Err(error) => (StatusCode::BAD_REQUEST, SandboxResult::refused(error.to_string())),
    };
    let mut response = (status, Json(result)).into_response();
    let no_store = axum::http::HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    Ok(response)
}
