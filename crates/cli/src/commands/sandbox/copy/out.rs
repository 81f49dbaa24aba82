//! Copying from a sandbox to the host. The sandbox's content is untrusted, and may change during
//! the copy. Only files and directories are copied, without set-id bits and write permission for
//! others.

use std::path::Path;

use stockade_api::{FileContent, FileEntry, FileKind, ListDirectory, Listing, Problem, ReadFile};
use stockade_core::Code;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::target::{ExtraRights, Target, TargetPath};
use super::{CopySummary, Transfer, host_failure, last_name, not_found, special_file};
use crate::commands::print::print_bytes;
use crate::problem::Failure;

/// The next step.
enum Work {
    Copy(FileEntry, TargetPath),
    RestrictMode(ExtraRights),
}

impl Transfer<'_> {
    /// Copies a file or directory inside to a path of the host. If the named path is a link, its target inside is
    /// copied. Links and special files below it are left out, because their effect on the host is unknown. So is the
    /// directory that is copied to, if it is mounted in the sandbox.
    ///
    /// A new directory gets the mode that it has inside, as a file does, but without the bits in the umask, write
    /// permission for others and set-id bits. An existing one keeps its own mode.
    pub(super) async fn out_of_sandbox(
        mut self,
        from: Vec<u8>,
        to: &Path,
    ) -> Result<CopySummary, Failure> {
        let root = self.stat(&from).await?.ok_or_else(|| not_found(&from))?;
        let name = last_name(&from);
        match root.kind {
            FileKind::Directory => {
                // Before anything is created: a directory that cannot be listed leaves nothing
                // behind.
                let listing = self.list(&root).await?;
                self.receive_tree(&root, listing, Target::find(to, name)?).await?;
            }
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

    /// Copies the entries of a listing, and everything below them.
    async fn receive_tree(
        &mut self,
        root: &FileEntry,
        listing: Listing,
        mut target: Target,
    ) -> Result<(), Failure> {
        let mut waiting = Vec::new();
        let has_directories = listing.entries.iter().any(|it| it.kind == FileKind::Directory);
        self.list_into(root, listing, &target, target.path(), &mut waiting)?;
        if has_directories {
            target.mark()?;
        }
        while let Some(next) = waiting.pop() {
            let (entry, path) = match next {
                Work::Copy(entry, place) => (entry, place),
                Work::RestrictMode(wider) => {
                    if waiting.is_empty() {
                        target.unmark();
                    }
                    target.restrict_mode(wider)?;
                    continue;
                }
            };
            match entry.kind {
                FileKind::Directory => match self.list(&entry).await {
                    Ok(listing) if target.is_marked(&listing.entries) => self.copied.skipped += 1,
                    Ok(listing) => self.list_into(&entry, listing, &target, path, &mut waiting)?,
                    Err(problem) => self.leave_out(&entry, problem)?,
                },
                FileKind::File => match self.read(&entry).await {
                    Ok(content) => self.receive(content, entry.mode, &target, &path).await?,
                    // Its type has changed.
                    Err(problem) if problem.code == Code::InvalidInput => self.copied.skipped += 1,
                    Err(problem) => self.leave_out(&entry, problem)?,
                },
                FileKind::Link | FileKind::Other => self.copied.skipped += 1,
            }
        }
        Ok(())
    }

    /// Creates a directory, and schedules the copying of its content.
    fn list_into(
        &mut self,
        entry: &FileEntry,
        listing: Listing,
        target: &Target,
        path: TargetPath,
        waiting: &mut Vec<Work>,
    ) -> Result<(), Failure> {
        waiting.extend(target.make_directory(&path, entry.mode)?.map(Work::RestrictMode));
        self.copied.skipped += listing.hidden;
        for entry in listing.entries {
            let below = target.path_below(&path, &entry)?;
            waiting.push(Work::Copy(entry, below));
        }
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

    async fn list(&self, directory: &FileEntry) -> Result<Listing, Problem> {
        let (sandbox_id, path) = (self.id.clone(), directory.path.clone());
        let request = ListDirectory { sandbox_id, path, depth: None };
        self.remote.sandboxes.list_directory(self.remote.caller(), request).await
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

    /// Skips an entry that may not be read, or that no longer exists.
    fn leave_out(&mut self, entry: &FileEntry, problem: Problem) -> Result<(), Failure> {
        match problem.code {
            Code::AccessDenied => self.copied.skip_unreadable(&entry.path.lossy()),
            Code::FileNotFound => self.copied.skipped += 1,
            _ => return Err(problem.into()),
        }
        Ok(())
    }
}
