//! What every dialect over TCP does with a request: it determines the principal, admits the request within
//! the principal's limits, counts the bytes of both bodies, and names the principal for the log.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use stockade_api::Problem;
use stockade_api::wire::REQUEST_HEADER;
use stockade_core::Code;

use crate::auth::{HttpAuth, Principal, TcpPeer};
use crate::failure::Failure;
use crate::limits::retry_after;
use crate::metered::{Metered, Use};
use crate::observe::{RequestId, Seen, Watch, limit_name};

/// Admits requests.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    auth: Arc<HttpAuth>,
    watch: Watch,
}

/// How a request is admitted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// Whether a program inside a sandbox receives its body, which may pause as long as the programs agree
    /// on.
    pub(crate) is_relayed: bool,
    /// The response to a request above a limit.
    pub(crate) refuse: fn(Problem) -> Response,
}

impl Terms {
    /// For an interface of the server.
    pub(crate) const OWN: Self = Self { is_relayed: false, refuse: failure };
    /// For a port of a sandbox.
    pub(crate) const RELAYED: Self = Self { is_relayed: true, refuse: failure };
}

fn failure(problem: Problem) -> Response {
    Failure(problem).into_response()
}

impl Admission {
    pub(crate) const fn new(auth: Arc<HttpAuth>, watch: Watch) -> Self {
        Self { auth, watch }
    }

    /// The principal of a request with an API key.
    pub(crate) async fn principal(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Principal, Problem> {
        let peer = extensions.get::<Arc<TcpPeer>>().ok_or_else(|| {
            Problem::new(Code::Unauthenticated, "the connection of the request is unknown")
        })?;
        self.auth.principal(headers, peer).await
    }

    /// Serves the request of a principal, if it is within the principal's limits.
    pub(crate) async fn admit<F: Future<Output = Response>>(
        &self,
        principal: Principal,
        request: Request,
        terms: Terms,
        serve: impl FnOnce(Principal, Request) -> F,
    ) -> Response {
        admit(&self.watch, principal, request, terms, serve).await
    }
}

/// What becomes of the body of a request: files are passed on, and everything else is read first.
fn use_of(headers: &HeaderMap, terms: Terms) -> Use {
    if terms.is_relayed {
        return Use::Relayed;
    }
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_file = [b"multipart/".as_slice(), b"application/octet-stream"].iter().any(|prefix| {
        kind.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    });
    match is_file || headers.contains_key(REQUEST_HEADER) {
        true => Use::Streamed,
        false => Use::Whole,
    }
}

/// Serves the request of a principal, if it is within the principal's limits.
pub(crate) async fn admit<F: Future<Output = Response>>(
    watch: &Watch,
    mut principal: Principal,
    request: Request,
    terms: Terms,
    serve: impl FnOnce(Principal, Request) -> F,
) -> Response {
    let id = request.extensions().get::<RequestId>().map(|id| id.0.clone());
    principal.caller.origin.request_id = id;
    let (seen, name) = (Seen::new(&principal), limit_name(&principal));
    let usage = watch.usage.clone();
    let mut response = match usage.admit(&name) {
        Err((problem, wait)) => retry_after((terms.refuse)(problem), wait),
        Ok(()) => {
            let (counted, of) = (usage.clone(), name.clone());
            let what = use_of(request.headers(), terms);
            let request = request.map(|body| Metered::request(body, counted, of, what));
            let response = serve(principal, request).await;
            response.map(|body| Metered::response(body, usage, name))
        }
    };
    response.extensions_mut().insert(seen);
    response
}

/// The middleware for routes with an API key: they find the principal in the request.
pub(crate) async fn authenticate(
    State(admission): State<Admission>,
    request: Request,
    next: Next,
) -> Response {
    authenticate_with(State((admission, failure)), request, next).await
}

/// How a dialect answers a request that is refused.
pub(crate) type Refusal = fn(Problem) -> Response;

/// The same, for a dialect whose refusals have another form.
pub(crate) async fn authenticate_with(
    State((admission, refuse)): State<(Admission, Refusal)>,
    request: Request,
    next: Next,
) -> Response {
    let principal = match admission.principal(request.headers(), request.extensions()).await {
        Ok(principal) => principal,
        Err(problem) => return refuse(problem),
    };
    let serve = |principal: Principal, mut request: Request| {
        request.extensions_mut().insert(principal);
        next.run(request)
    };
    admission.admit(principal, request, Terms { refuse, ..Terms::OWN }, serve).await
}
