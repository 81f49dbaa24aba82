//! What all routes read from a request: its connection, its caller, its JSON and its query.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde::de::DeserializeOwned;
use stockade_api::Problem;
use stockade_core::{Code, SandboxId, Time};

use super::{App, TcpPeer};
use crate::auth::Principal;
use crate::failure::{Failure, invalid, unsupported};
use crate::metered::body_problem;

/// The connection of a request.
pub(super) struct Peer(pub(super) Arc<TcpPeer>);

impl FromRequestParts<App> for Peer {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Failure> {
        let peer = parts.extensions.get::<Arc<TcpPeer>>().map(Arc::clone).map(Self);
        peer.ok_or_else(|| {
            let message = "the connection of the request is unknown";
            Failure(Problem::new(Code::Unauthenticated, message))
        })
    }
}

impl FromRequestParts<App> for Principal {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Failure> {
        let mut principal = parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            Failure(Problem::new(Code::Unauthenticated, "the request has no caller"))
        })?;
        let key = parts.headers.get(stockade_api::wire::KEY_HEADER);
        let key = key.map(|key| key.to_str().map(str::to_owned)).transpose();
        principal.caller.idempotency_key =
            key.map_err(|_| invalid("the idempotency key is not text"))?;
        Ok(principal)
    }
}

/// The sandbox that a path names.
pub(super) struct Id(pub(super) SandboxId);

impl FromRequestParts<App> for Id {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let path =
            Path::<std::collections::HashMap<String, String>>::from_request_parts(parts, app);
        let path = path.await.map_err(|error| invalid(error.to_string()))?;
        sandbox_id(path.get("id").map_or("", String::as_str)).map(Self)
    }
}

/// The id of a sandbox in a path. What cannot be an id names no sandbox.
pub(super) fn sandbox_id(text: &str) -> Result<SandboxId, Failure> {
    SandboxId::new(text)
        .map_err(|_| Failure(Problem::new(Code::NotFound, format!("there is no sandbox {text:?}"))))
}

/// The current time.
pub(crate) fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_ms(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}

/// A port in a path.
pub(super) fn port_number(text: &str) -> Result<u16, Failure> {
    let port = text.parse::<u16>().ok().filter(|port| *port > 0);
    port.ok_or_else(|| invalid(format!("{text:?} is not a port")))
}

/// The JSON of a request.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let is_json = is_json(request.headers());
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| Failure(body_problem(&error)))?;
        if body.is_empty() {
            // Requests without members need no body.
            return parse(b"{}").map(Self);
        }
        if !is_json {
            return Err(invalid("the content type of the request must be application/json"));
        }
        parse(&body).map(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
        || kind.eq_ignore_ascii_case("application/merge-patch+json")
}

/// Parses JSON. A member that is unknown here is refused as unsupported, for it may be one of a later
/// version.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        let text = error.to_string();
        match text.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
            Some((name, _)) => unsupported(format_args!("the member `{name}`")),
            None => Failure(
                Problem::new(Code::InvalidInput, "the request cannot be read").because(text),
            ),
        }
    })
}

/// The query of a request. Unknown parameters are refused.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query of a request that knows these parameters.
    pub(super) fn parse(query: Option<&str>, known: &[&str]) -> Result<Self, Failure> {
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let pairs: Vec<_> = pairs.into_owned().collect();
        match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(unsupported(format_args!("the parameter `{name}`"))),
            None => Ok(Self(pairs)),
        }
    }

    /// All values of a parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that may be given once.
    pub(super) fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, Failure> {
        let mut values = self.all(name);
        let first = values.next();
        match values.next() {
            Some(_) => Err(invalid(format!("the parameter `{name}` is given twice"))),
            None => Ok(first),
        }
    }

    /// The value of a parameter that must be given.
    pub(super) fn required<'a>(&'a self, name: &'a str) -> Result<&'a str, Failure> {
        self.one(name)?.ok_or_else(|| invalid(format!("the parameter `{name}` is missing")))
    }

    /// A number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let value = self.one(name)?;
        let parsed = value.map(str::parse::<u64>).transpose();
        parsed.map_err(|_| invalid(format!("the parameter `{name}` is not a number")))
    }

    /// A truth value.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.one(name)? {
            None | Some("false" | "False" | "0") => Ok(false),
            Some("true" | "True" | "1") => Ok(true),
            Some(_) => Err(invalid(format!("the parameter `{name}` is neither true nor false"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Example {
        number: u8,
    }

    #[test]
    fn unknown_members_are_unsupported_and_others_invalid() {
        assert_eq!(parse::<Example>(b"{\"number\":7}").unwrap().number, 7);
        let code = |text: &str| parse::<Example>(text.as_bytes()).unwrap_err().0.code;
        assert_eq!(code("{\"number\":7,\"more\":1}"), Code::Unsupported);
        for text in ["", "{}", "{\"number\":\"7\"}", "[", "{\"number\":7,\"number\":7}"] {
            assert_eq!(code(text), Code::InvalidInput, "{text}");
        }
    }

    #[test]
    fn a_query_has_known_parameters() {
        let known = ["a", "b"];
        let query = Query::parse(Some("a=1&b=x%2Fy&b=z+w"), &known).unwrap();
        assert_eq!(query.number("a").unwrap(), Some(1));
        assert_eq!(query.all("b").collect::<Vec<_>>(), ["x/y", "z w"]);
        assert!(query.one("b").is_err());
        assert!(query.number("b").is_err());
        let refused = Query::parse(Some("c=1"), &known).err().unwrap();
        assert_eq!(refused.0.code, Code::Unsupported);
    }
}
