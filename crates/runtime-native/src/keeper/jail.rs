//! A running jail: its init's pidfd, the connection to init, and the requests that wait to be sent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use stockade_jail::CallListener;
use stockade_jail::cgroup::Group;
use stockade_jail::control::{Control, Execute, Report, Request};

use super::Key;
use super::boot_time::BootTime;
use super::pause::Pause;
use super::reactor::{Interest, Reactor, Source, Watched};
use super::record;
use stockade_plan::wipe::wipe_all;

/// The name of the socket that init listens on, in the sandbox's directory.
pub(super) const SOCKET: &str = "init";
/// How many requests may wait for an init that does not read.
const WAITING: usize = 4096;
/// How long init may take to answer. A jail with a low processor limit is slow.
pub(super) const INIT_TIMEOUT: Duration = Duration::from_secs(30);
/// A number that no command has: init answers a request to kill it immediately.
pub(super) const NOBODY: u64 = 0;

/// How often init may close the connection, and how many reports it may send, within one renewal
/// interval: far more than honest inits do, and too little to block the keeper for others.
const MAX_LOSSES: u32 = 32;
const MAX_REPORTS: u32 = 200_000;

/// Wipes a command's arguments and environment from memory, since they may hold secrets.
fn wipe(request: Request) {
    if let Request::Execute(execute) = request {
        let Execute { arguments, environment, .. } = *execute;
        wipe_all(arguments.into_iter().chain(environment));
    }
}

/// A jail whose init serves.
#[derive(Debug)]
pub(super) struct Jail {
    /// The pidfd: readable once init is dead, and with it all processes of the jail.
    pidfd: Watched<OwnedFd>,
    control: Option<Watched<Control>>,
    waiting: VecDeque<(Request, Vec<OwnedFd>)>,
    /// Its root directory. Requested from init if the jail was adopted.
    pub(super) root: Option<OwnedFd>,
    pub(super) group: Group,
    pub(super) pause: Pause,
    /// Hears of refused system calls, unless init does. An adopted jail has none: it ended with the earlier
    /// keeper, and from then on the kernel fails these calls with `ENOSYS`.
    pub(super) call_listener: Option<Watched<CallListener>>,
    /// Its stored record.
    pub(super) record: record::JailRecord,
    /// When the unanswered request was sent to init.
    asked_at: Option<BootTime>,
    /// How often init has closed the connection, and how many reports it has sent, since its lease
    /// was renewed last.
    losses: u32,
    report_count: u32,
    /// The kernel refuses to send descriptors now: too many descriptors of this user are in flight.
    is_refused: bool,
}

impl Jail {
    pub(super) fn new(
        life: Watched<OwnedFd>,
        root: Option<OwnedFd>,
        group: Group,
        record: record::JailRecord,
    ) -> Self {
        let waiting = VecDeque::new();
        let pause = Pause::following_renames(record.follows_renames);
        let control = None;
        Self {
            pidfd: life,
            control,
            waiting,
            root,
            group,
            pause,
            call_listener: None,
            record,
            asked_at: None,
            losses: 0,
            report_count: 0,
            is_refused: false,
        }
    }

    /// Connects to init. Init serves only its latest connection.
    pub(super) fn connect(
        &mut self,
        reactor: &Reactor,
        key: Key,
        dir: BorrowedFd<'_>,
    ) -> io::Result<()> {
        self.control = None;
        let control = Control::connect(dir, SOCKET)?;
        self.control = Some(reactor.watch(control, Source::Init(key), Interest::IN)?);
        Ok(())
    }

    /// Sends init a request, now or when it reads. A request to a dead init is lost; the pidfd
    /// reports its end.
    ///
    /// # Errors
    /// `InvalidInput` for a request that is too long, `OutOfMemory` when too many requests wait
    /// already, `ETOOMANYREFS` when no descriptors can be sent now; nothing was sent then.
    pub(super) fn send(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        if self.waiting.len() >= WAITING {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let sends = self.waiting.is_empty() && !descriptors.is_empty();
        self.waiting.push_back((request, descriptors));
        self.flush()?;
        if sends
            && self.is_refused
            && let Some((request, _)) = self.waiting.pop_front()
        {
            wipe(request);
            return Err(Errno::TOOMANYREFS.into());
        }
        Ok(())
    }

    /// Sends as many waiting requests as init accepts.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.is_refused = false;
        let Some(control) = &mut self.control else { return Ok(()) };
        while let Some((request, descriptors)) = self.waiting.pop_front() {
            let borrowed: Vec<_> = descriptors.iter().map(|open| open.as_fd()).collect();
            match control.send(&request, &borrowed) {
                Ok(()) => wipe(request),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    drop(borrowed);
                    self.waiting.push_front((request, descriptors));
                    return control.set_interest(Interest::IN | Interest::OUT);
                }
                Err(error) if Errno::from_io_error(&error) == Some(Errno::TOOMANYREFS) => {
                    // The next send retries it, at the latest that of a renewal.
                    drop(borrowed);
                    self.waiting.push_front((request, descriptors));
                    self.is_refused = true;
                    return control.set_interest(Interest::IN);
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
                Err(_) => self.waiting.clear(),
            }
        }
        control.set_interest(Interest::IN)
    }

    /// The next report of init; `None` once it has closed the connection.
    ///
    /// # Errors
    /// As [`Control::receive`]; `NotConnected` when there is no connection, `InvalidData` also when
    /// init sends so many reports that others would have to wait.
    pub(super) fn recv(&mut self) -> io::Result<Option<(Report, Vec<OwnedFd>)>> {
        let report = self.control.as_ref().ok_or(io::ErrorKind::NotConnected)?.receive()?;
        self.report_count = self.report_count.saturating_add(1);
        if self.report_count > MAX_REPORTS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(report)
    }

    /// Counts a connection that init has closed; false when it closes too many.
    pub(super) const fn may_reconnect(&mut self) -> bool {
        self.losses = self.losses.saturating_add(1);
        self.losses <= MAX_LOSSES
    }

    /// Closes the connection and drops the waiting requests.
    pub(super) fn disconnect(&mut self) {
        self.control = None;
        self.waiting.clear();
    }

    /// Renews init's lease and requests an answer; false when an answer is overdue.
    pub(super) fn renew(&mut self, lease: Duration) -> bool {
        let now = BootTime::now();
        (self.losses, self.report_count) = (0, 0);
        if self.asked_at.is_some_and(|asked| now.since(asked) >= INIT_TIMEOUT) {
            return false;
        }
        let sent = self
            .send(Request::Lease(lease), Vec::new())
            .and_then(|()| self.send(Request::Kill { number: NOBODY }, Vec::new()));
        self.asked_at.get_or_insert(now);
        sent.is_ok()
    }

    /// Records that init has answered.
    pub(super) const fn answered(&mut self) {
        self.asked_at = None;
    }

    /// Kills init, and with it all processes of the jail; the pidfd reports when they have ended.
    pub(super) fn kill(&mut self) {
        // It may be dead already.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        // Frozen processes die when they are thawed.
        let _ = self.group.thaw();
        self.disconnect();
    }

    /// Whether init is dead. Reaps it if it is this process's child.
    pub(super) fn is_dead(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let dead = poll(&mut [PollFd::new(&*self.pidfd, PollFlags::IN)], Some(&now)) == Ok(1);
        if dead {
            // An adopted init is the child of another process.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        }
        dead
    }
}
