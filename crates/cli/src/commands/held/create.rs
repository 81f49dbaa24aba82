//! `stockade create` and `stockade restore`: a sandbox that lives on, and its id.

use std::path::{Path, PathBuf};

use stockade_api::{CreateSandbox, Expiry, IdleAction, Network, Sandbox};
use stockade_core::network::Allowed;
use stockade_core::sandbox::{HostMount, LimitName, Limits, Workspace};
use stockade_core::{Code, Problem, SandboxId, SnapshotId};

use super::{print, print_text, say, show, shown};
use crate::args;
use crate::args::held::{Create, Limit, Pair, Restore};
use crate::problem::{Failure, caused};
use crate::remote;
use crate::run::allowed;

/// Makes one.
pub(crate) fn run(arguments: Create) -> Result<u8, Failure> {
    let (json, way) = (arguments.json, arguments.way);
    let request = request(arguments)?;
    let made = remote::with(way, async |remote| {
        Ok(remote.sandboxes.create(&remote.once(), request).await?)
    })?;
    tell(&made, json)
}

/// Makes one from a snapshot.
pub(crate) fn restore(arguments: Restore) -> Result<u8, Failure> {
    let (json, way) = (arguments.create.json, arguments.create.way);
    let snapshot_id = SnapshotId::new(arguments.snapshot).map_err(|error| invalid(&error))?;
    let request = stockade_api::Restore { snapshot_id, sandbox: request(arguments.create)? };
    let made = remote::with(way, async |remote| {
        Ok(remote.sandboxes.restore(&remote.once(), request).await?)
    })?;
    tell(&made, json)
}

fn tell(made: &Sandbox, json: bool) -> Result<u8, Failure> {
    if json {
        print(made)?;
    } else {
        for reason in made.isolation.iter().flat_map(|isolation| &isolation.reasons) {
            say(&format!("note: {}", shown(reason)));
        }
        print_text(&format!("{}\n", made.id))?;
        let end = show::expiry(made);
        say(&format!(
            "the sandbox is {}{end}; use it: stockade exec {} -- ls",
            made.state, made.id
        ));
    }
    Ok(0)
}

fn request(arguments: Create) -> Result<CreateSandbox, Problem> {
    let id = arguments.id.map(SandboxId::new).transpose().map_err(|error| invalid(&error))?;
    let map = |pairs: Vec<Pair>| pairs.into_iter().map(|Pair(name, value)| (name, value)).collect();
    let workspace = arguments.workspace.map(|path| workspace(&path)).transpose()?;
    let working_directory = arguments.cwd.or_else(|| workspace.as_ref().map(start));
    Ok(CreateSandbox {
        id,
        image: arguments.image.map(|image| absolute_image(&image)).transpose()?,
        workspace,
        mounts: arguments.mount.iter().map(|text| mount(text)).collect::<Result<_, _>>()?,
        environment: map(arguments.env),
        metadata: map(arguments.label),
        default_uid: arguments.user,
        working_directory,
        limits: Limits {
            memory_bytes: arguments.memory,
            cpu_millis: arguments.cpus,
            processes: arguments.pids,
            disk_bytes: arguments.disk,
        },
        best_effort: arguments
            .best_effort
            .iter()
            .map(|limit| match limit {
                Limit::Memory => LimitName::Memory,
                Limit::Cpus => LimitName::Cpus,
                Limit::Processes => LimitName::Processes,
                Limit::Disk => LimitName::Disk,
            })
            .collect(),
        network: network(arguments.net, &arguments.allow)?,
        access_rules: arguments.access.iter().map(|text| rule(text)).collect::<Result<_, _>>()?,
        expiry: match arguments.ttl {
            None => Expiry::Default,
            Some(until) => {
                until.0.map_or(Expiry::Never, |length| Expiry::Seconds(length.as_secs_f64()))
            }
        },
        idle_timeout_seconds: arguments.idle.map(|length| length.as_secs_f64()),
        on_idle: IdleAction::Pause,
        ..CreateSandbox::default()
    })
}

fn network(net: Option<args::Network>, allow: &[Allowed]) -> Result<Option<Network>, Problem> {
    let allowed = allowed(net, allow)?;
    Ok(allowed.map(|allow| Network { allow: allow.to_vec(), ..Network::default() }))
}

fn invalid(error: &dyn std::error::Error) -> Problem {
    caused(Code::InvalidInput, error)
}

/// A directory by its absolute path, or the name of an image as it is.
fn absolute_image(image: &str) -> Result<String, Problem> {
    let is_path = image.starts_with(['.', '/']) || Path::new(image).is_dir();
    if !is_path {
        return Ok(image.to_owned());
    }
    let path = std::fs::canonicalize(image).map_err(|error| {
        Problem::new(Code::InvalidInput, format!("cannot use the image {image}"))
            .because(error.to_string())
    })?;
    path.into_os_string()
        .into_string()
        .map_err(|_| Problem::new(Code::InvalidInput, "the path of an image must be text"))
}

fn workspace(argument: &Path) -> Result<Workspace, Problem> {
    // A directory whose own name holds a colon is one.
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

/// Where commands start in a sandbox with a workspace: as with `run` at the place where the caller
/// is, if that lies in the workspace, else in its root.
fn start(workspace: &Workspace) -> PathBuf {
    let below = std::env::current_dir().ok();
    let below = below.as_ref().and_then(|here| here.strip_prefix(&workspace.host).ok());
    match below {
        Some(below) if !below.as_os_str().is_empty() => workspace.inside.join(below),
        _ => workspace.inside.clone(),
    }
}

fn mount(text: &str) -> Result<HostMount, Problem> {
    let refused = || {
        Problem::new(Code::InvalidInput, format!("`--mount {text}` is not HOST:PATH[:ro]"))
            .remedied_by("--mount /host/path:/inside/path:ro")
    };
    let (rest, writable) = match text.strip_suffix(":ro") {
        Some(rest) => (rest, false),
        None => (text, true),
    };
    let (host, inside) = rest.rsplit_once(':').ok_or_else(refused)?;
    if !inside.starts_with('/') {
        return Err(refused());
    }
    let host = std::fs::canonicalize(host).map_err(|error| refused().because(error.to_string()))?;
    Ok(HostMount { host, inside: inside.into(), writable })
}

/// `EFFECT:LEVEL:PATH` as a rule; whether it makes sense is decided with the others.
fn rule(text: &str) -> Result<serde_json::Value, Problem> {
    let mut parts = text.splitn(3, ':');
    let (Some(effect), Some(level), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
        let message = format!("`--access {text}` is not EFFECT:LEVEL:PATH");
        return Err(
            Problem::new(Code::InvalidInput, message).remedied_by("--access allow:read:/src")
        );
    };
    Ok(serde_json::json!({ "effect": effect, "level": level, "path": path }))
}
