//! The state of the host's system directories, found without reading their files.
//!
//! It consists of the identity and the times of the databases of package managers, which change
//! with every package, and of the directories in which programs are usually placed by hand. A host
//! without a known package manager is scanned entirely. A file that is overwritten in place
//! elsewhere is not noticed.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use stockade_bundle::manifest::ContentHash;

use super::{Error, io_error};

/// The version of the copies' format.
const FORMAT: &[u8] = b"base 1";
/// What package managers change with every package.
const DATABASES: [&str; 12] = [
    "/var/lib/dpkg/status",
    "/var/lib/rpm/rpmdb.sqlite",
    "/var/lib/rpm/Packages.db",
    "/var/lib/rpm/Packages",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/Packages.db",
    "/lib/apk/db/installed",
    "/usr/lib/apk/db/installed",
    "/var/lib/pacman/local",
    "/var/db/xbps",
    "/var/db/pkg",
    "/nix/var/nix/db/db.sqlite",
];
/// How many levels of directories are looked at where there is such a database.
const DEPTH: usize = 2;
/// The directory of what is not from packages, and how many of its levels are looked at.
const LOCAL: (&str, usize) = ("/usr/local", 6);
/// More levels than any system has.
const MAX_DEPTH: usize = 200;

/// The name of the present state.
pub(super) fn of(tops: &[&Path]) -> Result<String, Error> {
    let mut state = State { bytes: FORMAT.to_vec() };
    // Another user can read other files.
    state.number(rustix::process::geteuid().as_raw().into());
    let mut has_database = false;
    for path in DATABASES.map(Path::new) {
        if let Ok(metadata) = fs::metadata(path) {
            state.entry(path, &metadata);
            has_database = true;
        }
    }
    for top in tops {
        state.walk(top, 0, has_database).map_err(io_error("inspect the system directories"))?;
    }
    let mut name = ContentHash::of(&state.bytes).to_hex();
    name.truncate(32);
    Ok(name)
}

struct State {
    bytes: Vec<u8>,
}

impl State {
    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn entry(&mut self, path: &Path, metadata: &fs::Metadata) {
        let name = path.as_os_str().as_bytes();
        self.number(name.len() as u64);
        self.bytes.extend_from_slice(name);
        for number in [
            metadata.dev(),
            metadata.ino(),
            metadata.mode().into(),
            metadata.uid().into(),
            metadata.gid().into(),
            metadata.size(),
            metadata.mtime().cast_unsigned(),
            metadata.mtime_nsec().cast_unsigned(),
            metadata.ctime().cast_unsigned(),
            metadata.ctime_nsec().cast_unsigned(),
        ] {
            self.number(number);
        }
    }

    /// Adds a directory and those below it; without a package database, also the files.
    fn walk(&mut self, path: &Path, depth: usize, has_database: bool) -> io::Result<()> {
        let metadata = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        self.entry(path, &metadata);
        let is_local = path.starts_with(LOCAL.0);
        let most = match has_database {
            true if is_local => LOCAL.1 + 1,
            true => DEPTH,
            false => MAX_DEPTH,
        };
        if !metadata.is_dir() || depth >= most {
            return Ok(());
        }
        let listed = match fs::read_dir(path) {
            // What the caller cannot read is not copied either.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
                ) =>
            {
                return Ok(());
            }
            listed => listed?,
        };
        let mut below = Vec::new();
        for entry in listed {
            let entry = entry?;
            if !has_database || entry.file_type()?.is_dir() {
                below.push(entry.path());
            }
        }
        below.sort();
        below.iter().try_for_each(|path| self.walk(path, depth + 1, has_database))
    }
}
