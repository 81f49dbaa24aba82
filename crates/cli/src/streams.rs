//! This program's standard streams, for use in asynchronous code.

use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use stockade_runtime::{Connection, Content};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
use tokio::sync::mpsc;

/// The size of one read or write.
const CHUNK_BYTES: usize = 64 << 10;

/// The data from standard input, in pieces; the channel is closed at the end of the input. A
/// thread reads, and ends with the process.
pub fn stdin_chunks() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut piece = vec![0; CHUNK_BYTES];
        while let Ok(length @ 1..) = io::stdin().read(&mut piece) {
            if sender.blocking_send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A stream that a thread writes and an asynchronous task reads. It ends when the writer is dropped.
pub fn piped() -> (PipeWriter, impl AsyncRead + Send + 'static) {
    let (sender, chunks) = mpsc::channel(4);
    (PipeWriter(sender), Input { chunks, rest: Vec::new() })
}

/// The end of a stream that a thread writes.
#[derive(Debug)]
pub struct PipeWriter(mpsc::Sender<Vec<u8>>);

impl io::Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(bytes.to_vec());
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The content of an asynchronous stream, for a thread. A task reads it ahead.
pub fn pulled(mut content: Pin<Box<dyn AsyncRead + Send>>) -> impl io::Read + Send + 'static {
    let (sender, chunks) = mpsc::channel(4);
    tokio::spawn(async move {
        loop {
            let mut piece = Vec::with_capacity(CHUNK_BYTES);
            let read = content.read_buf(&mut piece).await;
            let is_last = !matches!(read, Ok(1..));
            if sender.send(read.map(|_| piece)).await.is_err() || is_last {
                return;
            }
        }
    });
    PulledReader { chunks, rest: io::Cursor::default() }
}

struct PulledReader {
    chunks: mpsc::Receiver<io::Result<Vec<u8>>>,
    rest: io::Cursor<Vec<u8>>,
}

impl io::Read for PulledReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = io::Read::read(&mut self.rest, buffer)?;
        if length > 0 || buffer.is_empty() {
            return Ok(length);
        }
        self.rest = io::Cursor::new(self.chunks.blocking_recv().unwrap_or(Ok(Vec::new()))?);
        io::Read::read(&mut self.rest, buffer)
    }
}

/// Standard input as an asynchronous reader.
pub fn input() -> impl AsyncRead + Send {
    Input { chunks: stdin_chunks(), rest: Vec::new() }
}

struct Input {
    chunks: mpsc::Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            match self.chunks.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(piece)) => self.rest = piece,
            }
        }
        let length = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Poll::Ready(Ok(()))
    }
}

/// Copies the content to standard output.
pub async fn print(mut content: Content) -> io::Result<()> {
    let mut piece = vec![0; CHUNK_BYTES];
    loop {
        match content.read(&mut piece).await? {
            0 => return io::stdout().flush(),
            length => io::stdout().write_all(&piece[..length])?,
        }
    }
}

/// Relays bytes in both directions between a connection and the standard streams, until the other
/// side closes its direction.
pub async fn relay(connection: Box<dyn Connection>) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(connection);
    let mut pieces = stdin_chunks();
    let sending = async {
        while let Some(piece) = pieces.recv().await {
            to.write_all(&piece).await?;
        }
        to.shutdown().await
    };
    let hearing = async {
        let mut piece = vec![0; CHUNK_BYTES];
        loop {
            match from.read(&mut piece).await? {
                0 => return io::stdout().flush(),
                length => {
                    io::stdout().write_all(&piece[..length])?;
                    io::stdout().flush()?;
                }
            }
        }
    };
    tokio::pin!(sending, hearing);
    tokio::select! {
        heard = &mut hearing => heard,
        sent = &mut sending => {
            // A peer that no longer receives may still send.
            let _ = sent;
            hearing.await
        }
    }
}
