//! Files inside: the keeper sends the descriptor of the root directory, and threads that may block
//! do the rest with `native/files`.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use stockade_core::SandboxId;
use stockade_core::sandbox::User;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinError;

use super::call::{Client, unexpected_answer};
use super::subordinate;
use crate::files::{OpenTree, Root};
use crate::wire::{Answer, Request};
use stockade_runtime::{
    Content, Error, FileInfo, PackedTree, ReadRange, Result, SandboxPath, TreeProgress, TreeSize,
    WriteOptions,
};

/// The size of one piece of a file, and how many such pieces wait to be written.
const PIECE_BYTES: usize = 64 * 1024;
const PIECES: usize = 4;

/// The files of a sandbox: this process reads and writes them, or one that has their owners' ids does.
#[derive(Debug)]
pub(super) enum Files {
    Here(Root),
    Elsewhere(subordinate::Files),
}

/// A directory that is open to be packed.
enum Tree {
    Here(OpenTree),
    Elsewhere(subordinate::Tree),
}

/// Calls the same function of either.
macro_rules! either {
    ($files:expr, $call:ident($($argument:expr),*)) => {
        match $files {
            Files::Here(root) => root.$call($($argument),*),
            Files::Elsewhere(files) => files.$call($($argument),*),
        }
    };
}

impl Files {
    pub(super) fn stat(&self, path: &SandboxPath) -> Result<FileInfo> {
        either!(self, stat(path))
    }

    pub(super) fn read_directory(&self, path: &SandboxPath) -> Result<Vec<FileInfo>> {
        either!(self, read_directory(path))
    }

    pub(super) fn make_directory(&self, path: &SandboxPath, options: WriteOptions) -> Result<()> {
        either!(self, make_directory(path, options))
    }

    pub(super) fn set_attributes(
        &self,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        either!(self, set_attributes(path, mode, owner))
    }

    pub(super) fn rename(&self, from: &SandboxPath, to: &SandboxPath) -> Result<()> {
        either!(self, rename(from, to))
    }

    pub(super) fn remove(&self, path: &SandboxPath) -> Result<()> {
        either!(self, remove(path))
    }

    pub(super) fn ship(&self, from: &Path, to: &SandboxPath) -> Result<()> {
        either!(self, ship(from, to))
    }

    pub(super) fn collect(&self, from: &SandboxPath, to: &Path, limit_bytes: u64) -> Result<()> {
        either!(self, collect(from, to, limit_bytes))
    }

    fn open_tree(&self, from: &SandboxPath) -> Result<Tree> {
        match self {
            Self::Here(root) => root.open_tree(from).map(Tree::Here),
            Self::Elsewhere(files) => files.open_tree(from).map(Tree::Elsewhere),
        }
    }
}

/// Runs a function on the files of a sandbox.
pub(super) async fn with_root<T: Send + 'static>(
    client: &Client,
    id: &SandboxId,
    act: impl FnOnce(&Files) -> Result<T> + Send + 'static,
) -> Result<T> {
    let root = root(client, id).await?;
    blocking(move || act(&root)).await
}

/// The content of a file.
pub(super) async fn read(
    client: &Client,
    id: &SandboxId,
    path: SandboxPath,
    range: ReadRange,
) -> Result<Content> {
    let open = move |files: &Files| either!(files, open_read(&path, range));
    let (file, length) = with_root(client, id, open).await?;
    Ok(Box::pin(tokio::fs::File::from_std(file).take(length)))
}

/// Writes a file, and returns its length in bytes.
pub(super) async fn write(
    client: &Client,
    id: &SandboxId,
    path: SandboxPath,
    content: Content,
    options: WriteOptions,
) -> Result<u64> {
    let root = root(client, id).await?;
    let (sender, receiver) = mpsc::channel(PIECES);
    let mut pieces = Pieces { receiver, piece: io::Cursor::default() };
    let mut work =
        tokio::task::spawn_blocking(move || either!(&root, write(&path, &mut pieces, options)));
    tokio::select! {
        // The rest of the content is not needed, also after a failure.
        done = &mut work => return done.map_err(lost)?,
        () = send(content, sender) => {}
    }
    work.await.map_err(lost)?
}

/// Creates a tree of files from a stream.
pub(super) async fn unpack(
    client: &Client,
    id: &SandboxId,
    to: SandboxPath,
    mode: u32,
    content: Content,
) -> Result<TreeSize> {
    let root = root(client, id).await?;
    let (sender, receiver) = mpsc::channel(PIECES);
    let mut pieces = Pieces { receiver, piece: io::Cursor::default() };
    let mut work =
        tokio::task::spawn_blocking(move || either!(&root, unpack(&to, mode, &mut pieces)));
    tokio::select! {
        // The rest of the content is not needed after the end of the tree, or a failure.
        done = &mut work => return done.map_err(lost)?,
        () = send(content, sender) => {}
    }
    work.await.map_err(lost)?
}

/// The content of a directory as a stream.
pub(super) async fn pack(
    client: &Client,
    id: &SandboxId,
    from: SandboxPath,
    mark: Option<Vec<u8>>,
) -> Result<PackedTree> {
    let tree = with_root(client, id, move |root| root.open_tree(&from)).await?;
    let progress = Arc::new(TreeProgress::default());
    let (sender, receiver) = mpsc::channel(PIECES);
    let written = progress.clone();
    tokio::task::spawn_blocking(move || {
        let to = PieceWriter(sender.clone());
        let packed = match tree {
            Tree::Here(tree) => tree.pack(mark.as_deref(), to, &written),
            Tree::Elsewhere(tree) => tree.pack(mark.as_deref(), to, &written),
        };
        if let Err(error) = packed {
            // The reader may have stopped.
            let _ = sender.blocking_send(Err(error));
        }
    });
    Ok(PackedTree {
        content: Box::pin(PieceReader { receiver, rest: io::Cursor::default() }),
        progress,
    })
}

/// The writing end of a content, for a thread that may block.
struct PieceWriter(mpsc::Sender<io::Result<Vec<u8>>>);

impl io::Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(bytes.to_vec()));
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A content whose pieces a thread writes. It ends when the thread has ended.
struct PieceReader {
    receiver: mpsc::Receiver<io::Result<Vec<u8>>>,
    rest: io::Cursor<Vec<u8>>,
}

impl AsyncRead for PieceReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let at = usize::try_from(self.rest.position()).unwrap_or(usize::MAX);
        if at >= self.rest.get_ref().len() {
            match ready!(self.receiver.poll_recv(context)) {
                None => return Poll::Ready(Ok(())),
                Some(piece) => self.rest = io::Cursor::new(piece?),
            }
        }
        let length = Read::read(&mut self.rest, buffer.initialize_unfilled())?;
        buffer.advance(length);
        Poll::Ready(Ok(()))
    }
}

/// Runs a blocking function on a thread for blocking work.
pub(super) async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(act).await.map_err(lost)?
}

/// Whether files have subordinate ids, which this process does not have. `host_start` is the host id of
/// inside id 0, in the user namespace that has them.
pub(super) fn is_subordinate(host_start: Option<u32>) -> bool {
    host_start == Some(0) && !rustix::process::geteuid().is_root()
}

async fn root(client: &Client, id: &SandboxId) -> Result<Files> {
    let message = client.request(&Request::Root { id: id.clone() }, &[]).await?;
    let descriptors = <[OwnedFd; 1]>::try_from(message.descriptors);
    match (message.head, descriptors) {
        (Answer::Root { host_start, user, access }, Ok([root])) if is_subordinate(host_start) => {
            let program = client.program().to_owned();
            Ok(Files::Elsewhere(subordinate::Files { program, root, user, access }))
        }
        (Answer::Root { host_start, user, access }, Ok([root])) => {
            Ok(Files::Here(Root::new(root, host_start, user).with_rules(access)))
        }
        _ => Err(unexpected_answer()),
    }
}

fn lost(error: JoinError) -> Error {
    Error::Unreachable { what: "the file thread".to_owned(), source: error.into() }
}

/// Sends a content in pieces; an empty piece marks its end.
async fn send(mut content: Content, sender: mpsc::Sender<io::Result<Vec<u8>>>) {
    loop {
        let mut bytes = Vec::with_capacity(PIECE_BYTES);
        let piece = content.read_buf(&mut bytes).await.map(|_| bytes);
        let last = !matches!(&piece, Ok(bytes) if !bytes.is_empty());
        if sender.send(piece).await.is_err() || last {
            return;
        }
    }
}

/// The pieces of a content, for a thread that may block. If the sender is dropped before the end,
/// that is an error, because a file is written atomically.
#[derive(Debug)]
struct Pieces {
    receiver: mpsc::Receiver<io::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = Read::read(&mut self.piece, buffer)?;
        if length > 0 || buffer.is_empty() {
            return Ok(length);
        }
        let broken =
            || Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the content ended early"));
        self.piece = io::Cursor::new(self.receiver.blocking_recv().unwrap_or_else(broken)?);
        Read::read(&mut self.piece, buffer)
    }
}
