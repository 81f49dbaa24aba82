//! The life cycle of sandboxes at the server (`sandbox-lifecycle.yml` of OpenSandbox 1.1).

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::Method;
use hyper::header::{HeaderName, HeaderValue};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stockade_runtime_remote::{Answer, Failure, Place, Repeat, Sent};

use crate::address::Address;

/// The header with the key of the server.
const KEY: HeaderName = HeaderName::from_static("open-sandbox-api-key");
/// The port of `execd`.
const EXECD: u16 = 44772;
/// How many sandboxes are listed at once.
const PAGE: u64 = 100;
/// The most pages of a list.
const PAGES: u64 = 1000;

/// The server.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    place: Place,
    use_proxy: bool,
}

/// A sandbox in an answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RemoteSandbox {
    pub(crate) id: String,
    pub(crate) status: RemoteStatus,
    #[serde(default)]
    pub(crate) metadata: Option<BTreeMap<String, String>>,
}

/// The status of a sandbox in an answer.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RemoteStatus {
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    items: Vec<RemoteSandbox>,
    pagination: Pagination,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pagination {
    has_next_page: bool,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    endpoint: String,
    #[serde(default)]
    headers: Option<BTreeMap<String, String>>,
}

/// What a sandbox is created from.
#[derive(Debug)]
pub(crate) struct NewSandbox {
    pub(crate) image: String,
    /// In seconds; it never expires when absent.
    pub(crate) timeout: Option<u64>,
    pub(crate) limits: BTreeMap<&'static str, String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl Server {
    pub(crate) fn new(address: &Address) -> Result<Self, String> {
        let key = address.key.as_ref().map(|key| HeaderValue::from_str(key)).transpose();
        let mut key = key.map_err(|_| "the key cannot be sent in a header".to_owned())?;
        if let Some(key) = &mut key {
            key.set_sensitive(true);
        }
        let place = Place {
            protocol: address.protocol,
            authority: address.domain.clone(),
            path: "/v1".to_owned(),
            headers: key.map(|key| (KEY, key)).into_iter().collect(),
            authorities: address.authorities.clone(),
            timeout: address.timeout,
        };
        Ok(Self { place, use_proxy: address.use_server_proxy })
    }

    /// Its URL.
    pub(crate) fn name(&self) -> String {
        self.place.name()
    }

    /// Whether it answers, with this key.
    pub(crate) async fn check(&self) -> Result<(), Failure> {
        self.get("/sandboxes?pageSize=1").await.map(|_: Value| ())
    }

    /// Whether it is another Stockade, whose sandboxes have no network unless one is requested.
    pub(crate) async fn is_stockade(&self) -> Result<bool, Failure> {
        let place = Place { path: String::new(), ..self.place.clone() };
        let version: Result<Value, _> = Self { place, ..self.clone() }.get("/version").await;
        match version {
            Ok(version) => Ok(version["name"] == "stockade"),
            Err(Failure::Refused { .. } | Failure::Answer(..)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Creates a sandbox. It is not repeated if the server may have seen it: the caller looks for it by its
    /// metadata.
    pub(crate) async fn create(&self, new: &NewSandbox) -> Result<RemoteSandbox, Failure> {
        let mut body = json!({
            "image": { "uri": new.image },
            "entrypoint": ["tail", "-f", "/dev/null"],
            "metadata": new.metadata,
            "env": new.environment,
            "resourceLimits": new.limits,
        });
        if let Some(timeout) = new.timeout {
            body["timeout"] = json!(timeout);
        }
        let sent = Sent::json(&body);
        let answer = self.place.call(Method::POST, "/sandboxes", sent, Repeat::IfUnseen).await?;
        self.parse(&answer)
    }

    /// The sandboxes with all this metadata that have not ended.
    pub(crate) async fn list(
        &self,
        metadata: &[(&str, &str)],
    ) -> Result<Vec<RemoteSandbox>, Failure> {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let pairs: Vec<_> =
            metadata.iter().map(|(k, v)| format!("{}={}", encode(k), encode(v))).collect();
        let wanted = encode(&pairs.join("&"));
        let mut found = Vec::new();
        for page in 1..=PAGES {
            let path = format!("/sandboxes?metadata={wanted}&page={page}&pageSize={PAGE}");
            let Page { items, pagination } = self.get(&path).await?;
            // A server that ignores the parameter would show those of others.
            let is_ours = |sandbox: &RemoteSandbox| {
                let has = |(key, value): &(&str, &str)| {
                    let found = sandbox.metadata.as_ref().and_then(|all| all.get(*key));
                    found.is_some_and(|found| found == value)
                };
                metadata.iter().all(has) && sandbox.status.state != "Terminated"
            };
            found.extend(items.into_iter().filter(is_ours));
            if !pagination.has_next_page {
                return Ok(found);
            }
        }
        Err(Failure::Answer(self.name(), "a list without an end".to_owned()))
    }

    pub(crate) async fn get_sandbox(&self, id: &str) -> Result<RemoteSandbox, Failure> {
        self.get(&format!("/sandboxes/{}", segment(id))).await
    }

    /// Terminates a sandbox. One that does not exist is terminated.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), Failure> {
        let path = format!("/sandboxes/{}", segment(id));
        let deleted = self.place.call(Method::DELETE, &path, Sent::default(), Repeat::Always).await;
        match deleted {
            Ok(_) => Ok(()),
            Err(failure) if matches!(failure.status(), Some(404 | 410)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Sets the time at which a sandbox expires.
    pub(crate) async fn renew(&self, id: &str, after: Duration) -> Result<(), Failure> {
        let at = Timestamp::now().saturating_add(after);
        let at = at.map_err(|error| Failure::Answer(self.name(), error.to_string()))?;
        self.act(id, "renew-expiration", &json!({ "expiresAt": at.to_string() })).await
    }

    /// Where `execd` of a sandbox is reached. The key of the server is not sent there.
    pub(crate) async fn execd(&self, id: &str) -> Result<Place, Failure> {
        let path = format!(
            "/sandboxes/{}/endpoints/{EXECD}?use_server_proxy={}",
            segment(id),
            self.use_proxy
        );
        let Endpoint { endpoint, headers } = self.get(&path).await?;
        let odd = |what: &str| Failure::Answer(self.name(), format!("an endpoint with {what}"));
        let (authority, path) = match endpoint.find('/') {
            Some(slash) => endpoint.split_at(slash),
            None => (endpoint.as_str(), ""),
        };
        if authority.is_empty() || !authority.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(odd("no valid address"));
        }
        let header = |(name, value): (&String, &String)| {
            let name = HeaderName::try_from(name).map_err(|_| odd("an invalid header"))?;
            let mut value = HeaderValue::try_from(value).map_err(|_| odd("an invalid header"))?;
            value.set_sensitive(true);
            Ok((name, value))
        };
        let headers = headers.iter().flatten().map(header).collect::<Result<_, Failure>>()?;
        Ok(Place {
            protocol: self.place.protocol,
            authority: authority.to_owned(),
            path: path.trim_end_matches('/').to_owned(),
            headers,
            authorities: self.place.authorities.clone(),
            timeout: self.place.timeout,
        })
    }

    async fn act(&self, id: &str, action: &str, body: &Value) -> Result<(), Failure> {
        let path = format!("/sandboxes/{}/{action}", segment(id));
        let sent = Sent::json(body);
        self.place.call(Method::POST, &path, sent, Repeat::Always).await.map(drop)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let answer = self.place.call(Method::GET, path, Sent::default(), Repeat::Always).await?;
        self.parse(&answer)
    }

    fn parse<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Failure> {
        serde_json::from_slice(&answer.body)
            .map_err(|error| Failure::Answer(self.name(), error.to_string()))
    }
}

/// A part of a path.
fn segment(id: &str) -> String {
    utf8_percent_encode(id, NON_ALPHANUMERIC).to_string()
}
