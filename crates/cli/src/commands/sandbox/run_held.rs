//! `stockade run --runtime`: a command in a sandbox of another runtime, which is created for the
//! command and terminated after it. The service holds it, so what only a run without a server can do is
//! refused.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_api::{Execute, KillSandbox};
use stockade_bundle::project::Project;
use stockade_core::runtime::RuntimeName;
use stockade_core::sandbox::Root;
use stockade_core::{Code, OrNone, Problem, Ttl};
use stockade_plan::image_root;

use super::attach::attach;
use super::create::{self, Prepared};
use super::exec::command_line;
use crate::args::sandbox::{Create, OnExpiry, ServerMode};
use crate::args::{Run, View};
use crate::commands::print::{escaped, notify};
use crate::data_dir::{data_path, open_data_dir};
use crate::images;
use crate::problem::{Failure, caused, short_id};
use crate::remote;
use crate::request;

/// How long the sandbox of a run without a time limit lives if this process dies.
pub(super) const TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How much longer than its command it lives.
pub(super) const GRACE: Duration = Duration::from_secs(60 * 60);

/// The runtime of a run, if the service has to hold its sandbox.
pub(crate) fn runtime(arguments: &Run) -> Option<&str> {
    let name = arguments.runtime.as_deref()?;
    (RuntimeName::select(name) != Ok(RuntimeName::Native)).then_some(name)
}

/// Runs the command; the exit code is the command's.
pub(crate) fn run(arguments: Run) -> Result<u8, Failure> {
    refuse_unsupported(&arguments)?;
    let current = std::env::current_dir().map_err(|error| caused(Code::Io, &error))?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let project = Project::find(&current, home.as_deref())
        .map_err(|error| caused(Code::ProjectRefused, &error))?;
    let (tty, discard) = (arguments.tty, arguments.discard);
    let has_directory = arguments.sandbox.cwd.is_some();
    let words = words(&arguments, &current)?;
    let Prepared { mut request, values, script, .. } =
        create::prepare(create_arguments(arguments, &project))?;
    request.on_expiry = Some(stockade_api::ExpiryAction::Terminate);
    let inside = request.workspace.as_ref().map(|workspace| workspace.inside.clone());
    remote::with(ServerMode { in_process: false }, async |remote| {
        let made = remote.sandboxes.create(&remote.idempotent(), request).await?;
        let made = create::give_values(&remote, made, values).await?;
        let made = create::run_script(&remote, made, script).await?;
        let mut execute = Execute::new(made.id.clone(), command_line(words));
        if let (false, Some(inside)) = (has_directory, inside) {
            let below = current.strip_prefix(&project.root).unwrap_or_else(|_| Path::new(""));
            execute.working_directory = Some(inside.join(below).into_os_string().into_vec().into());
        }
        let ended = attach(&remote, execute, tty).await;
        let request = KillSandbox { id: made.id.clone(), discard };
        let killed = remote.sandboxes.kill(&remote.idempotent(), request).await;
        let code = ended?;
        let killed = killed.map_err(|problem| {
            let kill = format!("stockade kill {}", made.id);
            if problem.remediation.is_some() { problem } else { problem.remedied_by(kill) }
        })?;
        if let Some(bundle) = &killed.bundle {
            let id = short_id(bundle);
            notify(&format!(
                "the changes are in a bundle: show with `stockade diff {id}`, apply with \
                 `stockade apply {id}`, delete with `stockade reject {id}`"
            ));
        }
        Ok(code)
    })
}

/// Refuses what only a run of the native runtime can do.
fn refuse_unsupported(arguments: &Run) -> Result<(), Problem> {
    let has = |is_there: bool, flag: &'static str| is_there.then_some(flag);
    let refused = [
        has(arguments.apply, "--apply"),
        has(arguments.json, "--json"),
        has(arguments.view == View::Copy, "--view"),
        has(arguments.keep_ignored, "--keep-ignored"),
        has(arguments.max_bundle.is_some(), "--max-bundle"),
        has(arguments.max_paths.is_some(), "--max-paths"),
    ];
    let Some(flag) = refused.into_iter().flatten().next() else { return Ok(()) };
    let name = arguments.runtime.as_deref().unwrap_or_default();
    let message = format!("`stockade run --runtime {}` does not support `{flag}`", escaped(name));
    Err(Problem::new(Code::InvalidInput, message)
        .because("the server holds the sandbox of such a run, as that of `stockade create`")
        .remedied_by(format!("omit `{flag}` or `--runtime`")))
}

/// The command, with the entrypoint of an image of the store. An image of an engine is known to the
/// engine alone.
fn words(arguments: &Run, current: &Path) -> Result<Vec<OsString>, Problem> {
    let selected = runtime(arguments).and_then(|name| RuntimeName::select(name).ok());
    let has_own_images = selected.is_some_and(RuntimeName::has_own_images);
    let named = arguments.sandbox.image.as_deref().map(|image| request::root(image, current));
    let start = match named {
        Some(Root::Image(_)) if has_own_images => {
            if arguments.command.is_empty() || arguments.entrypoint.is_some() {
                let message = "a run in a container needs a command, and starts no entrypoint";
                return Err(Problem::new(Code::InvalidInput, message)
                    .remedied_by("stockade run --runtime docker --image IMAGE -- COMMAND"));
            }
            None
        }
        Some(Root::Image(name)) => {
            let data = open_data_dir(&data_path()?)?;
            crate::registry::ensure_root(&data, &arguments.sandbox, current, false)?;
            let image = image_root::find(&name, &data).map_err(|error| images::problem(&error))?;
            Some(images::start(&image)?)
        }
        _ => None,
    };
    images::command(start.as_ref(), arguments.entrypoint.as_deref(), &arguments.command)
}

fn create_arguments(arguments: Run, project: &Project) -> Create {
    let Run {
        sandbox, secrets, timeout, runtime, fallback_runtime, upstream_proxy, ssh_agent, ..
    } = arguments;
    let limit = timeout.and_then(|limit| limit.0);
    let ttl = limit.map_or(TTL, |limit| limit.saturating_add(GRACE)).min(Ttl::MAX);
    Create {
        id: None,
        workspace: Some(project.root.clone()),
        remote_workspace: None,
        sandbox,
        secrets,
        ssh_agent,
        publish: Vec::new(),
        timeout,
        ttl: Some(OrNone(Some(ttl))),
        on_expiry: OnExpiry::Terminate,
        keep: false,
        runtime,
        fallback_runtime,
        upstream_proxy,
        idle: Some(OrNone(None)),
        json: false,
        server_mode: ServerMode { in_process: false },
    }
}
