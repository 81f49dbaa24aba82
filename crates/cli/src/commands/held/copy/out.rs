//! Copying from a sandbox to the host. The sandbox's content is untrusted, and may change during
//! the copy. Only files and directories are copied, without set-id bits and write permission for
//! others.

use std::path::Path;

use stockade_api::{FileContent, FileEntry, FileKind, ListDirectory, Listing, Problem, ReadFile};
use stockade_core::Code;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::print_bytes;
use super::target::{Place, Target, Wider};
use super::{Copied, Way, host, last_name, missing, special};
use crate::problem::Failure;

/// The next step.
enum Next {
    Copy(FileEntry, Place),
    Narrow(Wider),
}

impl Way<'_> {
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
    ) -> Result<Copied, Failure> {
        let root = self.stat(&from).await?.ok_or_else(|| missing(&from))?;
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
                self.receive(content, root.mode, &target, &target.place()).await?;
            }
            FileKind::Link | FileKind::Other => return Err(special(root.path.lossy())),
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
        self.fill(root, listing, &target, target.place(), &mut waiting)?;
        if has_directories {
            target.mark()?;
        }
        while let Some(next) = waiting.pop() {
            let (entry, place) = match next {
                Next::Copy(entry, place) => (entry, place),
                Next::Narrow(wider) => {
                    if waiting.is_empty() {
                        target.unmark();
                    }
                    target.narrow(wider)?;
                    continue;
                }
            };
            match entry.kind {
                FileKind::Directory => match self.list(&entry).await {
                    Ok(listing) if target.is_marked(&listing.entries) => self.copied.left_out += 1,
                    Ok(listing) => self.fill(&entry, listing, &target, place, &mut waiting)?,
                    Err(problem) => self.leave_out(&entry, problem)?,
                },
                FileKind::File => match self.read(&entry).await {
                    Ok(content) => self.receive(content, entry.mode, &target, &place).await?,
                    // Its type has changed.
                    Err(problem) if problem.code == Code::InvalidInput => self.copied.left_out += 1,
                    Err(problem) => self.leave_out(&entry, problem)?,
                },
                FileKind::Link | FileKind::Other => self.copied.left_out += 1,
            }
        }
        Ok(())
    }

    /// Creates a directory, and schedules the copying of its content.
    fn fill(
        &mut self,
        entry: &FileEntry,
        listing: Listing,
        target: &Target,
        place: Place,
        waiting: &mut Vec<Next>,
    ) -> Result<(), Failure> {
        waiting.extend(target.make_directory(&place, entry.mode)?.map(Next::Narrow));
        self.copied.left_out += listing.hidden;
        for entry in listing.entries {
            let below = target.below(&place, &entry)?;
            waiting.push(Next::Copy(entry, below));
        }
        Ok(())
    }

    /// Writes one file to standard output.
    pub(super) async fn print(mut self, from: Vec<u8>) -> Result<Copied, Failure> {
        let request =
            ReadFile { sandbox_id: self.id.clone(), path: from.into(), offset: 0, length: None };
        let content = self.remote.sandboxes.read_file(self.remote.caller(), request).await?;
        let mut content = content.0;
        let mut piece = vec![0; 64 << 10];
        loop {
            let read = content.read(&mut piece).await;
            let length = read.map_err(|error| host(Path::new("-"), &error))?;
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
        place: &Place,
    ) -> Result<(), Failure> {
        let shown = target.shown(place);
        self.show(&shown);
        // The file is written under another name and renamed: an existing file stays complete until
        // the new one is.
        let (part, file) = target.begin(place, mode)?;
        let written = async {
            let mut file = tokio::fs::File::from_std(file);
            let mut content = self.progress.wrap_async_read(content.0);
            let length = tokio::io::copy(&mut content, &mut file).await?;
            file.flush().await?;
            part.finish()?;
            Ok(length)
        };
        let length = written.await.map_err(|error| host(&shown, &error))?;
        self.copied.files += 1;
        self.copied.bytes += length;
        Ok(())
    }

    /// Skips an entry that may not be read, or that no longer exists.
    fn leave_out(&mut self, entry: &FileEntry, problem: Problem) -> Result<(), Failure> {
        match problem.code {
            Code::AccessDenied => self.copied.leave_out_unread(&entry.path.lossy()),
            Code::FileNotFound => self.copied.left_out += 1,
            _ => return Err(problem.into()),
        }
        Ok(())
    }
}
