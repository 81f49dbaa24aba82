//! The side of the sandbox. Its files are read as one stream of the runtime and created by one; every
//! record is hostile. What is replaced or deleted is looked at once more first.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, PoisonError};

use stockade_api::{Bytes, Result};
use stockade_bundle::RelativePath;
use stockade_bundle::ignore::MAX_FILE_BYTES;
use stockade_bundle::manifest::{ContentHash, Node};
use stockade_bundle::sync::{
    Action, BlobWriter, Blobs, Filter, Found, Scan, SkipReason, Verdict, is_temporary, same,
};
use stockade_core::access::{Level, Rules};
use stockade_core::{Code, Problem, SandboxId};
use stockade_runtime::{
    Content, Error, FileInfo, FileKind, ReadRange, Record, Runtime, SandboxPath,
    SkipReason as Skipped, TreeReader, TreeWriter,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Handle;

use super::outside::IgnoreFiles;
use super::staging::problem;
use crate::failure::runtime_problem;
use crate::operations::files::refuse_secret_files;
use crate::owned_sandbox::OwnedSandbox;
use crate::paths::{as_bytes, as_path, resolve};

/// How much of a stream is in memory.
const PIPE_BYTES: usize = 256 << 10;
/// The permission bits of a new directory.
const DIRECTORY_MODE: u32 = 0o755;

/// A directory of a sandbox.
#[derive(Clone)]
pub(super) struct Inside {
    runtime: Arc<dyn Runtime>,
    id: SandboxId,
    path: SandboxPath,
    rules: Rules,
}

/// What a scan needs.
pub(super) struct ScanInput {
    pub(super) filter: Filter,
    /// Gets the ignore files that are found.
    pub(super) ignore_files: IgnoreFiles,
    pub(super) max_bytes: Option<u64>,
    /// Where contents are stored, if they are.
    pub(super) blobs: Option<Blobs>,
    /// Whether a content must be stored.
    pub(super) is_needed: NeedsContent,
}

/// Whether the content of a path is needed, by its hash and length.
pub(super) type NeedsContent =
    Box<dyn FnMut(&RelativePath, ContentHash, u64) -> io::Result<bool> + Send>;

/// What a scan has found.
pub(super) struct Scanned {
    pub(super) scan: Scan,
    /// Files that an interrupted copy has left.
    pub(super) leftovers: Vec<RelativePath>,
}

impl Inside {
    /// The directory, unless a link is on the way to it: a process inside could exchange it.
    pub(super) async fn open(
        runtime: &Arc<dyn Runtime>,
        owned: &OwnedSandbox,
        path: &Bytes,
    ) -> Result<Self> {
        let checked = as_path(path)?;
        let reached = resolve(&**runtime, &owned.id, &checked, true).await?;
        if reached != checked {
            let message = format!("the path {checked} leads through a symbolic link");
            return Err(Problem::new(Code::PathRefused, message)
                .because(format!("it leads to {reached}"))
                .remedied_by("name the directory that it leads to"));
        }
        refuse_secret_files(&**runtime, &owned.id, &checked).await?;
        let (runtime, id, rules) = (runtime.clone(), owned.id.clone(), owned.rules.clone());
        Ok(Self { runtime, id, path: checked, rules })
    }

    /// A path below the directory, absolute.
    fn full(&self, path: &RelativePath) -> Vec<u8> {
        let base = as_bytes(&self.path);
        let base = base.strip_suffix(b"/").unwrap_or(base);
        [base, b"/", path.as_bytes()].concat()
    }

    fn full_path(&self, path: &RelativePath) -> Result<SandboxPath> {
        as_path(&Bytes(self.full(path)))
    }

    /// Whether the access rules allow this use of a path.
    pub(super) fn allows(&self, level: Level, path: &RelativePath) -> bool {
        self.rules.is_empty() || self.rules.allows(level, &self.full(path)).is_ok()
    }

    /// Reads the directory. One that does not exist has no files, if it `may_be_missing`.
    pub(super) async fn scan(&self, input: ScanInput, may_be_missing: bool) -> Result<Scanned> {
        let packed = match self.runtime.pack(&self.id, &self.path, None).await {
            Ok(packed) => packed,
            Err(Error::File { source, .. })
                if may_be_missing && source.kind() == io::ErrorKind::NotFound =>
            {
                let (scan, leftovers) = (Scan::default(), Vec::new());
                return Ok(Scanned { scan, leftovers });
            }
            Err(error) => return Err(runtime_problem(&error)),
        };
        let (inside, handle) = (self.clone(), Handle::current());
        let read = tokio::task::spawn_blocking(move || {
            let content = io::BufReader::new(BlockingReader { content: packed.content, handle });
            inside.read(content, input)
        });
        let read = read.await.map_err(|error| problem(&io::Error::other(error)))?;
        read.map_err(|error| problem(&error))
    }

    fn read(&self, content: impl Read, input: ScanInput) -> io::Result<Scanned> {
        let ScanInput { mut filter, ignore_files, max_bytes, blobs, mut is_needed } = input;
        let mut tree = TreeReader::new(content);
        let (mut scan, mut leftovers) = (Scan::default(), Vec::new());
        let mut above: Vec<RelativePath> = Vec::new();
        // How many directories below one that is left out the stream is.
        let mut outside = 0_usize;
        while let Some(record) = tree.record()? {
            let path = |name: &RelativePath| match above.last() {
                None => Ok(name.clone()),
                Some(directory) => directory.join(name.as_bytes()).map_err(io::Error::other),
            };
            match record {
                Record::Leave if outside > 0 => outside -= 1,
                Record::Leave => drop(above.pop()),
                Record::Enter { .. } if outside > 0 => outside += 1,
                Record::Enter { name, mode } => {
                    let path = path(&name)?;
                    match self.judge(&mut filter, &path, true)? {
                        Verdict::Skip(reason) => {
                            scan.skipped.insert(path, reason);
                            outside = 1;
                        }
                        verdict => {
                            if verdict == Verdict::Keep {
                                let node = Node::Directory { mode: mode & 0o777 };
                                scan.tree.insert(path.clone(), Found { node, modified: None });
                            }
                            above.push(path);
                        }
                    }
                }
                Record::File { .. } if outside > 0 => drop(tree.content(&mut io::sink())??),
                Record::File { name, mode, modified } => {
                    let path = path(&name)?;
                    let is_ignore_file = name.as_bytes() == b".gitignore";
                    let mut writer = match &blobs {
                        Some(blobs) => blobs.writer(),
                        None => BlobWriter::hashing(),
                    };
                    let mut text = Vec::new();
                    let read = {
                        let kept = is_ignore_file.then_some(&mut text);
                        tree.content(&mut Tee { to: &mut writer, kept })?
                    };
                    if is_ignore_file && matches!(read, Ok(Some(_))) {
                        let mut files = ignore_files.lock().unwrap_or_else(PoisonError::into_inner);
                        files.insert(path.clone(), text);
                    }
                    if is_temporary(name.as_bytes()) {
                        leftovers.push(path);
                        continue;
                    }
                    match self.judge(&mut filter, &path, false)? {
                        Verdict::Outside => continue,
                        Verdict::Skip(reason) => {
                            scan.skipped.insert(path, reason);
                            continue;
                        }
                        Verdict::Keep => {}
                    }
                    let Some(size) = read? else {
                        scan.skipped.insert(path, SkipReason::Unreadable);
                        continue;
                    };
                    if max_bytes.is_some_and(|limit| size > limit) {
                        scan.skipped.insert(path, SkipReason::TooLarge);
                        continue;
                    }
                    let (hash, size) = writer.finish(|hash, size| is_needed(&path, hash, size))?;
                    let node = Node::File { hash, size, mode: mode & 0o777 };
                    scan.tree.insert(path, Found { node, modified: Some(modified) });
                }
                Record::Link { .. } | Record::Skipped { .. } if outside > 0 => {}
                Record::Link { name, target } => {
                    let path = path(&name)?;
                    match self.judge(&mut filter, &path, false)? {
                        Verdict::Outside => {}
                        Verdict::Skip(reason) => drop(scan.skipped.insert(path, reason)),
                        Verdict::Keep => {
                            let node = Node::Symlink { target };
                            scan.tree.insert(path, Found { node, modified: None });
                        }
                    }
                }
                Record::Skipped { name, reason } => {
                    let path = path(&name)?;
                    let reason = match (self.judge(&mut filter, &path, false)?, reason) {
                        (Verdict::Outside, _) => continue,
                        (Verdict::Skip(reason), _) => reason,
                        (Verdict::Keep, Skipped::Unreadable) => SkipReason::Unreadable,
                        (Verdict::Keep, Skipped::Special | Skipped::SecretFile) => {
                            SkipReason::SpecialFile
                        }
                    };
                    scan.skipped.insert(path, reason);
                }
            }
        }
        Ok(Scanned { scan, leftovers })
    }

    fn judge(
        &self,
        filter: &mut Filter,
        path: &RelativePath,
        is_directory: bool,
    ) -> io::Result<Verdict> {
        match filter.judge(path, is_directory)? {
            Verdict::Skip(SkipReason::GitDirectory) => Ok(Verdict::Skip(SkipReason::GitDirectory)),
            // What must not be read is not mentioned for another reason.
            _ if !self.allows_reading(path, is_directory) => {
                Ok(Verdict::Skip(SkipReason::AccessDenied))
            }
            verdict => Ok(verdict),
        }
    }

    fn allows_reading(&self, path: &RelativePath, _is_directory: bool) -> bool {
        self.allows(Level::Read, path)
    }

    /// Removes files that an interrupted copy has left.
    pub(super) async fn remove_leftovers(&self, leftovers: &[RelativePath]) -> Result<()> {
        for path in leftovers {
            match self.runtime.remove(&self.id, &self.full_path(path)?).await {
                Ok(()) | Err(Error::File { .. }) => {}
                Err(error) => return Err(runtime_problem(&error)),
            }
        }
        Ok(())
    }

    /// Makes changes: deletions first, deepest first. Returns the paths that were not as planned.
    pub(super) async fn place(
        &self,
        actions: Vec<Action>,
        open: impl Fn(ContentHash) -> io::Result<File> + Send + 'static,
    ) -> Result<Vec<RelativePath>> {
        let mut changed = Vec::new();
        let (deletions, others): (Vec<_>, Vec<_>) =
            actions.into_iter().partition(|action| action.new.is_none());
        for action in deletions {
            if !self.delete(&action).await? {
                changed.push(action.path);
            }
        }
        // Directories that this operation creates: nothing is in them.
        let mut new_directories: BTreeSet<RelativePath> = BTreeSet::new();
        let (mut created, mut modes): (Vec<Action>, Vec<(RelativePath, u32)>) =
            (Vec::new(), Vec::new());
        for action in others {
            let Some(new) = &action.new else { continue };
            let blocked = |path: &RelativePath| {
                changed.iter().any(|above: &RelativePath| path.is_within(above))
            };
            if blocked(&action.path) {
                changed.push(action.path);
                continue;
            }
            let parent = action.path.parent();
            let is_fresh = parent.as_ref().is_some_and(|parent| new_directories.contains(parent));
            let current = if is_fresh { None } else { self.stat(&action.path).await? };
            if let Node::Directory { .. } = &new.node {
                match current {
                    None => drop(new_directories.insert(action.path.clone())),
                    Some(info) if info.kind == FileKind::Directory => continue,
                    Some(_) => {
                        changed.push(action.path);
                        continue;
                    }
                }
                created.push(action);
                continue;
            }
            let old = action.old.as_ref();
            let mode = match &new.node {
                Node::File { mode, .. } => Some(*mode),
                _ => None,
            };
            let is_same = old.is_some_and(|old| same(&old.node, &new.node));
            match (&current, old) {
                (None, None) => created.push(action),
                (Some(info), Some(old)) if self.is(&action.path, info, old).await? => {
                    if let Some(mode) = mode.filter(|mode| info.mode & 0o777 != *mode) {
                        modes.push((action.path.clone(), mode));
                    }
                    if !is_same {
                        created.push(action);
                    }
                }
                // It was done before a crash.
                (Some(info), _) if self.has_content(&action.path, info, &new.node).await? => {
                    if let Some(mode) = mode.filter(|mode| info.mode & 0o777 != *mode) {
                        modes.push((action.path.clone(), mode));
                    }
                }
                _ => changed.push(action.path),
            }
        }
        if !created.is_empty() {
            self.create(created, open).await?;
        }
        for (path, mode) in modes {
            let path = self.full_path(&path)?;
            let set = self.runtime.set_attributes(&self.id, &path, Some(mode), None);
            match set.await {
                Ok(()) | Err(Error::File { .. }) => {}
                Err(error) => return Err(runtime_problem(&error)),
            }
        }
        Ok(changed)
    }

    /// Deletes a path. Returns whether it was as planned.
    async fn delete(&self, action: &Action) -> Result<bool> {
        let (Some(info), Some(old)) = (self.stat(&action.path).await?, &action.old) else {
            return Ok(true);
        };
        let path = self.full_path(&action.path)?;
        if info.kind == FileKind::Directory {
            let listed = self.runtime.read_directory(&self.id, &path).await;
            // What is protected stays in it.
            if !listed.map_err(|error| runtime_problem(&error))?.is_empty() {
                return Ok(true);
            }
        } else if !self.is(&action.path, &info, old).await? {
            return Ok(false);
        }
        match self.runtime.remove(&self.id, &path).await {
            Ok(()) => Ok(true),
            Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(runtime_problem(&error)),
        }
    }

    async fn stat(&self, path: &RelativePath) -> Result<Option<FileInfo>> {
        match self.runtime.stat(&self.id, &self.full_path(path)?).await {
            Ok(info) => Ok(Some(info)),
            Err(Error::File { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(runtime_problem(&error)),
        }
    }

    /// Whether a path is as the scan found it: by its time and size, else by its content.
    async fn is(&self, path: &RelativePath, info: &FileInfo, found: &Found) -> Result<bool> {
        if let (Node::File { size, .. }, Some((seconds, nanoseconds))) =
            (&found.node, found.modified)
            && info.kind == FileKind::File
            && info.size_bytes == *size
            && (seconds, nanoseconds) != (0, 0)
            && info.modified_ms == seconds * 1000 + i64::from(nanoseconds / 1_000_000)
        {
            return Ok(true);
        }
        self.has_content(path, info, &found.node).await
    }

    async fn has_content(&self, path: &RelativePath, info: &FileInfo, node: &Node) -> Result<bool> {
        match node {
            Node::Directory { .. } => Ok(info.kind == FileKind::Directory),
            Node::Symlink { target } => Ok(info.link.as_ref() == Some(target)),
            Node::File { hash, size, .. } => {
                if info.kind != FileKind::File || info.size_bytes != *size {
                    return Ok(false);
                }
                let range = ReadRange::default();
                let content = self.runtime.read_file(&self.id, &self.full_path(path)?, range).await;
                let mut content = content.map_err(|error| runtime_problem(&error))?;
                let mut hasher = BlobWriter::hashing();
                let mut piece = vec![0; PIPE_BYTES];
                loop {
                    let length = content.read(&mut piece).await.map_err(|error| problem(&error))?;
                    if length == 0 {
                        break;
                    }
                    hasher.write_all(&piece[..length]).map_err(|error| problem(&error))?;
                }
                let found = hasher.finish(|_, _| Ok(false)).map_err(|error| problem(&error))?;
                Ok(found == (*hash, *size))
            }
        }
    }

    /// Creates files, links and directories as one stream.
    async fn create(
        &self,
        mut actions: Vec<Action>,
        open: impl Fn(ContentHash) -> io::Result<File> + Send + 'static,
    ) -> Result<()> {
        // What is in a directory follows it directly.
        actions.sort_by(|one, other| one.path.components().cmp(other.path.components()));
        let (reader, writer) = tokio::io::duplex(PIPE_BYTES);
        let handle = Handle::current();
        let writing = tokio::task::spawn_blocking(move || {
            let to = BlockingWriter { writer, handle };
            write(&actions, io::BufWriter::with_capacity(PIPE_BYTES, to), &open)
        });
        let content: Content = Box::pin(reader);
        let unpacked = self.runtime.unpack(&self.id, &self.path, DIRECTORY_MODE, content).await;
        let written = writing.await.map_err(|error| problem(&io::Error::other(error)))?;
        // If the reader has failed, the writer has only noticed that.
        unpacked.map_err(|error| runtime_problem(&error))?;
        written.map_err(|error| problem(&error))
    }
}

/// Writes the stream of new files.
fn write(
    actions: &[Action],
    to: impl Write,
    open: &impl Fn(ContentHash) -> io::Result<File>,
) -> io::Result<()> {
    let mut tree = TreeWriter::new(to);
    let mut at: Vec<Vec<u8>> = Vec::new();
    let name = |bytes: &[u8]| RelativePath::new(bytes).map_err(io::Error::other);
    for action in actions {
        let Some(new) = &action.new else { continue };
        let parts: Vec<&[u8]> = action.path.components().collect();
        let directories = &parts[..parts.len() - 1];
        let common =
            at.iter().zip(directories).take_while(|(one, other)| one.as_slice() == **other).count();
        for _ in common..at.len() {
            tree.record(&Record::Leave)?;
        }
        at.truncate(common);
        for part in &directories[common..] {
            tree.record(&Record::Enter { name: name(part)?, mode: DIRECTORY_MODE })?;
            at.push(part.to_vec());
        }
        let name = name(action.path.file_name())?;
        match &new.node {
            Node::Directory { mode } => {
                at.push(name.as_bytes().to_vec());
                tree.record(&Record::Enter { name, mode: *mode })?;
            }
            Node::Symlink { target } => {
                tree.record(&Record::Link { name, target: target.clone() })?;
            }
            Node::File { hash, mode, .. } => {
                let modified = new.modified.unwrap_or_else(now);
                let mut file = open(*hash)?;
                tree.record(&Record::File { name, mode: *mode, modified })?;
                tree.content(&mut file)??;
            }
        }
    }
    for _ in 0..at.len() {
        tree.record(&Record::Leave)?;
    }
    tree.finish()
}

fn now() -> (i64, u32) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_default();
    (i64::try_from(now.as_secs()).unwrap_or(0), now.subsec_nanos())
}

/// The bytes of a path of the sandbox.
pub(super) fn bytes_of(path: &SandboxPath) -> Vec<u8> {
    path.as_path().as_os_str().as_bytes().to_vec()
}

/// A content that a thread reads which may block.
struct BlockingReader {
    content: Content,
    handle: Handle,
}

impl Read for BlockingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.handle.block_on(self.content.read(buffer))
    }
}

/// A stream that a thread writes which may block.
struct BlockingWriter {
    writer: tokio::io::DuplexStream,
    handle: Handle,
}

impl Write for BlockingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.handle.block_on(self.writer.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.handle.block_on(self.writer.flush())
    }
}

/// Writes to a blob, and keeps the start of it.
struct Tee<'a, 'b> {
    to: &'a mut BlobWriter<'b>,
    kept: Option<&'a mut Vec<u8>>,
}

impl Write for Tee<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(kept) = &mut self.kept
            && kept.len() as u64 <= MAX_FILE_BYTES
        {
            kept.extend_from_slice(bytes);
        }
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
