//! Copying directories into a sandbox and out of it, as an archive that the program `tar` inside makes
//! or reads. An archive from inside is hostile: it is extracted below one new directory.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use stockade_core::SandboxId;
use stockade_core::sandbox::HostMount;
use stockade_runtime::{Error, FileKind, Result, SandboxPath, WorkspaceChanges};
use stockade_runtime_remote::{HEADER_BYTES, blocking, host_error, pack, unnamed_file, unpack};
use tokio::io::AsyncReadExt as _;

use crate::SERVICE;
use crate::client::OpenSandbox;
use crate::execd::{Execd, NewFile};
use crate::files::{file_error, text};
use crate::record::Record;
use crate::script::{self, quoted_text};

/// The most bytes of a workspace that are copied out.
const WORKSPACE_BYTES: u64 = 64 << 30;

impl OpenSandbox {
    /// Copies a directory of the host to a directory inside.
    pub(crate) async fn copy_in(
        &self,
        id: &SandboxId,
        from: &Path,
        to: &SandboxPath,
    ) -> Result<()> {
        let record = self.current(id).await?;
        let source = from.to_owned();
        let packed = blocking(move || pack(&source, |_| false)).await?;
        let line = format!("mkdir -p -- {}", quoted_text(text(to)?));
        self.extract_inside(&record, packed, to, &line).await
    }

    /// Copies a directory of the host to a directory inside that has nothing else, and keeps what it was.
    pub(crate) async fn copy_workspace(
        &self,
        record: &Record,
        from: &Path,
        to: &SandboxPath,
    ) -> Result<()> {
        let (source, base, copies) =
            (from.to_owned(), self.base(&record.id), record.copies.clone());
        let packed = blocking(move || copies.pack_workspace(&source, &base)).await?;
        self.need_directory(record, to).await?;
        // An attempt that a crash has interrupted may have left files that do not exist any more.
        let line = format!("find {} -mindepth 1 -delete", quoted_text(text(to)?));
        self.extract_inside(record, packed, to, &line).await
    }

    /// Copies a file or directory of the host, which is only read, to a place inside.
    pub(crate) async fn copy_mount(&self, record: &Record, mount: &HostMount) -> Result<()> {
        let inside = SandboxPath::new(&mount.inside)?;
        let failed = |error| host_error(&mount.host, error);
        let found = mount.host.metadata().map_err(failed)?;
        if found.is_dir() {
            let source = mount.host.clone();
            let packed = blocking(move || pack(&source, |_| false)).await?;
            self.need_directory(record, &inside).await?;
            return self.extract_inside(record, packed, &inside, "true").await;
        }
        if let Some(above) = mount.inside.parent() {
            self.need_directory(record, &SandboxPath::new(above)?).await?;
        }
        let opened = std::fs::File::open(&mount.host).map_err(failed)?;
        let mode = Some(found.mode() & 0o777);
        let file = NewFile { path: text(&inside)?.to_owned(), mode, owner: None };
        let execd = self.execd(record).await?;
        let uploaded = execd.upload(&file, Box::pin(tokio::fs::File::from_std(opened))).await;
        uploaded.map_err(|failure| failure.of_sandbox(SERVICE, &record.id, "the copy of a file"))
    }

    /// Copies the changed files of the workspace to a new directory of the host, and lists the removed ones.
    pub(crate) async fn gather(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        let record = self.current(id).await?;
        let Some((inside, _)) = &record.copies.workspace else {
            return Err(Error::Invalid(format!("the sandbox {id} has no workspace")));
        };
        self.copy_out(id, &SandboxPath::new(inside)?, to, WORKSPACE_BYTES).await?;
        let (base, to) = (self.base(id), to.to_owned());
        blocking(move || record.copies.changes(&base, &to)).await
    }

    /// Makes a directory inside, with those above it, unless it exists.
    async fn need_directory(&self, record: &Record, path: &SandboxPath) -> Result<()> {
        let execd = self.execd(record).await?;
        match execd.file(text(path)?).await {
            Ok(_) => return Ok(()),
            Err(failure) if failure.status() == Some(404) => {}
            Err(failure) => return Err(file_error(failure, &record.id, "inspect", path)),
        }
        let made = execd.make_directory(text(path)?, 0o755, None).await;
        made.map_err(|failure| file_error(failure, &record.id, "create", path))
    }

    /// Extracts an archive to a directory inside, after a line of the shell.
    async fn extract_inside(
        &self,
        record: &Record,
        packed: File,
        to: &SandboxPath,
        before: &str,
    ) -> Result<()> {
        let execd = self.execd(record).await?;
        let archive = new_archive(&execd, &record.id).await?;
        let content = Box::pin(tokio::fs::File::from_std(packed));
        let file = NewFile { path: archive.clone(), mode: Some(0o600), owner: None };
        let uploaded = execd.upload(&file, content).await;
        uploaded.map_err(|failure| {
            failure.of_sandbox(SERVICE, &record.id, "the copy of a directory")
        })?;
        let (to_text, archive) = (quoted_text(text(to)?), quoted_text(&archive));
        let line = format!(
            "{before} && umask 022 && tar -x -p -o -f {archive} -C {to_text}; code=$?; rm -f -- {archive}; exit $code"
        );
        must(&execd, &record.id, &line, "copy to", to).await
    }

    /// Copies a directory inside to a new directory of the host.
    pub(crate) async fn copy_out(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        let execd = self.usable(id).await?;
        let found = self.file(id, from).await?;
        if found.kind != FileKind::Directory {
            let source = io::ErrorKind::NotADirectory.into();
            return Err(Error::File { operation: "copy", path: from.to_string(), source });
        }
        let archive = new_archive(&execd, id).await?;
        // A command may write meanwhile: a file is then as it was during the copy. Sockets are left out.
        // A hollow file has any length: no more than what is accepted is written.
        let most = limit_bytes.saturating_add(HEADER_BYTES);
        let (name, directory) = (quoted_text(&archive), quoted_text(text(from)?));
        let line = format!(
            "LC_ALL=C tar -c -f - -C {directory} . 2>{name}.errors | head -c {most} >{name}; \
             ! grep -v -e ': file changed as we read it$' -e ': File removed before we read it$' \
             -e ': socket ignored$' {name}.errors >&2; \
             code=$?; rm -f {name}.errors; exit $code"
        );
        let made = must(&execd, id, &line, "copy", from).await;
        let copied = match made {
            Err(error) => Err(error),
            Ok(()) => self.extract(id, &execd, &archive, to, limit_bytes).await,
        };
        let removed = execd.remove(&archive, false).await;
        copied?;
        removed.map_err(|failure| failure.of_sandbox(SERVICE, id, "the removal of an archive"))
    }

    async fn extract(
        &self,
        id: &SandboxId,
        execd: &Execd,
        archive: &str,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        let content = execd.download(archive, 0, None).await;
        let content = content.map_err(|failure| failure.of_reading(SERVICE, id))?;
        let mut content = content
            .ok_or_else(|| Error::Invalid("the sandbox returned no archive".to_owned()))?
            // Headers of an archive are small, and those of a hostile one need not be.
            .take(limit_bytes.saturating_add(HEADER_BYTES));
        let failed = |error| host_error(to, error);
        let file = unnamed_file(to).map_err(failed)?;
        let copy = file.try_clone().map_err(failed)?;
        let mut writer = tokio::fs::File::from_std(copy);
        tokio::io::copy(&mut content, &mut writer).await.map_err(|error| Error::Unreachable {
            what: "the sandbox".to_owned(),
            source: error,
        })?;
        tokio::io::AsyncWriteExt::flush(&mut writer).await.map_err(failed)?;
        let to = to.to_owned();
        blocking(move || unpack(file, 0, &to, limit_bytes)).await
    }
}

/// A path inside for an archive.
async fn new_archive(execd: &Execd, id: &SandboxId) -> Result<String> {
    let made = execd.make_directory(script::DIRECTORY, 0o777, None).await;
    made.map_err(|failure| failure.of_sandbox(SERVICE, id, "the copy of a directory"))?;
    Ok(format!("{}/{}.tar", script::DIRECTORY, uuid::Uuid::now_v7().simple()))
}

/// Runs a line of the shell on an archive, which must succeed.
async fn must(
    execd: &Execd,
    id: &SandboxId,
    line: &str,
    operation: &'static str,
    path: &SandboxPath,
) -> Result<()> {
    let printed = execd.clone().for_archives().print(line).await;
    let printed =
        printed.map_err(|failure| failure.of_sandbox(SERVICE, id, "the copy of a directory"))?;
    if printed.code == 0 {
        return Ok(());
    }
    let source = io::Error::other(printed.errors.join("; "));
    Err(Error::File { operation, path: path.to_string(), source })
}
