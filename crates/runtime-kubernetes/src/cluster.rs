//! The API server: each kind of object, and requests with deadlines that are repeated where that is safe.

use std::path::Path;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Config};
use serde_json::Value;

use crate::failure::{Failure, chain};

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(20);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How often a request is made, and the first pause between two of them.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);
/// Who changes objects, for the API server.
const MANAGER: &str = "stockade";

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Namespace,
    NetworkPolicy,
    Pod,
    Sandbox,
    Template,
    WarmPool,
    Claim,
}

/// The group of `Sandbox`, and that of the other resources of agent-sandbox.
pub(crate) const AGENTS: &str = "agents.x-k8s.io";
pub(crate) const EXTENSIONS: &str = "extensions.agents.x-k8s.io";
const BETA: &str = "v1beta1";

impl Kind {
    /// Its group, version, kind and name in paths.
    const fn parts(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Namespace => ("", "v1", "Namespace", "namespaces"),
            Self::NetworkPolicy => ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
            Self::Pod => ("", "v1", "Pod", "pods"),
            Self::Sandbox => (AGENTS, BETA, "Sandbox", "sandboxes"),
            Self::Template => (EXTENSIONS, BETA, "SandboxTemplate", "sandboxtemplates"),
            Self::WarmPool => (EXTENSIONS, BETA, "SandboxWarmPool", "sandboxwarmpools"),
            Self::Claim => (EXTENSIONS, BETA, "SandboxClaim", "sandboxclaims"),
        }
    }

    /// The `apiVersion` and `kind` of an object.
    pub(crate) fn version(self) -> (String, &'static str) {
        let (group, version, kind, _) = self.parts();
        let version =
            if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        (version, kind)
    }

    fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = self.parts();
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: self.version().0,
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        }
    }
}

/// The API server.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    /// Its address, for messages.
    pub(crate) url: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Cluster {
    /// The cluster that a file names, or that of the usual files, or the one around this process. Nothing is
    /// connected.
    pub(crate) async fn open(kubeconfig: Option<&Path>) -> Result<Self, String> {
        let config = match kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| chain(&error))?;
                let options = KubeConfigOptions::default();
                let config = Config::from_custom_kubeconfig(file, &options).await;
                config.map_err(|error| chain(&error))?
            }
            None => Config::infer().await.map_err(|error| chain(&error))?,
        };
        let url = config.cluster_url.to_string();
        let mut config = config;
        config.connect_timeout = Some(CONNECT);
        // A watch and an exec are silent for as long as nothing happens.
        config.read_timeout = None;
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| chain(&error))?;
        Ok(Self { client, url })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The objects of a kind in a namespace; without one, in all of them.
    pub(crate) fn api(&self, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = kind.resource();
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Whether the API server serves a group of resources in our version.
    pub(crate) async fn serves(&self, group: &str) -> Result<bool, Failure> {
        let path = format!("/apis/{group}/{BETA}");
        let found = repeated(|| async {
            let request = http_get(&path)?;
            Ok(self.client.request::<Value>(request).await?)
        });
        match found.await {
            Ok(_) => Ok(true),
            Err(failure) if failure.code() == Some(404) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Creates an object; returns the one that exists if it does, and whether it is new. After a lost answer an
    /// object of this name is the one that was created.
    pub(crate) async fn create(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        object: &Value,
    ) -> Result<(DynamicObject, bool), Failure> {
        let odd = |error: serde_json::Error| Failure::Odd(error.to_string());
        let object: DynamicObject = serde_json::from_value(object.clone()).map_err(odd)?;
        let name = object.metadata.name.clone().unwrap_or_default();
        let api = self.api(kind, namespace);
        let options =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        loop {
            let created = repeated(|| async { Ok(api.create(&options, &object).await?) }).await;
            match created {
                Ok(created) => return Ok((created, true)),
                Err(failure) if failure.code() == Some(409) => {}
                Err(failure) => return Err(failure),
            }
            // It may be removed at this moment; then it is created.
            if let Some(found) = self.find(kind, namespace, &name).await? {
                return Ok((found, false));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// An object, if it exists.
    pub(crate) async fn find(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<DynamicObject>, Failure> {
        let api = self.api(kind, namespace);
        repeated(|| async { Ok(api.get_opt(name).await?) }).await
    }

    /// The objects with these labels.
    pub(crate) async fn list(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<DynamicObject>, Failure> {
        let api = self.api(kind, namespace);
        let options = ListParams::default().labels(selector);
        Ok(repeated(|| async { Ok(api.list(&options).await?) }).await?.items)
    }

    /// Removes an object. Succeeds if there is none. Its pods end immediately.
    pub(crate) async fn delete(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<(), Failure> {
        let api = self.api(kind, Some(namespace));
        let options = match kind {
            Kind::Pod => DeleteParams::default().grace_period(0),
            _ => DeleteParams::foreground(),
        };
        match repeated(|| async { Ok(api.delete(name, &options).await?) }).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.code() == Some(404) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Changes the resources of a running pod. The status is 404 or 405 where a cluster cannot do that.
    pub(crate) async fn resize(
        &self,
        namespace: &str,
        name: &str,
        change: &Value,
    ) -> Result<(), Failure> {
        let api = self.api(Kind::Pod, Some(namespace));
        let options =
            PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Strategic(change);
        let changed = repeated(|| async {
            Ok(api.patch_subresource("resize", name, &options, &patch).await?)
        });
        changed.await.map(drop)
    }

    /// Changes some fields of an object, if it exists.
    pub(crate) async fn patch(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        change: &Value,
    ) -> Result<(), Failure> {
        let api = self.api(kind, Some(namespace));
        let options =
            PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(change);
        match repeated(|| async { Ok(api.patch(name, &options, &patch).await?) }).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.code() == Some(404) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>, Failure> {
    http::Request::get(path).body(Vec::new()).map_err(|error| Failure::Odd(error.to_string()))
}

/// Makes a request that may be repeated, until it succeeds or fails for good.
async fn repeated<T, F>(request: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut pause = PAUSE;
    let mut attempt = 1;
    loop {
        let done = tokio::time::timeout(REQUEST, request()).await;
        let failure = match done {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::TimedOut,
        };
        match failure.retry() {
            Some(asked) if attempt < ATTEMPTS => tokio::time::sleep(pause.max(asked)).await,
            _ => return Err(failure),
        }
        attempt += 1;
        pause *= 2;
    }
}
