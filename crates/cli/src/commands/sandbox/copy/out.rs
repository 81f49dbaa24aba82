//! Copying from a sandbox to the host. The sandbox's content is untrusted, and may change during
//! the copy. Only files, directories and links that stay in the tree are copied, without set-id bits
//! and write permission for others.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;

use indicatif::ProgressBar;
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, futimens};
use stockade_api::{FileContent, FileEntry, FileKind, Problem, ReadFile, ReceiveFiles};
use stockade_bundle::RelativePath;
use stockade_core::Code;
use stockade_runtime::{Record, SkipReason, TreeReader, stays_inside};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::exclude::Exclusions;
use super::target::{ExtraRights, Target, TargetPath};
use super::{
    CopySummary, Options, Transfer, host_failure, invalid_name, join_relative, last_name, mirror,
    no_directory, not_found, special_file,
};
use crate::commands::print::{escaped, print_bytes};
use crate::problem::Failure;
use crate::streams;

impl Transfer<'_> {
    /// Copies a file or directory inside to a path of the host. If the named path is a link, its target inside is
    /// copied. Links below it are copied if they stay in the tree; other links and special files are left out, because
    /// their effect on the host is unknown. So is the directory that is copied to, if it is mounted in the sandbox.
    ///
    /// A new directory gets the mode that it has inside, as a file does, but without the bits in the umask, write
    /// permission for others and set-id bits. An existing one keeps its own mode.
    pub(super) async fn out_of_sandbox(
        mut self,
        from: Vec<u8>,
        to: &Path,
        options: &Options,
    ) -> Result<CopySummary, Failure> {
        let root = self.stat(&from).await?.ok_or_else(|| not_found(&from))?;
        let name = last_name(&from);
        match root.kind {
            FileKind::Directory => {
                self.receive_tree(&root, Target::find(to, name)?, options).await?;
            }
            FileKind::File if options.delete => return Err(no_directory(root.path.lossy())),
            FileKind::File => {
                let content = self.read(&root).await?;
                let target = Target::find(to, name)?;
                self.receive(content, root.mode, &target, &target.path()).await?;
            }
            FileKind::Link | FileKind::Other => return Err(special_file(root.path.lossy())),
        }
        self.progress.finish_and_clear();
        Ok(self.copied)
    }

    /// Copies the content of a directory, and everything below it, from one stream.
    async fn receive_tree(
        &mut self,
        root: &FileEntry,
        mut target: Target,
        options: &Options,
    ) -> Result<(), Failure> {
        let top = target.path();
        let base = top.clone();
        let made = target.make_directory(&top, root.mode)?;
        let mark = Some(target.mark()?.into());
        let request = ReceiveFiles { sandbox_id: self.id.clone(), path: root.path.clone(), mark };
        let received = self.remote.sandboxes.receive_files(self.remote.caller(), request).await;
        let FileContent(content) = match received {
            Ok(content) => content,
            Err(problem) => {
                // A directory that cannot be read leaves nothing behind.
                target.unmark();
                target.remove_new(&made);
                return Err(problem.into());
            }
        };
        let receiving = ReceivedTree {
            from: root.path.lossy().into_owned(),
            progress: self.progress.clone(),
            copied: CopySummary::default(),
            directories: vec![(top, made.extra_rights())],
            base,
            excluded: options.exclusions()?,
            received: BTreeSet::new(),
            unknown: BTreeSet::new(),
            mirrors: options.delete.then(|| options.exclusions()).transpose()?,
            target,
        };
        let content = streams::pulled(content);
        let received = tokio::task::spawn_blocking(move || receiving.unpack(content)).await;
        self.copied = received.map_err(|error| interrupted(&error.into()))??;
        Ok(())
    }

    /// Writes one file to standard output.
    pub(super) async fn print(mut self, from: Vec<u8>) -> Result<CopySummary, Failure> {
        let request =
            ReadFile { sandbox_id: self.id.clone(), path: from.into(), offset: 0, length: None };
        let content = self.remote.sandboxes.read_file(self.remote.caller(), request).await?;
        let mut content = content.0;
        let mut piece = vec![0; 64 << 10];
        loop {
            let read = content.read(&mut piece).await;
            let length = read.map_err(|error| host_failure(Path::new("-"), &error))?;
            if length == 0 {
                break;
            }
            print_bytes(&piece[..length])?;
            self.copied.bytes += length as u64;
        }
        self.copied.files = 1;
        Ok(self.copied)
    }

    async fn read(&self, file: &FileEntry) -> Result<FileContent, Problem> {
        let (sandbox_id, path) = (self.id.clone(), file.path.clone());
        let request = ReadFile { sandbox_id, path, offset: 0, length: None };
        self.remote.sandboxes.read_file(self.remote.caller(), request).await
    }

    /// Writes one file on the host.
    async fn receive(
        &mut self,
        content: FileContent,
        mode: u32,
        target: &Target,
        path: &TargetPath,
    ) -> Result<(), Failure> {
        let shown = target.full_path(path);
        self.show(&shown);
        // The file is written under another name and renamed: an existing file stays complete until
        // the new one is.
        let (part, file) = target.create_file(path, mode)?;
        let written = async {
            let mut file = tokio::fs::File::from_std(file);
            let mut content = self.progress.wrap_async_read(content.0);
            let length = tokio::io::copy(&mut content, &mut file).await?;
            file.flush().await?;
            part.finish()?;
            Ok(length)
        };
        let length = written.await.map_err(|error| host_failure(&shown, &error))?;
        self.copied.files += 1;
        self.copied.bytes += length;
        Ok(())
    }
}

/// Reads a directory up to its end, after its start.
fn skip(tree: &mut TreeReader<impl Read>) -> Result<(), Failure> {
    let mut depth = 1_u64;
    while depth > 0 {
        match tree.record().map_err(|error| interrupted(&error))? {
            None => return Err(interrupted(&io::ErrorKind::UnexpectedEof.into())),
            Some(Record::Enter { .. }) => depth += 1,
            Some(Record::Leave) => depth -= 1,
            Some(Record::File { .. }) => {
                let read = tree.content(&mut io::sink());
                read.map_err(|error| interrupted(&error))?.map_err(|error| interrupted(&error))?;
            }
            Some(Record::Link { .. } | Record::Skipped { .. }) => {}
        }
    }
    Ok(())
}

/// The failure of a stream that ended early.
fn interrupted(error: &io::Error) -> Failure {
    Problem::new(Code::Io, "the copy was interrupted").because(error.to_string()).into()
}

/// A tree of a sandbox that is created on the host. Every record of its stream is hostile.
struct ReceivedTree {
    target: Target,
    /// The path of the copied directory below the target's.
    base: TargetPath,
    excluded: Exclusions,
    /// The paths of the tree below its top, if what it does not have is deleted.
    received: BTreeSet<RelativePath>,
    /// Those of them whose content could not be read.
    unknown: BTreeSet<RelativePath>,
    /// What is neither copied nor deleted, if what the tree does not have is deleted.
    mirrors: Option<Exclusions>,
    /// The path of the tree inside, for messages.
    from: String,
    progress: ProgressBar,
    copied: CopySummary,
    /// The directories from the top to the current one, with what is removed from their rights when
    /// they are full.
    directories: Vec<(TargetPath, Option<ExtraRights>)>,
}

impl ReceivedTree {
    fn unpack(mut self, content: impl Read) -> Result<CopySummary, Failure> {
        let mut tree = TreeReader::new(io::BufReader::with_capacity(64 << 10, content));
        loop {
            match tree.record().map_err(|error| interrupted(&error))? {
                None => break,
                Some(Record::Leave) => self.leave()?,
                Some(Record::Enter { name, mode }) => {
                    let path = self.path(&name)?;
                    if self.is_excluded(&path, true) {
                        skip(&mut tree)?;
                        continue;
                    }
                    let made = self.target.make_directory(&path, mode)?;
                    self.directories.push((path, made.extra_rights()));
                }
                Some(Record::File { name, mode, modified }) => {
                    let path = self.path(&name)?;
                    if self.is_excluded(&path, false) {
                        let read = tree.content(&mut io::sink());
                        read.map_err(|error| interrupted(&error))?
                            .map_err(|error| interrupted(&error))?;
                        continue;
                    }
                    self.file(&path, mode, modified, &mut tree)?;
                }
                Some(Record::Link { name, target }) => {
                    let path = self.path(&name)?;
                    if self.is_excluded(&path, false) {
                        continue;
                    }
                    if stays_inside(&target, self.directories.len().saturating_sub(1)) {
                        self.target.create_link(&path, &target)?;
                        self.copied.links += 1;
                    } else {
                        self.copied.skip_link(&self.inside(&name));
                    }
                }
                Some(Record::Skipped { name, reason }) => {
                    if let (Some(_), Some(path)) =
                        (&self.mirrors, self.below_base(&self.path(&name)?))
                    {
                        self.unknown.insert(path);
                    }
                    match reason {
                        SkipReason::Unreadable => self.copied.skip_unreadable(&self.inside(&name)),
                        SkipReason::Special | SkipReason::SecretFile => self.copied.skipped += 1,
                    }
                }
            }
        }
        self.target.unmark();
        self.delete_others()?;
        self.leave()?;
        Ok(self.copied)
    }

    /// Deletes everything below the destination that the tree does not have.
    fn delete_others(&mut self) -> Result<(), Failure> {
        let Some(mut excluded) = self.mirrors.take() else { return Ok(()) };
        let found = self.target.tree(&self.base)?;
        let is_unknown = |path: &RelativePath| {
            std::iter::successors(Some(path.clone()), RelativePath::parent)
                .any(|path| self.unknown.contains(&path))
        };
        let has = |path: &RelativePath| self.received.contains(path) || is_unknown(path);
        for (path, is_directory) in mirror::extraneous(&found, has, &mut excluded) {
            self.target.remove(&self.base, &path, is_directory)?;
            self.copied.deleted += 1;
        }
        Ok(())
    }

    /// A path of the target below the copied directory.
    fn below_base(&self, path: &TargetPath) -> Option<RelativePath> {
        let path = path.as_ref()?;
        match &self.base {
            None => Some(path.clone()),
            Some(base) => path
                .as_bytes()
                .get(base.as_bytes().len() + 1..)
                .and_then(|below| RelativePath::new(below).ok()),
        }
    }

    /// Whether a path of the target is left out, which is counted.
    fn is_excluded(&mut self, path: &TargetPath, is_directory: bool) -> bool {
        let Some(below) = self.below_base(path) else { return false };
        let is_excluded = self.excluded.excludes(&below, is_directory);
        self.copied.excluded += u64::from(is_excluded);
        if self.mirrors.is_some() {
            self.received.insert(below);
        }
        is_excluded
    }

    fn leave(&mut self) -> Result<(), Failure> {
        match self.directories.pop() {
            Some((_, Some(wider))) => self.target.restrict_mode(wider),
            _ => Ok(()),
        }
    }

    fn file(
        &mut self,
        path: &TargetPath,
        mode: u32,
        (seconds, nanoseconds): (i64, u32),
        tree: &mut TreeReader<impl Read>,
    ) -> Result<(), Failure> {
        let shown = self.target.full_path(path);
        let failed = |error: io::Error| host_failure(&shown, &error);
        self.progress.set_message(escaped(&shown.display().to_string()));
        // The file is written under another name and renamed: an existing file stays complete until
        // the new one is.
        let (part, file) = self.target.create_file(path, mode)?;
        let read = tree.content(&mut self.progress.wrap_write(&file));
        match read.map_err(|error| interrupted(&error))?.map_err(failed)? {
            Some(length) => {
                let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
                let times = Timestamps { last_access: OMITTED, last_modification: time };
                futimens(&file, &times).map_err(|errno| failed(errno.into()))?;
                part.finish().map_err(failed)?;
                self.copied.files += 1;
                self.copied.bytes += length;
            }
            None => self.copied.skip_unreadable(&shown.to_string_lossy()),
        }
        Ok(())
    }

    /// The destination of a name in the current directory.
    fn path(&self, name: &RelativePath) -> Result<TargetPath, Failure> {
        let directory = self.directories.last().and_then(|(path, _)| path.as_ref());
        let path = join_relative(directory, name.as_bytes());
        path.map(Some).map_err(|_| invalid_name(&name.as_bytes().to_vec().into()))
    }

    /// A name inside, for messages.
    fn inside(&self, name: &RelativePath) -> String {
        format!("{}: {}", self.from, name.as_os_str().display())
    }
}

/// A time that is not changed.
const OMITTED: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
