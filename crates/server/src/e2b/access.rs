//! Who may use a sandbox: each request to its port has the token that its owner received, for this one
//! sandbox. A URL of a file may have a signature instead.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::Next;
use axum::response::Response;
use stockade_api::{Caller, Problem, Sandbox, Sandboxes};
use stockade_core::{Code, SandboxId, State as SandboxState};

use super::body::AUTO_RESUME;
use super::failure::{expired_signature, not_running, refuse};
use super::files::PATH as FILES;
use super::lifecycle::wake;
use super::request::Query;
use super::signature::Signed;
use super::user::{User, name_of};
use super::{App, ENVD_PORT, ENVD_TOKEN, INTERPRETER_PORT, TRAFFIC_TOKEN};
use crate::admission::{Terms, admit};
use crate::auth::{Principal, Scope, TcpPeer, invalid_token};
use crate::inside::Target;
use crate::opensandbox::now;

/// The headers that name a sandbox and its port.
const SANDBOX_ID: &str = "e2b-sandbox-id";
const SANDBOX_PORT: &str = "e2b-sandbox-port";

/// Whether the server itself serves that port of a sandbox.
pub(crate) const fn serves_port(port: u16) -> bool {
    matches!(port, ENVD_PORT | INTERPRETER_PORT)
}

/// The port of a sandbox that a request addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Addressed {
    pub(crate) id: SandboxId,
    pub(crate) port: u16,
}

/// What decides about the access of a request.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    peer: Option<Arc<TcpPeer>>,
    named: Option<Addressed>,
}

impl Head {
    pub(crate) fn of(request: &Request) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            peer: request.extensions().get::<Arc<TcpPeer>>().cloned(),
            named: request.extensions().get::<Addressed>().cloned(),
        }
    }
}

impl Addressed {
    /// From the host name of the port, or from the headers; `None` if the request has neither.
    pub(crate) fn of(request: &Head) -> Result<Option<Self>, Problem> {
        if let Some(addressed) = &request.named {
            return Ok(Some(addressed.clone()));
        }
        let headers = &request.headers;
        let (id, port) = (one(headers, SANDBOX_ID)?, one(headers, SANDBOX_PORT)?);
        let Some(id) = id else { return Ok(None) };
        let id = SandboxId::new(id).map_err(|_| invalid_token())?;
        let port = match port {
            None => ENVD_PORT,
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
                Problem::new(Code::InvalidInput, format!("{port:?} is not a port"))
            })?,
        };
        Ok(Some(Self { id, port }))
    }
}

/// The value of a header that is there at most once.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let first =
        values.next().map(|value| value.to_str().map_err(|_| invalid_token())).transpose()?;
    if values.next().is_some() {
        return Err(invalid_token());
    }
    Ok(first.filter(|value| !value.is_empty()))
}

/// A request that may use a sandbox.
pub(super) struct Entered {
    pub(super) principal: Principal,
    pub(super) sandbox: Sandbox,
}

/// Why a request may not use a sandbox.
pub(super) enum Denied {
    Problem(Problem),
    /// The sandbox has ended or is paused.
    NotRunning(String),
    /// The time of a signed URL is over.
    Expired,
}

impl From<Problem> for Denied {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl Denied {
    pub(super) fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => refuse(problem),
            Self::NotRunning(id) => not_running(&id),
            Self::Expired => expired_signature(),
        }
    }
}

/// Checks the token of a request to a port of a sandbox, and resumes the sandbox if it is to be resumed.
pub(super) async fn check(
    app: &App,
    request: &Head,
    addressed: &Addressed,
) -> Result<Entered, Denied> {
    let (header, scope) = match addressed.port {
        ENVD_PORT => (ENVD_TOKEN, Scope::Envd),
        _ => (TRAFFIC_TOKEN, Scope::EveryPort),
    };
    let sent = one(&request.headers, header)?.map(str::to_owned);
    let token = match sent {
        None if !serves_port(addressed.port) => {
            app.auth.public_token(&*app.sandboxes, &addressed.id).await?
        }
        sent => sent,
    };
    let token = token.ok_or_else(invalid_token)?;
    check_token(app, request, &token, (&addressed.id, scope)).await
}

async fn check_token(
    app: &App,
    request: &Head,
    token: &str,
    (id, scope): (&SandboxId, Scope),
) -> Result<Entered, Denied> {
    let peer = request.peer.as_deref().ok_or_else(invalid_token)?;
    let checked = app.auth.check_token(&*app.sandboxes, peer, token, (id, scope)).await;
    let (principal, sandbox) = checked.map_err(|problem| match problem.code {
        Code::SandboxTerminated => {
            app.tokens.remove(id);
            Denied::NotRunning(id.to_string())
        }
        _ => Denied::Problem(problem),
    })?;
    if scope == Scope::Envd {
        app.tokens.add(id, token);
    }
    let sandbox = running(app, &principal, sandbox).await?;
    Ok(Entered { principal, sandbox })
}

/// The sandbox, if it runs or a request resumes it.
async fn running(app: &App, principal: &Principal, sandbox: Sandbox) -> Result<Sandbox, Denied> {
    let sandbox = resumed(&*app.sandboxes, &principal.caller, sandbox).await?;
    match sandbox.state {
        SandboxState::Running => Ok(sandbox),
        _ => Err(Denied::NotRunning(sandbox.id.to_string())),
    }
}

/// The sandbox, which is resumed if it is paused and a request is to do that.
pub(crate) async fn resumed(
    sandboxes: &dyn Sandboxes,
    caller: &Caller,
    sandbox: Sandbox,
) -> Result<Sandbox, Problem> {
    let is_paused = matches!(sandbox.state, SandboxState::Paused | SandboxState::Stopped);
    match is_paused && sandbox.metadata.contains_key(AUTO_RESUME) {
        true => wake(sandboxes, caller, &sandbox.id).await,
        false => Ok(sandbox),
    }
}

/// The middleware of the routes for commands and files.
pub(super) async fn enter(State(app): State<App>, request: Request, next: Next) -> Response {
    let head = Head::of(&request);
    let entered = entered(&app, &head).await;
    serve(app, (entered, head), request, next).await
}

/// The middleware of the routes for code.
pub(super) async fn enter_interpreter(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Response {
    let head = Head::of(&request);
    let entered = match Addressed::of(&head) {
        Ok(Some(addressed)) if addressed.port == INTERPRETER_PORT => {
            check(&app, &head, &addressed).await
        }
        Ok(Some(Addressed { port, .. })) => Err(wrong_port(port).into()),
        Ok(None) => Err(invalid_token().into()),
        Err(problem) => Err(problem.into()),
    };
    serve(app, (entered, head), request, next).await
}

/// Serves a request that may use a sandbox.
async fn serve(
    app: App,
    (entered, head): (Result<Entered, Denied>, Head),
    request: Request,
    next: Next,
) -> Response {
    let entered = match entered {
        Ok(entered) => entered,
        Err(denied) => return denied.into_response(),
    };
    let Entered { principal, sandbox } = entered;
    let this = &app;
    let serve = |principal: Principal, mut request: Request| async move {
        let caller = principal.caller;
        let target = Target { caller, sandbox: Arc::new(sandbox), identity: None };
        let user = match user(this, &target, &head).await {
            Ok(user) => user,
            Err(problem) => return refuse(problem),
        };
        request.extensions_mut().insert(target);
        request.extensions_mut().insert(user);
        next.run(request).await
    };
    let terms = Terms { refuse, ..Terms::OWN };
    admit(&app.watch, principal, request, terms, serve).await
}

async fn entered(app: &App, request: &Head) -> Result<Entered, Denied> {
    let addressed = Addressed::of(request)?;
    let is_file = request.uri.path() == FILES;
    let has_token = request.headers.contains_key(ENVD_TOKEN);
    match addressed {
        Some(Addressed { port, .. }) if port != ENVD_PORT => Err(wrong_port(port).into()),
        Some(addressed) if has_token || !is_file => check(app, request, &addressed).await,
        addressed if is_file && !has_token => signed(app, request, addressed).await,
        // Clients before 2.31 do not name a sandbox that they have connected to.
        _ => {
            let token = one(&request.headers, ENVD_TOKEN)?.ok_or_else(invalid_token)?;
            let mut id = app.tokens.sandbox_of(token);
            if id.is_none() {
                app.tokens.load(app).await?;
                id = app.tokens.sandbox_of(token);
            }
            let id = id.ok_or_else(invalid_token)?;
            check(app, request, &Addressed { id, port: ENVD_PORT }).await
        }
    }
}

fn wrong_port(port: u16) -> Problem {
    match port {
        INTERPRETER_PORT => Problem::new(Code::NotFound, "the port for code has no such path"),
        port => Problem::new(Code::NotFound, format!("port {port} has no such path of the server")),
    }
}

/// Checks the signature of the URL of a file.
async fn signed(
    app: &App,
    request: &Head,
    addressed: Option<Addressed>,
) -> Result<Entered, Denied> {
    let query = Query::parse(request.uri.query());
    let one = |name: &str| {
        query
            .one(name)
            .map_err(|refused| refused.0)
            .map(|value| value.unwrap_or_default().to_owned())
    };
    let (path, user, signature) = (one("path")?, one("username")?, one("signature")?);
    if signature.is_empty() {
        return Err(invalid_token().into());
    }
    let expiration = query.number("signature_expiration").map_err(|refused| refused.0)?;
    let is_read = request.method == Method::GET;
    let signed = Signed {
        path: &path,
        operation: if is_read { "read" } else { "write" },
        user: &user,
        signature: &signature,
        expiration,
    };
    let verified = signed.verify(app, now().as_ms() / 1000).await?;
    let (id, token) = verified.ok_or(Denied::Expired)?;
    if addressed.is_some_and(|addressed| addressed.id != id) {
        return Err(Problem::new(Code::Unauthenticated, "invalid signature").into());
    }
    check_token(app, request, &token, (&id, Scope::Envd)).await
}

/// The user inside that a request names.
async fn user(app: &App, target: &Target, request: &Head) -> Result<User, Problem> {
    let name = match name_of(&request.headers)? {
        Some(name) => Some(name),
        None if request.uri.path() == FILES => {
            let query = Query::parse(request.uri.query());
            query.one("username").map_err(|refused| refused.0)?.map(str::to_owned)
        }
        None => None,
    };
    User::find(&*app.sandboxes, target, name.as_deref()).await
}
