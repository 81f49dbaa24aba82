//! File operations as another user, on a separate thread, in a process that keeps its ids.
//!
//! Linux checks each access to a file against the file system ids of the calling thread
//! (credentials(7)), and makes them the owner of new files. Nothing else changes: neither the owner
//! of the process, nor who may signal or trace it.

use std::io;

use rustix::fs::Mode;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::sys;

/// Runs `operation` with exactly the file rights of `user` and `group`; files that it creates
/// belong to them, with exactly the mode that it names. All ids are as the caller sees them.
///
/// It runs on a thread of its own that has no effective capability, no supplementary group, and no
/// umask. If the caller has these ids already, it keeps its groups, which are this user's then.
/// [`with_caller_rights`] lifts the restriction for a part of the operation.
///
/// Taking on other ids leaves the process undumpable, as every change of ids does (prctl(2),
/// `PR_SET_DUMPABLE`).
///
/// # Errors
/// `PermissionDenied` when the caller may not take on these ids; the error of thread creation or of
/// `operation`.
pub fn as_file_user<T: Send>(
    user: u32,
    group: u32,
    operation: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let work = || {
            become_file_user(user, group)?;
            operation()
        };
        let thread = std::thread::Builder::new().name("file-user".into()).spawn_scoped(scope, work);
        thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `operation` with every permitted capability of the calling thread: inside an
/// [`as_file_user`], those that the process had. New files still belong to the file user.
///
/// # Errors
/// The error of capset(2) or `operation`.
pub fn with_caller_rights<T>(operation: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: before.permitted, ..before })?;
    let result = operation();
    set_capabilities(None, before)?;
    result
}

fn become_file_user(user: u32, group: u32) -> io::Result<()> {
    sys::leave_shared_directories()?;
    rustix::process::umask(Mode::empty());
    if sys::file_ids() != (user, group) {
        sys::clear_thread_groups()?;
        sys::set_file_ids(user, group);
        // The calls themselves never report a failure (setfsuid(2)).
        if sys::file_ids() != (user, group) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    let sets = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..sets })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
    use std::path::Path;

    use super::*;
    use crate::testing::{is_root, skipped};

    const OTHER: u32 = 0x7000_0000 + 1234;

    fn own_ids() -> (u32, u32) {
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    }

    fn directory(mode: u32) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        directory
    }

    fn create(path: &Path, mode: u32) -> io::Result<fs::File> {
        fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
    }

    /// The words of a line of the calling thread's `status` (`proc(5)`).
    fn status(name: &str) -> Vec<String> {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn files_are_made_with_the_ids_and_mode_that_were_named() {
        let directory = directory(0o777);
        let (user, group) = if is_root() { (OTHER, OTHER + 1) } else { own_ids() };
        let path = directory.path().join("file");
        as_file_user(user, group, || create(&path, 0o666).map(drop)).unwrap();
        let made = fs::metadata(&path).unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (user, group, 0o666));
    }

    #[test]
    fn the_thread_has_the_rights_of_its_file_user_and_nothing_more() {
        if !is_root() {
            skipped("only root can be another file user");
            return;
        }
        let directory = directory(0o755);
        let secret = directory.path().join("secret");
        create(&secret, 0o600).unwrap();
        as_file_user(OTHER, OTHER, || {
            let kind = |error: io::Error| error.kind();
            let refused = Err(io::ErrorKind::PermissionDenied);
            assert_eq!(fs::read(&secret).map_err(kind), refused);
            assert_eq!(
                create(&directory.path().join("new"), 0o600).map(drop).map_err(kind),
                Err(io::ErrorKind::PermissionDenied)
            );
            assert_eq!(status("Groups:"), Vec::<String>::new());
            assert_eq!(u64::from_str_radix(&status("CapEff:")[0], 16), Ok(0));
            with_caller_rights(|| fs::read(&secret))?;
            with_caller_rights(|| create(&directory.path().join("new"), 0o600).map(drop))?;
            assert_eq!(fs::read(&secret).map_err(kind), refused);
            Ok(())
        })
        .unwrap();
        let made = fs::metadata(directory.path().join("new")).unwrap();
        assert_eq!((made.uid(), made.gid()), (OTHER, OTHER));
    }

    #[test]
    fn the_calling_thread_stays_who_it_is() {
        let before = (sys::file_ids(), status("Groups:"), status("CapEff:"), status("Umask:"));
        let (user, group) = if is_root() { (OTHER, OTHER) } else { own_ids() };
        let inside = as_file_user(user, group, || Ok((sys::file_ids(), status("Umask:")))).unwrap();
        assert_eq!(inside, ((user, group), vec!["0000".to_owned()]));
        assert_eq!(
            (sys::file_ids(), status("Groups:"), status("CapEff:"), status("Umask:")),
            before
        );
    }

    #[test]
    fn only_root_becomes_another_file_user() {
        if is_root() {
            skipped("root may be every file user");
            return;
        }
        for (user, group) in [(OTHER, own_ids().1), (own_ids().0, OTHER), (0, 0)] {
            let refused = as_file_user(user, group, || Ok(())).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        }
        as_file_user(own_ids().0, own_ids().1, || Ok(())).unwrap();
    }

    #[test]
    fn what_the_operation_says_is_handed_on() {
        let (user, group) = own_ids();
        let failed: io::Result<()> =
            as_file_user(user, group, || Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
