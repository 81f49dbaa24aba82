//! The socket of an ssh agent: where it is outside, and how it is seen inside. Who serves it is not
//! known here.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, chmodat, unlinkat};
use stockade_core::sandbox::{SSH_AGENT_DIRECTORY, SSH_AGENT_SOCKET};
use stockade_jail::{Access, HostTree, Mount, Owners, Source};

use crate::error::Error;

/// The directory with the socket, in the own directory of a persistent sandbox.
pub const DIRECTORY: &str = "ssh";

/// Makes a socket in a directory that only its owner can enter. It replaces an earlier one.
/// Inside, every user may connect.
///
/// # Errors
/// The error of the kernel.
pub fn listen(directory: impl AsFd) -> io::Result<UnixListener> {
    let directory = directory.as_fd();
    match unlinkat(directory, SSH_AGENT_SOCKET, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    // The path of a socket is short, and that of a data directory may be long.
    let short = format!("/proc/self/fd/{}/{SSH_AGENT_SOCKET}", directory.as_raw_fd());
    let listener = UnixListener::bind(short)?;
    chmodat(directory, SSH_AGENT_SOCKET, Mode::from_raw_mode(0o666), AtFlags::empty())?;
    Ok(listener)
}

/// The directory of a persistent sandbox, which programs inside can only read. An agent that starts
/// again makes its socket there.
pub(crate) fn mount(own: &Path) -> Result<(PathBuf, Mount), Error> {
    let path = own.join(DIRECTORY);
    let failed = |source| Error::HostPath { path: path.clone(), source };
    match std::fs::create_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
    let tree = HostTree::open(&path).map_err(failed)?;
    let source = Source::Host { tree, access: Access::Read, owners: Owners::Range };
    Ok((SSH_AGENT_DIRECTORY.into(), Mount::Tree(source)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_new_socket_takes_the_place_of_an_earlier_one() {
        let directory = tempfile::tempdir().unwrap();
        let open = std::fs::File::open(directory.path()).unwrap();
        let path = directory.path().join(SSH_AGENT_SOCKET);
        drop(listen(&open).unwrap());
        assert!(UnixStream::connect(&path).is_err());
        let second = listen(&open).unwrap();
        UnixStream::connect(&path).unwrap();
        second.accept().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    }
}
