//! The pipes of a command. Those of the next command are made while the last one starts, so that no
//! command waits for them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::reactor::{Interest, Reactor, Source, Watched};

/// The pipes of a command that is not known yet.
#[derive(Debug)]
pub(super) struct Pipes {
    /// Two descriptors of the empty input of a command that takes none. Each command has its own,
    /// because an open file description is shared by all processes that have it.
    pub(super) nothing: [OwnedFd; 2],
    pub(super) output: Pipe,
    pub(super) error: Pipe,
}

/// A pipe that a command writes to.
#[derive(Debug)]
pub(super) struct Pipe {
    /// The command's end.
    pub(super) inner: OwnedFd,
    /// The keeper's end, which does not block.
    pub(super) outer: Watched<OwnedFd>,
    /// A duplicate of the keeper's end, for init.
    pub(super) for_init: OwnedFd,
}

/// Pipes that were made for the next command.
#[derive(Debug, Default)]
pub(super) struct PipePool {
    pub(super) pipes: Option<Pipes>,
    /// A command was started since the last check.
    pub(super) is_wanted: bool,
}

impl PipePool {
    /// Records that a command was started.
    pub(super) fn want(&mut self) {
        self.is_wanted = true;
    }
}

impl Pipes {
    pub(super) fn new(reactor: &Reactor) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let nothing = rustix::fs::open("/dev/null", flags, Mode::empty())?;
        let nothing = [nothing.try_clone()?, nothing];
        Ok(Self { nothing, output: Pipe::new(reactor)?, error: Pipe::new(reactor)? })
    }
}

impl Pipe {
    pub(super) fn new(reactor: &Reactor) -> io::Result<Self> {
        let (outer, inner) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&outer, true)?;
        let for_init = outer.try_clone()?;
        let outer = reactor.watch(outer, Source::PipePool, Interest::IN)?;
        Ok(Self { inner, outer, for_init })
    }

    pub(super) fn ends(&self) -> [&OwnedFd; 3] {
        [&self.inner, &*self.outer, &self.for_init]
    }
}
