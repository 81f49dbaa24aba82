//! `open_port`, and what a server asks about browsers and links ([`PortAccess`]). Codes and tokens of
//! sessions are random, so a fast hash protects them; they are stored nowhere else.

use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use stockade_api::{
    BrowserSession, Caller, LinkKey, OPEN_PATH, OpenPort, OpenedPort, PortAccess, PortGrant,
    PortName, PortSite, Proxy, Result, Sandbox,
};
use stockade_core::{Code, Operation, OwnerId, Problem, State};

use crate::clock::{now_ms, timestamp};
use crate::failure::{invalid, store_problem};
use crate::owned_sandbox::OwnedSandbox;
use crate::random::random;
use crate::service::Service;
use crate::shared_link_keys;
use crate::store::browser::{self, BrowserRow};
use crate::store::{audit, events, sandboxes};

/// How long a code can be used.
const CODE_MS: i64 = 60_000;
/// How long a session lasts.
const SESSION_SECONDS: u64 = 12 * 60 * 60;
/// How often an open connection is checked, beside each time that something happens to a sandbox.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The longest path of a link.
const PATH_BYTES: usize = 2048;
/// Distinguishes the hashes of codes and sessions from all others.
const HASH_DOMAIN: &str = "stockade 2026-11 hash of a browser's code or session";

impl Service {
    /// Browsers reach the ports of sandboxes there from now on.
    pub fn set_port_site(&self, site: PortSite) {
        // There is one listener over TCP.
        let _ = self.inner.site.set(site);
    }
}

/// Creates a link that works once.
pub(crate) async fn open(
    service: &Service,
    caller: &Caller,
    request: OpenPort,
) -> Result<OpenedPort> {
    let owned = service.owned_sandbox(caller, &request.sandbox_id, Operation::Use).await?;
    let port = reachable(&owned.id.to_string(), owned.request.proxy.as_ref(), request.port)?;
    let site = service.inner.site.get().ok_or_else(|| {
        Problem::new(Code::Unsupported, "no server listens for browsers on this data directory")
            .remedied_by("stockade serve")
    })?;
    // The default port has a name of its own, unless that would be read as another one.
    let default = PortName { sandbox_id: request.sandbox_id, port: request.port };
    let named = PortName { port: Some(port), ..default.clone() };
    let name = if default.label().is_some() { default } else { named };
    let origin = site.origin(&name).ok_or_else(|| {
        invalid(format!("the name {name} is too long for a host name"))
            .remedied_by("use a sandbox with a shorter id")
    })?;
    let path = request.path.unwrap_or_else(|| "/".to_owned());
    if !is_local_path(&path) {
        return Err(invalid(format!("{path:?} is not a path that starts with one `/`")));
    }
    let code = service.create_code(&caller.owner, &name, None).await?;
    let mut url = format!("{origin}{OPEN_PATH}?code={code}");
    if path != "/" {
        url.push_str(&format!("&path={}", percent_encode(&path)));
    }
    let expires_at = timestamp(now_ms().saturating_add(CODE_MS));
    Ok(OpenedPort { sandbox_id: name.sandbox_id, port, url, expires_at })
}

/// Whether a text is a path of the same origin, for every browser.
fn is_local_path(path: &str) -> bool {
    path.len() <= PATH_BYTES
        && path.starts_with('/')
        && !path.starts_with("//")
        && !path.contains(['\\', '#'])
        && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Encodes what has a meaning in a query.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The port of a sandbox that may be reached.
fn reachable(id: &str, proxy: Option<&Proxy>, port: Option<u16>) -> Result<u16> {
    let default = proxy.and_then(|proxy| proxy.default_port);
    let port = port.or(default).ok_or_else(|| {
        Problem::new(Code::NotFound, format!("the sandbox {id} has no default port"))
            .remedied_by("name a port")
    })?;
    let exposed = proxy.is_none_or(|proxy| proxy.exposed_ports.contains(&port));
    if port == 0 || !exposed {
        let message = format!("port {port} of the sandbox {id} is not an exposed port");
        return Err(Problem::new(Code::NotFound, message)
            .because("the sandbox was created with a list of the ports that may be reached"));
    }
    Ok(port)
}

#[async_trait]
impl PortAccess for Service {
    fn check_port(&self, sandbox: &Sandbox, port: Option<u16>) -> Result<u16> {
        reachable(sandbox.id.as_str(), sandbox.proxy.as_ref(), port)
    }

    async fn wait_until_closed(&self, caller: &Caller, sandbox: &Sandbox) {
        let mut changed = self.engine.subscribe(events::TOPIC);
        let mut stopped = self.inner.stopped();
        loop {
            let found = sandboxes::find(&*self.inner.store, &sandbox.id).await;
            let is_open = match &found {
                Ok(Some(row)) => {
                    row.owner == caller.owner
                        && row.state == State::Running
                        && timestamp(row.created_at) == sandbox.created_at
                }
                Ok(None) => false,
                // The database is busy; the next check decides.
                Err(_) => true,
            };
            if !is_open {
                return;
            }
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => return,
                _ = tokio::time::timeout(CHECK_INTERVAL, changed.changed()) => {}
            }
        }
    }

    async fn newest_link_key(&self) -> Result<LinkKey> {
        match self.inner.options.cluster {
            Some(_) => shared_link_keys::newest(&*self.inner.store).await,
            None => self.inner.link_keys.newest(self.inner.options.home.as_ref()).await,
        }
    }

    async fn find_link_key(&self, id: &str) -> Result<Option<LinkKey>> {
        match self.inner.options.cluster {
            Some(_) => shared_link_keys::find(&*self.inner.store, id).await,
            None => self.inner.link_keys.find(self.inner.options.home.as_ref(), id).await,
        }
    }

    async fn create_code(
        &self,
        owner: &OwnerId,
        name: &PortName,
        challenge: Option<&str>,
    ) -> Result<String> {
        let store = &*self.inner.store;
        let owned = OwnedSandbox::check(store, owner, &name.sandbox_id).await?;
        reachable(owned.id.as_str(), owned.request.proxy.as_ref(), name.port)?;
        let code = new_token()?;
        let now = now_ms();
        let row = BrowserRow {
            site: name.to_string(),
            owner: owner.clone(),
            sandbox_created_at: owned.created_at,
            expires_at: now.saturating_add(CODE_MS),
        };
        let mut statements = browser::remove_expired(now);
        statements.push(browser::insert_code(&hash_of(&code), &row, challenge));
        store.execute(statements).await.map_err(store_problem)?;
        Ok(code)
    }

    async fn redeem_code(
        &self,
        name: &PortName,
        code: &str,
        verifier: Option<&str>,
    ) -> Result<BrowserSession> {
        let store = &*self.inner.store;
        let hash = hash_of(code);
        let found = browser::find_code(store, &hash).await?.ok_or_else(invalid_grant)?;
        if let Some(session) = &found.session_hash {
            // Somebody else has the code too: neither gets a session.
            let ended = store.execute(vec![browser::remove_session(session)]).await;
            ended.map_err(store_problem)?;
            return Err(invalid_grant());
        }
        let is_holder = match (&found.challenge, verifier) {
            (None, None) => true,
            (Some(challenge), Some(verifier)) => *challenge == challenge_of(verifier),
            _ => false,
        };
        let now = now_ms();
        if found.row.site != name.to_string() || !is_holder || found.row.expires_at <= now {
            return Err(invalid_grant());
        }
        let token = new_token()?;
        let session_hash = hash_of(&token);
        let lasts = i64::try_from(SESSION_SECONDS * 1000).unwrap_or(i64::MAX);
        let row = BrowserRow { expires_at: now.saturating_add(lasts), ..found.row };
        let statements = vec![
            browser::use_code(&hash, &session_hash, now),
            browser::insert_session(&session_hash, &row),
            audit::login(&row.owner, &row.site, self.inner.host()),
        ];
        store.execute(statements).await.map_err(|error| match store_problem(error) {
            // Another request was faster.
            problem if problem.code == Code::Conflict => invalid_grant(),
            problem => problem,
        })?;
        Ok(BrowserSession { token, seconds: SESSION_SECONDS })
    }

    async fn find_session(&self, name: &PortName, token: &str) -> Result<Option<PortGrant>> {
        let store = &*self.inner.store;
        let hash = hash_of(token);
        let Some(session) = browser::find_session(store, &hash, now_ms()).await? else {
            return Ok(None);
        };
        if session.site != name.to_string() {
            return Ok(None);
        }
        let owned = match OwnedSandbox::check(store, &session.owner, &name.sandbox_id).await {
            Ok(owned) => owned,
            Err(problem) if problem.code == Code::NotFound => return Ok(None),
            Err(problem) => return Err(problem),
        };
        if owned.created_at != session.sandbox_created_at {
            return Ok(None);
        }
        let port = reachable(owned.id.as_str(), owned.request.proxy.as_ref(), name.port)?;
        let sandbox = owned.to_sandbox(None);
        let caller = Caller::new(session.owner).over_network();
        Ok(Some(PortGrant { caller, sandbox, port }))
    }
}

/// The problem of a code that cannot be used (RFC 6749, section 5.2).
fn invalid_grant() -> Problem {
    Problem::new(Code::InvalidInput, "invalid_grant: the code is unknown, used or expired")
        .because("a link opens a port once, within a minute")
        .remedied_by("stockade open ID")
}

/// The challenge of a verifier (RFC 7636, `S256`).
fn challenge_of(verifier: &str) -> String {
    use sha2::Digest as _;
    URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(verifier.as_bytes()))
}

fn new_token() -> Result<String> {
    Ok(URL_SAFE_NO_PAD.encode(random::<32>()?))
}

fn hash_of(token: &str) -> String {
    blake3::Hash::from(blake3::derive_key(HASH_DOMAIN, token.as_bytes())).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_that_of_rfc_7636() {
        let challenge = challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn only_exposed_ports_are_reachable() {
        let proxy = |default_port, exposed: &[u16]| Proxy {
            default_port,
            exposed_ports: exposed.iter().copied().collect(),
        };
        let code = |proxy: Option<&Proxy>, port| reachable("a", proxy, port).map_err(|it| it.code);
        assert_eq!(code(None, Some(22)), Ok(22));
        assert_eq!(code(None, None), Err(Code::NotFound));
        let web = proxy(Some(3000), &[3000, 8080]);
        assert_eq!(code(Some(&web), None), Ok(3000));
        assert_eq!(code(Some(&web), Some(8080)), Ok(8080));
        assert_eq!(code(Some(&web), Some(22)), Err(Code::NotFound));
        assert_eq!(code(Some(&proxy(None, &[])), Some(22)), Err(Code::NotFound));
    }

    #[test]
    fn a_link_leads_to_its_own_origin() {
        for path in ["/", "/a?b=c&d", "/a//b", "/%2e%2e/"] {
            assert!(is_local_path(path), "{path}");
        }
        for path in ["", "a", "//evil.example", "/\\evil.example", "/a b", "/a#b", "/a\n"] {
            assert!(!is_local_path(path), "{path}");
        }
        assert_eq!(percent_encode("/a?b=c&d"), "/a%3Fb%3Dc%26d");
    }
}
