//! Copying directories into a sandbox and out of it, as an archive that the program `tar` inside makes
//! or reads. An archive from inside is hostile: it is extracted below one new directory.

use std::fs::File;
use std::io;
use std::path::Path;

use stockade_core::SandboxId;
use stockade_runtime::{Error, FileKind, Result, SandboxPath};
use stockade_runtime_remote::{HEADER_BYTES, host_error, pack, unnamed_file, unpack};
use tokio::io::AsyncReadExt as _;

use crate::SERVICE;
use crate::client::OpenSandbox;
use crate::execd::NewFile;
use crate::files::text;
use crate::script::{self, quoted_text};

impl OpenSandbox {
    /// Copies a directory of the host to a directory inside.
    pub(crate) async fn copy_in(
        &self,
        id: &SandboxId,
        from: &Path,
        to: &SandboxPath,
    ) -> Result<()> {
        let source = from.to_owned();
        let packed = blocking(move || pack(&source, |_| false)).await?;
        self.extract_inside(id, packed, to).await
    }

    /// Extracts an archive to a directory inside.
    pub(crate) async fn extract_inside(
        &self,
        id: &SandboxId,
        packed: File,
        to: &SandboxPath,
    ) -> Result<()> {
        let execd = self.usable(id).await?;
        let archive = self.new_archive(id).await?;
        let content = Box::pin(tokio::fs::File::from_std(packed));
        let file = NewFile { path: archive.clone(), mode: Some(0o600), owner: None };
        let uploaded = execd.upload(&file, content).await;
        uploaded.map_err(|failure| failure.of_sandbox(SERVICE, id, "the copy of a directory"))?;
        let (to_text, archive) = (quoted_text(text(to)?), quoted_text(&archive));
        let line = format!(
            "mkdir -p -- {to_text} && tar -x -p -o -f {archive} -C {to_text}; code=$?; rm -f -- {archive}; exit $code"
        );
        self.must(id, &line, "copy to", to).await
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
        let archive = self.new_archive(id).await?;
        // A hollow file has any length: no more than what is accepted is written.
        let most = limit_bytes.saturating_add(HEADER_BYTES);
        let (name, directory) = (quoted_text(&archive), quoted_text(text(from)?));
        let line = format!(
            "tar -c -f - -C {directory} . 2>{name}.errors | head -c {most} >{name}; \
             grep -v -e 'file changed as we read it$' -e 'File removed before we read it$' {name}.errors >&2; \
             test $? -ne 0; code=$?; rm -f {name}.errors; exit $code"
        );
        let made = self.must(id, &line, "copy", from).await;
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
        execd: &crate::execd::Execd,
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

    /// A path inside for an archive.
    async fn new_archive(&self, id: &SandboxId) -> Result<String> {
        let execd = self.usable(id).await?;
        let made = execd.make_directory(script::DIRECTORY, 0o777, None).await;
        made.map_err(|failure| failure.of_sandbox(SERVICE, id, "the copy of a directory"))?;
        Ok(format!("{}/{}.tar", script::DIRECTORY, uuid::Uuid::now_v7().simple()))
    }

    /// Runs a line of the shell that must succeed.
    async fn must(
        &self,
        id: &SandboxId,
        line: &str,
        operation: &'static str,
        path: &SandboxPath,
    ) -> Result<()> {
        let execd = self.usable(id).await?;
        let printed = execd.print(line).await;
        let printed = printed
            .map_err(|failure| failure.of_sandbox(SERVICE, id, "the copy of a directory"))?;
        if printed.code == 0 {
            return Ok(());
        }
        let source = io::Error::other(printed.errors.join("; "));
        Err(Error::File { operation, path: path.to_string(), source })
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::Exhausted(error.to_string())))
}
