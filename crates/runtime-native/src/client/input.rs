//! A command's standard input: the caller's bytes are written directly to the pipe or the terminal
//! whose descriptor the keeper has sent.
//!
//! A pipe ends when no process holds a descriptor of its write end any more. So a client that only
//! receives output holds none, and requests one when it has something to write.
//!
//! The jail's init shares the open file description, and so its `O_NONBLOCK` flag. So a pipe is
//! opened again, and a terminal, which cannot be, is written from a separate thread.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::SpecialCodeIndex;
use stockade_core::{ExecId, SandboxId};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

use super::call::Client;
use super::readiness::watched;
use crate::wire::{Action, Answer, Request};
use stockade_runtime::{Input, Offsets};

/// How many pieces wait while another one is written.
const PIECES: usize = 1;
/// How often the thread that waits for a terminal checks whether the caller still waits.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Offsets beyond any output.
const STREAM_END: Offsets = Offsets { output: u64::MAX, error: u64::MAX };

/// A command whose input may be written to.
#[derive(Debug)]
pub(super) struct InputWriter {
    pub(super) client: Arc<Client>,
    pub(super) id: SandboxId,
    pub(super) exec: ExecId,
}

impl InputWriter {
    /// The command's input. Its outer end is `descriptor`, or is requested when it is needed.
    pub(super) fn open(self, descriptor: Option<OwnedFd>) -> Input {
        let (sender, receiver) = mpsc::channel(PIECES);
        tokio::spawn(async move {
            // After an error the receiver is dropped, so the caller's next piece fails.
            let _ = self.forward(receiver, descriptor).await;
        });
        Input::new(sender)
    }

    /// Writes pieces until the input is closed, or until it has no reader or no writer any more.
    async fn forward(
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
                    // A pipe reports the closing of its other end.
                    _ = end.watched.ready(Interest::ERROR) => None,
                },
            };
            let Some(piece) = piece else { return Ok(()) };
            let outer = match end.take() {
                Some(held) => held,
                None => match self.request_descriptor().await? {
                    Some(descriptor) => outer_end(descriptor)?,
                    None => return Ok(()),
                },
            };
            let Some(bytes) = piece else {
                drop(receiver);
                return self.close(outer).await;
            };
            outer.write(bytes).await?;
            end = Some(outer);
        }
    }

    /// Requests the descriptor; `None` when the command takes no input any more.
    async fn request_descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let (id, exec) = (self.id.clone(), self.exec.clone());
        let request = Request::Attach { id, exec, from: STREAM_END };
        // The events on this connection are not needed, so it is not returned to the idle ones.
        let answered = self.client.call(&request, &[], &[]).await.map_err(io::Error::other)?;
        let message = answered.message;
        match message.head {
            Answer::Attached { input: true } => Ok(message.descriptors.into_iter().next()),
            _ => Ok(None),
        }
    }

    async fn close(&self, end: OuterEnd) -> io::Result<()> {
        if let Some(code) = end.end_of_input() {
            return end.write(vec![code]).await;
        }
        drop(end);
        let (id, exec) = (self.id.clone(), self.exec.clone());
        let request = Request::Command { id, exec, action: Action::CloseInput };
        self.client.execute(&request).await.map_err(io::Error::other)
    }
}

/// Writes all of a command's input, and closes it.
pub(super) fn write_all(input: Input, bytes: Vec<u8>) {
    tokio::spawn(async move {
        // A command that does not read all of it has ended or closed its input.
        if input.write(bytes).await.is_ok() {
            let _ = input.close().await;
        }
    });
}

/// The outer end of an input.
#[derive(Debug)]
struct OuterEnd {
    watched: AsyncFd<OwnedFd>,
    is_pipe: bool,
}

/// The outer end of an input, writable without blocking on other holders of it.
fn outer_end(descriptor: OwnedFd) -> io::Result<OuterEnd> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode);
    let is_pipe = kind == FileType::Fifo;
    let own = if is_pipe { open_anew(&descriptor)? } else { descriptor };
    let watched = watched(own, Interest::WRITABLE | Interest::ERROR)?;
    Ok(OuterEnd { watched, is_pipe })
}

/// A new open file description of a pipe's end, with separate flags.
fn open_anew(pipe: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

impl OuterEnd {
    async fn write(&self, bytes: Vec<u8>) -> io::Result<()> {
        if !self.is_pipe {
            return write_apart(self.watched.get_ref().try_clone()?, bytes).await;
        }
        let mut bytes = &bytes[..];
        while !bytes.is_empty() {
            let write = |end: &OwnedFd| Ok(rustix::io::write(end, bytes)?);
            let written = self.watched.async_io(Interest::WRITABLE, write).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// The character that ends the input of a terminal; `None` for a pipe.
    fn end_of_input(&self) -> Option<u8> {
        let modes = rustix::termios::tcgetattr(&self.watched).ok()?;
        Some(modes.special_codes[SpecialCodeIndex::VEOF])
    }
}

/// Waits until a terminal accepts more bytes, or until it is time to check whether the caller still
/// waits.
fn room(end: &OwnedFd) -> io::Result<()> {
    let mut waiting = [PollFd::new(end, PollFlags::OUT)];
    match poll(&mut waiting, Some(&POLL_INTERVAL)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    if waiting[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(())
}

/// Writes from a separate thread that may block, as long as the caller waits for it.
async fn write_apart(end: OwnedFd, bytes: Vec<u8>) -> io::Result<()> {
    let (sender, told) = oneshot::channel();
    std::thread::Builder::new().name("terminal-input".to_owned()).spawn(move || {
        let mut left = &bytes[..];
        let mut result = Ok(());
        while !left.is_empty() && result.is_ok() && !sender.is_closed() {
            match rustix::io::write(&end, left) {
                Ok(written) => left = &left[written..],
                Err(Errno::AGAIN) => result = room(&end),
                Err(Errno::INTR) => {}
                Err(errno) => result = Err(errno.into()),
            }
        }
        // If the caller has stopped waiting, the result is not needed.
        let _ = sender.send(result);
    })?;
    told.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another holder of the pipe makes writes to it block, and no process reads.
    #[tokio::test]
    async fn nobody_else_makes_a_pipe_wait() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let shared = writer.try_clone().unwrap();
        let end = outer_end(writer).unwrap();
        rustix::io::ioctl_fionbio(&shared, false).unwrap();
        drop(shared);
        let write = end.write(vec![0; 1 << 20]);
        let waited = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(waited, write).await.is_err());
        drop(reader);
        assert!(end.write(vec![0]).await.is_err());
    }
}
