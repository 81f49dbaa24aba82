//! Finding the server of a data directory, or starting one.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stockade_api::wire::ErrorBody;
use stockade_client::{Client, ServerDirectory};
use stockade_core::{Code, Problem};
use tokio::net::UnixStream;

use super::credentials::KEY;
use crate::problem::caused;
use crate::processes::SERVER;
use crate::programs::{self, BUILD, build_argument, sibling_program};

/// How long a new server may take until it responds.
const START: Duration = Duration::from_secs(30);

/// The interval between two attempts to reach a server that is starting: the first and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(100)];

/// The variables that a server inherits from its starter's environment, besides `STOCKADE_…`,
/// `DBOS_SANDBOX_…` and `CODEPLANE_…`.
const ENVIRONMENT: [&str; 7] = [
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "HOME",
    "PATH",
    "RUST_BACKTRACE",
    // The keys of the vault and of audit records are below it, for the server as for its user.
    "XDG_CONFIG_HOME",
];

/// Returns once a server listens at the socket.
pub(super) async fn find_or_start(data: &Path, directory: &ServerDirectory) -> Result<(), Problem> {
    match UnixStream::connect(directory.socket()).await {
        Ok(_) => directory.check_build(BUILD),
        Err(_) => replace(data, directory).await,
    }
}

/// Returns once a server responds at the socket, after an attempt to reach one has failed.
pub(super) async fn replace(data: &Path, directory: &ServerDirectory) -> Result<(), Problem> {
    let client = Client::new(directory.socket());
    if client.health().await.is_ok() {
        return directory.check_build(BUILD);
    }
    let deadline = Instant::now() + START;
    let mut started: Option<Child> = None;
    let mut is_held = false;
    let [mut pause, longest] = PAUSES;
    while Instant::now() < deadline {
        match &mut started {
            None => started = Some(start(data, directory)?),
            Some(child) => {
                if let Some(status) = child.try_wait().map_err(|error| caused(Code::Io, &error))? {
                    if let Some(problem) = reported_problem(child) {
                        return Err(problem);
                    }
                    if !status.success() {
                        return Err(start_failed(data, &status.to_string()));
                    }
                    // Another process holds the lock. That may be a server that is starting or
                    // ending.
                    is_held = true;
                    started = None;
                    pause = longest;
                }
            }
        }
        if client.health().await.is_ok() {
            return directory.check_build(BUILD);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
    if is_held {
        return Err(Problem::new(Code::Conflict, "another process uses the data directory")
            .because("a command with `--in-process` is running, or a server does not answer")
            .remedied_by("retry after that command has ended"));
    }
    Err(start_failed(data, &format!("it did not answer within {} seconds", START.as_secs())))
}

fn start(data: &Path, directory: &ServerDirectory) -> Result<Child, Problem> {
    let failed = |error: std::io::Error| caused(Code::Io, &error);
    let data = std::path::absolute(data).map_err(failed)?;
    let kept = |name: &str| {
        if name == KEY {
            // It is for another server.
            return false;
        }
        ENVIRONMENT.contains(&name)
            || name.starts_with("STOCKADE_")
            || name.starts_with("CODEPLANE_")
            || name.starts_with("DBOS_SANDBOX_")
    };
    let environment = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(kept));
    stockade_jail::inherit_nothing().map_err(failed)?;
    Command::new(sibling_program(programs::SERVER)?)
        .arg(SERVER)
        .arg(build_argument())
        .arg(data)
        .env_clear()
        .envs(environment)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(directory.log().map_err(failed)?)
        .spawn()
        .map_err(failed)
}

/// The problem that a server reported when it could not start.
fn reported_problem(child: &mut Child) -> Option<Problem> {
    let mut text = String::new();
    child.stdout.take()?.read_to_string(&mut text).ok()?;
    Some(serde_json::from_str::<ErrorBody>(&text).ok()?.error)
}

fn start_failed(data: &Path, how: &str) -> Problem {
    Problem::new(Code::Unreachable, "the local server failed to start").because(how).remedied_by(
        format!(
            "see {}, or run the server in the foreground: stockade serve",
            data.join("server/log").display()
        ),
    )
}
