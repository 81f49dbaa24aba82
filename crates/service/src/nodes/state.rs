//! Nodes that create sandboxes, and change or read their state.

use serde_json::{Map, Value, json};
use stockade_api::{
    ById, CreateSandbox, Expiry, GetSandbox, KillSandbox, Network, Problem, Renew, Result, Sandbox,
};
use stockade_core::Code;
use stockade_core::network::secret::BoundSecret;
use stockade_core::runtime::RuntimeName;

use super::ports::{Call, members, to_value};
use crate::failure::invalid;
use crate::fireflow::{self, Status};

/// The runtime of servers elsewhere.
const ELSEWHERE: &str = RuntimeName::OpenSandbox.as_str();

/// Creates a sandbox.
pub(super) async fn create(call: &Call<'_>) -> Result<Map<String, Value>> {
    let ports = call.ports;
    if ports.value("sandboxId").is_some() {
        return Err(invalid("SandboxCreateNode makes a `sandboxId`, and takes none"));
    }
    let mut network: Option<Network> = ports.optional("networkPolicy")?;
    let secrets: Vec<Value> = ports.or_default("secrets")?;
    if !secrets.is_empty() {
        let bound: Vec<BoundSecret> =
            serde_json::from_value(Value::Array(secrets)).map_err(|error| {
                Problem::new(Code::InvalidInput, "the input `secrets` is invalid")
                    .because(error.to_string())
            })?;
        network.get_or_insert_default().secrets.extend(bound);
    }
    let seconds: Option<f64> = ports.optional("timeoutSeconds")?;
    let named: Option<String> = ports.optional("runtime")?;
    let is_elsewhere = named.as_deref().is_none_or(|name| name == ELSEWHERE);
    let server = call.server.clone().filter(|_| is_elsewhere);
    let request = CreateSandbox {
        image: ports.optional("image")?.filter(|image: &String| image != "host"),
        limits: ports.or_default("resources")?,
        users: ports.or_default("users")?,
        default_uid: ports.optional("defaultUid")?,
        environment: ports.or_default("env")?,
        access_rules: ports.or_default("accessRules")?,
        network,
        proxy: ports.optional("proxyConfig")?,
        metadata: ports.or_default("metadata")?,
        workspace_id: ports.optional("workspaceId")?,
        runtime: named.or_else(|| server.as_ref().map(|_| ELSEWHERE.to_owned())),
        server,
        expiry: seconds.map_or(Expiry::Default, Expiry::Seconds),
        ..CreateSandbox::default()
    };
    let created =
        call.sandboxes.create(&call.caller_of("create"), fireflow::request(request)).await?;
    let mut outputs = view(&created);
    outputs.insert("image".to_owned(), json!(created.image));
    outputs.insert("createdAt".to_owned(), to_value(&created.created_at));
    Ok(outputs)
}

/// Changes or reads the state of a sandbox.
pub(super) async fn change(call: &Call<'_>, node: &str) -> Result<Map<String, Value>> {
    let (ports, sandboxes) = (call.ports, call.sandboxes);
    let id = ports.sandbox()?;
    match node {
        "SandboxKillNode" => {
            let request = KillSandbox { id, discard: ports.or_default("discard")? };
            let killed = sandboxes.kill(&call.caller_of("kill"), request).await?;
            let mut outputs = view(&killed);
            outputs.insert("terminatedAt".to_owned(), to_value(&killed.terminated_at));
            Ok(outputs)
        }
        "SandboxPauseNode" => {
            Ok(view(&sandboxes.pause(&call.caller_of("pause"), ById { id }).await?))
        }
        "SandboxResumeNode" => {
            Ok(view(&sandboxes.resume(&call.caller_of("resume"), ById { id }).await?))
        }
        "SandboxRenewNode" => {
            let ttl_seconds = Some(ports.required("timeoutSeconds")?);
            let request = Renew { id, ttl_seconds, shorten: ports.or_default("shorten")? };
            Ok(view(&sandboxes.renew(&call.caller_of("renew"), request).await?))
        }
        _ => {
            let metrics = ports.or_default("includeMetrics")?;
            let found = sandboxes.get_status(call.caller, GetSandbox { id, metrics }).await?;
            let mut outputs = view(&found);
            let rules = match found.access_rules.len() {
                0 => "none (all paths allowed)".to_owned(),
                count => format!("{count} rules"),
            };
            outputs.insert("isAlive".to_owned(), json!(!found.state.is_terminal()));
            outputs.insert("rules".to_owned(), json!(rules));
            outputs.insert("metrics".to_owned(), to_value(&found.metrics));
            outputs.insert("sandbox".to_owned(), row(&found));
            Ok(outputs)
        }
    }
}

/// The ports of every answer about a sandbox.
fn view(sandbox: &Sandbox) -> Map<String, Value> {
    members(json!({
        "sandboxId": sandbox.id,
        "status": Status::from_state(sandbox.state).as_str(),
        "expiresAt": sandbox.expires_at,
        "accessRules": sandbox.access_rules,
        "proxyConfig": sandbox.proxy,
    }))
}

/// The columns of FireFlow's table `fireflow_sandbox_instances`.
fn row(sandbox: &Sandbox) -> Value {
    json!({
        "id": sandbox.id,
        "owner_id": sandbox.owner_id,
        "execution_id": sandbox.execution_id,
        "workflow_id": sandbox.workflow_id,
        "image": sandbox.image,
        "status": Status::from_state(sandbox.state).as_str(),
        "visibility": sandbox.visibility,
        "workspace_id": sandbox.workspace_id,
        "access_rules": sandbox.access_rules,
        "sandbox_users": sandbox.users,
        "default_uid": sandbox.default_uid,
        "metadata": sandbox.metadata,
        "resource_spec": sandbox.limits,
        "proxy_config": sandbox.proxy,
        "created_at": sandbox.created_at,
        "expires_at": sandbox.expires_at,
        "terminated_at": sandbox.terminated_at,
    })
}
