//! A process that is inside a sandbox itself: it can create no sandbox, and executes the commands
//! of workflows in the sandbox that it is in.
//!
//! The kernel reports whether the process is confined ([`stockade_jail::confined`]), never a
//! variable or an argument. A variable additionally shows that Stockade has confined it: another
//! container may have a network and files that commands must not access.

use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_core::{Code, Problem};
use stockade_jail::confined;
use stockade_jail::network::PROXY_PORT;
use stockade_workflow::engine::OuterSandbox;

/// The variable that processes in Stockade's sandboxes have in their environment.
const SANDBOX_VARIABLE: &str = "STOCKADE";
/// The timeout of a connection to the loopback.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The child of a `<Sandbox>`, which has no sandboxes of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Child<'a> {
    /// The directory of its state.
    pub(crate) state: &'a Path,
    /// The directory for requests for nested sandboxes, if they are allowed.
    pub(crate) nested: Option<&'a Path>,
}

/// Whether this process is confined.
pub(crate) fn is_confined() -> bool {
    confined::is_already_confined()
}

/// Whether this process is in a sandbox of Stockade.
pub(crate) fn is_in_sandbox(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    is_confined() && variable(SANDBOX_VARIABLE).is_some()
}

/// The sandbox that this process is in, for commands that run in the directory of their workflow
/// file.
pub(crate) fn outer_sandbox() -> OuterSandbox {
    OuterSandbox::default().with_network(has_network())
}

/// The same for commands that run in `directory`; requests for nested sandboxes are made in
/// `nested`.
pub(crate) fn outer_sandbox_at(directory: PathBuf, nested: Option<PathBuf>) -> OuterSandbox {
    OuterSandbox::at(directory, nested).with_network(has_network())
}

/// Whether the sandbox that this process is in has network access: its proxy listens at a port that
/// no process inside can bind.
fn has_network() -> bool {
    let proxy = SocketAddr::from(([127, 0, 0, 1], PROXY_PORT));
    TcpStream::connect_timeout(&proxy, CONNECT_TIMEOUT).is_ok()
}

/// The data directory in a confined process: the given one, else one of the user. It is never in a
/// workspace, whose changes are reviewed after the sandbox has ended.
pub(crate) fn data(named: Option<PathBuf>) -> Result<PathBuf, Problem> {
    if let Some(named) = named {
        return Ok(named);
    }
    let user = rustix::process::geteuid().as_raw();
    let path = PathBuf::from(format!("/tmp/stockade-{user}"));
    let created = fs::DirBuilder::new().mode(0o700).create(&path);
    let metadata = created.or_else(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    });
    let metadata = metadata.and_then(|()| fs::symlink_metadata(&path));
    let metadata = metadata.map_err(|error| Problem::caused(Code::Io, &error))?;
    if metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o077 == 0 {
        return Ok(path);
    }
    let message =
        format!("{} belongs to another user, or other users can enter it", path.display());
    Err(Problem::new(Code::Io, message)
        .remedied_by("export STOCKADE_DATA_DIR=/a/directory/of/your/own"))
}
