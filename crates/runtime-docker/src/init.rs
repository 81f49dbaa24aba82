//! The files that every container mounts read-only: the program `stockade-init`, which this crate
//! contains, and the configuration of name lookups. They are written to the directory of the runtime.

use std::io;
use std::path::{Path, PathBuf};

use stockade_runtime::{Error, Result};

use crate::own_file;

/// The program.
#[cfg(has_init)]
const PROGRAM: &[u8] = include_bytes!(env!("STOCKADE_INIT"));
#[cfg(not(has_init))]
const PROGRAM: &[u8] = &[];
/// Why it is missing in this build.
const MISSING: &str = env!("STOCKADE_INIT_MISSING");

/// The path of the program, for this build. It is written if it is missing.
///
/// # Errors
/// [`Error::Unavailable`] if this build does not contain it, [`Error::Host`] if it cannot be written.
pub(crate) fn program(directory: &Path, build: &str) -> Result<PathBuf> {
    if PROGRAM.is_empty() {
        return Err(Error::Unavailable {
            what: "the init of containers".to_owned(),
            reason: format!("this build does not contain it: {MISSING}"),
            remedy: "sudo apt-get install libc6-dev && cargo build --release".to_owned(),
        });
    }
    let name = format!("init-{build}");
    let path = directory.join(&name);
    let failed = |source: io::Error| Error::Host { path: path.display().to_string(), source };
    // An incomplete one was never renamed; one of the same build has the same content.
    if path.metadata().is_ok_and(|file| file.len() == PROGRAM.len() as u64) {
        return Ok(path);
    }
    own_file::publish(&path, PROGRAM, 0o755).map_err(failed)?;
    Ok(path)
}

/// The file that a container has as `/etc/resolv.conf`: with the resolver of its network, or with none.
/// The engine would show that of the host.
///
/// # Errors
/// [`Error::Host`] if it cannot be written.
pub(crate) fn resolver(directory: &Path, has_network: bool) -> Result<PathBuf> {
    let (name, content) = match has_network {
        true => ("resolver", "nameserver 127.0.0.1\n"),
        false => ("no-resolver", ""),
    };
    let path = directory.join(name);
    let failed = |source: io::Error| Error::Host { path: path.display().to_string(), source };
    if !path.exists() {
        own_file::publish(&path, content.as_bytes(), 0o644).map_err(failed)?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    #[cfg(has_init)]
    fn it_is_written_once_and_needs_no_library() {
        let place = tempfile::tempdir().unwrap();
        let path = program(place.path(), "b").unwrap();
        let written = path.metadata().unwrap();
        assert_eq!(written.permissions().mode() & 0o7777, 0o755);
        assert_eq!(program(place.path(), "b").unwrap(), path);
        assert_eq!(place.path().read_dir().unwrap().count(), 1);
        assert_eq!(path.metadata().unwrap().modified().unwrap(), written.modified().unwrap());
        // `PT_INTERP` would name a loader, which an image may not have.
        let has = |text: &[u8]| PROGRAM.windows(text.len()).any(|window| window == text);
        assert!(!has(b"/lib64/ld-linux-x86-64.so.2\0"));
        // Without arguments it does nothing.
        assert_eq!(std::process::Command::new(&path).status().unwrap().code(), Some(2));
    }
}
