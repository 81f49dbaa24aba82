//! The requests of agents that are models over HTTP. The engine sends them, because the realm of a workflow
//! has no network: only with a secret of the run, and only to a host that the user has bound it to with
//! `stockade up --secret NAME@HOST`. The value of the secret never enters the realm.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::network::secret::BoundSecret;
use stockade_core::network::{HOST_LOOPBACK, Target};
use stockade_script::fetch::{self, Direct, Limits};
use stockade_script::realm_host::{Redirect, Request};
use url::{Host, Url};

use super::state::EngineState;
use super::task_error::TaskError;
use super::user_code::ModelHost;
use crate::authoring::{ModelAnswer, ModelRequest, Scheme};

const LIMITS: Limits = Limits {
    request_bytes: 4 << 20,
    response_bytes: 4 << 20,
    // A model may think for minutes before it answers.
    timeout: Duration::from_secs(600),
};
/// The port of secrets that name none.
const DEFAULT_PORT: u16 = 443;
/// The version of the interface of Anthropic that requests are written for.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The connector, with the authorities that this system trusts.
static CONNECT: LazyLock<Direct> = LazyLock::new(Direct::default);

/// The models that the agents of one run may ask.
#[derive(Debug, Clone)]
pub(crate) struct Models {
    state: Arc<EngineState>,
    run: String,
    secrets: Arc<[BoundSecret]>,
}

/// A server that a request names.
struct Server {
    url: Url,
    /// Its host, as secrets name it.
    name: String,
    port: u16,
}

impl Models {
    /// Those of a run with these secrets.
    pub(super) fn new(state: Arc<EngineState>, run: String, secrets: Vec<BoundSecret>) -> Self {
        Self { state, run, secrets: secrets.into() }
    }

    fn without_value(&self, secret: &str) -> TaskError {
        let run = &self.run;
        let message = format!(
            "this process does not have the value of the secret {secret}: give it with `stockade resume {run} --secret {secret}`"
        );
        TaskError::new("SECRET_MISSING", message).retryable()
    }
}

#[async_trait]
impl ModelHost for Models {
    async fn ask(&self, request: ModelRequest) -> Result<ModelAnswer, TaskError> {
        let ModelRequest { secret, url, scheme, body } = request;
        let server = Server::read(&url)?;
        if self.state.options.outer_sandbox.is_some() {
            let message = "an agent that is a model cannot be asked inside of a <Sandbox>, where no secret is: make its task one of the workflow around the <Sandbox>";
            return Err(TaskError::new("AGENT_CONFIG_INVALID", message));
        }
        // Services with the interface of another one have keys of other names.
        let mut here = self.secrets.iter().filter(|bound| server.is_of(bound));
        let bound = here.clone().find(|bound| bound.name == secret).or_else(|| here.next());
        let bound = bound.ok_or_else(|| server.not_allowed(&secret))?;
        let mut values = self.state.secrets.values(&self.run, std::slice::from_ref(bound));
        let value = values.remove(&bound.name).ok_or_else(|| self.without_value(&bound.name))?;
        let credential = match scheme {
            Scheme::Bearer => ("authorization", format!("Bearer {}", *value.0)),
            Scheme::Anthropic => ("x-api-key", value.0.to_string()),
        };
        let version =
            (scheme == Scheme::Anthropic).then_some(("anthropic-version", ANTHROPIC_VERSION));
        let plain = [("content-type", "application/json"), ("accept", "application/json")];
        let headers = plain.into_iter().chain(version).map(|(name, text)| (name, text.to_owned()));
        let headers = headers.chain([credential]).map(|(name, text)| (name.to_owned(), text));
        let request = Request {
            method: "POST".to_owned(),
            url: server.url.to_string(),
            headers: headers.collect(),
            body: Some(body.into_bytes()),
            redirect: Redirect::Manual,
        };
        let response = fetch::send(&*CONNECT, request, LIMITS).await;
        let response = response.map_err(|error| {
            let message = format!("{} does not answer: {error}", server.name);
            TaskError::new("AGENT_REQUEST_FAILED", message).retryable()
        })?;
        // A server may repeat what it was sent.
        let text = String::from_utf8_lossy(&response.body).replace(&**value.0, "[redacted]");
        Ok(ModelAnswer { status: response.status, body: text })
    }
}

impl Server {
    fn read(text: &str) -> Result<Self, TaskError> {
        let invalid = |why: &str| {
            TaskError::new("AGENT_CONFIG_INVALID", format!("the URL of a model {why}: {text:?}"))
        };
        let url = Url::parse(text).map_err(|error| invalid(&format!("is invalid ({error})")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TaskError::new(
                "AGENT_CONFIG_INVALID",
                "the URL of a model has a password",
            ));
        }
        let port = url.port_or_known_default().unwrap_or_default();
        let (name, is_here) = match url.host() {
            Some(Host::Domain(name)) if name == "localhost" || name == HOST_LOOPBACK => {
                (HOST_LOOPBACK.to_owned(), true)
            }
            Some(Host::Ipv4(address)) if address.is_loopback() => (HOST_LOOPBACK.to_owned(), true),
            Some(Host::Ipv6(address)) if address.is_loopback() => (HOST_LOOPBACK.to_owned(), true),
            Some(host) => (host.to_string(), false),
            None => return Err(invalid("has no host")),
        };
        let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_here);
        if !is_safe {
            return Err(invalid("must begin with https://, except on this machine"));
        }
        let mut url = url;
        if url.host_str() == Some(HOST_LOOPBACK) && url.set_host(Some("127.0.0.1")).is_err() {
            return Err(invalid("has no host"));
        }
        Ok(Self { url, name, port })
    }

    fn is_of(&self, secret: &BoundSecret) -> bool {
        let port = secret.host.port().unwrap_or(DEFAULT_PORT);
        let is_host = match secret.host.target() {
            Target::Exact(name) => name.as_str() == self.name,
            Target::Subdomains(parent) => self
                .name
                .strip_suffix(parent.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            Target::Any | Target::Block(_) => false,
        };
        is_host && port == self.port
    }

    fn not_allowed(&self, secret: &str) -> TaskError {
        let port =
            if self.port == DEFAULT_PORT { String::new() } else { format!(":{}", self.port) };
        let host = format!("{}{port}", self.name);
        let message = format!(
            "the agent sends the secret {secret} to {host}, which this run may not do: start it with `stockade up --secret {secret}@{host}`, which takes the value from the variable {secret}"
        );
        TaskError::new("AGENT_CONFIG_INVALID", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> bool {
        Server::read(url).is_err()
    }

    #[test]
    fn a_server_is_reached_with_tls_or_on_this_machine() {
        for url in ["http://api.test/v1", "ftp://api.test", "https://a:b@api.test/", "api.test", ""]
        {
            assert!(refused(url), "{url}");
        }
        for url in [
            "http://localhost:80/v1",
            "http://127.0.0.1:9/",
            "http://[::1]:9/",
            "https://api.test/",
        ] {
            assert!(!refused(url), "{url}");
        }
    }

    #[test]
    fn a_secret_is_for_its_host_and_port() {
        let is_of = |url: &str, secret: &str| {
            Server::read(url).unwrap().is_of(&secret.parse::<BoundSecret>().unwrap())
        };
        assert!(is_of("https://api.test/v1/x", "KEY@api.test"));
        assert!(is_of("https://api.test:8443/", "KEY@api.test:8443"));
        assert!(is_of("https://eu.api.test/", "KEY@*.api.test"));
        assert!(is_of("http://127.0.0.1:80/", "KEY@host.stockade.internal:80"));
        for (url, secret) in [
            ("https://api.test.evil.test/", "KEY@api.test"),
            ("https://evilapi.test/", "KEY@*.api.test"),
            ("https://api.test/", "KEY@*.api.test"),
            ("https://api.test:8443/", "KEY@api.test"),
            ("http://127.0.0.1:81/", "KEY@host.stockade.internal:80"),
        ] {
            assert!(!is_of(url, secret), "{url} {secret}");
        }
    }
}
