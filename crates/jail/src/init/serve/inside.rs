//! Requests of processes inside: a process whose user may become root asks init to start a command as another user,
//! as with `sudo`, for which no set-user-id bit can work in a jail.
//!
//! Init listens on a name of the jail's own network namespace before the first command runs, so nothing inside can
//! take that name. The kernel identifies the requesting user (`SO_PEERCRED`). The command has the walls of every other one: this
//! changes its ids only, to ids that the owner of the jail can choose as well.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, sockopt,
};

use crate::channel::Channel;
use crate::control::{Execute, INSIDE, Report, Request};

/// Commands that were requested inside have this number or a higher one; the keeper uses lower ones.
pub(super) const FIRST_NUMBER: u64 = 1 << 63;
/// How many processes may be connected, and how many commands started by them may be alive, at the same time.
const CLIENTS: usize = 64;
/// How many connections may wait.
const BACKLOG: i32 = 16;
/// The longest request in a file, in bytes.
const FILE_BYTES: u64 = 1 << 20;
/// The message whose request is in its last file descriptor.
const IN_FILE: &[u8] = b"M";

/// Whether a command was requested inside.
pub(super) const fn is_inside(number: u64) -> bool {
    number >= FIRST_NUMBER
}

/// The socket for processes inside, and who uses it.
#[derive(Debug)]
pub(crate) struct Inside {
    listener: OwnedFd,
    /// The users who may become root.
    users: BTreeSet<u32>,
    clients: Vec<Client>,
    next_number: u64,
}

/// A process inside that has connected.
#[derive(Debug)]
struct Client {
    channel: Channel,
    /// Its command, once it has requested one.
    command: Option<u64>,
}

/// What a process inside wants.
#[derive(Debug)]
pub(super) enum Wish {
    /// A command, with its standard streams.
    Start(Box<Execute>, [OwnedFd; 3]),
    /// To send a signal to its command.
    Signal { number: u64, signal: i32 },
    /// It has disconnected, so its command must end if it has not ended by itself.
    Abandon(u64),
}

impl Inside {
    /// Listens in the network namespace of the caller.
    pub(crate) fn listen() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&listener, &SocketAddrUnix::new_abstract_name(INSIDE.as_bytes())?)?;
        listen(&listener, BACKLOG)?;
        Ok(Self {
            listener,
            users: BTreeSet::new(),
            clients: Vec::new(),
            next_number: FIRST_NUMBER,
        })
    }

    /// The descriptors to wait for: the listener, then each client.
    pub(super) fn each(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.iter().map(|client| client.channel.as_fd());
        [self.listener.as_fd()].into_iter().chain(clients)
    }

    /// The listener, which must stay open.
    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Lets a user become root.
    pub(super) fn allow(&mut self, user: u32) {
        self.users.insert(user);
    }

    /// Handles what has happened to the descriptors, in the order of [`Inside::each`]. `alive` is how many
    /// commands that were requested inside are alive.
    pub(super) fn handle(&mut self, events: &[bool], alive: usize) -> Vec<Wish> {
        let mut wishes = Vec::new();
        let mut client_events = events.iter().skip(1);
        let (users, next) = (&self.users, &mut self.next_number);
        let mut room = CLIENTS.saturating_sub(alive);
        self.clients.retain_mut(|client| {
            if !client_events.next().copied().unwrap_or_default() {
                return true;
            }
            match client.wish(next, &mut room) {
                Some(wish) => {
                    wishes.extend(wish);
                    true
                }
                None => {
                    wishes.extend(client.command.map(Wish::Abandon));
                    false
                }
            }
        });
        if events.first().copied().unwrap_or_default()
            && let Ok(channel) = Channel::accept(&self.listener)
        {
            match may_ask(users, &channel) {
                true if self.clients.len() < CLIENTS => {
                    self.clients.push(Client { channel, command: None });
                }
                true => refuse(&channel, libc::EAGAIN),
                false => refuse(&channel, libc::EPERM),
            }
        }
        wishes
    }

    /// Passes reports about a command on to the process that requested it.
    pub(super) fn report(&self, number: u64, reports: Vec<(Report, Vec<OwnedFd>)>) {
        let client = self.clients.iter().find(|client| client.command == Some(number));
        let Some(client) = client else { return };
        for (report, _) in reports {
            // A client that does not receive loses them; a command has only a few.
            let _ = client.channel.send(&report.encode(), &[]);
        }
    }
}

/// Whether the process at the other end may start commands as other users: root, where any user may become root.
fn may_ask(users: &BTreeSet<u32>, channel: &Channel) -> bool {
    let Ok(peer) = sockopt::socket_peercred(channel) else { return false };
    let user = peer.uid.as_raw();
    users.contains(&user) || user == 0 && !users.is_empty()
}

fn refuse(channel: &Channel, errno: i32) {
    let step = "start a command as another user".to_owned();
    let report = Report::NotStarted { number: 0, wall: None, step, errno };
    // If this fails, the client sees that the connection has ended.
    let _ = channel.send(&report.encode(), &[]);
}

impl Client {
    /// Its next wish, if it has one; `None` when it has disconnected or sent anything that is not valid.
    fn wish(&mut self, next: &mut u64, room: &mut usize) -> Option<Option<Wish>> {
        let (bytes, mut descriptors) = match self.channel.receive() {
            Ok(Some(message)) => message,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(None),
            Ok(None) | Err(_) => return None,
        };
        let request = match bytes == IN_FILE {
            true => Request::decode(&content(descriptors.pop()?)?)?,
            false => Request::decode(&bytes)?,
        };
        match (request, self.command) {
            (Request::Execute(mut execute), None) => {
                let streams: [OwnedFd; 3] = descriptors.try_into().ok()?;
                if execute.terminal.is_some()
                    || execute.timeout.is_some()
                    || execute.may_become_root
                {
                    return None;
                }
                let Some(left) = room.checked_sub(1) else {
                    refuse(&self.channel, libc::EAGAIN);
                    return None;
                };
                *room = left;
                let number = *next;
                *next = next.checked_add(1)?;
                execute.number = number;
                execute.key = number.to_le_bytes().to_vec();
                self.command = Some(number);
                Some(Some(Wish::Start(execute, streams)))
            }
            (Request::Signal { signal, .. }, Some(number)) => {
                Some(Some(Wish::Signal { number, signal }))
            }
            _ => None,
        }
    }
}

/// The content of a file in memory that cannot change any more; `None` for every other file, reading which could make
/// init wait.
fn content(descriptor: OwnedFd) -> Option<Vec<u8>> {
    let file = File::from(descriptor);
    if !fcntl_get_seals(&file).ok()?.contains(SealFlags::SHRINK | SealFlags::WRITE) {
        return None;
    }
    let length = file.metadata().ok()?.len();
    let length = usize::try_from(length).ok().filter(|_| length <= FILE_BYTES)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}
