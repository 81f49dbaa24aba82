//! Files inside.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stockade_core::SandboxId;
use stockade_core::sandbox::User;
use stockade_runtime::{
    Content, Error, FileInfo, FileKind, ReadRange, Result, SandboxPath, State, WriteOptions,
};
use stockade_runtime_remote::Repeat;
use tokio::io::AsyncWriteExt as _;

use crate::client::Codeplane;
use crate::operations;
use crate::record::Record;
use crate::shell::{ShellFailure, Sink};

/// How much of a file is read at once.
const PIECE_BYTES: u64 = 4 << 20;

/// An operation on a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation<'a> {
    /// As a verb.
    pub(crate) verb: &'static str,
    pub(crate) path: &'a SandboxPath,
}

impl Operation<'_> {
    pub(crate) fn failed(self, source: io::Error) -> Error {
        Error::File { operation: self.verb, path: self.path.to_string(), source }
    }

    /// The result of a script, which begins with `+`, or the error that it tells.
    pub(crate) fn result(self, output: &[u8]) -> Result<&[u8]> {
        match output.split_first() {
            Some((b'+', result)) => Ok(result),
            Some((b'!', number)) => {
                let number = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
                Err(self.failed(number.map_or_else(odd, io::Error::from_raw_os_error)))
            }
            _ => Err(self.failed(odd())),
        }
    }
}

fn odd() -> io::Error {
    io::Error::other("the workspace answers something else than expected")
}

impl Codeplane {
    /// The record of a sandbox whose files can be reached.
    pub(crate) async fn usable(&self, id: &SandboxId) -> Result<Record> {
        let record = self.current(id)?;
        if record.remote.is_none() {
            return Err(Error::OutcomeUnknown(format!("the creation of {id}")));
        }
        Ok(record)
    }

    async fn operate(
        &self,
        id: &SandboxId,
        operation: Operation<'_>,
        script: &[u8],
        repeat: Repeat,
    ) -> Result<Vec<u8>> {
        let record = self.usable(id).await?;
        let ran = self.run(&record, script, Vec::new(), repeat).await;
        let ran = match ran {
            Ok(ran) => ran,
            Err(failure) => return Err(self.explained(&record, failure, operation.verb).await),
        };
        operation.result(&ran.output).map(<[u8]>::to_vec)
    }

    /// The error of a failure: of a workspace that is suspended, nothing can be reached.
    pub(crate) async fn explained(
        &self,
        record: &Record,
        failure: ShellFailure,
        operation: &'static str,
    ) -> Error {
        if let Err(error @ Error::WrongState { state: State::Paused, .. }) =
            self.require_awake(record, operation).await
        {
            return error;
        }
        failure.of_sandbox(&record.id, operation)
    }

    pub(crate) async fn file(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo> {
        let operation = Operation { verb: "inspect", path };
        let script = operations::stat(path);
        let output = self.operate(id, operation, &script, Repeat::Always).await?;
        let mut found = entries(&output).ok_or_else(|| operation.failed(odd()))?;
        let found = found.pop().ok_or_else(|| operation.failed(odd()))?;
        let name = path.as_path().file_name().unwrap_or_else(|| "/".as_ref());
        Ok(FileInfo { name: name.as_bytes().to_vec(), ..found })
    }

    pub(crate) async fn directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
    ) -> Result<Vec<FileInfo>> {
        let operation = Operation { verb: "list", path };
        let script = operations::list(path);
        let output = self.operate(id, operation, &script, Repeat::Always).await?;
        let mut found = entries(&output).ok_or_else(|| operation.failed(odd()))?;
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// Reads a file piece by piece, so that a slow reader holds up nobody.
    pub(crate) async fn read(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content> {
        let (first, file) = self.piece(id, path, range).await?;
        let length = first.len() as u64;
        let wanted = range.length.unwrap_or(u64::MAX);
        if length < PIECE_BYTES || length >= wanted {
            return Ok(Box::pin(io::Cursor::new(first)));
        }
        let (reader, mut writer) = tokio::io::simplex(64 << 10);
        let (runtime, id, path) = (self.clone(), id.clone(), path.clone());
        let failure: Arc<std::sync::Mutex<Option<io::Error>>> = Arc::default();
        let told = Arc::clone(&failure);
        tokio::spawn(async move {
            let (mut at, mut bytes) = (range.offset, first);
            loop {
                // A reader that is gone wants nothing more.
                if writer.write_all(&bytes).await.is_err() {
                    return;
                }
                at = at.saturating_add(bytes.len() as u64);
                let left = wanted.saturating_sub(at - range.offset);
                if (bytes.len() as u64) < PIECE_BYTES || left == 0 {
                    return;
                }
                let next = ReadRange { offset: at, length: Some(left) };
                bytes = match runtime.piece(&id, &path, next).await {
                    Ok((bytes, same)) if same == file => bytes,
                    other => {
                        let error = other.err().map_or_else(
                            || "another file has its name now".to_owned(),
                            |error| error.to_string(),
                        );
                        let mut told =
                            told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        *told = Some(io::Error::other(error));
                        return;
                    }
                };
            }
        });
        Ok(Box::pin(Pieces { reader, failure }))
    }

    /// A piece of a file, and what tells the file from another one.
    async fn piece(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let operation = Operation { verb: "read", path };
        let length = Some(range.length.unwrap_or(u64::MAX).min(PIECE_BYTES));
        let script = operations::read(path, ReadRange { length, ..range });
        let mut output = self.operate(id, operation, &script, Repeat::Always).await?;
        let end = output.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| operation.failed(odd()))?;
        let content = output.split_off(end + 1);
        Ok((content, output))
    }

    pub(crate) async fn write(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        content: Content,
        options: WriteOptions,
    ) -> Result<u64> {
        let operation = Operation { verb: "write", path };
        let record = self.usable(id).await?;
        let unique = format!(".stockade-{}", uuid::Uuid::now_v7().simple());
        let count = Arc::new(AtomicU64::new(0));
        let counted: Content = Box::pin(Counted { content, count: Arc::clone(&count) });
        let script = operations::upload(path, &unique, options);
        let uploaded = self.transfer(&record, &script, Some(counted), Sink::Result).await;
        let written = match uploaded {
            Ok(ran) => operation.result(&ran.output).map(drop),
            Err(failure) => Err(self.explained(&record, failure, operation.verb).await),
        };
        if let Err(error) = written {
            if !matches!(error, Error::File { .. } | Error::WrongState { .. }) {
                let script = operations::discard(path, &unique);
                // The first error is the one to report.
                let _ = self.run(&record, &script, Vec::new(), Repeat::Always).await;
            }
            return Err(error);
        }
        let length = count.load(Ordering::Acquire);
        let script = operations::commit(path, &unique, length, options);
        self.operate(id, operation, &script, Repeat::IfUnseen).await?;
        Ok(length)
    }

    pub(crate) async fn make_directory_inside(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()> {
        let script = operations::make_directory(path, options);
        let operation = Operation { verb: "create", path };
        self.operate(id, operation, &script, Repeat::Always).await.map(drop)
    }

    pub(crate) async fn attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        let script = operations::attributes(path, mode, owner);
        let operation = Operation { verb: "change the attributes of", path };
        self.operate(id, operation, &script, Repeat::Always).await.map(drop)
    }

    pub(crate) async fn move_file(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &SandboxPath,
    ) -> Result<()> {
        let operation = Operation { verb: "rename", path: from };
        let script = operations::rename(from, to);
        self.operate(id, operation, &script, Repeat::IfUnseen).await.map(drop)
    }

    pub(crate) async fn delete(&self, id: &SandboxId, path: &SandboxPath) -> Result<()> {
        let operation = Operation { verb: "remove", path };
        let script = operations::remove(path);
        self.operate(id, operation, &script, Repeat::IfUnseen).await.map(drop)
    }
}

/// The files that a script has listed.
fn entries(output: &[u8]) -> Option<Vec<FileInfo>> {
    let mut found = Vec::new();
    let mut parts = output.split(|byte| *byte == 0);
    while let Some(first) = parts.next().filter(|part| !part.is_empty()) {
        let link = parts.next()?;
        let mut words = first.splitn(7, |byte| *byte == b' ');
        let mut word = || words.next();
        let mut text = || word().and_then(|word| std::str::from_utf8(word).ok());
        let kind = match text()? {
            "f" => FileKind::File,
            "d" => FileKind::Directory,
            "l" => FileKind::Link,
            _ => FileKind::Other,
        };
        let size_bytes = text()?.parse().ok()?;
        let mode = u32::from_str_radix(text()?, 8).ok()?;
        let owner = User { user: text()?.parse().ok()?, group: text()?.parse().ok()? };
        let time = text()?;
        let (seconds, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let thousandths: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
        let modified_ms =
            seconds.parse::<i64>().ok()?.checked_mul(1000)?.checked_add(thousandths)?;
        let name = words.next()?.to_vec();
        let link = (kind == FileKind::Link).then(|| link.to_vec());
        found.push(FileInfo { name, kind, size_bytes, mode, owner, modified_ms, link });
    }
    Some(found)
}

/// A content whose bytes are counted.
struct Counted {
    content: Content,
    count: Arc<AtomicU64>,
}

impl tokio::io::AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = self.content.as_mut().poll_read(cx, buffer);
        let read = (buffer.filled().len() - before) as u64;
        self.count.fetch_add(read, Ordering::AcqRel);
        polled
    }
}

/// A file that is read in pieces. At the end, a failure of a later piece is told.
struct Pieces {
    reader: tokio::io::ReadHalf<tokio::io::SimplexStream>,
    failure: Arc<std::sync::Mutex<Option<io::Error>>>,
}

impl tokio::io::AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.reader).poll_read(cx, buffer);
        if polled.is_ready() && buffer.filled().len() == before {
            let mut failure =
                self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(error) = failure.take() {
                return std::task::Poll::Ready(Err(error));
            }
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &[u8]) -> Vec<u8> {
        let text = std::ffi::OsStr::from_bytes(script);
        std::process::Command::new("sh").arg("-c").arg(text).output().unwrap().stdout
    }

    #[test]
    fn names_of_any_bytes_are_listed() {
        let top = tempfile::tempdir().unwrap();
        let odd = std::ffi::OsStr::from_bytes(b"a \n'\xff");
        std::fs::write(top.path().join(odd), "four").unwrap();
        std::os::unix::fs::symlink("to\nthere", top.path().join("link")).unwrap();
        let path = SandboxPath::new(top.path()).unwrap();
        let operation = Operation { verb: "list", path: &path };
        let output = run(&operations::list(&path));
        let mut found = entries(operation.result(&output).unwrap()).unwrap();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let [file, link] = &found[..] else { panic!("{found:?}") };
        assert_eq!((file.name.as_slice(), file.size_bytes), (odd.as_bytes(), 4));
        assert_eq!(link.link.as_deref(), Some(&b"to\nthere"[..]));
        let path = SandboxPath::new(top.path().join(odd)).unwrap();
        let read = run(&operations::read(&path, ReadRange { offset: 1, length: Some(2) }));
        assert!(read.ends_with(b"\nou"), "{read:?}");
    }

    #[test]
    fn what_fails_is_told_by_its_number() {
        let path = SandboxPath::new("/etc/passwd/below").unwrap();
        let operation = Operation { verb: "read", path: &path };
        let kind = |script: &[u8]| match operation.result(&run(script)) {
            Err(Error::File { source, .. }) => source.kind(),
            other => panic!("{other:?}"),
        };
        let range = ReadRange::default();
        assert_eq!(kind(&operations::read(&path, range)), io::ErrorKind::NotADirectory);
        let none = SandboxPath::new("/none/at/all").unwrap();
        assert_eq!(kind(&operations::stat(&none)), io::ErrorKind::NotFound);
        let directory = SandboxPath::new("/etc").unwrap();
        assert_eq!(kind(&operations::read(&directory, range)), io::ErrorKind::IsADirectory);
        assert!(operation.result(b"").is_err() && operation.result(b"x").is_err());
    }
}
