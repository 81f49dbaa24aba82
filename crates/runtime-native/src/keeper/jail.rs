//! A jail that is held: its init's life, what is said to init and what waits to be said.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use stockade_jail::cgroup::Group;
use stockade_jail::control::{Control, Execute, Report, Request};

use super::Key;
use super::moment::Moment;
use super::pause::Pause;
use super::reactor::{Interest, Reactor, Source, Watched};
use super::record;
use stockade_plan::wipe::wipe_all;

/// The name of the socket that init listens on, in the sandbox's directory.
pub(super) const SOCKET: &str = "init";
/// How many requests may wait for an init that does not listen.
const WAITING: usize = 4096;
/// How long init may take to answer. A jail that may use little of the processor is slow.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The number that no command has: asked to kill it, init says at once that it is gone.
pub(super) const NOBODY: u64 = 0;

/// How often init may let go of the connection, and how much it may tell, in the time of one
/// renewal: more than honest ones do by far, and too little to keep the keeper from the others.
const LOSSES_AT_MOST: u32 = 32;
const REPORTS_AT_MOST: u32 = 200_000;

/// Leaves nothing in memory of a command's words, which may hold secrets.
fn wipe(request: Request) {
    if let Request::Execute(execute) = request {
        let Execute { arguments, environment, .. } = *execute;
        wipe_all(arguments.into_iter().chain(environment));
    }
}

/// A jail whose init serves.
#[derive(Debug)]
pub(super) struct Jail {
    /// Readable once init is dead, and with it all that was in the jail.
    life: Watched<OwnedFd>,
    control: Option<Watched<Control>>,
    waiting: VecDeque<(Request, Vec<OwnedFd>)>,
    /// Its root directory. An adopted init was asked for it.
    pub(super) root: Option<OwnedFd>,
    pub(super) group: Group,
    pub(super) pause: Pause,
    /// What is written down of it.
    pub(super) held: record::Held,
    /// Since when init owes an answer.
    asked: Option<Moment>,
    /// How often init has let go of the connection, and how much it has told, since its lease was
    /// renewed last.
    losses: u32,
    told: u32,
    /// The kernel sends no descriptors now: those that its user has sent elsewhere wait there.
    is_refused: bool,
}

impl Jail {
    pub(super) fn new(
        life: Watched<OwnedFd>,
        root: Option<OwnedFd>,
        group: Group,
        held: record::Held,
    ) -> Self {
        let waiting = VecDeque::new();
        let pause = Pause::default();
        let control = None;
        Self {
            life,
            control,
            waiting,
            root,
            group,
            pause,
            held,
            asked: None,
            losses: 0,
            told: 0,
            is_refused: false,
        }
    }

    /// Connects to init, as the only one that it hears from now on.
    pub(super) fn connect(
        &mut self,
        reactor: &Reactor,
        key: Key,
        place: BorrowedFd<'_>,
    ) -> io::Result<()> {
        self.control = None;
        let control = Control::connect(place, SOCKET)?;
        self.control = Some(reactor.watch(control, Source::Init(key), Interest::IN)?);
        Ok(())
    }

    /// Says something to init, now or when it listens. What is said to one that is gone is lost;
    /// its end is told by its life.
    ///
    /// # Errors
    /// `InvalidInput` for what is too long, `OutOfMemory` when too much waits already,
    /// `ETOOMANYREFS` when no descriptors can be sent now; nothing was said then.
    pub(super) fn say(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        if self.waiting.len() >= WAITING {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let sends = self.waiting.is_empty() && !descriptors.is_empty();
        self.waiting.push_back((request, descriptors));
        self.say_what_waits()?;
        if sends
            && self.is_refused
            && let Some((request, _)) = self.waiting.pop_front()
        {
            wipe(request);
            return Err(Errno::TOOMANYREFS.into());
        }
        Ok(())
    }

    /// Says as much of what waits as init takes.
    pub(super) fn say_what_waits(&mut self) -> io::Result<()> {
        self.is_refused = false;
        let Some(control) = &mut self.control else { return Ok(()) };
        while let Some((request, descriptors)) = self.waiting.pop_front() {
            let borrowed: Vec<_> = descriptors.iter().map(|open| open.as_fd()).collect();
            match control.send(&request, &borrowed) {
                Ok(()) => wipe(request),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    drop(borrowed);
                    self.waiting.push_front((request, descriptors));
                    return control.want(Interest::IN | Interest::OUT);
                }
                Err(error) if Errno::from_io_error(&error) == Some(Errno::TOOMANYREFS) => {
                    // It is tried again with whatever is said next, a renewal at the latest.
                    drop(borrowed);
                    self.waiting.push_front((request, descriptors));
                    self.is_refused = true;
                    return control.want(Interest::IN);
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
                Err(_) => self.waiting.clear(),
            }
        }
        control.want(Interest::IN)
    }

    /// The next thing that init says; `None` once it has closed the connection.
    ///
    /// # Errors
    /// As [`Control::receive`]; `NotConnected` when there is no connection, `InvalidData` also when
    /// it talks so much that others would have to wait.
    pub(super) fn hear(&mut self) -> io::Result<Option<(Report, Vec<OwnedFd>)>> {
        let heard = self.control.as_ref().ok_or(io::ErrorKind::NotConnected)?.receive()?;
        self.told = self.told.saturating_add(1);
        if self.told > REPORTS_AT_MOST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(heard)
    }

    /// Notes that init has let go of the connection; false when it does that all the time.
    pub(super) const fn may_come_back(&mut self) -> bool {
        self.losses = self.losses.saturating_add(1);
        self.losses <= LOSSES_AT_MOST
    }

    /// Lets go of the connection and of what waits to be said.
    pub(super) fn disconnect(&mut self) {
        self.control = None;
        self.waiting.clear();
    }

    /// Asks init for a sign of life, and lets it live on; false when it owes one for too long.
    pub(super) fn renew(&mut self, lease: Duration) -> bool {
        let now = Moment::now();
        (self.losses, self.told) = (0, 0);
        if self.asked.is_some_and(|asked| now.since(asked) >= PATIENCE) {
            return false;
        }
        let said = self
            .say(Request::Lease(lease), Vec::new())
            .and_then(|()| self.say(Request::Kill { number: NOBODY }, Vec::new()));
        self.asked.get_or_insert(now);
        said.is_ok()
    }

    /// Notes that init gave the sign of life.
    pub(super) const fn answered(&mut self) {
        self.asked = None;
    }

    /// Kills init, and with it everything in the jail; its life tells when that is done.
    pub(super) fn kill(&mut self) {
        // It may be dead already.
        let _ = pidfd_send_signal(&self.life, Signal::KILL);
        // What is frozen dies when it is thawed.
        let _ = self.group.thaw();
        self.disconnect();
    }

    /// Whether init is dead, and reaped where it was this process's child.
    pub(super) fn is_dead(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let dead = poll(&mut [PollFd::new(&*self.life, PollFlags::IN)], Some(&now)) == Ok(1);
        if dead {
            // One that was adopted is somebody else's child.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::PidFd(self.life.as_fd()), options);
        }
        dead
    }
}
