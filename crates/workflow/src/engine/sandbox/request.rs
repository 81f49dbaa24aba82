//! The request of a `<Sandbox>`, which is checked before anything is created for it. Each unsupported
//! attribute is rejected by name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use stockade_api::{Network, VolumeMount};
use stockade_core::sandbox::{HostMount, Limits};
use stockade_core::smithers_egress::{self, Contract};
use stockade_core::{VolumeName, parse_bytes, parse_cpus};

use crate::engine::commands::OUTPUT_LIMIT_BYTES;
use crate::engine::task_error::TaskError;
use crate::graph::{Sandbox, ToolLimits, nearest, unknown_egress};

/// The default runtime, as in the documentation of `<Sandbox>`.
pub(super) const DEFAULT_RUNTIME: &str = "bubblewrap";
/// The runtimes of this host: the default name, and Stockade's own name for it.
const LOCAL: [&str; 2] = [DEFAULT_RUNTIME, "native"];
const KNOWN: [&str; 5] = [DEFAULT_RUNTIME, "native", "docker", "codeplane", "cloudflare"];
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
    /// The service's name of the runtime.
    pub(super) runtime: &'static str,
    /// The environment variables of each process in the sandbox.
    pub(super) environment: BTreeMap<String, String>,
    pub(super) mounts: Vec<HostMount>,
    pub(super) volumes: Vec<VolumeMount>,
    pub(super) limits: Limits,
    /// The hosts that it may connect to; none if absent.
    pub(super) network: Option<Network>,
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
    let read = sandbox.egress.as_ref().map(Contract::parse);
    read.transpose().map_err(|error| invalid(error.to_string()))
}

/// The configuration as it is stored: without values of variables, certificates and bindings.
pub(super) fn config(sandbox: &Sandbox, selected: &str, tools: ToolLimits) -> Value {
    let mut config = Map::new();
    config.insert("provider".to_owned(), json!(sandbox.provider));
    config.insert("runtime".to_owned(), runtime(sandbox).into());
    config.insert("selectedRuntime".to_owned(), selected.into());
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
    let runtime = runtime(sandbox);
    if !LOCAL.contains(&runtime) {
        return Err(unsupported_runtime(runtime, run_environment));
    }
    let unsupported = [
        ("image", sandbox.image.is_some()),
        ("ports", !sandbox.ports.is_empty()),
        ("workspace", sandbox.workspace.is_some()),
    ];
    if let Some((name, _)) = unsupported.iter().find(|(_, is_asked)| *is_asked) {
        return Err(invalid(format!("the runtime `{runtime}` does not support `{name}`")));
    }
    let network = network(sandbox, contract)?;
    let mut environment = sandbox.env.clone();
    environment.extend(contract.map(Contract::environment).unwrap_or_default());
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
    Ok(Local { runtime: "native", environment, mounts, volumes, limits, network })
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

/// The error for an unsupported runtime.
fn unsupported_runtime(runtime: &str, environment: &BTreeMap<String, String>) -> TaskError {
    if !KNOWN.contains(&runtime) {
        let suggestion = nearest(runtime, KNOWN);
        let hint = suggestion
            .map(|suggestion| format!(" — did you mean {suggestion}?"))
            .unwrap_or_default();
        return invalid(format!("Unsupported sandbox runtime: {runtime}{hint}"));
    }
    let needed = ["CODEPLANE_API_URL", "CODEPLANE_API_KEY"];
    let missing = needed.into_iter().find(|name| !environment.contains_key(*name));
    if let (true, Some(name)) = (runtime == "codeplane", missing) {
        return invalid(format!("the runtime `codeplane` needs the variable {name}"));
    }
    if runtime == "cloudflare" {
        return invalid(
            "the runtime `cloudflare` needs a provider: @smithers-orchestrator/cloudflare",
        );
    }
    let message = format!(
        "the runtime `{runtime}` is not supported yet; `{DEFAULT_RUNTIME}` is the runtime of this host"
    );
    TaskError::new("SANDBOX_EXECUTION_FAILED", message)
}

/// Refuses a path of the host that is in none of the allowed directories. Links are followed first.
pub(super) fn check_host_paths(
    mounts: &[HostMount],
    allowed: Option<&[PathBuf]>,
) -> Result<(), TaskError> {
    let Some(allowed) = allowed else { return Ok(()) };
    let allowed: Vec<_> = allowed.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let is_allowed = |mount: &&HostMount| {
        let real = mount.host.canonicalize();
        real.is_ok_and(|real| allowed.iter().any(|directory| real.starts_with(directory)))
    };
    match mounts.iter().find(|mount| !is_allowed(mount)) {
        None => Ok(()),
        Some(mount) => Err(invalid(format!(
            "the volume {} is a path of the host that this server does not allow: use the name of a volume, or \
             add the directory to STOCKADE_HOST_PATHS of the server",
            mount.host.display()
        ))),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
            check_host_paths(&[mount], allowed).is_ok()
        };
        assert!(check("other", None));
        assert!(check("shared", Some(&allowed)) && check("shared/below", Some(&allowed)));
        for bad in ["other", "shared/link", "shared/../other", "missing", ""] {
            assert!(!check(bad, Some(&allowed)), "{bad}");
        }
        assert!(!check("shared", Some(&[])));
    }
}
