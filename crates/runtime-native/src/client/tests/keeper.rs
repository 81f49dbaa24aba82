//! A keeper in threads whose responses each test defines. It dies when it is dropped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;

use crate::directory::Directory;
use crate::socket::{Listener, Message, Packet, Socket};
use crate::wire::{Answer, PROTOCOL, Request};

/// A running keeper.
pub(super) struct Keeper {
    /// Closing it ends every thread.
    lifeline: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// The keeper's end of a connection.
pub(super) struct Peer {
    socket: Socket,
    death: Arc<OwnedFd>,
    /// The number of this connection; the first is 0.
    pub(super) number: usize,
}

impl Keeper {
    /// Answers the greeting and passes every other request to `serve`, which returns whether the
    /// connection continues.
    pub(super) fn start(
        directory: &Directory,
        serve: impl Fn(&Peer, Message<Request>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::on(directory.listen().unwrap(), PROTOCOL, serve)
    }

    pub(super) fn on(
        listener: Listener,
        protocol: u32,
        serve: impl Fn(&Peer, Message<Request>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (death, life) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let death = Arc::new(death);
        let thread = std::thread::spawn(move || {
            std::thread::scope(|scope| {
                for number in 0.. {
                    if !wait(listener.as_fd(), PollFlags::IN, &death) {
                        break;
                    }
                    let socket = listener.accept().unwrap();
                    let peer = Peer { socket, death: death.clone(), number };
                    let serve = &serve;
                    scope.spawn(move || peer.serve(protocol, serve));
                }
            });
        });
        Self { lifeline: Some(life), thread: Some(thread) }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

impl Peer {
    fn serve(&self, protocol: u32, serve: impl Fn(&Self, Message<Request>) -> bool) {
        while let Some(request) = self.request() {
            let goes_on = match request.head {
                Request::Hello { .. } => {
                    let process = std::process::id();
                    let version = "test".to_owned();
                    self.answer(&Answer::Hello { protocol, version, process })
                }
                _ => serve(self, request),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// The next request; `None` when the client has disconnected or the keeper dies.
    pub(super) fn request(&self) -> Option<Message<Request>> {
        loop {
            match self.socket.receive() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other.unwrap(),
            }
            if !wait(self.socket.as_fd(), PollFlags::IN, &self.death) {
                return None;
            }
        }
    }

    /// Sends a response; `false` when the client has disconnected or the keeper dies.
    pub(super) fn answer(&self, answer: &Answer) -> bool {
        self.answer_with(answer, b"", &[])
    }

    /// Sends a response with a body and descriptors.
    pub(super) fn answer_with(
        &self,
        answer: &Answer,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> bool {
        let packet = Packet::new(answer, body).unwrap();
        loop {
            match self.socket.send(&packet, descriptors) {
                Ok(()) => return true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return false,
                Err(error) => panic!("{error}"),
            }
            if !wait(self.socket.as_fd(), PollFlags::OUT, &self.death) {
                return false;
            }
        }
    }

    /// Whether the client has not read its messages for a while.
    pub(super) fn is_blocked(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        let while_ = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
        poll(&mut fds, Some(&while_)).unwrap() == 0
    }
}

/// Waits for a descriptor; `false` when the keeper dies first.
fn wait(descriptor: BorrowedFd<'_>, events: PollFlags, death: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(descriptor, events), PollFd::new(death, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut fds, None)).unwrap();
    fds[1].revents().is_empty()
}
