//! Reading a file with profiles. Its owner and mode are checked on the descriptor that it is read
//! from, so that what was checked is what is used.

use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use stockade_core::{Code, Problem};

/// The largest file.
const MAX_BYTES: u64 = 256 << 10;
const WRITABLE_BY_GROUP: u32 = 0o020;
const WRITABLE_BY_ALL: u32 = 0o002;

/// Whose files are accepted, besides root's and the caller's own.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// The user's own configuration. A link is followed, as files in a home directory often are links.
    User,
    /// A file in a project of this owner. A link is refused: it could lead to any file.
    Project { owner: u32 },
}

/// The content of the file `name` in a directory; `None` if there is none. Messages name `path`.
///
/// # Errors
/// [`Code::InvalidInput`] for a file that other users own or can change, or that cannot be read.
pub(super) fn read(
    directory: impl AsFd,
    name: &Path,
    path: &Path,
    kind: Kind,
) -> Result<Option<Vec<u8>>, Problem> {
    let refused = |why: String| {
        Problem::new(Code::InvalidInput, format!("cannot use {}", path.display())).because(why)
    };
    let follow = match kind {
        Kind::User => OFlags::empty(),
        Kind::Project { .. } => OFlags::NOFOLLOW,
    };
    // NONBLOCK: a pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | follow;
    let file: OwnedFd = match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(Errno::LOOP) => return Err(refused("it is a link".to_owned())),
        Err(errno) => return Err(refused(errno.to_string())),
    };
    let stat = fstat(&file).map_err(|errno| refused(errno.to_string()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refused("it is not a regular file".to_owned()));
    }
    let caller = rustix::process::geteuid().as_raw();
    let (is_known, writable_by) = match kind {
        Kind::User => (false, WRITABLE_BY_GROUP | WRITABLE_BY_ALL),
        // Files of a project often belong to a group. What they say is trusted by its content only.
        Kind::Project { owner } => (stat.st_uid == owner, WRITABLE_BY_ALL),
    };
    if stat.st_uid != caller && stat.st_uid != 0 && !is_known {
        return Err(refused(format!("it belongs to user {}, not to you", stat.st_uid)));
    }
    if stat.st_mode & writable_by != 0 {
        return Err(refused(format!("others can write it (mode {:o})", stat.st_mode & 0o7777))
            .remedied_by(format!("chmod go-w {}", path.display())));
    }
    let mut content = Vec::new();
    std::fs::File::from(file)
        .take(MAX_BYTES + 1)
        .read_to_end(&mut content)
        .map_err(|error| refused(error.to_string()))?;
    if content.len() as u64 > MAX_BYTES {
        return Err(refused(format!("it is larger than {MAX_BYTES} bytes")));
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn read(path: &Path, kind: Kind) -> Result<Option<Vec<u8>>, Problem> {
        super::read(rustix::fs::CWD, path, path, kind)
    }

    #[test]
    fn a_file_that_others_could_have_written_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        let own = Kind::Project { owner: rustix::process::geteuid().as_raw() };
        assert_eq!(read(&path, Kind::User), Ok(None));
        std::fs::write(&path, "x").unwrap();
        let mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o644);
        assert_eq!(read(&path, Kind::User), Ok(Some(b"x".to_vec())));
        assert_eq!(read(&path, own), Ok(Some(b"x".to_vec())));
        mode(0o664);
        assert!(read(&path, Kind::User).is_err());
        assert!(read(&path, own).is_ok());
        mode(0o646);
        assert!(read(&path, Kind::User).is_err() && read(&path, own).is_err());
        mode(0o644);
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read(&link, Kind::User).is_ok());
        let refused = read(&link, own).unwrap_err();
        assert_eq!(refused.cause.as_deref(), Some("it is a link"));
        assert!(read(directory.path(), own).is_err());
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .unwrap();
        assert!(read(&pipe, own).is_err());
        std::fs::write(&path, vec![b'#'; 300 << 10]).unwrap();
        assert!(read(&path, own).is_err());
    }
}
