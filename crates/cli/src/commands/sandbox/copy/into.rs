//! Copying from the host into a sandbox. If the named path is a link, its target is copied. Links
//! below that are copied if they stay in the tree, and never followed: everything is opened beneath one descriptor of the named
//! directory, whatever is renamed meanwhile.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use indicatif::ProgressBar;
use rustix::fs::OFlags;
use stockade_api::{
    FileContent, FileKind as FileEntryKind, ListDirectory, Problem, RemoveFile, SendFiles,
    WriteFile, WriteResult,
};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir, FileKind};
use stockade_core::Code;
use stockade_runtime::{Record, TREE_DEPTH, TreeWriter, stays_inside};
use tokio::io::AsyncRead;

use super::exclude::Exclusions;
use super::{
    CopySummary, Options, Transfer, host_failure, invalid_name, is_directory, join, join_relative,
    mirror, no_directory, special_file,
};
use crate::commands::print::escaped;
use crate::problem::Failure;
use crate::streams::{self, PipeWriter};

/// The file or directory at a path of the host.
enum Source {
    File(File),
    Directory(Dir),
}

impl Transfer<'_> {
    /// Copies a file or directory of the host to a path inside. If the path is an existing
    /// directory, the copy is created in it under its own name.
    pub(super) async fn into_sandbox(
        mut self,
        from: &Path,
        to: Vec<u8>,
        options: &Options,
    ) -> Result<CopySummary, Failure> {
        let source = Source::open(from)?;
        let to = match (is_directory(self.stat(&to).await?.as_ref()), from.file_name()) {
            (true, Some(name)) => join(&to, name.as_bytes()),
            _ => to,
        };
        match source {
            Source::File(_) if options.delete => return Err(no_directory(from.display())),
            Source::File(file) => self.send(from, file, to).await?,
            Source::Directory(root) => {
                self.send_tree(from, &root, to.clone(), options.exclusions()?).await?;
                if options.delete {
                    self.delete_inside(&root, &to, options.exclusions()?).await?;
                }
            }
        }
        self.progress.finish_and_clear();
        Ok(self.copied)
    }

    /// Removes everything below a directory inside that the host's directory does not have.
    async fn delete_inside(
        &mut self,
        root: &Dir,
        to: &[u8],
        mut excluded: Exclusions,
    ) -> Result<(), Failure> {
        let request = ListDirectory {
            sandbox_id: self.id.clone(),
            path: to.to_vec().into(),
            depth: Some(u32::MAX),
        };
        let listing = self.remote.sandboxes.list_directory(self.remote.caller(), request).await?;
        let below = join(to, b"");
        let mut found = Vec::new();
        for entry in &listing.entries {
            let path = entry.path.0.strip_prefix(below.as_slice());
            let path = path.and_then(|path| RelativePath::new(path).ok());
            let path = path.ok_or_else(|| invalid_name(&entry.path))?;
            found.push((path, entry.kind == FileEntryKind::Directory));
        }
        // What cannot be looked at is not known to be missing.
        let has = |path: &RelativePath| !matches!(root.stat(path), Ok(None));
        for (path, _) in mirror::extraneous(&found, has, &mut excluded) {
            let path = join(to, path.as_bytes()).into();
            let request = RemoveFile { sandbox_id: self.id.clone(), path };
            self.remote.sandboxes.remove_file(&self.remote.idempotent(), request).await?;
            self.copied.deleted += 1;
        }
        Ok(())
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

    /// Copies the content of a directory, and everything below it, as one stream.
    async fn send_tree(
        &mut self,
        from: &Path,
        root: &Dir,
        to: Vec<u8>,
        excluded: Exclusions,
    ) -> Result<(), Failure> {
        let excluded = Arc::new(Mutex::new(excluded));
        let opened = |error| unreadable(from, error);
        let mode = root.stat_self().map_err(opened)?.mode & 0o777;
        let request = SendFiles { sandbox_id: self.id.clone(), path: to.into(), mode };
        let mut again = true;
        loop {
            let (writer, reader) = streams::piped();
            let tree = HostTree {
                root: root.try_clone().map_err(opened)?,
                from: from.to_owned(),
                progress: self.progress.clone(),
                copied: CopySummary::default(),
                excluded: Arc::clone(&excluded),
                tree: TreeWriter::new(io::BufWriter::with_capacity(64 << 10, writer)),
            };
            let packing = tokio::task::spawn_blocking(move || tree.pack());
            let content = FileContent(Box::pin(reader));
            let caller = self.remote.idempotent();
            let sent = self.remote.sandboxes.send_files(&caller, request.clone(), content).await;
            let packed = packing.await.map_err(|error| host_failure(from, &error.into()))?;
            match (packed, sent) {
                (Ok(copied), Ok(_)) => {
                    self.copied = copied;
                    return Ok(());
                }
                // The server ended during the transfer. Repeating all of it gives the same result.
                (_, Err(problem)) if problem.code == Code::Unreachable && again => again = false,
                // The stream was cut off because of the failure on this side.
                (Err(Packing::Failed(failure)), _) => return Err(failure),
                (_, Err(problem)) => return Err(problem.into()),
                (Err(Packing::Cut(error)), Ok(_)) => return Err(host_failure(from, &error)),
            }
        }
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
}

/// Why a tree could not be written.
enum Packing {
    /// It could not be read.
    Failed(Failure),
    /// The other side has closed the stream.
    Cut(io::Error),
}

impl From<Failure> for Packing {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for Packing {
    fn from(error: io::Error) -> Self {
        Self::Cut(error)
    }
}

/// A tree of the host that is written to a stream.
struct HostTree {
    root: Dir,
    /// The path of the tree, for messages.
    from: PathBuf,
    progress: ProgressBar,
    copied: CopySummary,
    excluded: Arc<Mutex<Exclusions>>,
    tree: TreeWriter<io::BufWriter<PipeWriter>>,
}

impl HostTree {
    fn pack(mut self) -> Result<CopySummary, Packing> {
        let root = self.root.try_clone().map_err(|error| unreadable(&self.from, error))?;
        self.children(&root, None, 0)?;
        self.tree.finish()?;
        Ok(self.copied)
    }

    /// Writes the entries of a directory. Everything is opened beneath the top directory, without
    /// following links.
    fn children(
        &mut self,
        dir: &Dir,
        below: Option<&RelativePath>,
        depth: usize,
    ) -> Result<(), Packing> {
        let shown = below.map_or_else(|| self.from.clone(), |path| join_below(&self.from, path));
        if depth > TREE_DEPTH {
            let text = format!("the tree is deeper than {TREE_DEPTH} directories");
            return Err(host_failure(&shown, &io::Error::other(text)).into());
        }
        let mut entries = dir.entries().map_err(|error| unreadable(&shown, error))?;
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, kind) in entries {
            let invalid = |error| host_failure(&shown, &io::Error::other(error));
            let path = join_relative(below, &name).map_err(invalid)?;
            let name = RelativePath::new(name).map_err(invalid)?;
            let is_directory = kind == FileKind::Directory;
            let excluded = self.excluded.lock().map(|mut it| it.excludes(&path, is_directory));
            if excluded.unwrap_or(false) {
                self.copied.excluded += 1;
                continue;
            }
            self.entry(path, name, kind, depth)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: RelativePath,
        name: RelativePath,
        kind: FileKind,
        depth: usize,
    ) -> Result<(), Packing> {
        let shown = join_below(&self.from, &path);
        match kind {
            FileKind::Directory => {
                let opened = self.root.open_dir(&path);
                let opened = opened.and_then(|dir| Ok((dir.stat_self()?, dir)));
                let (stat, dir) = match opened {
                    Ok(opened) => opened,
                    Err(error) => return Ok(self.skip(&shown, error)?),
                };
                self.tree.record(&Record::Enter { name, mode: stat.mode & 0o777 })?;
                self.children(&dir, Some(&path), depth + 1)?;
                self.tree.record(&Record::Leave)?;
            }
            FileKind::File => {
                let file = match self.root.open_file(&path) {
                    Ok(file) => file,
                    Err(error) => return Ok(self.skip(&shown, error)?),
                };
                self.file(name, file, &shown)?;
            }
            FileKind::Symlink => match self.root.read_link(&path) {
                Ok(target) if stays_inside(&target, depth) => {
                    self.tree.record(&Record::Link { name, target })?;
                    self.copied.links += 1;
                }
                Ok(_) => self.copied.skip_link(&shown.to_string_lossy()),
                Err(error) => self.skip(&shown, error)?,
            },
            FileKind::CharacterDevice | FileKind::Other => self.copied.skipped += 1,
        }
        Ok(())
    }

    fn file(&mut self, name: RelativePath, file: File, shown: &Path) -> Result<(), Packing> {
        let failed = |error: io::Error| Packing::Failed(host_failure(shown, &error));
        let metadata = file.metadata().map_err(failed)?;
        self.progress.set_message(escaped(&shown.display().to_string()));
        let nanoseconds = u32::try_from(metadata.mtime_nsec()).unwrap_or_default();
        let modified = (metadata.mtime(), nanoseconds);
        let mode = metadata.permissions().mode() & 0o777;
        self.tree.record(&Record::File { name, mode, modified })?;
        let read = self.tree.content(&mut self.progress.wrap_read(file))?;
        self.copied.bytes += read.map_err(failed)?;
        self.copied.files += 1;
        Ok(())
    }

    /// Skips a path that may not be read, or that no longer has the type that it was listed with.
    fn skip(&mut self, path: &Path, error: beneath::Error) -> Result<(), Failure> {
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
