//! Entries that are never opened: everything but regular files and directories, and everything on
//! kernel file systems, where reading and writing act on the machine.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use stockade_bundle::beneath::{FileKind, Stat};

/// The file systems that store no files, by the numbers that statfs(2) returns (`linux/magic.h`).
const KERNEL: [(u64, &str); 20] = [
    (0x0000_1cd1, "devpts"),
    (0x0000_9fa0, "proc"),
    (0x0000_9fa1, "openpromfs"),
    (0x0027_e0eb, "cgroup"),
    (0x0765_5821, "resctrl"),
    (0x1980_0202, "mqueue"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x4341_5d53, "smackfs"),
    (0x5a3c_69f0, "apparmorfs"),
    (0x6165_676c, "pstore"),
    (0x6265_6570, "configfs"),
    (0x6265_6572, "sysfs"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x6e73_6673, "nsfs"),
    (0x7363_6673, "securityfs"),
    (0x7472_6163, "tracefs"),
    (0xcafe_4a11, "bpf"),
    (0xde5e_81e4, "efivarfs"),
    (0xf97c_ff8c, "selinuxfs"),
];

/// The type of the file system of a descriptor, if it is a kernel file system.
pub(super) fn kernel_file_system(file: BorrowedFd<'_>) -> io::Result<Option<&'static str>> {
    let magic = u64::try_from(rustix::fs::fstatfs(file)?.f_type).unwrap_or_default();
    Ok(KERNEL.iter().find(|(number, _)| *number == magic & 0xffff_ffff).map(|(_, name)| *name))
}

/// Refuses entries on a kernel file system with `InvalidInput`.
pub(super) fn refuse_kernel(file: BorrowedFd<'_>) -> io::Result<()> {
    match kernel_file_system(file)? {
        None => Ok(()),
        Some(name) => Err(refused(&format!("is on {name}, which contains no ordinary files"))),
    }
}

/// Opens the regular file of an `O_PATH` descriptor for reading. The descriptor always names the
/// same file, so nothing else can be opened.
pub(super) fn open_file(file: BorrowedFd<'_>, stat: &Stat) -> io::Result<File> {
    expect_file(stat.kind)?;
    refuse_kernel(file)?;
    // `NONBLOCK`: does not wait for a process inside that holds a lease on the file (fcntl(2),
    // "Leases").
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(CWD, own_path(file), flags, Mode::empty())?))
}

/// Returns an error unless the entry is a regular file.
pub(super) fn expect_file(kind: FileKind) -> io::Result<()> {
    match kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(Errno::ISDIR.into()),
        _ => Err(refused("is not a regular file")),
    }
}

/// The path that names a descriptor of this process.
pub(super) fn own_path(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The error for an entry that is not treated as a file.
pub(super) fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, OwnedFd};

    use super::*;

    fn look_at(path: &str) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn the_kernels_own_file_systems_are_known() {
        let known = |path| kernel_file_system(look_at(path).as_fd()).unwrap();
        assert_eq!(known("/proc/self/status"), Some("proc"));
        assert_eq!(known("/sys"), Some("sysfs"));
        assert_eq!(known("/tmp"), None);
        assert!(KERNEL.is_sorted());
    }

    #[test]
    fn only_regular_files_of_real_file_systems_are_opened() {
        let open = |path: &str| {
            let found = look_at(path);
            open_file(found.as_fd(), &Stat::of(&found).unwrap()).map(drop).map_err(|e| e.kind())
        };
        assert_eq!(open("/etc/passwd"), Ok(()));
        assert_eq!(open("/tmp"), Err(io::ErrorKind::IsADirectory));
        for special in
            ["/proc/self/status", "/dev/null", "/proc/self/exe/", "/sys/kernel/uevent_seqnum"]
        {
            if std::fs::symlink_metadata(special).is_ok() {
                assert_eq!(open(special), Err(io::ErrorKind::InvalidInput), "{special}");
            }
        }
    }
}
