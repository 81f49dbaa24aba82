//! Reading and writing with a limit on idle time, which both directions of a connection share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::meter::Meter;

/// How much is read at a time, and the most of it from a connection on which much arrives.
pub(crate) const BUFFER_BYTES: usize = 32 << 10;
const MOST_BYTES: usize = 128 << 10;

/// Empties a buffer for the next bytes. One that was full becomes larger.
pub(crate) fn renew(buffer: &mut Vec<u8>) {
    let was_full = buffer.len() == buffer.capacity();
    let size = if was_full { buffer.len().saturating_mul(2).min(MOST_BYTES) } else { 0 };
    buffer.clear();
    buffer.reserve(size.max(BUFFER_BYTES));
}

/// The side at which copying failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyError {
    Read,
    Write,
}

/// The time of the last transfer, in either direction.
pub(crate) struct Activity {
    started: Instant,
    last_millis: AtomicU64,
    idle: Duration,
    meter: Arc<Meter>,
}

impl Activity {
    pub(crate) fn new(idle: Duration, meter: &Arc<Meter>) -> Self {
        let meter = Arc::clone(meter);
        Self { started: Instant::now(), last_millis: AtomicU64::new(0), idle, meter }
    }

    /// Bytes were transferred.
    pub(crate) fn note(&self) {
        let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_millis.store(millis, Ordering::Relaxed);
    }

    fn deadline(&self) -> Instant {
        let last = Duration::from_millis(self.last_millis.load(Ordering::Relaxed));
        self.started + last + self.idle
    }

    pub(crate) async fn write(
        &self,
        to: &mut (impl AsyncWrite + Unpin),
        bytes: &[u8],
        count: &AtomicU64,
    ) -> io::Result<()> {
        for piece in bytes.chunks(self.meter.piece()) {
            self.meter.admit(piece.len()).await;
            let writing = async {
                to.write_all(piece).await?;
                // TLS has a buffer of its own.
                to.flush().await
            };
            // A peer that reads nothing is treated as disconnected, whatever it sends.
            timeout(self.idle, writing).await??;
            count.fetch_add(piece.len() as u64, Ordering::Relaxed);
            self.note();
        }
        Ok(())
    }

    /// Ends when nothing was transferred for too long.
    pub(crate) async fn end_of_patience(&self) {
        loop {
            let deadline = self.deadline();
            sleep_until(deadline).await;
            if self.deadline() <= deadline {
                return;
            }
        }
    }

    /// Waits for more bytes until both directions are idle for too long.
    pub(crate) async fn read(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        buffer: &mut Vec<u8>,
    ) -> io::Result<usize> {
        loop {
            let deadline = self.deadline();
            match timeout_at(deadline, from.read_buf(buffer)).await {
                Ok(length) => return length,
                // There may have been traffic in the other direction.
                Err(_) if self.deadline() > deadline => {}
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }

    /// Copies bytes until the end of the stream.
    pub(crate) async fn copy(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        count: &AtomicU64,
    ) -> Result<(), CopyError> {
        let mut buffer = Vec::new();
        loop {
            renew(&mut buffer);
            let length = self.read(from, &mut buffer).await.map_err(|_| CopyError::Read)?;
            if length == 0 {
                return Ok(());
            }
            self.write(to, &buffer, count).await.map_err(|_| CopyError::Write)?;
        }
    }
}
