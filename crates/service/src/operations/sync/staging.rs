//! What a synchronization has on disk while it runs, and what both sides had in common after the last
//! one. All of it lies below `sync` of the data directory.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stockade_api::Result;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Rename};
use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::Node;
use stockade_bundle::sync::{Blobs, Nodes};
use stockade_core::{Code, Problem};

use crate::failure::caused;
use crate::inner::Inner;
use crate::sync_bases::{BASES, hashed};

/// The files of one operation.
#[derive(Debug, Clone)]
pub(super) struct Staging {
    /// The directory of all operations.
    all: Arc<Dir>,
    bases: Arc<Dir>,
    name: RelativePath,
    key: String,
}

impl Staging {
    pub(super) fn open(inner: &Inner, operation: &str) -> Result<Self> {
        let home = inner.options.home.as_ref().ok_or_else(|| {
            Problem::new(Code::Unsupported, "this server has no data directory for synchronization")
        })?;
        let failed = |error: io::Error| problem(&error);
        let data = DataDir::open(&home.path).map_err(|error| caused(Code::Io, &error))?;
        let sync = data.sync().map_err(|error| caused(Code::Io, &error))?;
        let key = hashed(operation);
        let (all, bases) = (make(&sync, "running").map_err(failed)?, make(&sync, BASES));
        let bases = Arc::new(bases.map_err(failed)?);
        let name = name(&key).map_err(failed)?;
        Ok(Self { all: Arc::new(all), bases, name, key })
    }

    /// Identifies the operation in names of files.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Removes what an earlier attempt has left, and starts anew.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.all.remove_tree(&self.name)?;
        self.all.mkdir(&self.name, 0o700)?;
        let own = self.all.open_dir(&self.name)?;
        Ok(own.mkdir(&name("blobs")?, 0o700)?)
    }

    pub(super) fn blobs(&self) -> io::Result<Blobs> {
        let own = self.all.open_dir(&self.name)?;
        Ok(Blobs::new(own.open_dir(&name("blobs")?)?))
    }

    /// Writes a record completely or not at all.
    pub(super) fn write<T: Serialize>(&self, record: &str, value: &T) -> io::Result<()> {
        let own = self.all.open_dir(&self.name)?;
        replace(&own, &name(record)?, value)
    }

    pub(super) fn read<T: DeserializeOwned>(&self, record: &str) -> io::Result<T> {
        let own = self.all.open_dir(&self.name)?;
        load(own.open_file(&name(record)?)?)
    }

    /// Removes everything of the operation. What remains is removed when the next one of the same
    /// sandbox ends.
    pub(super) fn remove(&self) {
        let _ = self.all.remove_tree(&self.name);
    }

    /// The same, unless the operation only stops because the server does.
    pub(super) fn remove_unless_stopping(&self, inner: &Inner) {
        if !*inner.stop.borrow() {
            self.remove();
        }
    }

    /// What both sides had in common after the last synchronization of these two, if there was one.
    pub(super) fn base(&self, sandbox: &str, pair: &str) -> io::Result<Option<Nodes>> {
        let path = base_path(sandbox, pair)?;
        match self.bases.open_file(&path) {
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(None),
            file => {
                let listed: Vec<(RelativePath, Node)> = load(file?)?;
                Ok(Some(listed.into_iter().collect()))
            }
        }
    }

    /// Records what both sides have in common.
    pub(super) fn set_base(
        &self,
        sandbox: &str,
        pair: &str,
        base: &[(RelativePath, Node)],
    ) -> io::Result<()> {
        let path = base_path(sandbox, pair)?;
        if let Some(parent) = path.parent() {
            make_at(&self.bases, &parent)?;
        }
        replace(&self.bases, &path, &base)
    }
}

fn base_path(sandbox: &str, pair: &str) -> io::Result<RelativePath> {
    name(&format!("{}/{}", hashed(sandbox), hashed(pair)))
}

fn name(text: &str) -> io::Result<RelativePath> {
    RelativePath::new(text).map_err(io::Error::other)
}

fn make(dir: &Dir, below: &str) -> io::Result<Dir> {
    let path = name(below)?;
    make_at(dir, &path)?;
    Ok(dir.open_dir(&path)?)
}

fn make_at(dir: &Dir, path: &RelativePath) -> io::Result<()> {
    match dir.mkdir(path, 0o700) {
        Err(error) if error.errno() != Some(Errno::EXIST) => Err(error.into()),
        _ => Ok(()),
    }
}

fn load<T: DeserializeOwned>(mut file: File) -> io::Result<T> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

fn replace<T: Serialize>(dir: &Dir, path: &RelativePath, value: &T) -> io::Result<()> {
    let mut new = path.as_bytes().to_vec();
    new.extend_from_slice(b".new");
    let new = RelativePath::new(new).map_err(io::Error::other)?;
    dir.remove_tree(&new)?;
    let mut file = dir.create_file(&new, 0o600)?;
    let text = serde_json::to_vec(value).map_err(io::Error::other)?;
    file.write_all(&text)?;
    file.sync_all()?;
    Ok(dir.rename(&new, dir, path, Rename::Replace)?)
}

/// The problem of a file operation of a synchronization.
pub(super) fn problem(error: &io::Error) -> Problem {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::StorageFull,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Code::VfsForbidden,
        _ => Code::Io,
    };
    let problem =
        Problem::new(code, "the files could not be synchronized").because(error.to_string());
    match code {
        Code::StorageFull => problem.remedied_by(stockade_review::problem::FREE_SPACE_REMEDY),
        _ => problem,
    }
}
