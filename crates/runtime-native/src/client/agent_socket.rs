//! The socket of the ssh agent of a sandbox, in the sandbox's own directory.

use std::io;
use std::os::unix::net::UnixListener;

use stockade_core::SandboxId;
use stockade_plan::ssh_agent;
use stockade_runtime::{Error, Result};

use crate::directory::{Directory, name};

/// Makes it; it replaces an earlier one.
///
/// # Errors
/// [`Error::Invalid`] for a sandbox that was requested without one; [`Error::Host`].
pub(super) fn make(directory: &Directory, id: &SandboxId) -> Result<UnixListener> {
    let failed = |source: io::Error| Error::Host { path: format!("the ssh agent of {id}"), source };
    let opened = directory.sandbox(id).and_then(|own| own.open_dir(&name(ssh_agent::DIRECTORY)?));
    match opened {
        Ok(opened) => ssh_agent::listen(opened).map_err(failed),
        Err(error) if error.kind() == Some(io::ErrorKind::NotFound) => {
            Err(Error::Invalid(format!("the sandbox {id} was created without an ssh agent")))
        }
        Err(error) => Err(failed(io::Error::other(error))),
    }
}
