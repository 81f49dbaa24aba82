//! The way to a command's standard input: the caller's bytes are written straight to the pipe or
//! the terminal, whose descriptor the keeper has sent.

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
use crate::exec::Input;
use crate::native::wire::{Action, Request};

/// How many pieces wait while another one is written.
const PIECES: usize = 1;

/// The input of a command, whose outer end is `descriptor`.
///
/// # Errors
/// Why the descriptor cannot be waited for.
pub(super) fn open(
    client: Arc<Client>,
    id: SandboxId,
    exec: ExecId,
    descriptor: OwnedFd,
) -> io::Result<Input> {
    // The flag is shared with all who hold this end, but they only hold it.
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    let end = watched(descriptor, Interest::WRITABLE | Interest::ERROR)?;
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::spawn(async move {
        let Some(end) = carry(receiver, end).await else { return };
        if let Some(code) = end_of_input(end.get_ref()) {
            let _ = write(&end, &[code]).await;
            return;
        }
        drop(end);
        // Whoever still holds the input is the keeper. When it cannot be told, the command goes on
        // waiting, as it does when its caller dies; there is nobody here to say so to.
        let _ = client.order(&Request::Command { id, exec, action: Action::CloseInput }).await;
    });
    Ok(Input::new(sender))
}

/// Writes what comes. Gives the descriptor back when the input is to end, and `None` when nobody
/// reads it or writes to it any more.
async fn carry(
    mut receiver: mpsc::Receiver<Option<Vec<u8>>>,
    end: AsyncFd<OwnedFd>,
) -> Option<AsyncFd<OwnedFd>> {
    loop {
        let piece = tokio::select! {
            piece = receiver.recv() => piece?,
            // A pipe says so when its other end is closed.
            _ = end.ready(Interest::ERROR) => return None,
        };
        match piece {
            None => return Some(end),
            Some(bytes) => write(&end, &bytes).await.ok()?,
        }
    }
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
