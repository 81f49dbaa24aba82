//! `stockade create` and `stockade restore`: create a persistent sandbox and print its id.

use std::path::Path;

use stockade_api::{
    CreateSandbox, Expiry, ExpiryAction, IdleAction, KillSandbox, PublishedPort, Sandbox,
};
use stockade_core::sandbox::{Root, Workspace};
use stockade_core::{Code, Problem, SandboxId, SnapshotId};
use stockade_egress_control::Credential;

use super::{secret, show};
use crate::args::ports;
use crate::args::sandbox::{Create, OnExpiry, Restore};
use crate::args::sandbox_flags::SecretFlags;
use crate::commands::print::{escaped, notify, print, print_text};
use crate::problem::{Failure, caused};
use crate::remote::{self, Remote};
use crate::request::SandboxRequest;
use crate::secrets;

/// Creates a sandbox.
pub(crate) fn run(arguments: Create) -> Result<u8, Failure> {
    let (json, server_mode) = (arguments.json, arguments.server_mode);
    let values = secrets::read(&arguments.secrets.secret)?;
    let request = request(arguments)?;
    let made = remote::with(server_mode, async |remote| {
        let made = remote.sandboxes.create(&remote.idempotent(), request).await?;
        give_values(&remote, made, values).await
    })?;
    print_created(&made, json)
}

/// Gives a new sandbox the values of its secrets. One that does not get them is removed.
async fn give_values(
    remote: &Remote,
    made: Sandbox,
    values: Vec<Credential>,
) -> Result<Sandbox, Failure> {
    if values.is_empty() {
        return Ok(made);
    }
    match secret::give(remote, &made.id, values).await {
        Ok(sandbox) => Ok(Sandbox { network: sandbox.network, ..made }),
        Err(failure) => {
            let request = KillSandbox::discarding(made.id);
            // The failure is reported in any case.
            let _ = remote.sandboxes.kill(&remote.idempotent(), request).await;
            Err(failure)
        }
    }
}

/// Creates a sandbox from a snapshot.
pub(crate) fn restore(arguments: Restore) -> Result<u8, Failure> {
    let (json, server_mode) = (arguments.create.json, arguments.create.server_mode);
    let values = secrets::read(&arguments.create.secrets.secret)?;
    let snapshot_id = SnapshotId::new(arguments.snapshot).map_err(|error| invalid(&error))?;
    let request = stockade_api::Restore { snapshot_id, sandbox: request(arguments.create)? };
    let made = remote::with(server_mode, async |remote| {
        let made = remote.sandboxes.restore(&remote.idempotent(), request).await?;
        give_values(&remote, made, values).await
    })?;
    print_created(&made, json)
}

fn print_created(made: &Sandbox, json: bool) -> Result<u8, Failure> {
    if json {
        print(made)?;
    } else {
        for reason in made.isolation.iter().flat_map(|isolation| &isolation.reasons) {
            notify(&format!("note: {}", escaped(reason)));
        }
        print_text(&format!("{}\n", made.id))?;
        let end = show::expiry(made);
        notify(&format!(
            "the sandbox is {}{end}; use it: stockade exec {} -- ls",
            made.state, made.id
        ));
    }
    Ok(0)
}

fn request(arguments: Create) -> Result<CreateSandbox, Problem> {
    let current = std::env::current_dir().map_err(|error| {
        Problem::new(Code::Io, "cannot find the current directory").because(error.to_string())
    })?;
    request_in(arguments, &current)
}

/// The request for these arguments, for a caller in this directory.
pub(crate) fn request_in(arguments: Create, current: &Path) -> Result<CreateSandbox, Problem> {
    let id = arguments.id.map(SandboxId::new).transpose().map_err(|error| invalid(&error))?;
    let workspace = arguments.workspace.map(|path| workspace(&path)).transpose()?;
    let requested = SandboxRequest::read(&arguments.sandbox, workspace.as_ref(), current)?;
    let SecretFlags { secret, strict_secrets } = arguments.secrets;
    secrets::refuse_set_twice(&secret, |name| requested.environment.contains_key(name))?;
    if let (Some(first), None) = (secret.first(), &requested.network) {
        return Err(secrets::without_network(first));
    }
    Ok(CreateSandbox {
        id,
        image: match &requested.root {
            Root::Directory(path) => Some(text(path)?),
            Root::Image(name) => Some(name.clone()),
            Root::Host | Root::Snapshot(_) => None,
        },
        workspace,
        mounts: requested.mounts,
        environment: requested.environment,
        metadata: requested.labels,
        default_uid: requested.user.map(|user| user.user),
        working_directory: requested.working_directory,
        limits: requested.limits,
        output_limit_bytes: requested.output_limit_bytes,
        best_effort: requested.best_effort,
        network: requested.network.map(|mut network| {
            network.secrets = secret;
            network.strict_secrets = strict_secrets;
            network
        }),
        access_rules: requested.access_rules,
        publish: arguments.publish.iter().map(published_port).collect(),
        expiry: match arguments.ttl {
            None => Expiry::Default,
            Some(until) => {
                until.0.map_or(Expiry::Never, |length| Expiry::Seconds(length.as_secs_f64()))
            }
        },
        idle_timeout_seconds: arguments.idle.map(|length| length.as_secs_f64()),
        on_expiry: Some(match arguments.on_expiry {
            OnExpiry::Stop => ExpiryAction::Stop,
            OnExpiry::Terminate => ExpiryAction::Terminate,
        }),
        keep: arguments.keep,
        on_idle: IdleAction::Pause,
        ..CreateSandbox::default()
    })
}

const fn published_port(port: &ports::PublishedPort) -> PublishedPort {
    PublishedPort { address: port.address, host: port.ports.host, inside: port.ports.inside }
}

fn invalid(error: &dyn std::error::Error) -> Problem {
    caused(Code::InvalidInput, error)
}

fn text(path: &Path) -> Result<String, Problem> {
    let message = || format!("the path of the image {} is not UTF-8 text", path.display());
    path.to_str().map(str::to_owned).ok_or_else(|| Problem::new(Code::InvalidInput, message()))
}

fn workspace(argument: &Path) -> Result<Workspace, Problem> {
    // An existing directory whose own name contains `:/` is taken as it is.
    let (path, inside) = match argument.to_str().and_then(|text| text.rsplit_once(":/")) {
        Some((path, inside)) if !argument.exists() => {
            (Path::new(path), Some(Path::new("/").join(inside)))
        }
        _ => (argument, None),
    };
    let host = std::fs::canonicalize(path).map_err(|error| {
        Problem::new(Code::InvalidInput, format!("cannot use the workspace {}", path.display()))
            .because(error.to_string())
    })?;
    Ok(Workspace { inside: inside.unwrap_or_else(|| host.clone()), host })
}
