//! The caller of a request over TCP: the owner of its API key; or, as long as there are no keys, the
//! user of the server, if the kernel lists the other end of the connection as a socket of that user.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use stockade_api::{Caller, KeyDirectory, ListKeys, Problem, Sandboxes};
use stockade_core::{Code, Door};
use tokio::sync::OnceCell;

use super::lifetime::Lifetime;
use super::public::PublicPorts;
use super::{AuthError, Authenticate as _, Connection, Peer, SingleUser};

/// The headers in which clients send an API key.
pub(crate) const KEY_HEADERS: [&str; 2] = ["open-sandbox-api-key", "x-api-key"];
/// The scheme of an API key in the header `authorization`.
const BEARER: &str = "bearer ";
/// The file name of the program that connects on behalf of sandboxes.
const PROGRAM: &str = "stockade-server";

/// A connection over TCP.
#[derive(Debug)]
pub struct TcpPeer {
    /// The other end.
    pub address: SocketAddr,
    /// This end.
    pub own: SocketAddr,
    /// The user of the process at the other end, once it was determined.
    uid: OnceCell<Option<u32>>,
    lifetime: Arc<Lifetime>,
}

impl TcpPeer {
    /// A connection between two addresses.
    pub fn new(address: SocketAddr, own: SocketAddr) -> Self {
        Self { address, own, uid: OnceCell::const_new(), lifetime: Arc::default() }
    }

    /// The connection of a client to another server, which has handed a request over. It ends with this one.
    pub(crate) fn on_behalf(&self, address: SocketAddr, uid: Option<u32>) -> Self {
        let (own, lifetime) = (self.own, self.lifetime());
        Self { address, own, uid: OnceCell::new_with(Some(uid)), lifetime }
    }

    /// How long the connection may live.
    pub(crate) fn lifetime(&self) -> Arc<Lifetime> {
        Arc::clone(&self.lifetime)
    }

    /// The connection as the kernel describes it. A peer on another host has no user, nor does a
    /// process of Stockade itself: it may connect on behalf of a sandbox that is allowed to reach this
    /// port, and that has none of the user's rights.
    async fn describe(&self) -> Connection {
        let is_local = self.address.ip().to_canonical().is_loopback();
        let uid = self.uid.get_or_init(|| async {
            if !is_local {
                return None;
            }
            stockade_forward::find_user_of_program(self.address, self.own, PROGRAM).await
        });
        uid.await.map_or_else(Connection::default, |uid| Connection::from_peer(Peer { uid }))
    }
}

/// The caller of a request, and the API key that identified it.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    pub(crate) caller: Caller,
    /// The id of the key; absent for the user of the server.
    pub(crate) key: Option<String>,
}

impl Principal {
    /// The same principal, whose request came over this connection.
    fn over(mut self, peer: &TcpPeer) -> Self {
        let origin = &mut self.caller.origin;
        origin.door = Door::Http;
        origin.address = Some(peer.address.to_string());
        origin.key_id.clone_from(&self.key);
        self
    }
}

/// Who else than processes of this machine can reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nobody: it listens on the loopback.
    Loopback,
    /// Other machines.
    Network,
}

/// Authenticates requests over TCP.
#[derive(Debug)]
pub struct HttpAuth {
    keys: Arc<dyn KeyDirectory>,
    user: SingleUser,
    reach: Reach,
    pub(super) token_secret: [u8; 32],
    pub(super) public: PublicPorts,
}

impl HttpAuth {
    /// Authenticates with these keys, and this user as long as there are none.
    ///
    /// # Errors
    /// If the secret for access tokens cannot be read.
    pub async fn new(
        keys: Arc<dyn KeyDirectory>,
        user: SingleUser,
        reach: Reach,
    ) -> Result<Self, Problem> {
        let token_secret = keys.token_secret().await?;
        Ok(Self { keys, user, reach, token_secret, public: PublicPorts::default() })
    }

    /// The caller of a request.
    pub(crate) async fn principal(
        &self,
        headers: &HeaderMap,
        peer: &TcpPeer,
    ) -> Result<Principal, Problem> {
        let principal = match key_of(headers)? {
            Some(key) => {
                let key = self.keys.find_key(&key).await?.ok_or_else(invalid_key)?;
                from_key(key)
            }
            None if self.keys.has_keys().await? => return Err(missing_key()),
            // That a browser belongs to the user does not say that its pages do.
            None if is_of_page_elsewhere(headers) => return Err(missing_key()),
            None => {
                let mut user = self.user(peer).await?;
                // The kernel has named the user, who could use the socket as well.
                user.caller.remote = self.reach == Reach::Network || !is_from_here(headers);
                user
            }
        };
        Ok(self.over(principal, peer))
    }

    /// The user at the other end of a connection, if only that identifies the client.
    pub(crate) async fn user_without_keys(&self, peer: &TcpPeer) -> Result<Option<u32>, Problem> {
        match self.keys.has_keys().await? {
            true => Ok(None),
            false => Ok(peer.describe().await.peer.map(|peer| peer.uid)),
        }
    }

    /// Everyone who may use the server now: the owners of its keys, and its user as long as there are none.
    pub(crate) async fn principals(
        &self,
        sandboxes: &dyn Sandboxes,
    ) -> Result<Vec<Principal>, Problem> {
        let user = Caller::new(self.user.owner().clone());
        if !self.keys.has_keys().await? {
            return Ok(vec![Principal { caller: user.over_network(), key: None }]);
        }
        let keys = sandboxes.keys(&user.with_admin(), ListKeys { all: false }).await?;
        Ok(keys.keys.into_iter().map(from_key).collect())
    }

    /// The principal of the key with this id, if it may still be used.
    pub(super) async fn principal_of_key(
        &self,
        id: &str,
        peer: &TcpPeer,
    ) -> Result<Principal, Problem> {
        let key = self.keys.find_key_by_id(id).await?.ok_or_else(invalid_key)?;
        Ok(self.over(from_key(key), peer))
    }

    /// The same principal, whose request came over this connection, which ends with the key.
    fn over(&self, principal: Principal, peer: &TcpPeer) -> Principal {
        peer.lifetime.bind(&self.keys, principal.key.as_deref());
        principal.over(peer)
    }

    /// The user of the server, if the connection is from a process of that user.
    pub(super) async fn user(&self, peer: &TcpPeer) -> Result<Principal, Problem> {
        match self.user.caller(&peer.describe().await) {
            Ok(caller) => {
                let principal = Principal { caller: caller.over_network(), key: None };
                Ok(self.over(principal, peer))
            }
            Err(AuthError::Anonymous) => Err(missing_key().because(
                "there is none yet, and without one only a program of the server's user on its \
                 machine is served, and none that acts for a sandbox",
            )),
            Err(error) => Err(missing_key().because(error.to_string())),
        }
    }
}

fn from_key(key: stockade_api::ApiKey) -> Principal {
    let caller = Caller::new(key.owner_id).over_network();
    let caller = if key.admin { caller.with_admin() } else { caller };
    Principal { caller, key: Some(key.id) }
}

/// The API key of a request. Two different ones are refused: it would not be clear whose request it
/// is.
fn key_of(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut found: Option<String> = None;
    let bearer = headers.get_all("authorization").iter().map(|value| (value, true));
    let plain = KEY_HEADERS.iter().flat_map(|name| headers.get_all(*name));
    for (value, is_bearer) in plain.map(|value| (value, false)).chain(bearer) {
        let text = value.to_str().map_err(|_| invalid_key())?.trim();
        let key = if is_bearer {
            match text.get(..BEARER.len()) {
                Some(scheme) if scheme.eq_ignore_ascii_case(BEARER) => text[BEARER.len()..].trim(),
                _ => return Err(invalid_key()),
            }
        } else {
            text
        };
        // Clients without a key send an empty header.
        if key.is_empty() {
            continue;
        }
        match &found {
            Some(other) if other != key => return Err(invalid_key()),
            _ => found = Some(key.to_owned()),
        }
    }
    Ok(found)
}

/// The headers of a request that a browser sends, or that a proxy or tunnel relays. The program that
/// sends it is one of the user; who caused it is not known.
const RELAYED: [&str; 11] = [
    "cookie",
    "origin",
    "referer",
    // Browsers send these with each request; `sec-fetch-mode` also comes from programs for Node.js.
    "sec-fetch-dest",
    "sec-fetch-site",
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

/// The names of the loopback, which lead nowhere else.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Whether a request names a host of the loopback, and has no sign of a cause other than the program
/// that sends it.
fn is_from_here(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    LOOPBACK.contains(&name.map_or(host, |(name, _)| name))
        && RELAYED.iter().all(|name| !headers.contains_key(*name))
}

/// Whether a page of another origin has made a request.
fn is_of_page_elsewhere(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    headers.contains_key(header::ORIGIN)
        && text(header::ORIGIN).split_once("://").map(|(_, it)| it) != Some(text(header::HOST))
}

fn missing_key() -> Problem {
    Problem::new(Code::Unauthenticated, "the request has no API key")
        .remedied_by("stockade keys create")
}

pub(super) fn invalid_key() -> Problem {
    Problem::new(Code::Unauthenticated, "the API key is unknown, revoked or expired")
        .remedied_by("stockade keys create")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pairs: &[(&'static str, &str)]) -> Result<Option<String>, Code> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        key_of(&headers).map_err(|problem| problem.code)
    }

    #[test]
    fn only_a_program_that_names_the_loopback_is_from_here() {
        let is_from_here = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            super::is_from_here(&headers)
        };
        let host = ("host", "127.0.0.1:8080");
        assert!(is_from_here(&[host, ("user-agent", "OpenSandbox-Python-SDK/1.1.1")]));
        assert!(is_from_here(&[("host", "localhost"), ("sec-fetch-mode", "cors")]));
        for other in ["server.test", "host.stockade.internal:8080", "localhost.example", ""] {
            assert!(!is_from_here(&[("host", other)]), "{other}");
        }
        assert!(!is_from_here(&[]));
        for relayed in [
            ("origin", "http://localhost:8080"),
            ("cookie", "a=b"),
            ("sec-fetch-site", "none"),
            ("via", "1.1 tunnel"),
            ("x-forwarded-for", "9.9.9.9"),
        ] {
            assert!(!is_from_here(&[host, relayed]), "{relayed:?}");
        }
    }

    #[test]
    fn a_key_comes_in_the_headers_that_clients_send() {
        let some = Ok(Some("e2b_1".to_owned()));
        assert_eq!(key(&[]), Ok(None));
        assert_eq!(key(&[("x-api-key", "")]), Ok(None));
        assert_eq!(key(&[("open-sandbox-api-key", "e2b_1")]), some);
        assert_eq!(key(&[("x-api-key", " e2b_1 ")]), some);
        for scheme in ["Bearer", "bearer", "BEARER"] {
            assert_eq!(key(&[("authorization", &format!("{scheme} e2b_1"))]), some);
        }
        assert_eq!(key(&[("x-api-key", "e2b_1"), ("authorization", "Bearer e2b_1")]), some);
        for refused in [
            &[("x-api-key", "e2b_1"), ("open-sandbox-api-key", "e2b_2")][..],
            &[("x-api-key", "e2b_1"), ("x-api-key", "e2b_2")],
            &[("authorization", "Basic e2b_1")],
            &[("authorization", "e2b_1")],
            &[("authorization", "Bé e2b_1")],
        ] {
            assert_eq!(key(refused), Err(Code::Unauthenticated), "{refused:?}");
        }
    }
}
