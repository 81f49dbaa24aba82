//! Contents and trees: a file from a call, and directories of this host as trees. The stream from a pod is
//! hostile: it is unpacked below one new directory, by the code that unpacks trees into sandboxes.

use std::fs::DirBuilder;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::fs::{Mode, OFlags};
use stockade_core::SandboxId;
use stockade_core::sandbox::User;
use stockade_pod::{Frame, Reply, Request};
use stockade_runtime::{Content, Error, PackedTree, Result, SandboxPath, TreeProgress, TreeSize};
use stockade_runtime_native::files::Root;
use stockade_runtime_remote::{blocking, remove_all};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::sync::oneshot;

use crate::calls::ended;
use crate::client::Kubernetes;
use crate::session::Session;

/// How much of a content may be under way.
const BUFFER: usize = 256 << 10;
/// How much longer a tree may be than its files.
const RECORDS_BYTES: u64 = 256 << 20;
/// The most paths that are copied out.
const MOST_PATHS: u64 = 1_000_000;
/// How deep directories of this host may be.
const DEPTH: usize = 128;

/// The content that follows a reply. It fails if the call ends before the content does.
pub(crate) fn content(session: Session) -> Content {
    content_with_progress(session, Arc::default())
}

/// A tree that follows a reply.
pub(crate) fn packed(session: Session) -> PackedTree {
    let progress = Arc::<TreeProgress>::default();
    PackedTree { content: content_with_progress(session, Arc::clone(&progress)), progress }
}

fn content_with_progress(session: Session, progress: Arc<TreeProgress>) -> Content {
    let (here, mut there) = tokio::io::duplex(BUFFER);
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let Session { sender: _sender, mut receiver } = session;
        let end = loop {
            match receiver.receive().await {
                Ok(Some(Frame::Data(bytes))) => {
                    if there.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Ok(Some(Frame::End)) => break Ok(()),
                Ok(Some(Frame::Message(reply))) => match serde_json::from_slice(&reply) {
                    Ok(Reply::Packed { paths, bytes }) => {
                        let (known_paths, known_bytes) = progress.read();
                        progress.add(
                            paths.saturating_sub(known_paths),
                            bytes.saturating_sub(known_bytes),
                        );
                    }
                    _ => break Err(failed(&reply)),
                },
                Ok(Some(_)) => break Err(io::ErrorKind::InvalidData.into()),
                Ok(None) => break Err(ended(&receiver)),
                Err(error) => break Err(error),
            }
        };
        let _ = sender.send(end);
    });
    Box::pin(Ending { from: here, end: Some(receiver) })
}

fn failed(reply: &[u8]) -> io::Error {
    match serde_json::from_slice(reply) {
        Ok(Reply::Failed(fault)) => io::Error::other(format!("{fault:?}")),
        _ => io::ErrorKind::InvalidData.into(),
    }
}

/// A reader of a stream that fails at its end, if that came too early.
struct Ending {
    from: DuplexStream,
    end: Option<oneshot::Receiver<io::Result<()>>>,
}

impl AsyncRead for Ending {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.from).poll_read(context, buffer))?;
        if buffer.filled().len() != before || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let Some(end) = &mut self.end else { return Poll::Ready(Ok(())) };
        let told = ready!(Pin::new(end).poll(context));
        self.end = None;
        Poll::Ready(told.unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into())))
    }
}

/// Copies a directory of this host to a directory inside.
pub(crate) async fn copy_in(
    runtime: &Kubernetes,
    id: &SandboxId,
    from: &Path,
    to: &SandboxPath,
) -> Result<()> {
    let source = from.to_owned();
    let tree = blocking(move || {
        refuse_special(&source, 0)?;
        root(&source)?.open_tree(&top()?)
    });
    let tree = tree.await?;
    let (here, there) = tokio::io::duplex(BUFFER);
    let writer = Bridge::new(there);
    let packing =
        tokio::task::spawn_blocking(move || tree.pack(None, writer, &TreeProgress::default()));
    let request = Request::Unpack { to: to.clone(), mode: 0o755 };
    let sent: Result<TreeSize> = runtime.send(id, &request, Box::pin(here)).await;
    let packed = packing.await.map_err(|error| Error::Exhausted(error.to_string()))?;
    sent?;
    packed.map_err(|source| host(from, source))
}

/// Copies a directory inside to a new directory of this host.
pub(crate) async fn copy_out(
    runtime: &Kubernetes,
    id: &SandboxId,
    from: &SandboxPath,
    to: &Path,
    limit_bytes: u64,
) -> Result<()> {
    let request = Request::Pack { from: from.clone(), mark: None };
    if std::fs::symlink_metadata(to).is_ok() {
        return Err(host(to, io::ErrorKind::AlreadyExists.into()));
    }
    let (_, session) = runtime.begin(id, &request, None).await?;
    let reader = Bridge::new(content(session));
    let to = to.to_owned();
    blocking(move || {
        DirBuilder::new().mode(0o700).create(&to).map_err(|error| host(&to, error))?;
        let done = unpack(&to, reader, limit_bytes);
        if done.is_err() {
            // The error is the one to report.
            let _ = remove_all(&to);
        }
        done
    })
    .await
}

fn unpack(to: &Path, reader: impl Read + Send, limit_bytes: u64) -> Result<()> {
    let most = limit_bytes.saturating_add(RECORDS_BYTES);
    let mut limited = Limited { from: reader, left: most, is_exceeded: false };
    let unpacked = root(to)?.unpack(&top()?, 0o700, &mut limited);
    let too_large = || Error::Invalid(format!("it is larger than {limit_bytes} bytes"));
    if limited.is_exceeded {
        return Err(too_large());
    }
    let size = unpacked?;
    if size.bytes > limit_bytes {
        return Err(too_large());
    }
    if size.paths() > MOST_PATHS {
        return Err(Error::Invalid(format!("it has more than {MOST_PATHS} paths")));
    }
    let readable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(to, readable).map_err(|error| host(to, error))
}

/// A reader that fails when more comes than expected.
struct Limited<R> {
    from: R,
    left: u64,
    is_exceeded: bool,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        match self.left.checked_sub(read as u64) {
            Some(left) => self.left = left,
            None => {
                self.is_exceeded = true;
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
        Ok(read)
    }
}

fn top() -> Result<SandboxPath> {
    SandboxPath::new("/")
}

/// A directory of this host, with the rights of this process.
fn root(path: &Path) -> Result<Root> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let opened = opened.map_err(|errno| host(path, errno.into()))?;
    let user = User {
        user: rustix::process::geteuid().as_raw(),
        group: rustix::process::getegid().as_raw(),
    };
    Ok(Root::new(opened, None, user))
}

/// Refuses a directory that contains something else than files, directories and links: a tree would leave it out.
fn refuse_special(directory: &Path, depth: usize) -> Result<()> {
    if depth == DEPTH {
        let path = directory.display();
        return Err(Error::Invalid(format!("{path} is deeper than {DEPTH} directories")));
    }
    let entries = std::fs::read_dir(directory).map_err(|error| host(directory, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| host(directory, error))?;
        let path: PathBuf = entry.path();
        let kind = entry.file_type().map_err(|error| host(&path, error))?;
        if kind.is_dir() {
            refuse_special(&path, depth + 1)?;
        } else if !(kind.is_file() || kind.is_symlink()) {
            let path = path.display();
            return Err(Error::Invalid(format!("{path} is not a file, directory or link")));
        }
    }
    Ok(())
}

fn host(path: &Path, source: io::Error) -> Error {
    Error::Host { path: path.display().to_string(), source }
}

/// A stream for a thread that may block.
struct Bridge<S> {
    stream: S,
    tokio: tokio::runtime::Handle,
}

impl<S> Bridge<S> {
    fn new(stream: S) -> Self {
        Self { stream, tokio: tokio::runtime::Handle::current() }
    }
}

impl io::Write for Bridge<DuplexStream> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tokio.block_on(self.stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Bridge<Content> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tokio.block_on(self.stream.read(buffer))
    }
}
