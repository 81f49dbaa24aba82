//! The loop over all sockets. It ends when its owner closes its end of the socket, after it has
//! answered what had arrived by then.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recvfrom, sendto};

use crate::connection::{Connection, Protocol, Step};
use crate::dns;
use crate::records::Records;

/// The most connections at a time; for one more, the oldest ends.
const MAX_CONNECTIONS: usize = 64;
/// The most datagrams, and the most new connections, that are served in one turn.
const BURST: usize = 64;
/// The longest datagram that is read.
const DATAGRAM_BYTES: usize = 4096;

/// The sockets of one sandbox, in its own network.
#[derive(Debug)]
pub struct Sockets {
    /// The resolver's datagram socket.
    pub resolver_datagrams: OwnedFd,
    /// The resolver's listener.
    pub resolver_streams: OwnedFd,
    /// The proxy's listener.
    pub proxy: OwnedFd,
}

impl Sockets {
    /// Makes all of them non-blocking. Before the process is confined.
    ///
    /// # Errors
    /// Why that fails.
    pub fn prepare(&self) -> std::io::Result<()> {
        let Self { resolver_datagrams, resolver_streams, proxy } = self;
        for socket in [resolver_datagrams, resolver_streams, proxy] {
            rustix::io::ioctl_fionbio(socket, true)?;
        }
        Ok(())
    }
}

/// Refuses everything, until the owner has closed its end or no socket can be waited for.
pub fn serve<S: AsFd>(sockets: &Sockets, mut records: Records<S>) {
    let mut connections: VecDeque<Connection> = VecDeque::new();
    let mut is_open = true;
    while is_open {
        let now = Instant::now();
        connections.retain(|connection| connection.deadline > now);
        let next = connections.iter().map(|connection| connection.deadline).min();
        let timeout =
            next.and_then(|at| Timespec::try_from(at.saturating_duration_since(now)).ok());
        let listeners = [&sockets.resolver_datagrams, &sockets.resolver_streams, &sockets.proxy];
        let mut waiting = vec![PollFd::new(records.socket(), PollFlags::IN)];
        waiting.extend(listeners.map(|listener| PollFd::new(listener, PollFlags::IN)));
        waiting.extend(connections.iter().map(|connection| {
            let (socket, flags) = connection.interest();
            PollFd::from_borrowed_fd(socket, flags)
        }));
        match poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let ready: Vec<bool> = waiting.iter().map(|one| !one.revents().is_empty()).collect();
        drop(waiting);
        // The owner sends nothing: its socket is ready when it is closed. What arrived before that
        // is answered, because the command may have ended right after it asked.
        is_open = !ready.first().is_some_and(|ready| *ready);
        let mut others = ready.into_iter().skip(4);
        connections.retain_mut(|connection| {
            !others.next().unwrap_or_default()
                || connection.advance(&mut |wanted| records.add(wanted)) == Step::Waits
        });
        serve_datagrams(sockets, &mut records);
        for (listener, protocol) in
            [(&sockets.resolver_streams, Protocol::Dns), (&sockets.proxy, Protocol::Http)]
        {
            accept(listener, protocol, &mut connections, &mut records);
        }
    }
}

fn serve_datagrams<S: AsFd>(sockets: &Sockets, records: &mut Records<S>) {
    let mut bytes = [0; DATAGRAM_BYTES];
    for _ in 0..BURST {
        let socket = &sockets.resolver_datagrams;
        let Ok((length, _, from)) = recvfrom(socket, &mut bytes, RecvFlags::empty()) else {
            return;
        };
        let query = bytes.get(..length).unwrap_or_default();
        let Some((answer, wanted)) = dns::answer(query) else { continue };
        if let Some(wanted) = wanted {
            records.add(wanted);
        }
        if let Some(from) = from {
            // A client that does not read gets no answer.
            let _ = sendto(socket, &answer, SendFlags::NOSIGNAL, &from);
        }
    }
}

fn accept<S: AsFd>(
    listener: &OwnedFd,
    protocol: Protocol,
    connections: &mut VecDeque<Connection>,
    records: &mut Records<S>,
) {
    for _ in 0..BURST {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(listener, flags) else { return };
        let mut connection = Connection::new(socket, protocol, Instant::now());
        if connection.advance(&mut |wanted| records.add(wanted)) == Step::Waits {
            if connections.len() >= MAX_CONNECTIONS {
                connections.pop_front();
            }
            connections.push_back(connection);
        }
    }
}

#[cfg(test)]
mod tests;
