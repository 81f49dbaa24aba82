//! Files inside. Paths are text in this interface: others are refused.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::pin::Pin;

use stockade_core::SandboxId;
use stockade_core::sandbox::User;
use stockade_runtime::{
    Content, Error, FileInfo, FileKind, ReadRange, Result, SandboxPath, WriteOptions,
};
use stockade_runtime_remote::Failure;
use tokio::io::AsyncReadExt as _;

use crate::SERVICE;
use crate::client::OpenSandbox;
use crate::execd::{Execd, NewFile, RemoteFile, bits};
use crate::script::quoted_text;

impl OpenSandbox {
    pub(crate) async fn file(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo> {
        let execd = self.usable(id).await?;
        let found = execd.file(text(path)?).await;
        let found = found.map_err(|failure| file_error(failure, id, "inspect", path))?;
        self.info(&execd, id, path, &found).await
    }

    pub(crate) async fn directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
    ) -> Result<Vec<FileInfo>> {
        let execd = self.usable(id).await?;
        let mut listed = path.clone();
        if self.kind(&execd, id, "list", path).await? == FileKind::Link {
            // The interface lists no directory through a link.
            let target = self.print_bytes(&execd, id, path, "readlink -f -n").await?;
            listed = SandboxPath::new(std::ffi::OsStr::from_bytes(&target))?;
        }
        if self.kind(&execd, id, "list", &listed).await? != FileKind::Directory {
            return Err(io_error("list", path, io::ErrorKind::NotADirectory));
        }
        let found = execd.directory(text(&listed)?).await;
        let found = found.map_err(|failure| file_error(failure, id, "list", path))?;
        let mut entries = Vec::with_capacity(found.len());
        for entry in &found {
            let entry_path = SandboxPath::new(&entry.path)?;
            entries.push(self.info(&execd, id, &entry_path, entry).await?);
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    pub(crate) async fn read(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content> {
        let execd = self.usable(id).await?;
        let failed = |failure| file_error(failure, id, "read", path);
        if range.length == Some(0) {
            execd.file(text(path)?).await.map_err(failed)?;
            return Ok(Box::pin(io::Cursor::new(Vec::new())));
        }
        let read = execd.download(text(path)?, range.offset, range.length).await;
        let content = match read {
            Ok(content) => content,
            Err(failure) => {
                // The answer for a directory differs between servers.
                if failure.status() == Some(400)
                    && self.kind(&execd, id, "read", path).await? == FileKind::Directory
                {
                    return Err(io_error("read", path, io::ErrorKind::IsADirectory));
                }
                return Err(failed(failure));
            }
        };
        Ok(match (content, range.length) {
            (None, _) => Box::pin(io::Cursor::new(Vec::new())),
            (Some(content), None) => Box::pin(content),
            (Some(content), Some(length)) => Box::pin(content.take(length)),
        })
    }

    pub(crate) async fn write(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        content: Content,
        options: WriteOptions,
    ) -> Result<u64> {
        let execd = self.usable(id).await?;
        let name = text(path)?;
        let exists = match execd.file(name).await {
            Ok(found) if kind(&found) == FileKind::Directory => {
                return Err(io_error("write", path, io::ErrorKind::IsADirectory));
            }
            Ok(_) => true,
            Err(failure) if failure.status() == Some(404) => false,
            Err(failure) => return Err(file_error(failure, id, "write", path)),
        };
        if !exists && !options.make_parents {
            let parent = path.as_path().parent().map(SandboxPath::new).transpose()?;
            if let Some(parent) = parent {
                self.kind(&execd, id, "write", &parent).await?;
            }
        }
        let file = NewFile {
            path: name.to_owned(),
            mode: (!exists).then_some(options.mode),
            owner: options.owner.map(|owner| (owner.user, owner.group)),
        };
        let (counted, count) = Counted::new(content);
        let written = execd.upload(&file, Box::pin(counted)).await;
        written.map_err(|failure| file_error(failure, id, "write", path))?;
        Ok(count.load(std::sync::atomic::Ordering::Acquire))
    }

    pub(crate) async fn make_directory_inside(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()> {
        let execd = self.usable(id).await?;
        match self.kind(&execd, id, "create", path).await {
            Ok(FileKind::Directory) => return Ok(()),
            Ok(_) => return Err(io_error("create", path, io::ErrorKind::AlreadyExists)),
            Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let owner = options.owner.map(|owner| (owner.user, owner.group));
        let made = execd.make_directory(text(path)?, options.mode, owner).await;
        made.map_err(|failure| file_error(failure, id, "create", path))
    }

    pub(crate) async fn attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        let execd = self.usable(id).await?;
        let owner = owner.map(|owner| (owner.user, owner.group));
        let set = execd.set_permissions(text(path)?, mode, owner).await;
        set.map_err(|failure| file_error(failure, id, "change the attributes of", path))
    }

    pub(crate) async fn move_file(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &SandboxPath,
    ) -> Result<()> {
        let execd = self.usable(id).await?;
        let moved = execd.rename(text(from)?, text(to)?).await;
        moved.map_err(|failure| file_error(failure, id, "rename", from))
    }

    pub(crate) async fn delete(&self, id: &SandboxId, path: &SandboxPath) -> Result<()> {
        let execd = self.usable(id).await?;
        let is_directory = self.kind(&execd, id, "remove", path).await? == FileKind::Directory;
        let removed = execd.remove(text(path)?, is_directory).await;
        removed.map_err(|failure| file_error(failure, id, "remove", path))
    }

    async fn kind(
        &self,
        execd: &Execd,
        id: &SandboxId,
        operation: &'static str,
        path: &SandboxPath,
    ) -> Result<FileKind> {
        let found = execd.file(text(path)?).await;
        let found = found.map_err(|failure| file_error(failure, id, operation, path))?;
        Ok(kind(&found))
    }

    async fn info(
        &self,
        execd: &Execd,
        id: &SandboxId,
        path: &SandboxPath,
        found: &RemoteFile,
    ) -> Result<FileInfo> {
        let kind = kind(found);
        let link = match kind {
            FileKind::Link => Some(self.target(execd, id, path).await?),
            _ => None,
        };
        let name = path.as_path().file_name().unwrap_or_else(|| "/".as_ref());
        let modified = found.modified_at.as_ref().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        let owner = self.owner(execd, id, path, found).await?;
        Ok(FileInfo {
            name: name.as_encoded_bytes().to_vec(),
            kind,
            size_bytes: found.size,
            mode: bits(found.mode),
            owner,
            modified_ms: modified.map_or(0, jiff::Timestamp::as_millisecond),
            link,
        })
    }

    /// The owner of a file, which the interface names, and `stat` inside numbers.
    async fn owner(
        &self,
        execd: &Execd,
        id: &SandboxId,
        path: &SandboxPath,
        found: &RemoteFile,
    ) -> Result<User> {
        let number = |name: &str| if name == "root" { Some(0) } else { name.parse().ok() };
        if let (Some(user), Some(group)) = (number(&found.owner), number(&found.group)) {
            return Ok(User { user, group });
        }
        let names = (id.clone(), found.owner.clone(), found.group.clone());
        if let Some(known) = self.known_owner(&names) {
            return Ok(known);
        }
        let line = format!("stat -c '%u %g' -- {}", quoted_text(text(path)?));
        let printed =
            execd.print(&line).await.map_err(|failure| failure.of_reading(SERVICE, id))?;
        let words = printed.lines.iter().flat_map(|line| line.split_whitespace());
        let numbers: Vec<u32> = words.filter_map(|word| word.parse().ok()).collect();
        let [user, group] = numbers[..] else {
            return Err(io_error("inspect", path, io::ErrorKind::InvalidData));
        };
        let owner = User { user, group };
        self.remember_owner(names, owner);
        Ok(owner)
    }

    /// The target of a link, which the interface does not have.
    async fn target(&self, execd: &Execd, id: &SandboxId, path: &SandboxPath) -> Result<Vec<u8>> {
        self.print_bytes(execd, id, path, "readlink -n").await
    }

    /// The bytes that a program prints about a path, in the form of `od`, because output is text.
    async fn print_bytes(
        &self,
        execd: &Execd,
        id: &SandboxId,
        path: &SandboxPath,
        program: &str,
    ) -> Result<Vec<u8>> {
        let line = format!("{program} -- {} | od -An -v -tx1", quoted_text(text(path)?));
        let printed =
            execd.print(&line).await.map_err(|failure| failure.of_reading(SERVICE, id))?;
        let words = printed.lines.iter().flat_map(|line| line.split_whitespace());
        let bytes: std::result::Result<Vec<u8>, _> =
            words.map(|word| u8::from_str_radix(word, 16)).collect();
        bytes.map_err(|_| io_error("read the link", path, io::ErrorKind::InvalidData))
    }
}

/// A path as text.
pub(crate) fn text(path: &SandboxPath) -> Result<&str> {
    path.as_path().to_str().ok_or_else(|| {
        Error::Invalid("a server of OpenSandbox has only paths that are valid text".to_owned())
    })
}

fn kind(found: &RemoteFile) -> FileKind {
    match found.kind.as_str() {
        "file" => FileKind::File,
        "directory" => FileKind::Directory,
        "symlink" => FileKind::Link,
        _ => FileKind::Other,
    }
}

/// The error of a file operation, of which an answer has only a status and a text.
pub(crate) fn file_error(
    failure: Failure,
    id: &SandboxId,
    operation: &'static str,
    path: &SandboxPath,
) -> Error {
    let kind = match &failure {
        Failure::Refused { status: 404, code, .. } if !code.contains("SANDBOX") => {
            io::ErrorKind::NotFound
        }
        Failure::Refused { status: 403, .. } => io::ErrorKind::PermissionDenied,
        Failure::Refused { status: 400 | 409 | 422, message, .. } => {
            let source = number(message)
                .map_or_else(|| io::Error::other(message.clone()), io::Error::from_raw_os_error);
            return Error::File { operation, path: path.to_string(), source };
        }
        Failure::Refused { status: 507, .. } => io::ErrorKind::StorageFull,
        _ => return failure.of_sandbox(SERVICE, id, "the change of a file"),
    };
    io_error(operation, path, kind)
}

/// The error number of the system in a text, as Rust and other Stockades write it.
fn number(message: &str) -> Option<i32> {
    let (_, rest) = message.split_once("(os error ")?;
    rest.split_once(')')?.0.parse().ok()
}

fn io_error(operation: &'static str, path: &SandboxPath, kind: io::ErrorKind) -> Error {
    Error::File { operation, path: path.to_string(), source: kind.into() }
}

/// A content whose bytes are counted.
struct Counted {
    content: Content,
    count: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl Counted {
    fn new(content: Content) -> (Self, std::sync::Arc<std::sync::atomic::AtomicU64>) {
        let count = std::sync::Arc::default();
        (Self { content, count: std::sync::Arc::clone(&count) }, count)
    }
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
        self.count.fetch_add(read, std::sync::atomic::Ordering::AcqRel);
        polled
    }
}
