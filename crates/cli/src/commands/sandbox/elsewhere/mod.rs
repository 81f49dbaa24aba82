//! `stockade run --server URL`: a command in a sandbox of a server elsewhere, on a copy of the project
//! that is sent there. When the command has ended, the copy comes back into a view of this machine, so
//! that its changes become a bundle here, by the same checks as those of any other run.

mod receive;
mod send;

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::json;
use stockade_api::{CreateSandbox, Execute, ExecuteResult, KillSandbox, MakeDirectory, Sandbox};
use stockade_bundle::baseline::Baseline;
use stockade_bundle::beneath::Dir;
use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::ViewKind;
use stockade_bundle::project::{Git, Project};
use stockade_bundle::view::{self, View, ViewPurpose};
use stockade_core::access::Rules;
use stockade_core::{Code, Ending, OrNone, Problem, Ttl};
use tokio::signal::unix::{SignalKind, signal};

use super::attach::attach_until;
use super::create::{self, Prepared};
use super::exec::command_line;
use super::run_held;
use crate::args::Run;
use crate::args::sandbox::{Create, OnExpiry, ServerMode};
use crate::audit::Recording;
use crate::commands::print::{escaped, notify};
use crate::commands::run::{conclusion_json, print_conclusion};
use crate::output;
use crate::problem::{Failure, caused};
use crate::remote::chosen::chosen;
use crate::remote::{self, Remote};
use crate::run::{self, Conclusion};

/// A project that is sent, and where its changes come back to.
struct Sent {
    project: Project,
    data: DataDir,
    view: View,
    baseline: Baseline,
}

/// How the command ended.
enum Ended {
    /// It was attached to this program's streams.
    Attached(u8),
    /// Its output was captured.
    Captured(Box<ExecuteResult>),
}

impl Ended {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Attached(code) => *code,
            Self::Captured(result) => result.end.ending.process_exit_code(result.end.exit_code),
        }
    }
}

/// Runs the command; the exit code is the command's, or 125 if there was a problem with its changes.
pub(crate) fn run(arguments: Run) -> Result<u8, Failure> {
    refuse_unsupported(&arguments)?;
    let current = std::env::current_dir().map_err(|error| caused(Code::Io, &error))?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let project = run::project(&arguments, &current, home.as_deref())?;
    let data = run::data_of(&project)?;
    let mut details = run::audit_details(&project, &arguments);
    let url = chosen().map(|server| server.url.to_string()).unwrap_or_default();
    details.push(("server", url.as_str().into()));
    let recording = Recording::start(&data, "run", false, details)?;
    let done = run_recorded(&arguments, project, data, (&current, &url));
    match &done {
        Ok((code, bundle)) => {
            let bundle = bundle.as_ref().map(|(name, id)| (*name, id.as_str().into()));
            recording.end([("exitCode", (*code).into())].into_iter().chain(bundle).collect(), None);
        }
        Err(failure) => recording.end(Vec::new(), Some(failure.problem())),
    }
    Ok(done?.0)
}

/// The exit code, and what the audit record says about the bundle.
type Done = (u8, Option<(&'static str, String)>);

fn run_recorded(
    arguments: &Run,
    project: Project,
    data: DataDir,
    (current, url): (&Path, &str),
) -> Result<Done, Failure> {
    let directory = directory(arguments, current);
    let Prepared { request, profile, values, script } =
        create::prepare(create_arguments(arguments))?;
    check(&request)?;
    create::prepare_here(&request)?;
    let sent = Sent::copy(arguments, project, data)?;
    let mut execute_line = Some(command_line(arguments.command.clone()));
    let mut notes = sent.notes();
    // Where the project is in the sandbox.
    let root = arguments.inside.clone().unwrap_or_else(|| sent.project.root.clone());
    let (copy, spool) = (sent.directory()?, sent.data.path().to_owned());
    let ended = remote::with(ServerMode { in_process: false }, async |remote| {
        let made = create::create(&remote, request).await?;
        let made = create::give_values(&remote, made, values).await?;
        let uploaded = prepare_there(&remote, &made, (&root, &copy), script).await;
        let size = match uploaded {
            Ok(size) => size,
            Err(failure) => {
                end(&remote, &made).await?;
                return Err(failure);
            }
        };
        let line = execute_line.take().ok_or_else(interrupted)?;
        let mut execute = Execute::new(made.id.clone(), line);
        execute.working_directory = Some(directory.clone().into_os_string().into_vec().into());
        let ended = match arguments.json {
            true => {
                let executed = remote.sandboxes.execute(&remote.idempotent(), execute).await;
                executed.map(|result| Ended::Captured(Box::new(result))).map_err(Failure::from)
            }
            false => {
                let ended = attach_until(&remote, execute, arguments.tty, arguments.after_input);
                ended.await.map(Ended::Attached)
            }
        };
        let ended = ended.map_err(|failure| kept(failure, &made, &root))?;
        if !arguments.discard {
            let limits = run::bundle_limits(arguments);
            let received =
                receive::receive(&remote, &made.id, (&root, &spool), &copy, (size, &limits));
            let skipped = received.await.map_err(|failure| kept(failure, &made, &root))?;
            notes.extend(skipped);
        }
        end(&remote, &made).await?;
        Ok(ended)
    });
    let ended = match ended {
        Ok(ended) => ended,
        Err(failure) => {
            // Nothing of the command is in the view, or the sandbox still has all of it.
            let _ = sent.view.remove();
            return Err(failure);
        }
    };
    let code = ended.exit_code();
    let Sent { project, data, view, baseline } = sent;
    let outcome = Ending::Exited(code);
    let access = Rules::default();
    let concluded = run::conclude(
        arguments,
        &data,
        &project,
        &access,
        (view, None, None),
        (&outcome, &baseline),
    )?;
    let (conclusion, more) = concluded;
    notes.extend(more);
    report(&ended, (&conclusion, &notes), profile.map(|profile| profile.to_json()), url)?;
    let bundle = match &conclusion {
        Conclusion::Nothing | Conclusion::ViewKept(..) => None,
        Conclusion::Stored(bundle) | Conclusion::NotApplied(bundle, _) => {
            Some(("bundle", bundle.id().to_owned()))
        }
        Conclusion::Applied { id, .. } => Some(("appliedBundle", id.clone())),
    };
    let code = match conclusion {
        Conclusion::NotApplied(..) | Conclusion::ViewKept(..) => 125,
        Conclusion::Nothing | Conclusion::Stored(_) | Conclusion::Applied { .. } => code,
    };
    Ok((code, bundle))
}

/// Sends the project, and runs the script of a devcontainer.json. An interrupt ends it.
async fn prepare_there(
    remote: &Remote,
    made: &Sandbox,
    (root, copy): (&Path, &Dir),
    script: Option<String>,
) -> Result<u64, Failure> {
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(|error| caused(Code::Io, &error))?;
    let prepare = async {
        let path = root.as_os_str().as_bytes().to_vec();
        let request = MakeDirectory {
            sandbox_id: made.id.clone(),
            path: path.into(),
            mode: None,
            uid: None,
            gid: None,
        };
        remote.sandboxes.make_directory(&remote.idempotent(), request).await?;
        let size = send::send(remote, &made.id, root, copy).await?;
        if let Some(script) = script {
            create::run_in(remote, &made.id, &script).await?;
        }
        Ok(size)
    };
    tokio::select! {
        done = prepare => done,
        _ = interrupt.recv() => Err(interrupted()),
    }
}

fn interrupted() -> Failure {
    Problem::new(Code::Cancelled, "the run was interrupted before its command was started").into()
}

/// Ends the sandbox, of which nothing is needed any more.
async fn end(remote: &Remote, made: &Sandbox) -> Result<(), Failure> {
    let request = KillSandbox { id: made.id.clone(), discard: true };
    let killed = remote.sandboxes.kill(&remote.idempotent(), request).await;
    killed.map_err(|problem| {
        let kill = format!("stockade kill {}", made.id);
        if problem.remediation.is_some() { problem } else { problem.remedied_by(kill) }
    })?;
    Ok(())
}

/// A failure after which the sandbox is the only place of the changes, so that it is kept.
fn kept(failure: Failure, made: &Sandbox, root: &Path) -> Failure {
    let id = &made.id;
    notify(&format!(
        "the sandbox {id} still has the changed project: `stockade cp {id}:{} COPY`, then \
         `stockade kill {id}`",
        escaped(&root.display().to_string())
    ));
    failure
}

impl Sent {
    /// Copies the project, so that what is sent is what the changes are compared with.
    fn copy(arguments: &Run, project: Project, data: DataDir) -> Result<Self, Problem> {
        let started = view::coarse_now();
        let words = arguments.command.iter().map(|word| word.to_string_lossy().into_owned());
        let labels = arguments.sandbox.label.iter();
        let about = ViewPurpose {
            command: words.collect(),
            labels: labels.map(|pair| (pair.0.clone(), pair.1.clone())).collect(),
            image: None,
        };
        let view = View::create(&data, &project, ViewKind::Copy, None, about, started)
            .map_err(|error| caused(Code::Io, &error))?;
        let baseline = Baseline::read(&project, view.record().started, &AtomicBool::new(false));
        Ok(Self { project, data, view, baseline })
    }

    /// The copy.
    fn directory(&self) -> Result<Dir, Problem> {
        self.view.changed().reopen().map_err(|error| caused(Code::Io, &error))
    }

    fn notes(&self) -> Vec<String> {
        match &self.project.git {
            Git::Worktree { common_dir, .. } => vec![format!(
                "the repository of this worktree, {}, was not sent, so git does not work in the sandbox",
                common_dir.display()
            )],
            Git::None | Git::Directory | Git::Unverified => Vec::new(),
        }
    }
}

/// Refuses what a run on another machine cannot do.
fn refuse_unsupported(arguments: &Run) -> Result<(), Problem> {
    let refused = [
        (arguments.ssh_agent.is_some(), "--ssh-agent"),
        (arguments.keep_ignored, "--keep-ignored"),
        (arguments.learn_file.is_some(), "--learn-file"),
        (arguments.entrypoint.is_some(), "--entrypoint"),
        (!arguments.sandbox.tools.is_empty(), "--tools"),
        (!arguments.sandbox.access.is_empty(), "--access"),
    ];
    let url = chosen().map(|server| server.url.to_string()).unwrap_or_default();
    if let Some((_, flag)) = refused.into_iter().find(|(is_given, _)| *is_given) {
        let message = format!("a run on {url} does not support `{flag}`");
        return Err(Problem::new(Code::Unsupported, message)
            .because("the sandbox is on another machine, and has a copy of the project")
            .remedied_by(format!("omit `{flag}`, or run here: --server local")));
    }
    if arguments.command.is_empty() {
        let message = format!("a run on {url} needs a command, and starts no entrypoint");
        return Err(Problem::new(Code::InvalidInput, message)
            .remedied_by("stockade run --server URL -- COMMAND"));
    }
    Ok(())
}

/// Refuses a request that a profile has completed with what is about files of this machine.
fn check(request: &CreateSandbox) -> Result<(), Problem> {
    if request.access_rules.is_empty() {
        return Ok(());
    }
    Err(Problem::new(
        Code::Unsupported,
        "access rules are for a view of the project on this machine",
    )
    .because("a run elsewhere sends the whole project, so the rules would hide nothing of it")
    .remedied_by("use a profile without access rules: --profile none"))
}

/// The directory in which the command starts: the project has the same path in the sandbox as here.
fn directory(arguments: &Run, current: &Path) -> PathBuf {
    let Some(named) = &arguments.sandbox.cwd else { return current.to_owned() };
    let mut normal = PathBuf::new();
    for component in current.join(named).components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

fn create_arguments(arguments: &Run) -> Create {
    let mut arguments = arguments.clone();
    // It exists only after the project has been sent.
    arguments.sandbox.cwd = None;
    let limit = arguments.timeout.and_then(|limit| limit.0);
    let ttl = limit.map_or(run_held::TTL, |limit: Duration| limit.saturating_add(run_held::GRACE));
    Create {
        id: None,
        workspace: None,
        remote_workspace: None,
        sandbox: arguments.sandbox,
        secrets: arguments.secrets,
        ssh_agent: None,
        publish: Vec::new(),
        timeout: arguments.timeout,
        ttl: Some(OrNone(Some(ttl.min(Ttl::MAX)))),
        // Its files are the only copy of the changes until they are received.
        on_expiry: OnExpiry::Stop,
        keep: false,
        runtime: arguments.runtime,
        fallback_runtime: arguments.fallback_runtime,
        upstream_proxy: arguments.upstream_proxy,
        idle: Some(OrNone(None)),
        json: arguments.json,
        server_mode: ServerMode { in_process: false },
    }
}

/// Prints the result.
fn report(
    ended: &Ended,
    (conclusion, notes): (&Conclusion, &[String]),
    profile: Option<serde_json::Value>,
    url: &str,
) -> Result<(), Failure> {
    let result = match ended {
        Ended::Attached(code) => {
            for note in notes {
                notify(&format!("note: {}", escaped(note)));
            }
            print_conclusion(conclusion, *code);
            return Ok(());
        }
        Ended::Captured(result) => result,
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (bundle, view, problem) = conclusion_json(conclusion);
    output::print_json(&json!({
        "exitCode": ended.exit_code(),
        "signal": result.end.signal,
        "ending": result.end.ending,
        "reason": result.end.reason,
        "stdout": text(&result.stdout.0),
        "stdoutBytes": result.end.stdout_bytes,
        "stdoutTruncated": result.stdout_truncated,
        "stderr": text(&result.stderr.0),
        "stderrBytes": result.end.stderr_bytes,
        "stderrTruncated": result.stderr_truncated,
        "bundle": bundle,
        "view": view,
        "error": problem,
        "profile": profile,
        "notes": notes,
        "server": url,
        "refusedCalls": result.end.refused_calls,
        "durationMs": result.end.duration_ms,
    }))?;
    Ok(())
}
