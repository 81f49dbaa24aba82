//! The way to a command's standard input: the caller's bytes are written straight to the pipe or
//! the terminal, whose descriptor the keeper has sent.
//!
//! A pipe ends when nobody holds its descriptor any more. So whoever only listens to a command holds
//! none, and gets one when there is something to write.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::termios::SpecialCodeIndex;
use stockade_core::{ExecId, SandboxId};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::call::Client;
use super::readiness::watched;
use crate::exec::{Input, Offsets};
use crate::native::wire::{Action, Answer, Request};

/// How many pieces wait while another one is written.
const PIECES: usize = 1;
/// The offsets after all that will ever be written.
const END: Offsets = Offsets { output: u64::MAX, error: u64::MAX };

/// A command whose input somebody may write to.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) client: Arc<Client>,
    pub(super) id: SandboxId,
    pub(super) exec: ExecId,
}

impl Written {
    /// The command's input. Its outer end is `descriptor`, or is asked for when it is needed.
    pub(super) fn open(self, descriptor: Option<OwnedFd>) -> Input {
        let (sender, receiver) = mpsc::channel(PIECES);
        tokio::spawn(async move {
            // What fails has no other reader than the caller's next piece, which finds no receiver.
            let _ = self.carry(receiver, descriptor).await;
        });
        Input::new(sender)
    }

    /// Writes what comes, until the input is to end or nobody reads it or writes to it any more.
    async fn carry(
        &self,
        mut receiver: mpsc::Receiver<Option<Vec<u8>>>,
        descriptor: Option<OwnedFd>,
    ) -> io::Result<()> {
        let mut end = descriptor.map(outer_end).transpose()?;
        loop {
            let piece = match &end {
                None => receiver.recv().await,
                Some(end) => tokio::select! {
                    piece = receiver.recv() => piece,
                    // A pipe says so when its other end is closed.
                    _ = end.ready(Interest::ERROR) => None,
                },
            };
            let Some(piece) = piece else { return Ok(()) };
            let held = match end.take() {
                Some(held) => held,
                None => match self.ask().await? {
                    Some(descriptor) => outer_end(descriptor)?,
                    None => return Ok(()),
                },
            };
            let Some(bytes) = piece else {
                drop(receiver);
                return self.close(held).await;
            };
            write(&held, &bytes).await?;
            end = Some(held);
        }
    }

    /// The descriptor; `None` when the command takes no input any more.
    async fn ask(&self) -> io::Result<Option<OwnedFd>> {
        let (id, exec) = (self.id.clone(), self.exec.clone());
        let request = Request::Attach { id, exec, from: END };
        // The events that would come are not wanted, so the connection is not given back.
        let answered = self.client.call(&request, &[], &[]).await.map_err(io::Error::other)?;
        let message = answered.message;
        match message.head {
            Answer::Attached { input: true } => Ok(message.descriptors.into_iter().next()),
            _ => Ok(None),
        }
    }

    async fn close(&self, end: AsyncFd<OwnedFd>) -> io::Result<()> {
        if let Some(code) = end_of_input(end.get_ref()) {
            return write(&end, &[code]).await;
        }
        drop(end);
        let (id, exec) = (self.id.clone(), self.exec.clone());
        let request = Request::Command { id, exec, action: Action::CloseInput };
        self.client.order(&request).await.map_err(io::Error::other)
    }
}

/// The outer end of an input, to be written to without blocking. Others who hold it share the
/// flag, but they only hold it.
fn outer_end(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    watched(descriptor, Interest::WRITABLE | Interest::ERROR)
}

async fn write(end: &AsyncFd<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written =
            end.async_io(Interest::WRITABLE, |end| Ok(rustix::io::write(end, bytes)?)).await?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// The character that ends the input of a terminal; `None` for a pipe.
fn end_of_input(end: &OwnedFd) -> Option<u8> {
    let modes = rustix::termios::tcgetattr(end).ok()?;
    Some(modes.special_codes[SpecialCodeIndex::VEOF])
}
