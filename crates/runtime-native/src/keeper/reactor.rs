//! The events that the keeper waits for: descriptors that are registered with the kernel's
//! `epoll(7)`, each with its meaning to the keeper.
//!
//! A descriptor is deregistered when its owner drops it, before it is closed: other processes hold
//! the same pipes and sockets, so closing alone would not deregister it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

pub(super) use rustix::event::epoll::EventFlags as Interest;

use super::{ClientId, Key};
use stockade_runtime::Stream;

/// How many events are handled in one turn.
const EVENTS: usize = 128;

/// The meaning of a descriptor to the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The socket that clients connect to.
    Listener,
    /// The socket of a client.
    Client(ClientId),
    /// A jail that is being launched.
    Launch(Key),
    /// The connection to a jail's init.
    Init(Key),
    /// The pidfd of a jail's init.
    Exit(Key),
    /// The listener for the refused system calls of a jail.
    RefusedCalls(Key),
    /// The output of a command.
    Stream(Key, u64, Stream),
    /// A pipe that belongs to no command yet.
    PipePool,
    /// A helper process.
    Helper(u64),
}

/// The registration.
#[derive(Debug, Clone)]
pub(super) struct Reactor(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    epoll: OwnedFd,
    sources: RefCell<HashMap<u64, Source>>,
    next: Cell<u64>,
}

/// A descriptor that is registered as long as this value exists.
#[derive(Debug)]
pub(super) struct Watched<T: AsFd> {
    inner: T,
    reactor: Reactor,
    token: u64,
    interest: Interest,
}

impl Reactor {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Rc::new(Inner {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sources: RefCell::default(),
            next: Cell::new(0),
        })))
    }

    /// Registers a descriptor, level-triggered unless `interest` says otherwise.
    ///
    /// # Errors
    /// `PermissionDenied` for a descriptor that never supports polling, such as a regular file.
    pub(super) fn watch<T: AsFd>(
        &self,
        inner: T,
        source: Source,
        interest: Interest,
    ) -> io::Result<Watched<T>> {
        self.watch_or_return(inner, source, interest).map_err(|(error, _)| error)
    }

    /// As [`Reactor::watch`], for a descriptor that is still needed when registration fails.
    pub(super) fn watch_or_return<T: AsFd>(
        &self,
        inner: T,
        source: Source,
        interest: Interest,
    ) -> Result<Watched<T>, (io::Error, T)> {
        let token = self.0.next.get();
        self.0.next.set(token + 1);
        let data = epoll::EventData::new_u64(token);
        if let Err(errno) = epoll::add(&self.0.epoll, &inner, data, interest) {
            return Err((errno.into(), inner));
        }
        self.0.sources.borrow_mut().insert(token, source);
        Ok(Watched { inner, reactor: self.clone(), token, interest })
    }

    /// Waits until an event happens or the timeout expires. Returns the sources and their events.
    pub(super) fn wait(&self, timeout: Duration) -> io::Result<Vec<(Source, Interest)>> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.0.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let sources = self.0.sources.borrow();
        let source = |event: &epoll::Event| {
            let (data, flags) = (event.data, event.flags);
            Some((*sources.get(&data.u64())?, flags))
        };
        Ok(events.iter().filter_map(source).collect())
    }
}

impl<T: AsFd> Watched<T> {
    /// Changes the meaning of the descriptor to the keeper.
    pub(super) fn set_source(&self, source: Source) {
        self.reactor.0.sources.borrow_mut().insert(self.token, source);
    }

    /// Changes the interest that the descriptor is registered with.
    pub(super) fn set_interest(&mut self, interest: Interest) -> io::Result<()> {
        if interest != self.interest {
            let data = epoll::EventData::new_u64(self.token);
            epoll::modify(&self.reactor.0.epoll, &self.inner, data, interest)?;
            self.interest = interest;
        }
        Ok(())
    }
}

impl<T: AsFd> std::ops::Deref for Watched<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: AsFd> std::ops::DerefMut for Watched<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: AsFd> AsFd for Watched<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T: AsFd> Drop for Watched<T> {
    fn drop(&mut self) {
        // It is registered, and no other code removes it.
        let _ = epoll::delete(&self.reactor.0.epoll, &self.inner);
        self.reactor.0.sources.borrow_mut().remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    #[test]
    fn what_happens_is_told_under_its_name_until_its_owner_is_gone() {
        let reactor = Reactor::new().unwrap();
        let (from, mut to) = std::io::pipe().unwrap();
        // Another process, such as a jail's init, holds the same pipe.
        let _other = from.try_clone().unwrap();
        let mut from = reactor.watch(from, Source::Client(ClientId(7)), Interest::IN).unwrap();
        assert_eq!(reactor.wait(NO_TIME).unwrap(), []);
        to.write_all(b"x").unwrap();
        let expected = [(Source::Client(ClientId(7)), Interest::IN)];
        assert_eq!(reactor.wait(NO_TIME).unwrap(), expected);
        assert_eq!(reactor.wait(NO_TIME).unwrap(), expected);
        from.set_interest(Interest::empty()).unwrap();
        assert_eq!(reactor.wait(NO_TIME).unwrap(), []);
        from.set_interest(Interest::IN).unwrap();
        drop(from);
        assert_eq!(reactor.wait(NO_TIME).unwrap(), []);
        assert!(reactor.0.sources.borrow().is_empty());
    }

    #[test]
    fn a_regular_file_cannot_be_waited_for() {
        let reactor = Reactor::new().unwrap();
        let file = tempfile::tempfile().unwrap();
        assert!(reactor.watch(file, Source::Listener, Interest::IN).is_err());
        assert!(reactor.0.sources.borrow().is_empty());
    }
}
