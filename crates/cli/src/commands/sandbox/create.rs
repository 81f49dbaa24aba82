//! `stockade create` and `stockade restore`: create a persistent sandbox and print its id.

use std::path::{Path, PathBuf};

use stockade_api::{
    CommandLine, CreateSandbox, Execute, Expiry, ExpiryAction, IdleAction, KillSandbox,
    PublishedPort, Sandbox,
};
use stockade_bundle::project::Project;
use stockade_core::runtime::RuntimeName;
use stockade_core::sandbox::{Root, User, Workspace};
use stockade_core::{Code, Problem, SandboxId, SnapshotId, Ttl};
use stockade_egress_control::Credential;
use stockade_review::CurrentProject;

use super::{secret, show};
use crate::args::image::PullPolicy;
use crate::args::ports;
use crate::args::sandbox::{Create, OnExpiry, Restore};
use crate::args::sandbox_flags::{Network, SecretFlags};
use crate::base;
use crate::commands::print::{escaped, notify, print, print_text};
use crate::data_dir::{data_path, open_data_dir};
use crate::devcontainer::DevContainer;
use crate::images;
use crate::problem::{Failure, caused};
use crate::profile::{self, Profile};
use crate::registry;
use crate::remote::chosen::chosen;
use crate::remote::{self, Remote};
use crate::request::{self, SandboxRequest};
use crate::secrets;
use crate::ssh_permissions;
use crate::upstream_proxy;

/// How many lines of the output of a failed command are shown.
const LAST_LINES: usize = 10;

/// The label with the script that runs each time that the sandbox was started again.
pub(super) const START_SCRIPT: &str = "stockade.post-start";

/// Creates a sandbox.
pub(crate) fn run(arguments: Create) -> Result<u8, Failure> {
    let (json, server_mode) = (arguments.json, arguments.server_mode);
    let Prepared { request, profile, values, script } = prepare(arguments)?;
    prepare_here(&request)?;
    let made = remote::with(server_mode, async |remote| {
        let made = create(&remote, request).await?;
        let made = give_values(&remote, made, values).await?;
        run_script(&remote, made, script).await
    })?;
    print_created(&made, profile.as_ref(), json)
}

/// Creates a sandbox. A server elsewhere downloads an image that it does not have, which takes a while.
pub(super) async fn create(remote: &Remote, request: CreateSandbox) -> Result<Sandbox, Problem> {
    let image = request.image.clone();
    let caller = remote.idempotent();
    let created = remote.sandboxes.create(&caller, request);
    match (chosen(), image) {
        (Some(_), Some(image)) => registry::elsewhere::with_progress(remote, &image, created).await,
        _ => created.await,
    }
}

/// Gives a new sandbox the values of its secrets. One that does not get them is removed.
pub(super) async fn give_values(
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
    let snapshot_id = SnapshotId::new(arguments.snapshot).map_err(|error| invalid(&error))?;
    if arguments.create.sandbox.devcontainer.is_some() {
        let message = "`restore` cannot use a devcontainer.json";
        return Err(Problem::new(Code::InvalidInput, message)
            .because("the snapshot has the files of a sandbox that was created already")
            .remedied_by("stockade create --devcontainer")
            .into());
    }
    let Prepared { request: sandbox, profile, values, .. } = prepare(arguments.create)?;
    prepare_here(&sandbox)?;
    let request = stockade_api::Restore { snapshot_id, sandbox };
    let made = remote::with(server_mode, async |remote| {
        let made = remote.sandboxes.restore(&remote.idempotent(), request).await?;
        give_values(&remote, made, values).await
    })?;
    print_created(&made, profile.as_ref(), json)
}

fn print_created(made: &Sandbox, profile: Option<&Profile>, json: bool) -> Result<u8, Failure> {
    if json {
        let mut answer = serde_json::to_value(made).map_err(|error| caused(Code::Io, &error))?;
        if let (Some(profile), Some(members)) = (profile, answer.as_object_mut()) {
            members.insert("profile".to_owned(), profile.to_json());
        }
        print(&answer)?;
    } else {
        if let Some(profile) = profile {
            notify(&escaped(&profile.line()));
        }
        for reason in made.isolation.iter().flat_map(|isolation| &isolation.reasons) {
            notify(&format!("note: {}", escaped(reason)));
        }
        print_text(&format!("{}\n", made.id))?;
        if let Some(requested) = fallback_from(made) {
            let (requested, selected) = (escaped(requested), escaped(&made.runtime));
            notify(&format!("note: the runtime is `{selected}`, the fallback for `{requested}`"));
        }
        let end = show::expiry(made);
        notify(&format!(
            "the sandbox is {}{end}; use it: stockade exec {} -- ls",
            made.state, made.id
        ));
    }
    Ok(0)
}

/// The requested runtime, if the fallback was selected instead.
fn fallback_from(made: &Sandbox) -> Option<&str> {
    let requested = made.requested_runtime.as_deref()?;
    let own = RuntimeName::select(requested).ok().map(RuntimeName::as_str).unwrap_or(requested);
    (own != made.runtime).then_some(requested)
}

/// Runs the script of a devcontainer.json in a new sandbox. One in which it fails is removed.
pub(super) async fn run_script(
    remote: &Remote,
    made: Sandbox,
    script: Option<String>,
) -> Result<Sandbox, Failure> {
    let Some(script) = script else { return Ok(made) };
    let Err(problem) = run_in(remote, &made.id, &script).await else { return Ok(made) };
    // The failure is reported in any case.
    let _ = remote.sandboxes.kill(&remote.idempotent(), KillSandbox::discarding(made.id)).await;
    Err(problem.into())
}

/// Runs a script of a devcontainer.json in a sandbox.
///
/// # Errors
/// It has failed: the last lines of its output are the cause.
pub(super) async fn run_in(remote: &Remote, id: &SandboxId, script: &str) -> Result<(), Problem> {
    let words = ["/bin/sh", "-c", script].map(str::to_owned);
    let execute = Execute {
        // What the command of a workspace may take.
        timeout_seconds: Some(Ttl::MAX.as_secs_f64()),
        ..Execute::new(id.clone(), CommandLine::Program(words.to_vec()))
    };
    let ended = remote.sandboxes.execute(&remote.idempotent(), execute).await?;
    let code = match ended.end.exit_code {
        Some(0) => return Ok(()),
        Some(code) => format!("exit code {code}"),
        None => "no exit code".to_owned(),
    };
    let message = format!("a command of the devcontainer.json failed with {code}");
    let output = String::from_utf8_lossy(&ended.stderr.0);
    let lines: Vec<_> = output.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
    Err(Problem::new(Code::LaunchFailed, message).because(escaped(&last)))
}

/// What `create` needs in addition to its request.
pub(super) struct Prepared {
    pub(super) request: CreateSandbox,
    pub(super) profile: Option<Profile>,
    pub(super) values: Vec<Credential>,
    /// The script that runs after the creation.
    pub(super) script: Option<String>,
}

/// The scripts of a devcontainer.json.
#[derive(Default)]
struct Scripts {
    after_creation: Option<String>,
    after_start: Option<String>,
}

/// The request for these arguments, for a caller that creates the sandbox later.
pub(crate) fn request(arguments: Create) -> Result<CreateSandbox, Problem> {
    let Prepared { request, values, script, .. } = prepare(arguments)?;
    if !values.is_empty() || script.is_some() {
        let message = "this sandbox cannot have secrets or a setup script";
        return Err(Problem::new(Code::Unsupported, message)
            .because("the profile that applies has them, and the sandbox is created later"));
    }
    base::prepare(&request)?;
    Ok(request)
}

pub(super) fn prepare(mut arguments: Create) -> Result<Prepared, Problem> {
    let current = std::env::current_dir().map_err(|error| {
        Problem::new(Code::Io, "cannot find the current directory").because(error.to_string())
    })?;
    let (profile, scripts) = apply_files(&mut arguments, &current)?;
    let values = secrets::read(&arguments.secrets.secret)?;
    let runtime = arguments.runtime.as_deref().and_then(|name| RuntimeName::select(name).ok());
    let of_engine = runtime.is_some_and(RuntimeName::has_own_images);
    if of_engine && arguments.sandbox.pull.is_some() {
        let name = runtime.map_or("", RuntimeName::as_str);
        let message =
            format!("`--pull` is for images of the store, and the runtime {name} uses others");
        return Err(Problem::new(Code::InvalidInput, message));
    }
    if let (Some(server), Some(_)) = (chosen(), arguments.sandbox.pull) {
        let message = "`--pull` is for the store of images on this machine";
        return Err(Problem::new(Code::InvalidInput, message)
            .because(format!("the sandbox would be created on {}", server.url))
            .remedied_by("on the server's machine: stockade image pull NAME"));
    }
    if arguments.sandbox.image.is_some() && !of_engine && chosen().is_none() {
        let data = open_data_dir(&data_path()?)?;
        registry::ensure_root(&data, &arguments.sandbox, &current, arguments.json)?;
        let note = arguments.sandbox.image.as_deref().map(|image| request::root(image, &current));
        if let Some(Root::Image(name)) = note {
            let of_ids = arguments.sandbox.user.is_none();
            let of_ids = of_ids.then(|| images::note_before_creation(&name, &data)).flatten();
            for note in images::unpinned_note(&name).into_iter().chain(of_ids) {
                notify(&format!("note: {}", escaped(&note)));
            }
        }
    }
    let mut request = request_in(arguments, &current)?;
    if let Some(script) = scripts.after_start {
        request.metadata.insert(START_SCRIPT.to_owned(), script);
    }
    Ok(Prepared { request, profile, values, script: scripts.after_creation })
}

/// Does what a sandbox needs on this machine; for one on another machine, refuses what names something
/// of this one.
pub(super) fn prepare_here(request: &CreateSandbox) -> Result<(), Problem> {
    let Some(server) = chosen() else { return base::prepare(request) };
    let url = &server.url;
    let is_path = request.image.as_deref().is_some_and(|image| image.starts_with('/'));
    let publishes = !request.publish.is_empty();
    let (what, remedy) = if let Some(workspace) = &request.workspace {
        let path = workspace.host.display();
        (format!("the workspace {path}"), format!("stockade cp {path} ID:/path"))
    } else if let Some(mount) = request.mounts.first() {
        let path = mount.host.display();
        (format!("the mount of {path}"), format!("stockade cp {path} ID:/path"))
    } else if is_path {
        let image = request.image.as_deref().unwrap_or_default();
        let remedy = format!("on the server's machine: stockade image import {image} NAME");
        (format!("the image {image}"), remedy)
    } else if publishes {
        ("a published port".to_owned(), "stockade forward ID HOST:INSIDE".to_owned())
    } else {
        return Ok(());
    };
    let message = format!("{what} is of this machine, and the sandbox would be on {url}");
    Err(Problem::new(Code::Unsupported, message)
        .because("the server on another machine does not see it")
        .remedied_by(remedy))
}

/// Adds the values of the profile that applies, and of a devcontainer.json; the result contains the scripts
/// of the latter. The project is that of the workspace, or else that of the current directory.
fn apply_files(
    arguments: &mut Create,
    current: &Path,
) -> Result<(Option<Profile>, Scripts), Problem> {
    let workspace = arguments.workspace.as_deref().map(workspace).transpose()?;
    let start = workspace.as_ref().map_or(current, |workspace| workspace.host.as_path());
    // A directory that cannot be a project, such as the home directory, has no file of a project.
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let project = Project::find(start, home.as_deref()).ok();
    let data = open_data_dir(&data_path()?)?;
    let chosen = profile::choose(arguments.sandbox.profile.as_deref(), project.as_ref(), &data)?;
    for note in &chosen.notes {
        notify(&format!("note: {}", escaped(note)));
    }
    let container = match (arguments.sandbox.devcontainer.as_deref(), &project) {
        (None, _) => None,
        (Some(name), Some(project)) => Some(DevContainer::trusted(project, name, &data)?),
        (Some(_), None) => {
            let message = "`--devcontainer` needs a project, and this directory is in none";
            return Err(Problem::new(Code::ProjectRefused, message));
        }
    };
    if let Some(profile) = &chosen.profile {
        let root = project.as_ref().map(|project| project.root.as_path());
        let inside = workspace.as_ref().map(|workspace| workspace.inside.as_path());
        let of_container = container.as_ref().map(|container| container.inside.as_path());
        let inside = inside.or(of_container).or(root).unwrap_or(current);
        profile.apply_to_create(arguments, inside)?;
    }
    let (Some(container), Some(project)) = (&container, &project) else {
        return Ok((chosen.profile, Scripts::default()));
    };
    let after_creation = container.apply_to_create(arguments, project)?;
    Ok((chosen.profile, Scripts { after_creation, after_start: container.start_script() }))
}

/// The request for these arguments, for a caller in this directory.
pub(crate) fn request_in(arguments: Create, current: &Path) -> Result<CreateSandbox, Problem> {
    let id = arguments.id.map(SandboxId::new).transpose().map_err(|error| invalid(&error))?;
    if arguments.sandbox.net == Some(Network::Learn) {
        let message =
            "`--net learn` writes the policy at the end of one command, so it is of `run`";
        return Err(Problem::new(Code::InvalidInput, message)
            .remedied_by("stockade run --net learn -- COMMAND"));
    }
    let workspace = arguments.workspace.map(|path| workspace(&path)).transpose()?;
    let project = CurrentProject::of(current).root().map(Path::to_owned);
    let of_workspace = workspace.as_ref().map(|workspace| workspace.host.as_path());
    let requested = SandboxRequest::read(
        &arguments.sandbox,
        workspace.as_ref(),
        of_workspace.or(project.as_deref()),
        current,
    )?;
    let SecretFlags { secret, strict_secrets } = arguments.secrets;
    secrets::refuse_set_twice(&secret, |name| requested.environment.contains_key(name))?;
    if let (Some(first), None) = (secret.first(), &requested.network) {
        return Err(secrets::without_network(first));
    }
    if let Some(User { user, group }) = requested.user
        && group != user
    {
        let message = format!("`--user {user}:{group}`: a sandbox has one id for user and group");
        return Err(Problem::new(Code::InvalidInput, message)
            .because("`stockade exec` accepts another group for one command")
            .remedied_by(format!("--user {user}")));
    }
    let ssh_agent = arguments.ssh_agent.as_deref();
    let ssh_agent =
        ssh_agent.map(|path| ssh_permissions::for_sandbox(path, current)).transpose()?;
    let has_network = requested.network.is_some();
    let upstream = upstream_proxy::read(arguments.upstream_proxy.as_deref(), has_network)?;
    Ok(CreateSandbox {
        id,
        image: match &requested.root {
            Root::Directory(path) => Some(text(path)?),
            Root::Image(name) => Some(name.clone()),
            Root::Host | Root::Snapshot(_) => None,
        },
        pull: match arguments.sandbox.pull {
            Some(PullPolicy::Never) => stockade_api::PullPolicy::Never,
            // What is always downloaded was downloaded by this command.
            Some(PullPolicy::Always | PullPolicy::Missing) | None => {
                stockade_api::PullPolicy::Missing
            }
        },
        private_base: requested.private_base.then_some(true),
        workspace,
        project,
        remote_workspace: arguments.remote_workspace.clone(),
        mounts: requested.mounts,
        volumes: requested.volumes,
        caches: requested.caches,
        environment: requested.environment,
        metadata: requested.labels,
        default_uid: requested.user.map(|user| user.user),
        working_directory: requested.working_directory,
        limits: requested.limits,
        output_limit_bytes: requested.output_limit_bytes,
        command_timeout_seconds: arguments
            .timeout
            .and_then(|limit| limit.0)
            .map(|length| length.as_secs_f64()),
        best_effort: requested.best_effort,
        network: requested.network.map(|mut network| {
            network.secrets = secret;
            network.strict_secrets = strict_secrets;
            network.upstream_proxy = upstream;
            network
        }),
        access_rules: requested.access_rules,
        ssh_agent,
        publish: arguments.publish.iter().map(published_port).collect(),
        expiry: match arguments.ttl {
            None => Expiry::Default,
            Some(until) => {
                until.0.map_or(Expiry::Never, |length| Expiry::Seconds(length.as_secs_f64()))
            }
        },
        idle_timeout_seconds: arguments
            .idle
            .and_then(|limit| limit.0)
            .map(|length| length.as_secs_f64()),
        on_expiry: Some(match arguments.on_expiry {
            OnExpiry::Stop => ExpiryAction::Stop,
            OnExpiry::Terminate => ExpiryAction::Terminate,
        }),
        keep: arguments.keep,
        runtime: arguments.runtime,
        fallback_runtime: arguments.fallback_runtime,
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
