//! The key that signs the records: a file in the user's configuration directory, beside the
//! checkpoints. It never enters a sandbox or the data directory.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{SECRET_KEY_LENGTH, SigningKey, VerifyingKey};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroize as _;

use crate::error::Error;

/// The file of the key.
const KEY: &str = "key";
/// How the files and directories are opened.
const FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);

/// The directory of the key and the checkpoints.
#[derive(Debug, Clone)]
pub struct KeyDirectory(PathBuf);

/// The public part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub(crate) VerifyingKey);

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&STANDARD.encode(self.0.as_bytes()))
    }
}

/// An open key directory with its key.
pub(crate) struct Keys {
    pub(crate) directory: OwnedFd,
    pub(crate) key: SigningKey,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl KeyDirectory {
    /// The directory at a path.
    pub const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// `$XDG_CONFIG_HOME/stockade/audit`, else `~/.config/stockade/audit`; `None` if neither variable is
    /// an absolute path.
    pub fn from_environment(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<Self> {
        let named = |name: &str| variable(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let base =
            named("XDG_CONFIG_HOME").or_else(|| named("HOME").map(|home| home.join(".config")))?;
        Some(Self(base.join("stockade/audit")))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Opens the key, and makes one if there is none. `None` if this user has no directory of its own
    /// for it: records are not signed then.
    pub(crate) fn open_or_create(&self) -> Result<Option<Keys>, Error> {
        let directory = match self.open_directory()? {
            Some(directory) => directory,
            None => match self.create_directory() {
                Ok(Some(directory)) => directory,
                Ok(None) => return Ok(None),
                Err(Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::NOTDIR | Errno::NOENT) => {
                    return Ok(None);
                }
                Err(errno) => return Err(Error::key("key", "created", errno)),
            },
        };
        let key = match read_key(&directory)? {
            Some(key) => key,
            None => match create_key(&directory) {
                Err(Error::Key { source, .. })
                    if source.kind() == std::io::ErrorKind::ReadOnlyFilesystem =>
                {
                    return Ok(None);
                }
                created => created?,
            },
        };
        Ok(Some(Keys { directory, key }))
    }

    /// Opens the key if there is one.
    pub(crate) fn open(&self) -> Result<Option<Keys>, Error> {
        let Some(directory) = self.open_directory()? else { return Ok(None) };
        Ok(read_key(&directory)?.map(|key| Keys { directory, key }))
    }

    fn open_directory(&self) -> Result<Option<OwnedFd>, Error> {
        match fs::open(&self.0, OFlags::RDONLY | OFlags::DIRECTORY | FLAGS, Mode::empty()) {
            Ok(directory) => {
                check(&directory)?;
                Ok(Some(directory))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
            Err(errno) => Err(Error::key("key", "opened", errno)),
        }
    }

    /// Creates the directory, and those above it. `None` in a directory of another user.
    fn create_directory(&self) -> Result<Option<OwnedFd>, Errno> {
        let mut missing = vec![self.0.as_path()];
        let mut above = self.0.parent();
        let parent = loop {
            let Some(path) = above else { return Err(Errno::NOENT) };
            match fs::open(
                path,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            ) {
                Ok(parent) => break parent,
                Err(Errno::NOENT) => missing.push(path),
                Err(errno) => return Err(errno),
            }
            above = path.parent();
        };
        if fs::fstat(&parent)?.st_uid != rustix::process::geteuid().as_raw() {
            return Ok(None);
        }
        let mut directory = parent;
        for path in missing.into_iter().rev() {
            let name = path.file_name().ok_or(Errno::INVAL)?;
            match fs::mkdirat(&directory, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | FLAGS;
            directory = fs::openat(&directory, name, flags, Mode::empty())?;
        }
        Ok(Some(directory))
    }
}

/// Refuses what another user owns, or can use.
fn check(file: &OwnedFd) -> Result<(), Error> {
    let stat = fs::fstat(file).map_err(|errno| Error::key("key", "opened", errno))?;
    let others = Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    if stat.st_uid != rustix::process::geteuid().as_raw() || others {
        return Err(Error::ForeignKey);
    }
    Ok(())
}

fn read_key(directory: &OwnedFd) -> Result<Option<SigningKey>, Error> {
    let failed = |errno| Error::key("key", "read", errno);
    let file = match fs::openat(directory, KEY, OFlags::RDONLY | FLAGS, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed(errno)),
    };
    check(&file)?;
    let stat = fs::fstat(&file).map_err(failed)?;
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::RGRP | Mode::ROTH) {
        return Err(Error::ForeignKey);
    }
    let mut bytes = [0_u8; SECRET_KEY_LENGTH + 1];
    let length = rustix::io::pread(&file, &mut bytes[..], 0).map_err(failed)?;
    if length != SECRET_KEY_LENGTH {
        return Err(Error::InvalidKey);
    }
    let mut secret = [0_u8; SECRET_KEY_LENGTH];
    secret.copy_from_slice(&bytes[..SECRET_KEY_LENGTH]);
    let key = SigningKey::from_bytes(&secret);
    bytes.zeroize();
    secret.zeroize();
    Ok(Some(key))
}

/// Makes a key. The file gets its name when it is complete; if another process was first, its key
/// counts.
fn create_key(directory: &OwnedFd) -> Result<SigningKey, Error> {
    let failed = |errno| Error::key("key", "created", errno);
    let mut secret = [0_u8; SECRET_KEY_LENGTH];
    match getrandom(&mut secret[..], GetRandomFlags::empty()) {
        Ok(SECRET_KEY_LENGTH) => {}
        Ok(_) => return Err(failed(Errno::IO)),
        Err(errno) => return Err(failed(errno)),
    }
    let temporary = format!("{KEY}.{}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | FLAGS;
    let file = fs::openat(directory, &temporary, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let written = rustix::io::write(&file, &secret).map_err(failed)?;
    secret.zeroize();
    if written != SECRET_KEY_LENGTH {
        return Err(failed(Errno::NOSPC));
    }
    fs::fsync(&file).map_err(failed)?;
    let linked = fs::linkat(directory, &temporary, directory, KEY, fs::AtFlags::empty());
    let _ = fs::unlinkat(directory, &temporary, fs::AtFlags::empty());
    match linked {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(errno)),
    }
    read_key(directory)?.ok_or(Error::InvalidKey)
}

impl Keys {
    pub(crate) fn public(&self) -> PublicKey {
        PublicKey(self.key.verifying_key())
    }

    pub(crate) fn directory(&self) -> rustix::fd::BorrowedFd<'_> {
        self.directory.as_fd()
    }
}
