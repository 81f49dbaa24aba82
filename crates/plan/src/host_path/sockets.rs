//! Sockets of the host's programs below a path, as the kernel lists them (`/proc/net/unix`).
//!
//! The list contains the sockets of this process's network namespace, under the names with which
//! they were bound. A socket with a relative name, and one of a container, is not found.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// The file that lists the sockets.
pub(super) const PATH: &str = "/proc/net/unix";

/// The first socket that lies below a directory without links, and is none of those.
pub(super) fn below(directory: &Path, except: &[PathBuf]) -> io::Result<Option<PathBuf>> {
    let list = match std::fs::read(PATH) {
        // A kernel without unix sockets, or a `/proc` that hides it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        list => list?,
    };
    let is_there = |socket: &PathBuf| socket.starts_with(directory) && !except.contains(socket);
    Ok(names(&list).filter_map(real_path).find(is_there))
}

/// The absolute names in the list: the eighth word of a line, up to its end.
fn names(list: &[u8]) -> impl Iterator<Item = &Path> {
    list.split(|byte| *byte == b'\n').skip(1).filter_map(|line| {
        let start = line.windows(2).position(|pair| pair == b" /")? + 1;
        Some(Path::new(OsStr::from_bytes(&line[start..])))
    })
}

/// The path of a socket without links, if it exists.
fn real_path(name: &Path) -> Option<PathBuf> {
    let socket = name.parent()?.canonicalize().ok()?.join(name.file_name()?);
    std::fs::symlink_metadata(&socket).ok()?.file_type().is_socket().then_some(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    #[test]
    fn sockets_are_found_by_their_real_paths() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("a/b c")).unwrap();
        std::fs::create_dir(top.join("other")).unwrap();
        std::os::unix::fs::symlink("a", top.join("link")).unwrap();
        assert_eq!(below(&top, &[]).unwrap(), None);
        let bound = top.join("link/b c/service");
        let listener = UnixListener::bind(&bound).unwrap();
        let real = top.join("a/b c/service");
        for above in ["", "a", "a/b c"] {
            assert_eq!(below(&top.join(above), &[]).unwrap().as_ref(), Some(&real), "{above}");
        }
        assert_eq!(below(&top.join("other"), &[]).unwrap(), None);
        assert_eq!(below(&top, std::slice::from_ref(&real)).unwrap(), None);
        drop(listener);
        std::fs::remove_file(&bound).unwrap();
        let datagrams = UnixDatagram::bind(top.join("other/log")).unwrap();
        assert_eq!(below(&top, &[]).unwrap(), Some(top.join("other/log")));
        drop(datagrams);
        assert_eq!(below(&top, &[]).unwrap(), None, "a socket that nobody has open leads nowhere");
    }

    #[test]
    fn only_paths_are_names() {
        let list = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 1234 /run/a b\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 1235 @/abstract\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 1236\n";
        assert_eq!(names(list).collect::<Vec<_>>(), [Path::new("/run/a b")]);
    }
}
