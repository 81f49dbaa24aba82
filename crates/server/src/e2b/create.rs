//! `POST /sandboxes` and `POST /v2/sandboxes`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use stockade_api::{Bytes, CreateSandbox, Empty, Expiry, ExpiryAction, Network, VolumeMount};
use stockade_core::access::Effect;
use stockade_core::{SandboxId, SnapshotId, VolumeName};

use super::body::{AUTO_RESUME, Credentials, HOST_TEMPLATES, TEMPLATE, YES};
use super::failure::Refused;
use super::network::{self, Config};
use super::request::{JsonBody, Owner};
use super::{App, RESERVED, volumes};
use crate::auth::{PUBLIC, Principal};
use crate::failure::{invalid, unsupported};
use crate::relay::MASKED_HOST;
use crate::source::Source;

/// The time to live of a sandbox whose request names none, in seconds.
const TIMEOUT: i64 = 300;

/// The request for a sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    #[serde(rename = "templateID")]
    template: String,
    /// In seconds.
    #[serde(default)]
    timeout: Option<i64>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    env_vars: Option<BTreeMap<String, String>>,
    #[serde(default)]
    auto_pause: Option<bool>,
    /// Whether an automatic pause keeps the memory.
    #[serde(default)]
    auto_pause_memory: Option<bool>,
    #[serde(default)]
    auto_resume: Option<AutoResume>,
    #[serde(default, rename = "allow_internet_access", alias = "allowInternetAccess")]
    allow_internet_access: Option<bool>,
    #[serde(default)]
    network: Option<Config>,
    #[serde(default)]
    mcp: Option<Value>,
    #[serde(default)]
    iam: Option<Value>,
    #[serde(default)]
    volume_mounts: Option<Vec<Mount>>,
    /// Every sandbox requires a token here, also without it.
    #[serde(default)]
    #[expect(dead_code, reason = "both values have the same meaning")]
    secure: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct AutoResume {
    #[serde(default)]
    enabled: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Mount {
    name: String,
    path: String,
}

/// Creates a sandbox.
pub(super) async fn create(
    State(app): State<App>,
    Owner(principal): Owner,
    JsonBody(request): JsonBody<Request>,
) -> Result<(StatusCode, Json<Credentials>), Refused> {
    let source = source(&app, &principal, &request).await?;
    let sandbox = specification(&principal, request, app.has_public_ports)?;
    volumes::require(&app, &principal, &sandbox.volumes).await?;
    let created = source.create(&*app.sandboxes, &principal.caller, sandbox).await?;
    Ok((StatusCode::CREATED, Json(Credentials::new(&app, &principal, &created))))
}

/// The template of a request: one that is there for every owner, a snapshot, or an image.
async fn source(app: &App, principal: &Principal, request: &Request) -> Result<Source, Refused> {
    let name = request.template.as_str();
    if request.mcp.as_ref().is_some_and(|mcp| !mcp.is_null()) || name == "mcp-gateway" {
        return Err(unsupported("`mcp`, servers of MCP in the sandbox,").into());
    }
    if HOST_TEMPLATES.contains(&name) {
        return Ok(Source::Host);
    }
    if let Some(id) = find_snapshot(app, principal, name).await? {
        return Ok(Source::Snapshot(id));
    }
    if name.is_empty() || name.starts_with(['/', '.', '~']) || name.starts_with("snapshot:") {
        let message = format!("{name:?} is no template");
        let reason =
            "it is `base`, `code-interpreter-v1`, the id or name of a snapshot, or an image";
        return Err(invalid(message).0.because(reason).into());
    }
    Ok(Source::Image(name.to_owned()))
}

/// The snapshot of the caller with that id or name; the newest of several with the same name.
pub(super) async fn find_snapshot(
    app: &App,
    principal: &Principal,
    name: &str,
) -> Result<Option<SnapshotId>, Refused> {
    let mut caller = principal.caller.clone();
    caller.idempotency_key = None;
    let all = app.sandboxes.snapshots(&caller, Empty {}).await?;
    let by_id = all.iter().find(|snapshot| snapshot.id.as_str() == name);
    let mut named: Vec<_> =
        all.iter().filter(|snapshot| snapshot.name.as_deref() == Some(name)).collect();
    named.sort_by_key(|snapshot| snapshot.created_at);
    Ok(by_id.or_else(|| named.last().copied()).map(|snapshot| snapshot.id.clone()))
}

/// A time to live in seconds.
pub(super) fn seconds(timeout: i64) -> Result<f64, Refused> {
    let seconds = u64::try_from(timeout).ok().filter(|seconds| *seconds > 0);
    let seconds = seconds.ok_or_else(|| invalid("`timeout` must be at least 1 second"))?;
    Ok(Duration::from_secs(seconds).as_secs_f64())
}

fn specification(
    principal: &Principal,
    request: Request,
    has_public_ports: bool,
) -> Result<CreateSandbox, Refused> {
    if request.iam.as_ref().is_some_and(|iam| !iam.is_null()) {
        return Err(unsupported("`iam`").into());
    }
    let mut metadata = request.metadata.unwrap_or_default();
    if let Some(name) = metadata.keys().find(|name| name.starts_with(RESERVED)) {
        return Err(
            invalid(format!("the metadata {name:?} has the reserved prefix {RESERVED}")).into()
        );
    }
    metadata.insert(TEMPLATE.to_owned(), request.template.clone());
    if request.auto_resume.is_some_and(|resume| resume.enabled) {
        metadata.insert(AUTO_RESUME.to_owned(), YES.to_owned());
    }
    let on_expiry = match (request.auto_pause.unwrap_or(false), request.auto_pause_memory) {
        (false, _) => ExpiryAction::Terminate,
        (true, Some(false)) => ExpiryAction::Stop,
        (true, None | Some(true)) => ExpiryAction::Pause,
    };
    let id = new_id(principal)?;
    let mut environment: BTreeMap<String, Bytes> = BTreeMap::from([
        ("E2B_SANDBOX".to_owned(), "true".into()),
        ("E2B_SANDBOX_ID".to_owned(), id.as_str().into()),
        ("E2B_TEMPLATE_ID".to_owned(), request.template.as_str().into()),
    ]);
    let variables = request.env_vars.unwrap_or_default();
    environment
        .extend(variables.into_iter().map(|(name, value)| (name, Bytes(value.into_bytes()))));
    let is_public = request.network.as_ref().and_then(Config::has_public_ports);
    if is_public.unwrap_or(has_public_ports) {
        metadata.insert(PUBLIC.to_owned(), YES.to_owned());
    }
    if let Some(mask) = request.network.as_ref().map(Config::masked_host).transpose()?.flatten() {
        metadata.insert(MASKED_HOST.to_owned(), mask);
    }
    let mut network = match request.network {
        Some(config) => network::network(config)?,
        None => Network { default: Effect::Allow, ..Network::default() },
    };
    if request.allow_internet_access == Some(false) {
        network.default = Effect::Deny;
    }
    let volumes = request.volume_mounts.unwrap_or_default();
    let volumes = volumes.into_iter().map(volume).collect::<Result<_, Refused>>()?;
    Ok(CreateSandbox {
        id: Some(id),
        environment,
        sudo: true,
        metadata,
        network: Some(network),
        volumes,
        expiry: Expiry::Seconds(seconds(request.timeout.unwrap_or(TIMEOUT))?),
        on_expiry: Some(on_expiry),
        // The files of one that is paused without its memory stay until it is killed.
        keep: on_expiry != ExpiryAction::Terminate,
        ..CreateSandbox::default()
    })
}

/// The id of a new sandbox, the same for the same idempotency key. It has no hyphen, for clients look
/// for one in the host names of ports.
fn new_id(principal: &Principal) -> Result<SandboxId, Refused> {
    let id = match &principal.caller.idempotency_key {
        Some(key) => {
            let mut hasher = blake3::Hasher::new();
            for part in [principal.caller.owner.as_str(), key] {
                hasher.update(&(part.len() as u64).to_be_bytes()).update(part.as_bytes());
            }
            hasher.finalize().to_hex()[..20].to_owned()
        }
        None => uuid::Uuid::new_v4().simple().to_string()[..20].to_owned(),
    };
    SandboxId::new(format!("i{id}")).map_err(|error| invalid(error.to_string()).into())
}

fn volume(Mount { name, path }: Mount) -> Result<VolumeMount, Refused> {
    let name = VolumeName::new(name).map_err(|error| invalid(error.to_string()))?;
    if !path.starts_with('/') {
        return Err(invalid(format!("the path {path:?} of a volume is not absolute")).into());
    }
    Ok(VolumeMount { name, inside: path.into(), read_only: false, sub_path: None })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(more: &Value) -> Result<CreateSandbox, Refused> {
        request_at(more, false)
    }

    fn request_at(more: &Value, has_public_ports: bool) -> Result<CreateSandbox, Refused> {
        let mut request = json!({ "templateID": "base" });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let owner = stockade_core::OwnerId::new("me").unwrap();
        let principal = Principal { caller: stockade_api::Caller::new(owner), key: None };
        specification(&principal, serde_json::from_value(request).unwrap(), has_public_ports)
    }

    #[test]
    fn old_and_new_clients_get_the_same_sandbox() {
        let old = json!({
            "secure": true, "autoPause": false, "autoResume": { "enabled": false },
            "allow_internet_access": true, "timeout": 300, "later": 1,
        });
        let (old, new) = (request(&old).unwrap(), request(&json!({})).unwrap());
        assert_eq!(
            CreateSandbox { id: None, environment: BTreeMap::new(), ..old.clone() },
            CreateSandbox { id: None, environment: BTreeMap::new(), ..new }
        );
        assert_eq!(old.expiry, Expiry::Seconds(300.0));
        assert!(!old.id.unwrap().as_str().contains('-'));
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        for refused in [
            json!({ "timeout": 0 }),
            json!({ "timeout": -1 }),
            json!({ "iam": { "tokens": [] } }),
            json!({ "metadata": { "e2b.dev/template": "x" } }),
            json!({ "network": { "egressProxy": { "address": "a" } } }),
            json!({ "volumeMounts": [{ "name": "a", "path": "b" }] }),
        ] {
            assert!(request(&refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn ports_are_public_on_request_or_by_an_option_of_the_server() {
        let is_public = |body: Value, by_default: bool| {
            let created = request_at(&body, by_default).unwrap();
            created.metadata.contains_key(PUBLIC)
        };
        for by_default in [false, true] {
            let asked = |asked: bool| json!({ "network": { "allowPublicTraffic": asked } });
            assert!(is_public(asked(true), by_default));
            assert!(!is_public(asked(false), by_default));
            assert_eq!(is_public(json!({ "network": {} }), by_default), by_default);
            assert_eq!(is_public(json!({}), by_default), by_default);
        }
    }

    #[test]
    fn a_timeout_ends_or_pauses() {
        let action = |more: &Value| request(more).unwrap().on_expiry.unwrap();
        assert_eq!(action(&json!({})), ExpiryAction::Terminate);
        assert_eq!(action(&json!({ "autoPause": true })), ExpiryAction::Pause);
        let files = json!({ "autoPause": true, "autoPauseMemory": false });
        assert_eq!(action(&files), ExpiryAction::Stop);
    }
}
