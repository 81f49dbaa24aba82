//! `stockade mcp`: the sandbox of a workspace, and `mcp wrap`, a server in a one-shot run, here or elsewhere. The standard
//! output belongs to the protocol: nothing of ours is printed there.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args as _, FromArgMatches as _};
use stockade_api::CreateSandbox;
use stockade_core::{Code, Problem};

use super::sandbox::{create, elsewhere};
use crate::args::Run;
use crate::args::mcp::Wrap;
use crate::args::sandbox::Create;
use crate::problem::{Failure, caused};
use crate::remote::chosen::chosen;

/// Where the server's own directory is visible.
const DIRECTORY: &str = "/workspace";
/// How long a server may take to end after its input has ended.
const AFTER_INPUT: Duration = Duration::from_secs(10);

/// The request for the sandbox of a workspace, as `stockade create --workspace` makes it, with the profile
/// that applies.
///
/// # Errors
/// If the directory cannot be a workspace.
pub fn workspace_request(
    directory: &Path,
    allow: &[stockade_core::network::AllowedHost],
) -> Result<CreateSandbox, Failure> {
    let directory = real(directory)?;
    let definition = Create::augment_args(clap::Command::new("create"));
    let parsed = definition.try_get_matches_from(["create"]);
    let parsed = parsed.and_then(|parsed| Create::from_arg_matches(&parsed));
    let mut arguments = parsed.map_err(|error| caused(Code::InvalidInput, &error))?;
    arguments.workspace = Some(directory.clone());
    arguments.sandbox.allow = allow.to_vec();
    arguments.sandbox.cwd.get_or_insert(directory);
    Ok(create::request(arguments)?)
}

/// Runs a server in a sandbox; the exit code is the server's.
///
/// # Errors
/// If the sandbox cannot be started.
pub(crate) fn wrap(arguments: Wrap) -> Result<u8, Failure> {
    let Wrap { workspace, mut sandbox, secrets, timeout, command } = arguments;
    // The policy is that of the command line: a default profile is for commands of a user.
    sandbox.profile.get_or_insert_with(|| "none".to_owned());
    let mut run = Run {
        discard: workspace.is_none(),
        sandbox,
        secrets,
        timeout,
        command,
        after_input: Some(AFTER_INPUT),
        ..Run::default()
    };
    let (directory, own) = match workspace {
        Some(directory) => (real(&directory)?, None),
        None => {
            let own = OwnDirectory::create()?;
            run.inside = Some(PathBuf::from(DIRECTORY));
            (real(&own.0)?, Some(own))
        }
    };
    let start = run.inside.as_ref().unwrap_or(&directory).clone();
    run.sandbox.cwd.get_or_insert(start);
    run.start = Some(directory);
    let ended = match chosen() {
        Some(_) => elsewhere::run(run),
        None => super::run::run(&run),
    };
    drop(own);
    ended
}

/// The path of a directory, without links.
fn real(directory: &Path) -> Result<PathBuf, Problem> {
    std::fs::canonicalize(directory).map_err(|error| {
        let message = format!("cannot use the workspace {}", directory.display());
        Problem::new(Code::InvalidInput, message).because(error.to_string())
    })
}

/// An empty directory of the host, which the sandbox sees copy-on-write.
struct OwnDirectory(PathBuf);

impl OwnDirectory {
    fn create() -> Result<Self, Problem> {
        let name = format!("stockade-mcp-{}", uuid::Uuid::now_v7().simple());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            let message = format!("cannot create {}", path.display());
            Problem::new(Code::Io, message).because(error.to_string())
        })?;
        Ok(Self(path))
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        // Nothing was written to it: the changes are in the sandbox.
        let _ = std::fs::remove_dir(&self.0);
    }
}
