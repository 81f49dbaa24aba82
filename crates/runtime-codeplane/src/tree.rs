//! Copying directories into a workspace and out of it, as archives that the program `tar` inside reads
//! or makes.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use stockade_core::SandboxId;
use stockade_runtime::{Content, Result, SandboxPath};
use stockade_runtime_remote::{HEADER_BYTES, blocking, host_error, pack, unnamed_file, unpack};

use crate::client::Codeplane;
use crate::files::Operation;
use crate::operations;
use crate::record::Record;
use crate::shell::Sink;

impl Codeplane {
    /// Copies a directory of the host to a directory inside.
    pub(crate) async fn copy_in(
        &self,
        id: &SandboxId,
        from: &Path,
        to: &SandboxPath,
    ) -> Result<()> {
        let record = self.usable(id).await?;
        let source = from.to_owned();
        let packed = blocking(move || pack(&source, |_| false)).await?;
        self.extract_inside(&record, packed, to).await
    }

    /// Extracts an archive to a directory inside.
    pub(crate) async fn extract_inside(
        &self,
        record: &Record,
        archive: File,
        to: &SandboxPath,
    ) -> Result<()> {
        let operation = Operation { verb: "copy to", path: to };
        let length = archive.metadata().map_err(|error| host_error(to.as_path(), error))?.len();
        let content: Content = Box::pin(tokio::fs::File::from_std(archive));
        let unique = format!(".stockade-{}.tar", uuid::Uuid::now_v7().simple());
        let script = operations::extract(to, &unique, length);
        match self.transfer(record, &script, Some(content), Sink::Result).await {
            Ok(ran) => operation.result(&ran.output).map(drop),
            Err(failure) => Err(self.explained(record, failure, operation.verb).await),
        }
    }

    /// Copies a directory inside to a new directory of the host.
    pub(crate) async fn copy_out(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        let record = self.usable(id).await?;
        let operation = Operation { verb: "copy", path: from };
        let failed = |error| host_error(to, error);
        let mut file = unnamed_file(to).map_err(failed)?;
        let mut sink = tokio::fs::File::from_std(file.try_clone().map_err(failed)?);
        // Headers of an archive are small, and those of a hostile one need not be.
        let most = limit_bytes.saturating_add(HEADER_BYTES).min(1 << 60);
        let script = operations::archive(from, most);
        let ran = self.transfer(&record, &script, None, Sink::File(&mut sink)).await;
        let ran = match ran {
            Ok(ran) => ran,
            Err(failure) => return Err(self.explained(&record, failure, operation.verb).await),
        };
        let mut first = [0; 16];
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let length = file.read(&mut first).map_err(failed)?;
        operation.result(&first[..length])?;
        if !ran.errors.is_empty() {
            return Err(operation.failed(std::io::Error::other(ran.errors)));
        }
        let to = to.to_owned();
        blocking(move || unpack(file, 1, &to, limit_bytes)).await
    }
}
