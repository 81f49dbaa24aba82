//! Copying from the host into a sandbox. If the named path is a link, its target is copied. Links
//! below that are never followed: everything is opened beneath one descriptor of the named
//! directory, whatever is renamed meanwhile.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use stockade_api::{FileContent, MakeDirectory, Problem, SetPermissions, WriteFile, WriteResult};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir, FileKind};
use stockade_core::Code;
use tokio::io::AsyncRead;

use super::{CopySummary, Transfer, host_failure, is_directory, join, join_relative, special_file};
use crate::problem::Failure;

/// The file or directory at a path of the host.
enum Source {
    File(File),
    Directory(Dir),
}

/// The next step.
enum Work {
    /// Copy a directory below the named one; `None` is the named one itself.
    Copy { below: Option<RelativePath>, to: Vec<u8> },
    /// Remove permissions from a filled directory.
    RestrictMode { to: Vec<u8>, mode: u32 },
}

/// The permissions that a directory's owner needs to fill it.
const OWNER_WRITE_SEARCH: u32 = 0o300;

impl Transfer<'_> {
    /// Copies a file or directory of the host to a path inside. If the path is an existing
    /// directory, the copy is created in it under its own name.
    pub(super) async fn into_sandbox(
        mut self,
        from: &Path,
        to: Vec<u8>,
    ) -> Result<CopySummary, Failure> {
        let source = Source::open(from)?;
        let to = match (is_directory(self.stat(&to).await?.as_ref()), from.file_name()) {
            (true, Some(name)) => join(&to, name.as_bytes()),
            _ => to,
        };
        match source {
            Source::File(file) => self.send(from, file, to).await?,
            Source::Directory(root) => self.send_tree(from, &root, to).await?,
        }
        self.progress.finish_and_clear();
        Ok(self.copied)
    }

    /// Copies standard input to a file inside while it is read.
    pub(super) async fn send_stdin(mut self, to: Vec<u8>) -> Result<CopySummary, Failure> {
        let request = WriteFile {
            sandbox_id: self.id.clone(),
            path: to.into(),
            mode: None,
            uid: None,
            gid: None,
        };
        // Standard input cannot be read again, so it is written at most once.
        let written = self.write(tokio::io::stdin(), request).await?;
        self.progress.finish_and_clear();
        self.copied = CopySummary { files: 1, bytes: written.size_bytes, ..CopySummary::default() };
        Ok(self.copied)
    }

    /// Copies the content of a directory, and everything below it.
    async fn send_tree(&mut self, from: &Path, root: &Dir, to: Vec<u8>) -> Result<(), Failure> {
        let mut waiting = vec![Work::Copy { below: None, to }];
        while let Some(next) = waiting.pop() {
            let (below, to) = match next {
                Work::Copy { below, to } => (below, to),
                Work::RestrictMode { to, mode } => {
                    self.restrict_mode(to, mode).await?;
                    continue;
                }
            };
            let dir = match &below {
                None => root.try_clone().map_err(|error| unreadable(from, error))?,
                Some(path) => match root.open_dir(path) {
                    Ok(dir) => dir,
                    Err(error) => {
                        self.skip_host_file(&join_below(from, path), error)?;
                        continue;
                    }
                },
            };
            let shown =
                below.as_ref().map_or_else(|| from.to_owned(), |path| join_below(from, path));
            let stat = dir.stat_self().map_err(|error| unreadable(&shown, error))?;
            let mode = stat.mode & 0o777;
            if self.make_directory(&to, mode).await? {
                waiting.push(Work::RestrictMode { to: to.clone(), mode });
            }
            for (name, kind) in dir.entries().map_err(|error| unreadable(&shown, error))? {
                let path = join_relative(below.as_ref(), &name)
                    .map_err(|error| host_failure(&shown, &io::Error::other(error)))?;
                let to = join(&to, &name);
                match kind {
                    FileKind::Directory => waiting.push(Work::Copy { below: Some(path), to }),
                    FileKind::File => match root.open_file(&path) {
                        Ok(file) => self.send(&join_below(from, &path), file, to).await?,
                        Err(error) => self.skip_host_file(&join_below(from, &path), error)?,
                    },
                    FileKind::Symlink | FileKind::CharacterDevice | FileKind::Other => {
                        self.copied.skipped += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// Creates a directory that can be filled, unless it exists. Returns whether its permissions
    /// must be reduced to `mode` when it is full.
    async fn make_directory(&self, to: &[u8], mode: u32) -> Result<bool, Failure> {
        let is_wider =
            mode & OWNER_WRITE_SEARCH != OWNER_WRITE_SEARCH && self.stat(to).await?.is_none();
        let request = MakeDirectory {
            sandbox_id: self.id.clone(),
            path: to.to_vec().into(),
            mode: Some(mode | OWNER_WRITE_SEARCH),
        };
        self.remote.sandboxes.make_directory(&self.remote.idempotent(), request).await?;
        Ok(is_wider)
    }

    async fn restrict_mode(&self, to: Vec<u8>, mode: u32) -> Result<(), Failure> {
        let request = SetPermissions {
            sandbox_id: self.id.clone(),
            path: to.into(),
            mode: Some(mode),
            uid: None,
            gid: None,
        };
        self.remote.sandboxes.set_permissions(&self.remote.idempotent(), request).await?;
        Ok(())
    }

    /// Copies one file.
    async fn send(&mut self, from: &Path, file: File, to: Vec<u8>) -> Result<(), Failure> {
        let failed = |error: io::Error| host_failure(from, &error);
        self.show(from);
        let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
        let request = WriteFile {
            sandbox_id: self.id.clone(),
            path: to.into(),
            mode: Some(mode),
            uid: None,
            gid: None,
        };
        // This descriptor has its own position, because the first attempt may still be reading from
        // the other one.
        let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(failed)?;
        let written = match self.write(tokio::fs::File::from_std(file), request.clone()).await {
            // The server ended during the transfer. Repeating the whole write gives the same
            // result.
            Err(problem) if problem.code == Code::Unreachable => {
                self.write(tokio::fs::File::from_std(again), request).await?
            }
            written => written?,
        };
        self.copied.files += 1;
        self.copied.bytes += written.size_bytes;
        Ok(())
    }

    async fn write(
        &self,
        content: impl AsyncRead + Send + Unpin + 'static,
        request: WriteFile,
    ) -> Result<WriteResult, Problem> {
        let content = FileContent(Box::pin(self.progress.wrap_async_read(content)));
        self.remote.sandboxes.write_file(&self.remote.idempotent(), request, content).await
    }

    /// Skips a path that may not be read, or that no longer has the type that it was listed with.
    fn skip_host_file(&mut self, path: &Path, error: beneath::Error) -> Result<(), Failure> {
        match error.kind() {
            Some(io::ErrorKind::PermissionDenied) => {
                self.copied.skip_unreadable(&path.to_string_lossy());
            }
            Some(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) | None => {
                self.copied.skipped += 1;
            }
            Some(_) => return Err(unreadable(path, error)),
        }
        Ok(())
    }
}

impl Source {
    /// Opens a path of the host; links in it are followed. A pipe does not block.
    fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| host_failure(path, &error);
        let found = fs::metadata(path).map_err(failed)?;
        if found.is_dir() {
            return Ok(Self::Directory(Dir::open(path).map_err(|error| unreadable(path, error))?));
        }
        if !found.is_file() {
            return Err(special_file(path.display()));
        }
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = opened.map_err(failed)?;
        // Its type may have changed meanwhile.
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(special_file(path.display()));
        }
        Ok(Self::File(file))
    }
}

/// A path below a directory, for display.
fn join_below(directory: &Path, below: &RelativePath) -> PathBuf {
    directory.join(below.as_os_str())
}

fn unreadable(path: &Path, error: beneath::Error) -> Failure {
    host_failure(path, &error.into())
}
