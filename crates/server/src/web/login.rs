//! Logins, under the public name of the server. The host name of a port sends a browser here, with a
//! challenge of its own (OAuth 2.1, with PKCE); the browser is sent on to the OpenID provider, comes back,
//! and gets a code for the port. `provider` speaks with the OpenID provider.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use stockade_api::{CALLBACK_PATH, PortName, Problem};
use stockade_core::Code;

use super::Web;
use super::provider::{Attempt, LoginOptions, Provider};
use super::reply::{Parameters, redirect, refusal};
use crate::cookies;

/// What begins with this belongs to logins.
pub(super) const PATHS: &str = "/auth/";
/// Where a login starts.
pub(super) const AUTHORIZE: &str = "/auth/authorize";
/// Where the OpenID provider sends the browser.
pub(super) const CALLBACK: &str = "/auth/callback";
/// How long a login may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(600);
/// How many logins may be in progress.
const LOGINS: usize = 10_000;
/// The longest state of a client.
const STATE_BYTES: usize = 512;
/// The length of a challenge: a hash of 32 bytes.
const CHALLENGE_BYTES: usize = 43;

/// The logins in progress.
#[derive(Debug)]
pub(super) struct Logins {
    provider: Provider,
    pending: Mutex<HashMap<String, Pending>>,
}

/// A login in progress. Its key is the state that the OpenID provider returns.
#[derive(Debug)]
struct Pending {
    attempt: Attempt,
    client: Client,
    /// The hash of the cookie of the browser that has started it.
    browser: blake3::Hash,
    started: Instant,
}

/// The host name of a port that wants to know who its user is.
#[derive(Debug)]
struct Client {
    name: PortName,
    redirect_uri: String,
    state: String,
    challenge: String,
}

impl Logins {
    pub(super) fn new(options: LoginOptions, public_origin: &str) -> Result<Self, Problem> {
        let provider = Provider::new(options, &format!("{public_origin}{CALLBACK}"))?;
        Ok(Self { provider, pending: Mutex::default() })
    }

    /// Serves a request to one of the paths.
    pub(super) async fn serve(&self, web: &Web, host: &str, request: &Parts) -> Response {
        let answered = async {
            // Cookies and the addresses that are known to the provider are for this name alone.
            let own = web.public_origin.split_once("://").map_or("", |(_, own)| own);
            if !host.eq_ignore_ascii_case(own) {
                let message = format!("logins are at {}", web.public_origin);
                return Err(Problem::new(Code::Forbidden, message));
            }
            if request.method != Method::GET {
                return Err(Problem::new(Code::InvalidInput, "a login has only the method GET"));
            }
            match request.uri.path() {
                AUTHORIZE => self.start(web, request).await,
                CALLBACK => self.finish(web, request).await,
                path => Err(Problem::new(Code::NotFound, format!("there is no path {path}"))),
            }
        };
        answered.await.unwrap_or_else(|problem| refusal(&problem))
    }

    async fn start(&self, web: &Web, request: &Parts) -> Result<Response, Problem> {
        let client = Client::parse(web, &Parameters::parse(&request.uri)?)?;
        // Another login of the same browser continues.
        let cookie = cookies::own(&request.headers, cookies::LOGIN)
            .filter(|cookie| cookie.len() == CHALLENGE_BYTES);
        let cookie = cookie.map_or_else(random, |cookie| Ok(cookie.to_owned()))?;
        let (location, state, attempt) = self.provider.start().await?;
        let browser = blake3::hash(cookie.as_bytes());
        let pending = Pending { attempt, client, browser, started: Instant::now() };
        {
            let mut all = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, pending| pending.started.elapsed() < LOGIN_TIMEOUT);
            if all.len() >= LOGINS {
                let message = "too many logins are in progress";
                return Err(Problem::new(Code::QuotaExceeded, message).remedied_by("retry later"));
            }
            all.insert(state, pending);
        }
        let cookie = cookies::set(cookies::LOGIN, &cookie, LOGIN_TIMEOUT.as_secs());
        Ok(redirect(&location, &[cookie]))
    }

    async fn finish(&self, web: &Web, request: &Parts) -> Result<Response, Problem> {
        let parameters = Parameters::parse(&request.uri)?;
        let state = parameters.required("state")?;
        let wrong = || {
            Problem::new(
                Code::InvalidInput,
                "the login was not started by this browser, or has ended",
            )
            .remedied_by("open the address of the port again")
        };
        // Each state is used once, whatever follows.
        let found = {
            let mut all = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            all.remove(state)
        };
        let pending = found.filter(|it| it.started.elapsed() < LOGIN_TIMEOUT).ok_or_else(wrong)?;
        let cookie = cookies::own(&request.headers, cookies::LOGIN).ok_or_else(wrong)?;
        // Hashes are compared in constant time.
        if blake3::hash(cookie.as_bytes()) != pending.browser {
            return Err(wrong());
        }
        if let Some(error) = parameters.get("error") {
            let error: String = error.chars().take(100).filter(|it| !it.is_control()).collect();
            let message = format!("the OpenID provider has refused the login: {error}");
            return Err(Problem::new(Code::Forbidden, message));
        }
        let code = parameters.required("code")?;
        let issuer = parameters.get("iss");
        let owner = self.provider.finish(code, issuer, pending.attempt).await?;
        let Client { name, redirect_uri, state, challenge } = pending.client;
        let code = web.ports.create_code(&owner, &name, Some(&challenge)).await?;
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("code", &code)
            .append_pair("state", &state)
            .finish();
        Ok(redirect(&format!("{redirect_uri}?{query}"), &[]))
    }
}

impl Client {
    /// Parses the request of a host name. A redirect leads to that host name or nowhere.
    fn parse(web: &Web, parameters: &Parameters) -> Result<Self, Problem> {
        let invalid = |message: &str| Problem::new(Code::InvalidInput, message);
        if parameters.required("response_type")? != "code" {
            return Err(invalid("the response type must be `code`"));
        }
        if parameters.required("code_challenge_method")? != "S256" {
            return Err(invalid("the challenge method must be `S256`"));
        }
        let challenge = parameters.required("code_challenge")?;
        let is_hash = challenge.len() == CHALLENGE_BYTES
            && URL_SAFE_NO_PAD.decode(challenge).is_ok_and(|hash| hash.len() == 32);
        if !is_hash {
            return Err(invalid("the challenge is no hash with SHA-256"));
        }
        let name = PortName::parse(parameters.required("client_id")?);
        let origin = name.as_ref().and_then(|name| web.site.origin(name));
        let (Some(name), Some(origin)) = (name, origin) else {
            return Err(invalid("the client is no port of a sandbox"));
        };
        let redirect_uri = format!("{origin}{CALLBACK_PATH}");
        if parameters.required("redirect_uri")? != redirect_uri {
            return Err(invalid("the address to return to is not that of the client"));
        }
        let state = parameters.required("state")?;
        if state.len() > STATE_BYTES {
            return Err(invalid("the state is too long"));
        }
        let (state, challenge) = (state.to_owned(), challenge.to_owned());
        Ok(Self { name, redirect_uri, state, challenge })
    }
}

/// A random value of 32 bytes, in a form for addresses and cookies.
pub(super) fn random() -> Result<String, Problem> {
    let mut bytes = [0_u8; 32];
    match rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) {
        Ok(32) => Ok(URL_SAFE_NO_PAD.encode(bytes)),
        Ok(_) => Err(Problem::new(Code::Io, "the kernel gave too few random bytes")),
        Err(errno) => Err(Problem::caused(Code::Io, &errno)),
    }
}

/// The challenge of a verifier (RFC 7636, `S256`).
pub(super) fn challenge_of(verifier: &str) -> String {
    use sha2::Digest as _;
    URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(verifier.as_bytes()))
}
