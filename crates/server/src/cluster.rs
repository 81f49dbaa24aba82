//! Requests that another server of the cluster passes on: the dialect of `local`, below a prefix of its own.
//! The other server has authenticated the caller, and names it in a header that it seals with the secret
//! that all servers of the cluster have. What is served here is never passed on again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stockade_api::wire::{CLUSTER_PREFIX, FORWARDED_HEADER, VERSION, VERSION_HEADER};
use stockade_api::{Caller, Origin};
use stockade_core::{Code, Door, OwnerId, Problem};

use crate::handover_hosts::Hosts;
use crate::local;

/// What the key is for: another use of the same secret gives another key.
const PURPOSE: &str = "stockade 2026 caller of a request that a server passes on";
/// The same for requests that another server serves as a whole.
const HANDOVER_PURPOSE: &str = "stockade 2026 request that a server hands over";
/// The shortest secret, in bytes.
const SECRET_BYTES: usize = 32;
/// How long a seal is accepted after it was made, and how far the clocks of two servers may be apart.
const VALID_MS: i64 = 60_000;
/// The most seals that are remembered. It bounds the memory, not the rate: a seal is made for each request.
const MAX_SEEN: usize = 1 << 18;

/// The secret that the servers of a cluster have in common.
#[derive(Clone)]
pub struct ClusterSecret([u8; 32]);

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret")
    }
}

/// A caller as one server names it to another one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedCaller {
    /// The id of the server that is to execute the request.
    to: String,
    /// Different for each request.
    id: String,
    /// When it was made, in milliseconds since 1970.
    at: i64,
    owner: OwnerId,
    flow_owner: Option<OwnerId>,
    admin: bool,
    remote: bool,
    door: Door,
    uid: Option<u32>,
    key_id: Option<String>,
    address: Option<String>,
    request_id: Option<String>,
}

impl ClusterSecret {
    /// The secret with this text.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] if it is too short to be a secret.
    pub fn new(text: &[u8]) -> Result<Self, Problem> {
        let text = text.trim_ascii();
        if text.len() < SECRET_BYTES {
            let message = format!("the secret of the cluster has less than {SECRET_BYTES} bytes");
            return Err(Problem::new(Code::InvalidInput, message)
                .remedied_by("(umask 077 && openssl rand -hex 32 > cluster-secret)"));
        }
        Ok(Self(blake3::derive_key(PURPOSE, text)))
    }

    /// The header that names a caller to the server with this id.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn seal(&self, caller: &Caller, to: &str) -> Result<String, Problem> {
        let Origin { door, uid, key_id, address, request_id } = caller.origin.clone();
        let sealed = SealedCaller {
            to: to.to_owned(),
            id: uuid::Uuid::new_v4().simple().to_string(),
            at: now_ms(),
            owner: caller.owner.clone(),
            flow_owner: caller.flow_owner.clone(),
            admin: caller.admin,
            remote: caller.remote,
            door,
            uid,
            key_id,
            address,
            request_id,
        };
        let text = serde_json::to_vec(&sealed).map_err(|error| {
            Problem::new(Code::Io, "the caller cannot be written").because(error.to_string())
        })?;
        let seal = blake3::keyed_hash(&self.0, &text);
        Ok(format!("{}.{}", URL_SAFE_NO_PAD.encode(&text), seal.to_hex()))
    }

    /// What a header names, if it was sealed with this secret.
    fn open(&self, header: &str) -> Option<SealedCaller> {
        open(&self.0, header)
    }
}

impl ClusterSecret {
    /// The header of a request that another server is to serve.
    pub(crate) fn seal_handover(&self, sealed: &impl Serialize) -> Result<HeaderValue, Problem> {
        let unwritable =
            |why: String| Problem::new(Code::Io, "the request cannot be handed over").because(why);
        let text = serde_json::to_vec(sealed).map_err(|error| unwritable(error.to_string()))?;
        let seal = blake3::keyed_hash(&self.for_handovers(), &text);
        let header = format!("{}.{}", URL_SAFE_NO_PAD.encode(&text), seal.to_hex());
        let mut value =
            HeaderValue::try_from(header).map_err(|error| unwritable(error.to_string()))?;
        // It is not printed by `Debug`.
        value.set_sensitive(true);
        Ok(value)
    }

    /// What such a header names, if it was sealed with this secret.
    pub(crate) fn open_handover<T: DeserializeOwned>(&self, header: &str) -> Option<T> {
        open(&self.for_handovers(), header)
    }

    /// The key of another use: what is sealed for one opens for no other.
    fn for_handovers(&self) -> [u8; 32] {
        blake3::derive_key(HANDOVER_PURPOSE, &self.0)
    }
}

/// What was sealed with a key.
fn open<T: DeserializeOwned>(key: &[u8; 32], header: &str) -> Option<T> {
    let (text, seal) = header.split_once('.')?;
    let text = URL_SAFE_NO_PAD.decode(text).ok()?;
    let seal = blake3::Hash::from_hex(seal).ok()?;
    // Hashes are compared in constant time.
    if seal != blake3::keyed_hash(key, &text) {
        return None;
    }
    serde_json::from_slice(&text).ok()
}

/// What this server serves to the others of its cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The other servers.
    pub hosts: Arc<dyn Hosts>,
    /// The operations, none of which is passed on.
    pub operations: local::Operations,
    /// The common secret.
    pub secret: ClusterSecret,
    /// The id of this server.
    pub host: String,
}

/// The state of the routes.
#[derive(Debug)]
struct Gate {
    secret: ClusterSecret,
    host: String,
    seals: Seals,
}

/// The seals that were used, and when they were made.
#[derive(Debug, Default)]
pub(crate) struct Seals(Mutex<HashMap<String, i64>>);

impl Seals {
    /// Whether a seal of this time is used for the first time, and is valid.
    pub(crate) fn is_first(&self, id: &str, at: i64, now: i64) -> bool {
        if (now - at).abs() > VALID_MS {
            return false;
        }
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MAX_SEEN {
            seen.retain(|_, at| now - *at <= VALID_MS);
        }
        seen.len() < MAX_SEEN && seen.insert(id.to_owned(), at).is_none()
    }
}

/// The routes for other servers.
pub(crate) fn routes(cluster: Cluster) -> Router {
    let Cluster { operations, secret, host, .. } = cluster;
    let gate = Arc::new(Gate { secret, host, seals: Seals::default() });
    let routes = local::routes::all(operations).layer(middleware::from_fn_with_state(gate, admit));
    Router::new().nest(CLUSTER_PREFIX, routes)
}

async fn admit(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    match gate.caller(request.method(), request.headers(), now_ms()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => local::Failure(problem).into_response(),
    }
}

impl Gate {
    /// The caller that another server names.
    fn caller(&self, method: &Method, headers: &HeaderMap, now: i64) -> Result<Caller, Problem> {
        let mut values = headers.get_all(FORWARDED_HEADER).iter();
        let header = values.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
        let sealed = self.secret.open(header).filter(|_| values.next().is_none());
        let sealed = sealed.filter(|sealed| sealed.to == self.host).ok_or_else(|| {
            Problem::new(Code::Unauthenticated, "the request is not from a server of this cluster")
                .remedied_by("give all servers the same --cluster-secret-file")
        })?;
        if (now - sealed.at).abs() > VALID_MS {
            let message = "the clocks of two servers of the cluster are too far apart";
            let why = format!("they differ by {} s", (now - sealed.at).abs() / 1000);
            return Err(Problem::new(Code::Unreachable, message)
                .because(why)
                .remedied_by("synchronize the clocks of the servers"));
        }
        let version = headers.get(VERSION_HEADER).and_then(|value| value.to_str().ok());
        if *method != Method::GET && version != Some(VERSION) {
            let other = version.unwrap_or("unknown");
            let message = "the server that holds the sandbox has another version";
            return Err(Problem::new(Code::Unreachable, message)
                .because(format!("it is {VERSION}, and the other one is {other}"))
                .remedied_by("upgrade all servers, then retry"));
        }
        if !self.seals.is_first(&sealed.id, sealed.at, now) {
            let message = "the request was passed on before";
            return Err(Problem::new(Code::Unauthenticated, message));
        }
        let SealedCaller { owner, flow_owner, admin, remote, .. } = sealed;
        let SealedCaller { door, uid, key_id, address, request_id, .. } = sealed;
        let origin = Origin { door, uid, key_id, address, request_id };
        Ok(Caller { flow_owner, admin, remote, ..Caller::new(owner).with_origin(origin) })
    }
}

pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn gate(host: &str) -> Gate {
        let secret = ClusterSecret::new(TEXT).unwrap();
        Gate { secret, host: host.to_owned(), seals: Seals::default() }
    }

    fn headers(sealed: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(FORWARDED_HEADER, sealed.parse().unwrap());
        headers.insert(VERSION_HEADER, VERSION.parse().unwrap());
        headers
    }

    fn caller() -> Caller {
        let origin = Origin { key_id: Some("k".to_owned()), door: Door::Http, ..Origin::default() };
        Caller::new(OwnerId::new("me").unwrap()).over_network().with_origin(origin)
    }

    fn code(gate: &Gate, headers: &HeaderMap) -> Option<Code> {
        gate.caller(&Method::POST, headers, now_ms()).err().map(|problem| problem.code)
    }

    #[test]
    fn a_caller_arrives_as_it_was_named_and_once() {
        let gate = gate("b");
        let sealed = headers(&gate.secret.seal(&caller(), "b").unwrap());
        let found = gate.caller(&Method::POST, &sealed, now_ms()).unwrap();
        assert_eq!(found, caller());
        assert_eq!(code(&gate, &sealed), Some(Code::Unauthenticated), "it is sent again");
    }

    #[test]
    fn nobody_without_the_secret_names_a_caller() {
        let gate = gate("b");
        let sealed = gate.secret.seal(&caller(), "b").unwrap();
        let other = ClusterSecret::new(&[b'x'; 32]).unwrap().seal(&caller(), "b").unwrap();
        let (text, seal) = sealed.split_once('.').unwrap();
        let text = URL_SAFE_NO_PAD.decode(text).unwrap();
        let changed = String::from_utf8(text).unwrap().replace("\"me\"", "\"you\"");
        let changed = format!("{}.{seal}", URL_SAFE_NO_PAD.encode(changed));
        let elsewhere = gate.secret.seal(&caller(), "c").unwrap();
        for forged in [other.as_str(), &changed, &elsewhere, "", ".", "me", "e30.00"] {
            assert_eq!(code(&gate, &headers(forged)), Some(Code::Unauthenticated), "{forged}");
        }
        assert_eq!(code(&gate, &HeaderMap::new()), Some(Code::Unauthenticated));
        let mut twice = headers(&sealed);
        twice.append(FORWARDED_HEADER, sealed.parse().unwrap());
        assert_eq!(code(&gate, &twice), Some(Code::Unauthenticated));
        assert!(ClusterSecret::new(b"short \n").is_err());
    }

    #[test]
    fn a_seal_expires_and_another_version_is_refused_for_now() {
        let gate = gate("b");
        let sealed = headers(&gate.secret.seal(&caller(), "b").unwrap());
        for late in [VALID_MS + 5_000, -VALID_MS - 5_000] {
            let refused = gate.caller(&Method::POST, &sealed, now_ms() + late).unwrap_err();
            assert!(refused.code == Code::Unreachable && refused.retryable, "{refused:?}");
        }
        let mut other = sealed;
        other.insert(VERSION_HEADER, "0.0.0".parse().unwrap());
        assert_eq!(code(&gate, &other), Some(Code::Unreachable));
    }
}
