//! Requests under the host name of a port. A browser needs a session, which is for this name alone; a
//! program may send an access token instead. Two paths below `/.stockade/` lead to a session; every
//! other path is that of the application inside.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use stockade_api::{CALLBACK_PATH, OPEN_PATH, Origin, PortGrant, PortName, Problem};
use stockade_core::{Code, Door, SandboxId, State};
use tower::ServiceExt as _;

use super::Web;
use super::login::{AUTHORIZE, challenge_of, random};
use super::reply::{Parameters, redirect, refusal};
use crate::admission::{Terms, admit};
use crate::auth::{Principal, Scope, TOKEN_HEADERS, TcpPeer, invalid_token};
use crate::cookies;
use crate::e2b;
use crate::failure::Failure;
use crate::relay::{Form, Unrelayed, relay};
use crate::renewal::renew;

/// What begins with this is not passed on.
const OWN_PATHS: &str = "/.stockade/";
/// How long a login may take, in seconds.
const LOGIN_SECONDS: u64 = 600;
/// The longest path to which a login returns.
const RETURN_BYTES: usize = 1024;

/// Serves a request to a port.
pub(super) async fn serve(
    web: &Web,
    name: PortName,
    authority: String,
    request: Request,
) -> Response {
    if let Some(port) = name.port.filter(|port| e2b::serves_port(*port)) {
        return serve_own(web, name.sandbox_id, port, request).await;
    }
    let (parts, body) = request.into_parts();
    let answered = match parts.uri.path() {
        OPEN_PATH | CALLBACK_PATH if parts.method != Method::GET => {
            Err(Problem::new(Code::InvalidInput, "this path has only the method GET"))
        }
        OPEN_PATH => open(web, &name, &parts).await,
        CALLBACK_PATH => callback(web, &name, &parts).await,
        path if path.starts_with(OWN_PATHS) => {
            Err(Problem::new(Code::NotFound, format!("there is no path {path}")))
        }
        _ => {
            let request = (parts, body);
            return pass_on(web, name, authority, request).await;
        }
    };
    answered.unwrap_or_else(|problem| refusal(&problem))
}

/// Serves a request to a port that the server itself has, for clients of E2B.
async fn serve_own(web: &Web, id: SandboxId, port: u16, mut request: Request) -> Response {
    request.extensions_mut().insert(e2b::Addressed { id, port });
    match web.e2b.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Exchanges the code of a link for a session.
async fn open(web: &Web, name: &PortName, request: &Parts) -> Result<Response, Problem> {
    // A page must not give its visitors a session of its own choice.
    let site = request.headers.get("sec-fetch-site");
    if site.is_some_and(|site| site != "none") {
        let message = "a link with a code is opened by its user, not by another page";
        return Err(Problem::new(Code::Forbidden, message)
            .remedied_by("copy the link to the address bar of the browser"));
    }
    if request.headers.contains_key("sec-purpose") {
        return Err(Problem::new(Code::Forbidden, "the link is not fetched in advance"));
    }
    let parameters = Parameters::parse(&request.uri)?;
    let path = parameters.get("path").unwrap_or("/");
    if !is_local_path(path) {
        return Err(Problem::new(Code::InvalidInput, "the path of the link is invalid"));
    }
    let code = parameters.required("code")?;
    let session = web.ports.redeem_code(name, code, None).await?;
    Ok(redirect(path, &[cookies::set(cookies::SESSION, &session.token, session.seconds)]))
}

/// Ends a login: this browser has started it, and has the code from it now.
async fn callback(web: &Web, name: &PortName, request: &Parts) -> Result<Response, Problem> {
    let parameters = Parameters::parse(&request.uri)?;
    let wrong = || {
        Problem::new(Code::InvalidInput, "the login was not started by this browser, or has ended")
            .remedied_by("open the address of the port again")
    };
    let started = cookies::own(&request.headers, cookies::LOGIN).and_then(Started::parse);
    let started = started.ok_or_else(wrong)?;
    let state = parameters.required("state")?;
    if blake3::hash(state.as_bytes()) != blake3::hash(started.state.as_bytes()) {
        return Err(wrong());
    }
    let code = parameters.required("code")?;
    let session = web.ports.redeem_code(name, code, Some(&started.verifier)).await?;
    let cookies = [
        cookies::set(cookies::SESSION, &session.token, session.seconds),
        cookies::set(cookies::LOGIN, "", 0),
    ];
    Ok(redirect(&started.path, &cookies))
}

/// What a browser remembers of the login that it has started, as a cookie.
struct Started {
    state: String,
    verifier: String,
    /// Where it returns to.
    path: String,
}

impl Started {
    fn parse(cookie: &str) -> Option<Self> {
        let mut parts = cookie.split('.');
        let (state, verifier, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = String::from_utf8(URL_SAFE_NO_PAD.decode(path).ok()?).ok()?;
        let is_complete = parts.next().is_none() && !state.is_empty() && is_local_path(&path);
        is_complete.then(|| Self { state: state.to_owned(), verifier: verifier.to_owned(), path })
    }

    fn cookie(&self) -> String {
        let Self { state, verifier, path } = self;
        format!("{state}.{verifier}.{}", URL_SAFE_NO_PAD.encode(path))
    }
}

/// Whether a text is a path of the same origin, for every browser.
fn is_local_path(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//")
        && !path.contains('\\')
        && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Passes a request on to the application, if it may.
async fn pass_on(
    web: &Web,
    name: PortName,
    authority: String,
    (request, body): (Parts, Body),
) -> Response {
    let form = Form::Host { scheme: web.site.scheme.clone(), authority: authority.clone() };
    let found = match grant(web, &name, &request).await {
        Ok(found) => found,
        // Only who may use the port learns that the sandbox has ended.
        Err(problem) if problem.code == Code::SandboxTerminated && is_in_words_of_e2b(&request) => {
            return e2b::not_running(name.sandbox_id.as_str());
        }
        Err(problem) => return Failure(problem).into_response(),
    };
    let Some(grant) = found else { return without_session(web, &name, &request) };
    // Only what a browser adds by itself could be used by the page of another site.
    if cookies::own(&request.headers, cookies::SESSION).is_some()
        && let Err(problem) = check_origin(&form, &request)
    {
        return Failure(problem).into_response();
    }
    let PortGrant { caller, sandbox, port } = grant;
    let principal = Principal { key: caller.origin.key_id.clone(), caller };
    let serve = |principal: Principal, request: Request| async move {
        let (sandboxes, caller) = (&*web.sandboxes, principal.caller);
        let headers = request.headers().clone();
        if let Err(problem) = renew(sandboxes, &caller, &sandbox, &headers).await {
            return Failure(problem).into_response();
        }
        let sandbox = match e2b::resumed(sandboxes, &caller, sandbox).await {
            Ok(sandbox) => sandbox,
            Err(problem) => return Failure(problem).into_response(),
        };
        if e2b::is_of_client(&sandbox) && sandbox.state != State::Running {
            return e2b::not_running(sandbox.id.as_str());
        }
        let grant = PortGrant { caller, sandbox: sandbox.clone(), port };
        let relayed = relay(sandboxes, &web.ports, grant, &form, request).await;
        relayed.unwrap_or_else(|unrelayed| match unrelayed {
            Unrelayed::Closed(_) if e2b::is_of_client(&sandbox) => {
                e2b::closed_port(&sandbox, port, &headers)
            }
            other => Failure::from(other).into_response(),
        })
    };
    let request = Request::from_parts(request, body);
    admit(&web.watch, principal, request, Terms::RELAYED, serve).await
}

/// Whether a request has the token of E2B's clients, or none because the ports of the sandbox are public.
fn is_in_words_of_e2b(request: &Parts) -> bool {
    TOKEN_HEADERS.iter().all(|name| !request.headers.contains_key(*name))
}

/// The port that a request may use: by its token, or by its session.
async fn grant(web: &Web, name: &PortName, request: &Parts) -> Result<Option<PortGrant>, Problem> {
    let headers = &request.headers;
    // One that is wrong is refused, whatever else the request has.
    if TOKEN_HEADERS.iter().any(|name| headers.contains_key(*name)) {
        let [.., header] = TOKEN_HEADERS;
        let port = name.port.ok_or_else(invalid_token)?;
        return by_token(web, name, request, (header, Scope::Port(port))).await.map(Some);
    }
    if headers.contains_key(e2b::TRAFFIC_TOKEN) {
        let place = (e2b::TRAFFIC_TOKEN, Scope::EveryPort);
        return by_token(web, name, request, place).await.map(Some);
    }
    match cookies::own(headers, cookies::SESSION) {
        Some(token) => {
            let found = web.ports.find_session(name, token).await?;
            match found {
                Some(grant) => Ok(Some(from_browser(grant, request))),
                None => public(web, name, request).await,
            }
        }
        None => public(web, name, request).await,
    }
}

/// The port, if everyone may use those of its sandbox.
async fn public(web: &Web, name: &PortName, request: &Parts) -> Result<Option<PortGrant>, Problem> {
    let Some(port) = name.port else { return Ok(None) };
    match web.auth.public_token(&*web.sandboxes, &name.sandbox_id).await? {
        Some(token) => {
            checked(web, name, request, (&token, Scope::EveryPort, port)).await.map(Some)
        }
        None => Ok(None),
    }
}

/// A port that a browser may use, with where its request came from.
fn from_browser(mut grant: PortGrant, request: &Parts) -> PortGrant {
    let peer = request.extensions.get::<Arc<TcpPeer>>();
    let address = peer.map(|peer| peer.address.to_string());
    grant.caller.origin = Origin { door: Door::Web, address, ..Origin::default() };
    grant
}

/// The port of the access token in a header, which has that scope.
async fn by_token(
    web: &Web,
    name: &PortName,
    request: &Parts,
    (header, scope): (&str, Scope),
) -> Result<PortGrant, Problem> {
    let mut values = request.headers.get_all(header).iter();
    let token = values.next().and_then(|value| value.to_str().ok()).ok_or_else(invalid_token)?;
    let port = name.port.ok_or_else(invalid_token)?;
    if values.next().is_some() {
        return Err(invalid_token());
    }
    checked(web, name, request, (token, scope, port)).await
}

/// The port of an access token, which has that scope.
async fn checked(
    web: &Web,
    name: &PortName,
    request: &Parts,
    (token, scope, port): (&str, Scope, u16),
) -> Result<PortGrant, Problem> {
    let peer = request.extensions.get::<Arc<TcpPeer>>().ok_or_else(invalid_token)?;
    let target = (&name.sandbox_id, scope);
    let checked = web.auth.check_token(&*web.sandboxes, peer, token, target).await;
    let (principal, sandbox) = checked?;
    let port = web.ports.check_port(&sandbox, Some(port))?;
    Ok(PortGrant { caller: principal.caller, sandbox, port })
}

/// Refuses what the page of another site has caused, except that it is shown.
fn check_origin(form: &Form, request: &Parts) -> Result<(), Problem> {
    let Form::Host { scheme, authority } = form else { return Ok(()) };
    let headers = &request.headers;
    let own = format!("{scheme}://{authority}");
    let is_own = |origin: &axum::http::HeaderValue| {
        origin.to_str().is_ok_and(|origin| origin.eq_ignore_ascii_case(&own))
    };
    let is_foreign = headers.get_all(header::ORIGIN).iter().any(|origin| !is_own(origin));
    let site = headers.get("sec-fetch-site").map(axum::http::HeaderValue::as_bytes);
    let is_same_site = matches!(site, None | Some(b"same-origin" | b"none"));
    if !is_foreign && (is_same_site || is_navigation(request)) {
        return Ok(());
    }
    Err(Problem::new(Code::Forbidden, "the request comes from a web page of another origin"))
}

/// Whether a browser shows the response as a page.
fn is_navigation(request: &Parts) -> bool {
    let headers = &request.headers;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if request.method != Method::GET || headers.contains_key(header::UPGRADE) {
        return false;
    }
    match text("sec-fetch-mode") {
        Some(mode) => mode == "navigate" && text("sec-fetch-dest") == Some("document"),
        None => accepts_html(headers),
    }
}

fn accepts_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// The response to a request without a session: a browser is sent to a login.
fn without_session(web: &Web, name: &PortName, request: &Parts) -> Response {
    let missing = Problem::new(Code::Unauthenticated, "the request has no session with this port");
    let id = &name.sandbox_id;
    let missing = match name.port {
        Some(port) => missing.remedied_by(format!("stockade open {id} {port}")),
        None => missing.remedied_by(format!("stockade open {id}")),
    };
    if !is_navigation(request) {
        return Failure(missing).into_response();
    }
    let (Some(_), Some(origin)) = (&web.logins, web.site.origin(name)) else {
        return refusal(&missing);
    };
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path.len() <= RETURN_BYTES && is_local_path(path) { path } else { "/" };
    let (state, verifier) = match (random(), random()) {
        (Ok(state), Ok(verifier)) => (state, verifier),
        (Err(problem), _) | (_, Err(problem)) => return refusal(&problem),
    };
    let query = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("response_type", "code")
        .append_pair("client_id", &name.to_string())
        .append_pair("redirect_uri", &format!("{origin}{CALLBACK_PATH}"))
        .append_pair("state", &state)
        .append_pair("code_challenge", &challenge_of(&verifier))
        .append_pair("code_challenge_method", "S256")
        .finish();
    let started = Started { state, verifier, path: path.to_owned() };
    let cookie = cookies::set(cookies::LOGIN, &started.cookie(), LOGIN_SECONDS);
    redirect(&format!("{}{AUTHORIZE}?{query}", web.public_origin), &[cookie])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_returns_to_a_path_of_the_same_origin() {
        let started = |path: &str| Started {
            state: "s".to_owned(),
            verifier: "v".to_owned(),
            path: path.to_owned(),
        };
        let parsed = Started::parse(&started("/a?b=c").cookie()).unwrap();
        assert_eq!((parsed.state.as_str(), parsed.path.as_str()), ("s", "/a?b=c"));
        for path in ["", "a", "//evil.example", "/\\evil.example", "https://evil.example", "/\n"] {
            assert!(Started::parse(&started(path).cookie()).is_none(), "{path}");
        }
        for cookie in ["", "s.v", "s.v.?", ".v.Lw", "s.v.Lw.x"] {
            assert!(Started::parse(cookie).is_none(), "{cookie}");
        }
    }

    #[test]
    fn pages_of_other_origins_may_only_show_a_page() {
        let form =
            Form::Host { scheme: "http".to_owned(), authority: "80-a.localhost:1".to_owned() };
        let allowed = |method: &str, pairs: &[(&'static str, &str)]| {
            let mut request = axum::http::Request::builder().method(method).uri("/x");
            for (name, value) in pairs {
                request = request.header(*name, *value);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            check_origin(&form, &parts).is_ok()
        };
        let own = ("origin", "http://80-a.localhost:1");
        let navigation = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        let cross = ("sec-fetch-site", "cross-site");
        assert!(allowed("GET", &[]));
        assert!(allowed("POST", &[own, ("sec-fetch-site", "same-origin")]));
        assert!(allowed("GET", &[cross, navigation[0], navigation[1]]));
        for (method, pairs) in [
            ("POST", vec![cross, navigation[0], navigation[1]]),
            ("GET", vec![cross]),
            ("GET", vec![("sec-fetch-site", "same-site")]),
            (
                "GET",
                vec![
                    ("sec-fetch-site", "same-site"),
                    ("accept", "text/html"),
                    ("upgrade", "websocket"),
                ],
            ),
            ("GET", vec![cross, navigation[0], ("sec-fetch-dest", "iframe")]),
            ("GET", vec![("origin", "http://81-a.localhost:1")]),
            ("GET", vec![("origin", "null")]),
            ("GET", vec![own, ("origin", "http://evil.example")]),
            ("GET", vec![("origin", "https://80-a.localhost:1")]),
        ] {
            assert!(!allowed(method, &pairs), "{method} {pairs:?}");
        }
    }
}
