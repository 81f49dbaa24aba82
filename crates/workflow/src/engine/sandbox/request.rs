//! The request of a `<Sandbox>`, which is checked before anything is created for it. Each unsupported
//! attribute is rejected by name.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use stockade_api::{Network, PublishedPort, VolumeMount};
use stockade_core::network::secret::BoundSecret;
use stockade_core::runtime::{Capability, RuntimeName, Support, Unselectable};
use stockade_core::sandbox::{HostMount, Limits, RemoteWorkspace};
use stockade_core::smithers_egress::{self, Contract};
use stockade_core::{VolumeName, parse_bytes, parse_cpus};
use stockade_service::allowed_host_path;

use super::at_server;
use crate::engine::commands::OUTPUT_LIMIT_BYTES;
use crate::engine::task_error::TaskError;
use crate::engine::{run_secrets, run_servers};
use crate::graph::{Sandbox, ToolLimits, nearest, unknown_egress};

/// The default runtime, as in the documentation of `<Sandbox>`.
pub(super) const DEFAULT_RUNTIME: &str = "bubblewrap";
/// The defaults of upstream.
const MAX_OUTPUT_BYTES: u64 = 200_000;
pub(super) const TOOL_TIMEOUT_MS: u64 = 60_000;
/// The mount points of the project, the request and the result in a sandbox.
pub(super) const WORKSPACE: &str = "/workspace";
pub(super) const REQUEST: &str = "/request";
pub(super) const RESULT: &str = "/result";
/// The directory below the result in which a child and the host exchange requests for nested sandboxes
/// and their results.
pub(super) const NESTED: &str = "nested";
/// Stored instead of a value that must not be stored.
const REDACTED: &str = "[redacted]";

/// A request to a runtime of this host.
#[derive(Debug)]
pub(super) struct Local {
    /// The service's name of the requested runtime.
    pub(super) runtime: &'static str,
    /// The service's name of the selected runtime: the requested one, until another was selected.
    pub(super) selected: String,
    /// The service's name of its fallback, if there is one.
    pub(super) fallback: Option<&'static str>,
    pub(super) image: Option<String>,
    /// The image with the digest of what its name meant when the attempt started.
    pub(super) selected_image: Option<String>,
    pub(super) ports: Vec<PublishedPort>,
    /// The environment variables of each process in the sandbox.
    pub(super) environment: BTreeMap<String, String>,
    pub(super) mounts: Vec<HostMount>,
    pub(super) volumes: Vec<VolumeMount>,
    pub(super) limits: Limits,
    /// The hosts that it may connect to; none if absent.
    pub(super) network: Option<Network>,
    /// The workspace of a service elsewhere that it is.
    pub(super) remote_workspace: Option<RemoteWorkspace>,
    /// After how many seconds without activity it is paused.
    pub(super) idle_timeout_seconds: Option<f64>,
}

/// What was selected for an attempt, before anything of it was recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selected<'a> {
    /// The name of the runtime, or the id of the provider.
    pub(super) runtime: &'a str,
    /// The image with its digest.
    pub(super) image: Option<&'a str>,
}

impl<'a> Selected<'a> {
    /// A provider, by its id.
    pub(super) const fn provider(id: &'a str) -> Self {
        Self { runtime: id, image: None }
    }
}

impl Local {
    pub(super) fn selected(&self) -> Selected<'_> {
        Selected { runtime: &self.selected, image: self.selected_image.as_deref() }
    }
}

/// The maximum size of the result that a command writes; no more than is recorded.
pub(super) fn output_bytes(tools: ToolLimits) -> u64 {
    tools.output_bytes.unwrap_or(MAX_OUTPUT_BYTES).min(OUTPUT_LIMIT_BYTES)
}

/// The time limit of a tool, in milliseconds.
pub(super) fn timeout_ms(tools: ToolLimits) -> Option<u64> {
    tools.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1))
}

fn invalid(message: impl Into<String>) -> TaskError {
    TaskError::new("INVALID_INPUT", message)
}

/// The requested runtime: a provider, or one of this host.
pub(super) fn runtime(sandbox: &Sandbox) -> &str {
    let requested = sandbox.provider.as_deref().or(sandbox.runtime.as_deref());
    requested.unwrap_or(DEFAULT_RUNTIME)
}

/// Its egress contract, if it has one.
pub(super) fn contract(sandbox: &Sandbox) -> Result<Option<Contract>, TaskError> {
    // A workflow in Rust has no rendering that was checked.
    let unknown = sandbox.egress.as_ref().map(|it| unknown_egress(it, sandbox.provider.is_some()));
    if let Some(message) = unknown.into_iter().flatten().next() {
        return Err(invalid(message));
    }
    sandbox.contract().map_err(|error| invalid(error.to_string()))
}

/// The configuration as it is stored: without values of variables, certificates and bindings.
pub(super) fn config(sandbox: &Sandbox, selected: Selected<'_>, tools: ToolLimits) -> Value {
    let mut config = Map::new();
    config.insert("provider".to_owned(), json!(sandbox.provider));
    config.insert("runtime".to_owned(), runtime(sandbox).into());
    config.insert("selectedRuntime".to_owned(), selected.runtime.into());
    if let Some(image) = selected.image {
        config.insert("selectedImage".to_owned(), image.into());
    }
    // A provider always gets a time limit. A command on this host has no default limit.
    let usual = sandbox.provider.is_some().then_some(TOOL_TIMEOUT_MS);
    config.insert("maxOutputBytes".to_owned(), output_bytes(tools).into());
    config.insert("toolTimeoutMs".to_owned(), timeout_ms(tools).or(usual).into());
    for (name, value) in &sandbox.config {
        let value = match name.as_str() {
            "egress" => smithers_egress::redacted(value),
            "env" => sandbox.env.keys().map(|name| (name.clone(), Value::from(REDACTED))).collect(),
            "runtime" => continue,
            _ => value.clone(),
        };
        config.insert(name.clone(), value);
    }
    for (name, value) in [
        ("allowNetwork", sandbox.allow_network),
        ("reviewDiffs", sandbox.review_diffs),
        ("autoAcceptDiffs", sandbox.auto_accept_diffs),
    ] {
        config.insert(name.to_owned(), value.into());
    }
    Value::Object(config)
}

/// Builds the request to a runtime of this host.
///
/// # Errors
/// With a code of the documentation of `<Sandbox>` for unsupported attributes. In this case nothing is
/// created.
pub(super) fn local(
    sandbox: &Sandbox,
    contract: Option<&Contract>,
    run_environment: &BTreeMap<String, String>,
) -> Result<Local, TaskError> {
    let (requested, fallback) = selectable(sandbox)?;
    let server = run_servers::of(run_environment);
    if let Some(reason) = unsupported_attribute(sandbox, server) {
        return Err(invalid(reason));
    }
    let mut network = match has_open_network(requested, server) {
        true => None,
        false => network(sandbox, contract)?,
    };
    let (remote_workspace, idle_timeout_seconds) = remote_workspace(sandbox)?.unzip();
    let mut environment = sandbox.env.clone();
    environment.extend(contract.map(Contract::environment).unwrap_or_default());
    if let Some(contract) = contract {
        let secrets = bind_secrets(contract, run_environment, &mut environment)?;
        if !secrets.is_empty() {
            let network = network.as_mut().ok_or_else(|| {
                invalid("egress.secretBindings needs allowNetwork: add allowNetwork")
            })?;
            (network.secrets, network.strict_secrets) = (secrets, true);
        }
    }
    if let (Some(_), Some(contract)) = (&network, contract) {
        // Many programs read the lower-case names first, which the sandbox sets to its egress proxy.
        for (name, value) in contract.environment() {
            let is_proxy = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"].contains(&name.as_str());
            if is_proxy {
                environment.entry(name.to_lowercase()).or_insert(value);
            }
        }
    }
    if let Some(name) =
        environment.keys().find(|name| name.is_empty() || name.contains(['=', '\0']))
    {
        return Err(invalid(format!("{name:?} is not a valid variable name")));
    }
    let memory = sandbox.memory_limit.as_deref().map(|text| {
        parse_bytes(text).map_err(|error| invalid(format!("`memoryLimit` {text:?}: {error}")))
    });
    let cpus = sandbox.cpu_limit.as_deref().map(|text| {
        parse_cpus(text).map_err(|error| invalid(format!("`cpuLimit` {text:?}: {error}")))
    });
    let limits = Limits {
        memory_bytes: memory.transpose()?,
        cpu_millis: cpus.transpose()?,
        ..Limits::default()
    };
    let (mounts, volumes) = mounts(sandbox)?;
    Ok(Local {
        runtime: requested.as_str(),
        selected: requested.as_str().to_owned(),
        fallback: fallback.map(RuntimeName::as_str),
        image: sandbox.image.clone(),
        selected_image: None,
        ports: ports(sandbox)?,
        environment,
        mounts,
        volumes,
        limits,
        network,
        remote_workspace,
        idle_timeout_seconds: idle_timeout_seconds.flatten(),
    })
}

/// The requested runtime of this host, and its fallback.
fn selectable(sandbox: &Sandbox) -> Result<(RuntimeName, Option<RuntimeName>), TaskError> {
    let named =
        |name: &str| RuntimeName::select(name).map_err(|why| unsupported_runtime(name, why));
    let fallback = sandbox.fallback_runtime.as_deref().map(named).transpose()?;
    let requested = named(runtime(sandbox))?;
    if let Some(open) =
        [Some(requested), fallback].into_iter().flatten().find(|it| it.has_open_network())
        && fallback.is_some_and(|fallback| fallback != requested)
    {
        // What `allowNetwork` and `workspace` mean differs too much.
        return Err(invalid(format!(
            "the runtime `{open}` can neither have nor be a `fallbackRuntime`: omit it"
        )));
    }
    Ok((requested, fallback))
}

/// Why a sandbox can never be executed; `None` if it can. The same checks as when it is executed.
pub(in crate::engine) fn impossible(
    sandbox: &Sandbox,
    environment: &BTreeMap<String, String>,
) -> Option<String> {
    if sandbox.workflow.is_none() && sandbox.command.is_none() && sandbox.provider.is_none() {
        return Some("a <Sandbox> needs `workflow`, children, or `command`".to_owned());
    }
    let placed = match at_server::place(sandbox, environment) {
        Ok(placed) => placed,
        Err(refused) => return Some(refused.message),
    };
    let (sandbox, url) = match &placed {
        Some(placed) => (placed, run_servers::of(environment)),
        None => (sandbox, None),
    };
    let checked = contract(sandbox).and_then(|contract| match sandbox.provider {
        Some(_) => Ok(()),
        None => local(sandbox, contract.as_ref(), environment).map(drop),
    });
    let remedy = url.map(at_server::remedy).unwrap_or_default();
    checked.err().map(|error| error.message + &remedy)
}

/// Why no requested runtime can ever execute a sandbox, because of one of its attributes. `None` if
/// one can, and if the names of the runtimes have to be judged first.
fn unsupported_attribute(sandbox: &Sandbox, server: Option<&str>) -> Option<String> {
    if sandbox.provider.is_some() {
        return None;
    }
    let requested = runtime(sandbox);
    let named = |name| Some((name, RuntimeName::select(name).ok()?));
    let lacking = unsupported_by(sandbox, named(requested)?, server)?;
    let fallback = sandbox.fallback_runtime.as_deref();
    let is_granted = fallback
        .and_then(named)
        .is_some_and(|named| unsupported_by(sandbox, named, server).is_none());
    (!is_granted).then_some(lacking)
}

/// Whether the sandboxes of a runtime may reach a network although none was requested. Those of a run that
/// has named a server do not: it is another Stockade.
fn has_open_network(runtime: RuntimeName, server: Option<&str>) -> bool {
    runtime.has_open_network() && !(runtime == at_server::RUNTIME && server.is_some())
}

fn unsupported_by(
    sandbox: &Sandbox,
    (name, own): (&str, RuntimeName),
    server: Option<&str>,
) -> Option<String> {
    let is_open = has_open_network(own, server);
    if sandbox.workspace.is_some() && !own.has_remote_workspaces() {
        return Some(format!("the runtime `{name}` does not support `workspace`"));
    }
    if is_open {
        let names_hosts = |contract: Contract| {
            contract.allow_hosts.is_some() || !contract.secret_bindings.is_empty()
        };
        if !sandbox.allow_network {
            return Some(format!(
                "the runtime `{name}` needs `allowNetwork`: its sandboxes may reach the network, and \
                 nothing on this machine can prevent that"
            ));
        }
        if sandbox.contract().ok().flatten().is_some_and(names_hosts) {
            return Some(format!(
                "the runtime `{name}` does not support `egress.allowHosts` and \
                 `egress.secretBindings`: nothing on this machine sees its connections"
            ));
        }
    }
    let needed = [
        ("image", Capability::HostRoot, sandbox.image.is_none()),
        ("image", Capability::Images, sandbox.image.is_some()),
        ("ports", Capability::Ports, !sandbox.ports.is_empty()),
        ("volumes", Capability::HostMounts, has_volume(sandbox, true)),
        ("volumes", Capability::Volumes, has_volume(sandbox, false)),
        ("memoryLimit", Capability::MemoryLimit, sandbox.memory_limit.is_some()),
        ("cpuLimit", Capability::CpuLimit, sandbox.cpu_limit.is_some()),
        ("allowNetwork", Capability::Egress, sandbox.allow_network && !is_open),
    ];
    needed.into_iter().filter(|(_, _, is_requested)| *is_requested).find_map(
        |(attribute, capability, _)| match (own.declares(capability), capability) {
            (Support::No(reason), Capability::HostRoot) => {
                Some(format!("the runtime `{name}` needs `{attribute}`: {reason}"))
            }
            (Support::No(reason), _) => {
                Some(format!("the runtime `{name}` does not support `{attribute}`: {reason}"))
            }
            (Support::Yes | Support::Conditional(_), _) => None,
        },
    )
}

/// The workspace of a service elsewhere, and its idle timeout.
fn remote_workspace(
    sandbox: &Sandbox,
) -> Result<Option<(RemoteWorkspace, Option<f64>)>, TaskError> {
    let Some(fields) = &sandbox.workspace else { return Ok(None) };
    let text = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(invalid(format!("`workspace.{name}` must be a string"))),
    };
    let name = text("name")?.ok_or_else(|| invalid("`workspace` needs `name`"))?;
    let keep = match text("persistence")?.as_deref() {
        None | Some("ephemeral") => false,
        Some("sticky") => true,
        Some(_) => {
            return Err(invalid("`workspace.persistence` must be \"ephemeral\" or \"sticky\""));
        }
    };
    let idle =
        match fields.get("idleTimeoutSecs") {
            None | Some(Value::Null) => None,
            Some(value) => {
                let seconds = value.as_f64().filter(|it| it.is_finite() && *it > 0.0);
                Some(seconds.ok_or_else(|| {
                    invalid("`workspace.idleTimeoutSecs` must be a number above 0")
                })?)
            }
        };
    let workspace = RemoteWorkspace { name, snapshot: text("snapshotId")?, keep };
    workspace.check().map_err(invalid)?;
    Ok(Some((workspace, idle)))
}

/// The ports of the host that lead into the sandbox.
fn ports(sandbox: &Sandbox) -> Result<Vec<PublishedPort>, TaskError> {
    let number = |port: &Value, name: &str| {
        let found = port.get(name).and_then(Value::as_u64);
        found.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)
    };
    let port = |port: &Value| match (number(port, "host"), number(port, "container")) {
        (Some(host), Some(inside)) => {
            Ok(PublishedPort { address: Ipv4Addr::LOCALHOST.into(), host, inside })
        }
        _ => Err(invalid("`ports` must be a list of { host, container }, each from 1 to 65535")),
    };
    sandbox.ports.iter().map(port).collect()
}

/// The secrets of a contract that the caller of the run has bound to hosts. Other ones are those of a
/// proxy that the contract names. Stockade makes the placeholders itself, and gives them in the variables
/// of the secrets' names, so a variable of that name with the placeholder of the contract is removed.
fn bind_secrets(
    contract: &Contract,
    run_environment: &BTreeMap<String, String>,
    environment: &mut BTreeMap<String, String>,
) -> Result<Vec<BoundSecret>, TaskError> {
    let mut bound = run_secrets::bound(run_environment).map_err(invalid)?;
    let names = &contract.secret_bindings;
    bound.retain(|secret| names.values().any(|name| *name == secret.name));
    for BoundSecret { name, .. } in &bound {
        let placeholders = names.iter().filter(|(_, own)| *own == name).map(|(it, _)| it);
        for placeholder in placeholders {
            environment.retain(|variable, value| variable != name || value != placeholder);
            if let Some(other) = environment.iter().find(|(_, value)| *value == placeholder) {
                let message = format!(
                    "the variable {} has the placeholder of the secret {name}, which is given in the \
                     variable {name}: rename it to {name}",
                    other.0
                );
                return Err(invalid(message));
            }
        }
        if environment.contains_key(name) {
            return Err(invalid(format!("the environment and `up --secret` both set {name}")));
        }
    }
    Ok(bound)
}

/// The hosts that a sandbox may connect to: with `allowNetwork`, those of its contract.
///
/// # Errors
/// `INVALID_INPUT` for hosts without `allowNetwork`.
pub(super) fn network(
    sandbox: &Sandbox,
    contract: Option<&Contract>,
) -> Result<Option<Network>, TaskError> {
    let names_hosts = contract.is_some_and(|contract| contract.allow_hosts.is_some());
    if !sandbox.allow_network {
        return match names_hosts {
            true => Err(invalid(
                "egress.allowHosts needs allowNetwork: add allowNetwork, or remove allowHosts",
            )),
            false => Ok(None),
        };
    }
    let usual = Contract::default();
    let (default, allow) = contract.unwrap_or(&usual).network_rules();
    Ok(Some(Network { allow, default, ..Network::default() }))
}

/// The error for a name that selects no runtime of this host.
fn unsupported_runtime(runtime: &str, why: Unselectable) -> TaskError {
    let reason = match why {
        Unselectable::Unknown => {
            let hint = nearest(runtime, RuntimeName::KNOWN)
                .map(|suggestion| format!(" — did you mean {suggestion}?"))
                .unwrap_or_default();
            return invalid(format!("Unsupported sandbox runtime: {runtime}{hint}"));
        }
        Unselectable::NotSupported(reason) => reason,
    };
    let message = format!("the runtime `{runtime}` is not supported: {reason}");
    if runtime == "cloudflare" {
        return invalid(message);
    }
    TaskError::new("SANDBOX_EXECUTION_FAILED", message)
}

/// Refuses a path of the host that is in none of the allowed directories. Links are followed first,
/// and the mounts then have the paths that they lead to.
pub(super) fn check_host_paths(
    mounts: &mut [HostMount],
    allowed: Option<&[PathBuf]>,
) -> Result<(), TaskError> {
    let Some(allowed) = allowed else { return Ok(()) };
    for mount in mounts {
        let refused = || {
            let path = mount.host.display();
            invalid(format!(
                "the volume {path} is a path of the host that this server does not allow: use the \
                 name of a volume, or add the directory to STOCKADE_HOST_PATHS of the server"
            ))
        };
        mount.host = allowed_host_path(&mount.host, allowed).ok_or_else(refused)?;
    }
    Ok(())
}

/// Whether the sandbox mounts a path of the host, or a named volume.
fn has_volume(sandbox: &Sandbox, is_host_path: bool) -> bool {
    sandbox.volumes.iter().any(|volume| volume.host.contains('/') == is_host_path)
}

/// The paths of the host and the volumes that a sandbox mounts. As in Docker, what contains no slash is
/// the name of a volume.
fn mounts(sandbox: &Sandbox) -> Result<(Vec<HostMount>, Vec<VolumeMount>), TaskError> {
    let (mut mounts, mut volumes) = (Vec::new(), Vec::new());
    for volume in &sandbox.volumes {
        let (host, inside) = (PathBuf::from(&volume.host), PathBuf::from(&volume.container));
        let is_named = !volume.host.is_empty() && !volume.host.contains('/');
        if !inside.is_absolute() || (!host.is_absolute() && !is_named) {
            let message = format!(
                "the volume {}:{} needs absolute paths, or the name of a volume",
                volume.host, volume.container
            );
            return Err(invalid(message));
        }
        let reserved = [WORKSPACE, REQUEST, RESULT, "/opt/stockade"];
        if reserved.iter().any(|reserved| {
            inside.starts_with(reserved) || std::path::Path::new(reserved).starts_with(&inside)
        }) {
            let message = format!(
                "a volume cannot be mounted at {}, which is reserved for the sandbox itself",
                volume.container
            );
            return Err(invalid(message));
        }
        if is_named {
            let name = VolumeName::new(volume.host.as_str())
                .map_err(|error| invalid(error.to_string()))?;
            let read_only = volume.is_read_only;
            volumes.push(VolumeMount { name, inside, read_only, sub_path: None });
        } else {
            mounts.push(HostMount { host, inside, writable: !volume.is_read_only });
        }
    }
    Ok((mounts, volumes))
}

/// What an event says about the image of a sandbox, with a warning where the name has neither a tag nor
/// a digest.
pub(super) fn about_image(image: &str) -> Value {
    let last = image.rsplit('/').next().unwrap_or(image);
    let is_name = image != "host" && !image.starts_with('/') && !image.starts_with("snapshot:");
    let mut about = json!({ "image": image });
    if is_name && !last.contains([':', '@']) {
        about["warning"] = format!(
            "the image {image} has neither a tag nor a digest: `latest` is used, which changes"
        )
        .into();
    }
    about
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_may_change_its_meaning_has_a_warning() {
        for (image, is_warned) in [
            ("node", true),
            ("localhost:5000/team/app", true),
            ("node:20", false),
            ("localhost:5000/team/app:1", false),
            ("node@sha256:00", false),
            ("host", false),
            ("/srv/root", false),
            ("snapshot:s1", false),
        ] {
            let about = about_image(image);
            assert_eq!(about["image"], image);
            assert_eq!(about["warning"].is_string(), is_warned, "{about}");
        }
    }

    #[test]
    fn a_path_of_the_host_must_be_allowed_where_there_is_a_list() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        for directory in ["shared/below", "other"] {
            std::fs::create_dir_all(path(directory)).unwrap();
        }
        std::os::unix::fs::symlink(path("other"), path("shared/link")).unwrap();
        let allowed = [path("shared"), path("missing")];
        let check = |name: &str, allowed: Option<&[PathBuf]>| {
            let mount = HostMount { host: path(name), inside: "/m".into(), writable: false };
            check_host_paths(&mut [mount], allowed).is_ok()
        };
        assert!(check("other", None));
        assert!(check("shared", Some(&allowed)) && check("shared/below", Some(&allowed)));
        for bad in ["other", "shared/link", "shared/../other", "missing", ""] {
            assert!(!check(bad, Some(&allowed)), "{bad}");
        }
        assert!(!check("shared", Some(&[])));
    }
}
