//! The protocol over HTTP (streamable HTTP): the path `/mcp` of the listener over TCP. A request is
//! authenticated as any other; a session belongs to the owner who has opened it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use stockade_core::{Code, Door, OwnerId, Problem};
use tokio::sync::watch;

use super::Offer;
use super::handler::{Callers, Handler, OwnerStates};
use crate::admission::{Admission, Terms};
use crate::auth::Principal;
use crate::failure::Failure;
use crate::openapi::{self, Api, Security};

/// The path.
pub(crate) const PATH: &str = "/mcp";
/// Its methods, and its name in the document.
const METHODS: [&str; 3] = ["get", "post", "delete"];
const NAME: &str = "mcp.message";
/// The header that names a session.
pub(crate) const SESSION: &str = "mcp-session-id";
/// The largest message of a client, in bytes.
const MESSAGE_BYTES: usize = 16 << 20;
/// After what time without a message a session ends.
const IDLE: Duration = Duration::from_secs(60 * 60);
/// How long the events of a completed response can be read again.
const RESUMABLE: Duration = Duration::from_secs(60);
/// How many sessions an owner may have at the same time.
const SESSIONS: usize = 64;
/// How many sessions all owners may have together.
const ALL_SESSIONS: usize = 1024;

/// What the route serves: tools, for callers that are admitted, until a value becomes true.
pub(crate) struct Backend {
    pub(crate) offer: Offer,
    pub(crate) admission: Admission,
    pub(crate) stop: watch::Receiver<bool>,
}

/// The state of the middleware.
#[derive(Clone)]
struct Guarded {
    admission: Admission,
    manager: Arc<LocalSessionManager>,
    owners: Arc<Mutex<HashMap<String, OwnerId>>>,
}

/// The route; without anything to serve only for the document. Its streams end with the server.
pub(crate) fn api(served: Option<Backend>) -> Api {
    let api = Api::new(Security::Key);
    match served {
        Some(served) => {
            let (service, guarded) = service(served);
            let methods = openapi::service(&METHODS, service, NAME);
            api.route(PATH, methods).layered(Some(&guarded), |router, guarded| {
                router.layer(middleware::from_fn_with_state(guarded, authenticate))
            })
        }
        None => api.route(PATH, openapi::service(&METHODS, Router::<()>::new(), NAME)),
    }
}

type Mcp = StreamableHttpService<Handler, LocalSessionManager>;

/// The protocol, and the guard before it.
fn service(Backend { offer, admission, mut stop }: Backend) -> (Mcp, Guarded) {
    let mut manager = LocalSessionManager::default();
    manager.session_config.keep_alive = Some(IDLE);
    manager.session_config.completed_cache_ttl = RESUMABLE;
    let manager = Arc::new(manager);
    // The guard has checked host and origin with the names of this server.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MESSAGE_BYTES);
    let (stopping, states) = (config.cancellation_token.clone(), OwnerStates::default());
    let ending = states.clone();
    tokio::spawn(async move {
        let _ = stop.wait_for(|stop| *stop).await;
        stopping.cancel();
        ending.end().await;
    });
    let offer = Arc::new(offer);
    let handler = move || Ok(Handler::new(Arc::clone(&offer), Callers::OfRequests, states.clone()));
    let service = StreamableHttpService::new(handler, Arc::clone(&manager), config);
    (service, Guarded { admission, manager, owners: Arc::default() })
}

/// Determines the caller of a request, and checks that its session belongs to the same owner.
async fn authenticate(State(guarded): State<Guarded>, request: Request, next: Next) -> Response {
    let found = guarded.admission.principal(request.headers(), request.extensions());
    let principal = match found.await {
        Ok(principal) => principal,
        Err(problem) => return Failure(problem).into_response(),
    };
    let this = &guarded;
    let serve = |mut principal: Principal, request: Request| async move {
        principal.caller.origin.door = Door::Mcp;
        let served = this.serve(principal, request, next).await;
        served.unwrap_or_else(Failure::into_response)
    };
    guarded.admission.admit(principal, request, Terms::OWN, serve).await
}

impl Guarded {
    async fn serve(
        &self,
        principal: Principal,
        mut request: Request,
        next: Next,
    ) -> Result<Response, Failure> {
        let owner = principal.caller.owner.clone();
        request.extensions_mut().insert(principal);
        let session = {
            let mut sessions = request.headers().get_all(SESSION).iter();
            let session =
                sessions.next().map(|value| value.to_str().unwrap_or_default().to_owned());
            if sessions.next().is_some() {
                let message = "the request names several sessions";
                return Err(Problem::new(Code::InvalidInput, message).into());
            }
            session
        };
        match &session {
            Some(session) if !self.is_owned(session, &owner) => return Err(no_session()),
            Some(_) => {}
            None => self.check_room(&owner).await?,
        }
        let is_end = request.method() == Method::DELETE;
        let response = next.run(request).await;
        match session {
            None => {
                let opened = response.headers().get(SESSION).and_then(|value| value.to_str().ok());
                if let Some(opened) = opened.map(str::to_owned) {
                    self.owners().insert(opened, owner);
                }
            }
            Some(session) if is_end && response.status().is_success() => {
                self.owners().remove(&session);
            }
            Some(_) => {}
        }
        Ok(response)
    }

    fn owners(&self) -> std::sync::MutexGuard<'_, HashMap<String, OwnerId>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_owned(&self, session: &str, owner: &OwnerId) -> bool {
        self.owners().get(session) == Some(owner)
    }

    /// Refuses a request that could open a session too many. Sessions that have ended do not count.
    async fn check_room(&self, owner: &OwnerId) -> Result<(), Failure> {
        let is_full = |owners: &HashMap<String, OwnerId>| {
            let own = owners.values().filter(|other| *other == owner).count();
            own >= SESSIONS || owners.len() >= ALL_SESSIONS
        };
        if !is_full(&self.owners()) {
            return Ok(());
        }
        let known: Vec<_> = self.owners().keys().cloned().collect();
        for session in known {
            let id: Arc<str> = session.as_str().into();
            if !self.manager.has_session(&id).await.unwrap_or(false) {
                self.owners().remove(&session);
            }
        }
        if is_full(&self.owners()) {
            let message = format!("there are {SESSIONS} sessions already");
            return Err(Problem::new(Code::QuotaExceeded, message)
                .because("each client must end its session with DELETE")
                .into());
        }
        Ok(())
    }
}

/// The failure for a session that does not exist, or belongs to another owner: both look the same. The
/// protocol has the status 404 for it, with which clients open another session.
pub(crate) fn no_session() -> Failure {
    Failure(Problem::new(Code::NotFound, "there is no such session"))
}
