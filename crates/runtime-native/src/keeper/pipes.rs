//! The pipes of a command. Those of the next command are made while the last one starts, so that no
//! command waits for them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::context::Context;
use super::reactor::{Interest, Reactor, Source, Watched};
use crate::wire::Failure;

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
    pipes: Option<Pipes>,
    /// A command was started since the last check.
    is_wanted: bool,
}

impl PipePool {
    /// Records that a command was started.
    pub(super) fn want(&mut self) {
        self.is_wanted = true;
    }
}

impl Context {
    /// Pipes for a command.
    pub(super) fn pipes(&mut self) -> Result<Pipes, Failure> {
        match self.pipe_pool.pipes.take() {
            Some(pipes) => Ok(pipes),
            None => self.make_pipes(),
        }
    }

    /// Makes pipes for the next command if one was started, since another may follow.
    pub(super) fn refill_pipe_pool(&mut self) {
        if std::mem::take(&mut self.pipe_pool.is_wanted) && self.pipe_pool.pipes.is_none() {
            // The next command reports the error.
            self.pipe_pool.pipes = self.make_pipes().ok();
        }
    }

    fn make_pipes(&self) -> Result<Pipes, Failure> {
        let pipes = Pipes::new(&self.reactor).map_err(|error| {
            Failure::Exhausted(format!("cannot create the command's pipes: {error}"))
        })?;
        let Pipes { nothing, output, error } = &pipes;
        let ends = nothing.iter().chain([output, error].into_iter().flat_map(Pipe::ends));
        ends.into_iter().try_for_each(|end| self.afford_command(end))?;
        Ok(pipes)
    }
}

impl Pipes {
    fn new(reactor: &Reactor) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let nothing = rustix::fs::open("/dev/null", flags, Mode::empty())?;
        let nothing = [nothing.try_clone()?, nothing];
        Ok(Self { nothing, output: Pipe::new(reactor)?, error: Pipe::new(reactor)? })
    }
}

impl Pipe {
    fn new(reactor: &Reactor) -> io::Result<Self> {
        let (outer, inner) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&outer, true)?;
        let for_init = outer.try_clone()?;
        let outer = reactor.watch(outer, Source::PipePool, Interest::IN)?;
        Ok(Self { inner, outer, for_init })
    }

    fn ends(&self) -> [&OwnedFd; 3] {
        [&self.inner, &*self.outer, &self.for_init]
    }
}
