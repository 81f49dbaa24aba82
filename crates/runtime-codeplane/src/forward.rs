//! Connections to ports and sockets inside, which the server of the workspace forwards.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use russh::ChannelStream;
use russh::client::Msg;
use stockade_core::SandboxId;
use stockade_runtime::{Connection, Error, Result, Target};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client::Codeplane;
use crate::shell::Shell;

impl Codeplane {
    pub(crate) async fn forward(
        &self,
        id: &SandboxId,
        target: &Target,
    ) -> Result<Box<dyn Connection>> {
        let record = self.usable(id).await?;
        record.require_running("be connected to")?;
        self.require_awake(&record, "be connected to").await?;
        let remote = record.remote.unwrap_or_default();
        // One of its own: a peer that does not read holds up a whole connection.
        let shell = self.new_shell(&remote).await.map_err(|failure| failure.of_reading(id))?;
        if let Some(stream) = shell.forward(target).await {
            return Ok(Box::new(Forwarded { stream, shell: Arc::new(shell) }));
        }
        // The server does not say why.
        let kind = match target {
            Target::Unix(path) => match self.file(id, path).await {
                Err(Error::File { source, .. }) => source.kind(),
                _ => io::ErrorKind::ConnectionRefused,
            },
            Target::Tcp(_) => io::ErrorKind::ConnectionRefused,
        };
        Err(Error::Connect { target: target.to_string(), source: kind.into() })
    }
}

/// A forwarded connection, with the SSH connection that it needs.
struct Forwarded {
    stream: ChannelStream<Msg>,
    shell: Arc<Shell>,
}

impl fmt::Debug for Forwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a connection over {:?}", self.shell)
    }
}

impl AsyncRead for Forwarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Forwarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
