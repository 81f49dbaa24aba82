//! `POST /v1/sandboxes`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use stockade_api::{
    Bytes, CommandLine, CreateSandbox, Execute, Expiry, ExpiryAction, KillSandbox, Network, Sandbox,
};
use stockade_core::SnapshotId;

use super::App;
use super::egress::{Policy, network};
use super::extensions;
use super::limits::limits;
use super::pools::{self, POOL_REF, Pool};
use super::proxy_config;
use super::request::JsonBody;
use super::sandboxes::{ENTRYPOINT, RESERVED, SandboxBody};
use super::target::{VARIABLES, VARIABLES_FILE};
use super::volumes::{self, Volume};
use crate::auth::Principal;
use crate::failure::{Failure, invalid, unsupported};
use crate::renewal::EXTENSIONS;
use crate::source::Source;

/// An image of the machine that the server runs on: its own programs.
const HOST: &str = "host";
/// What clients run in a sandbox so that it does not end: a sandbox does not end by itself here, so it
/// is not started.
const KEEP_ALIVE: [&[&str]; 2] = [&["tail", "-f", "/dev/null"], &["sleep", "infinity"]];

/// The request for a sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Request {
    #[serde(default)]
    image: Option<Image>,
    #[serde(default)]
    snapshot_id: Option<String>,
    #[serde(default)]
    template_id: Option<Value>,
    #[serde(default)]
    platform: Option<Platform>,
    /// In seconds; it never expires when absent.
    #[serde(default)]
    timeout: Option<u64>,
    #[serde(default)]
    resource_limits: Option<BTreeMap<String, String>>,
    #[serde(default)]
    resource_requests: Option<BTreeMap<String, String>>,
    #[serde(default)]
    env: Option<BTreeMap<String, Option<String>>>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    lifecycle: Option<Value>,
    #[serde(default)]
    entrypoint: Option<Vec<String>>,
    #[serde(default)]
    network_policy: Option<Policy>,
    #[serde(default)]
    credential_proxy: Option<CredentialProxy>,
    /// Every port needs an access token here, also without it.
    #[serde(default)]
    #[expect(dead_code, reason = "both values have the same meaning")]
    secure_access: Option<bool>,
    #[serde(default)]
    volumes: Option<Vec<Volume>>,
    #[serde(default)]
    extensions: Option<BTreeMap<String, Value>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Image {
    uri: String,
    #[serde(default)]
    auth: Option<Value>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Platform {
    os: String,
    arch: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CredentialProxy {
    #[serde(default)]
    enabled: bool,
}

impl Request {
    fn refuse_unsupported(&self) -> Result<(), Failure> {
        let is_machine = |platform: &Platform| {
            let arch = match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            };
            platform.os == "linux" && platform.arch == arch
        };
        let requested = [
            (self.template_id.is_some(), "`templateId`"),
            (self.platform.as_ref().is_some_and(|it| !is_machine(it)), "that `platform`"),
            (
                self.resource_requests.as_ref().is_some_and(|it| !it.is_empty()),
                "`resourceRequests`",
            ),
            (self.lifecycle.is_some(), "`lifecycle`"),
            (
                self.network_policy.is_none()
                    && self.credential_proxy.as_ref().is_some_and(|it| it.enabled),
                "`credentialProxy` without `networkPolicy`",
            ),
            (self.image.as_ref().is_some_and(|it| it.auth.is_some()), "`image.auth`"),
        ];
        if let Some((_, what)) = requested.iter().find(|(requested, _)| *requested) {
            return Err(unsupported(what));
        }
        extensions::check(self.extensions.as_ref().unwrap_or(&BTreeMap::new()))
    }

    /// The name of the image, or the snapshot.
    fn source(&self, pool: Pool) -> Result<Source, Failure> {
        if let Some(name) = self.extensions.as_ref().and_then(|all| all.get(POOL_REF)) {
            pool.check(name.as_str().unwrap_or_default())?;
            let is_of_pool = |image: &Image| image.uri == HOST || image.uri == pools::NAME;
            return match (&self.image, &self.snapshot_id) {
                (None, None) => Ok(Source::Host),
                (Some(image), None) if is_of_pool(image) => Ok(Source::Host),
                (Some(_), None) => {
                    Err(invalid("the sandboxes of the pool have the image \"host\""))
                }
                (_, Some(_)) => Err(invalid("`snapshotId` and `poolRef` exclude each other")),
            };
        }
        match (&self.image, &self.snapshot_id) {
            (Some(_), Some(_)) => Err(invalid("`image` and `snapshotId` exclude each other")),
            (None, None) => Err(invalid("`image` or `snapshotId` is required")),
            (None, Some(id)) => {
                let id =
                    SnapshotId::new(id.as_str()).map_err(|error| invalid(error.to_string()))?;
                Ok(Source::Snapshot(id))
            }
            (Some(image), None) if image.uri == HOST => Ok(Source::Host),
            (Some(image), None) => Ok(Source::Image(image_name(&image.uri)?)),
        }
    }
}

/// The name of an image of the store. A client must not name paths of this host, and a snapshot is
/// named in another way.
fn image_name(uri: &str) -> Result<String, Failure> {
    if uri.starts_with(['/', '.', '~']) {
        let refused = unsupported(format_args!("the image {uri:?}, which is a path"));
        return Err(Failure(
            refused
                .0
                .remedied_by("use \"host\", the programs of the server's machine, or an image"),
        ));
    }
    if uri.is_empty() || uri.starts_with("snapshot:") {
        return Err(invalid(
            "`image.uri` is the name of an image; a snapshot is named in `snapshotId`",
        ));
    }
    Ok(uri.to_owned())
}

/// Creates a sandbox, and starts its entrypoint.
pub(super) async fn create(
    State(app): State<App>,
    principal: Principal,
    JsonBody(request): JsonBody<Request>,
) -> Result<(StatusCode, Json<SandboxBody>), Failure> {
    request.refuse_unsupported()?;
    let source = request.source(app.pool)?;
    let entrypoint = request.entrypoint.clone().unwrap_or_default();
    let sandbox = specification(request, &entrypoint)?;
    let caller = &principal.caller;
    let created = source.create(&*app.sandboxes, caller, sandbox).await?;
    start(&app, &principal, &created, entrypoint).await?;
    Ok((StatusCode::ACCEPTED, Json(SandboxBody::new(&created))))
}

fn specification(request: Request, entrypoint: &[String]) -> Result<CreateSandbox, Failure> {
    let environment: BTreeMap<_, Bytes> = request
        .env
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?.into_bytes().into())))
        .collect();
    let mut metadata = request.metadata.unwrap_or_default();
    if let Some(name) = metadata.keys().find(|name| name.starts_with(RESERVED)) {
        return Err(invalid(format!("the metadata {name:?} has the reserved prefix {RESERVED}")));
    }
    let text = serde_json::to_string(entrypoint).map_err(|error| invalid(error.to_string()))?;
    metadata.insert(ENTRYPOINT.to_owned(), text);
    let proxy = proxy_config::proxy(request.extensions.as_ref())?;
    let extensions = extensions::texts(request.extensions.unwrap_or_default());
    if !extensions.is_empty() {
        let text =
            serde_json::to_string(&extensions).map_err(|error| invalid(error.to_string()))?;
        metadata.insert(EXTENSIONS.to_owned(), text);
    }
    // The interface for commands reads this file.
    if let Some(Bytes(path)) = environment.get(VARIABLES) {
        let path = String::from_utf8_lossy(path).into_owned();
        metadata.insert(VARIABLES_FILE.to_owned(), path);
    }
    let (limits, best_effort) = limits(&request.resource_limits.unwrap_or_default())?;
    let network: Option<Network> = request.network_policy.map(network).transpose()?;
    let expiry = match request.timeout {
        None => Expiry::Never,
        Some(0) => return Err(invalid("`timeout` must be at least 1 second")),
        Some(seconds) => Expiry::Seconds(std::time::Duration::from_secs(seconds).as_secs_f64()),
    };
    let mut sandbox = CreateSandbox {
        environment,
        metadata,
        limits,
        best_effort,
        network,
        proxy,
        expiry,
        on_expiry: Some(ExpiryAction::Terminate),
        ..CreateSandbox::default()
    };
    volumes::add(request.volumes.unwrap_or_default(), &mut sandbox)?;
    Ok(sandbox)
}

/// Starts the entrypoint of a new sandbox. If that fails, the sandbox is ended.
async fn start(
    app: &App,
    principal: &Principal,
    created: &Sandbox,
    entrypoint: Vec<String>,
) -> Result<(), Failure> {
    let keeps_alive = |words: &&[&str]| words.iter().eq(entrypoint.iter());
    if entrypoint.is_empty() || KEEP_ALIVE.iter().any(keeps_alive) {
        return Ok(());
    }
    let mut caller = principal.caller.clone();
    // The same request, sent again, starts it once.
    caller.idempotency_key = Some(format!("entrypoint {} {}", created.id, created.created_at));
    let execute = Execute::new(created.id.clone(), CommandLine::Program(entrypoint));
    match app.sandboxes.execute_stream(&caller, execute).await {
        Ok(_) => Ok(()),
        Err(problem) => {
            caller.idempotency_key = None;
            let kill = KillSandbox::discarding(created.id.clone());
            // The response reports the first failure.
            let _ = app.sandboxes.kill(&caller, kill).await;
            Err(problem.into())
        }
    }
}
