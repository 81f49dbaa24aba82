//! What is sent to a host: first bytes that were checked, and what may follow them. No byte is sent
//! that does not belong to the request, nor one that completes a placeholder that must not be sent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stockade_core::network::Refusal;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;

use crate::activity::{Activity, renew};
use crate::first_bytes::body::Body;
use crate::placeholders::Search;
use crate::watch::Seen;

/// Why sending ended early.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The client has disconnected, or was idle for too long.
    Read,
    /// The host does not accept more.
    Write,
    /// What would follow is refused.
    Refused(Refusal),
}

impl From<Refusal> for SendError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The direction to a host.
pub(crate) struct Sending<'a, Source, Target> {
    pub(crate) activity: &'a Activity,
    pub(crate) from: &'a mut Source,
    pub(crate) to: &'a mut Target,
    /// The number of bytes sent.
    pub(crate) count: &'a AtomicU64,
    pub(crate) search: Search<'a>,
    /// What the host has answered.
    pub(crate) seen: watch::Receiver<Seen>,
    /// Whether what is sent is a request, until the host switches to another protocol.
    pub(crate) is_request: &'a AtomicBool,
}

impl<Source: AsyncRead + Unpin, Target: AsyncWrite + Unpin> Sending<'_, Source, Target> {
    /// Sends the first bytes, and all that may follow.
    pub(crate) async fn send(mut self, first: Vec<u8>, mut body: Body) -> Result<(), SendError> {
        self.is_request.store(body.is_request(), Ordering::Relaxed);
        self.search.first(&first)?;
        self.write(&first).await?;
        drop(first);
        if let Body::Switched { held, is_tunnel } = body {
            let seen = self.seen.wait_for(|seen| *seen != Seen::Nothing).await.map(|seen| *seen);
            if !seen.is_ok_and(|seen| seen.is_switch(is_tunnel)) {
                return Ok(());
            }
            self.is_request.store(false, Ordering::Relaxed);
            self.search.bytes(&held)?;
            self.write(&held).await?;
            body = Body::Open;
        }
        let mut buffer = Vec::new();
        // A direction whose request is complete is not shut down: some servers take that for a
        // cancelled request.
        while !body.is_complete() {
            renew(&mut buffer);
            let read = self.activity.read(self.from, &mut buffer).await;
            if read.map_err(|_| SendError::Read)? == 0 {
                return self.to.shutdown().await.map_err(|_| SendError::Write);
            }
            if *self.seen.borrow() == Seen::Other && matches!(body, Body::Other(_)) {
                body = Body::Open;
            }
            buffer.truncate(body.take(&buffer)?);
            self.search.bytes(&buffer)?;
            self.write(&buffer).await?;
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        let written = self.activity.write(self.to, bytes, self.count).await;
        written.map_err(|_| SendError::Write)
    }
}
