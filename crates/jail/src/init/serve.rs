//! The init of a persistent jail: starts the commands that are requested on its socket, keeps their
//! streams for later clients, reports how they end, and ends everything when its lease ends.
//!
//! One process, one thread. Each command has a *subreaper* (`subreaper`), a process that shares
//! init's memory and is the parent of the command, so that everything the command starts can be
//! found and ended, however often it forks. `command` is init's state of one command, `spare` keeps
//! an idle subreaper for the next, `connect` opens connections that only a command's own user may
//! open, `inside` serves processes inside that start commands as other users, `asked_calls` answers the
//! filter, where init has its listener.

mod asked_calls;
mod command;
mod connect;
mod idle_subreaper;
mod inside;
#[cfg(test)]
mod live_tests;
mod subreaper;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, OFlags};

use self::command::{Command, Parts};
use self::idle_subreaper::IdleSubreaper;
pub(crate) use self::inside::Inside;
use self::inside::{FIRST_NUMBER, Wish, is_inside};
use crate::channel::Channel;
use crate::control::{COMMANDS, Cause, CommandLimits, Execute, Report, Request};
use crate::init::calls::Calls;
use crate::landlock::Ruleset;
use crate::network::Listeners;
use crate::rlimits::ResourceLimits;
use crate::{raw, sys};

/// How many reports may be queued for a client that does not receive, until it is disconnected.
const MAX_WAITING_REPORTS: usize = 4096;
/// How many requests are handled in one turn.
const REQUESTS_PER_TURN: usize = 32;
/// How long commands may take to execute their programs, and how often init checks for that.
const START_TIMEOUT: Duration = Duration::from_secs(1);
const START_POLL_INTERVAL: Duration = Duration::from_micros(200);
/// How often init searches for processes that lost their subreaper.
const SWEEP_INTERVAL: Duration = Duration::from_millis(5);

/// Which users a command may have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Users {
    /// Only the ids of init.
    Own(u32, u32),
    /// Every id below this one, which is init's.
    Below(u32),
}

impl Users {
    /// Whether these ids may be taken on.
    fn allow(self, user: u32, group: u32) -> bool {
        match self {
            Self::Own(own_user, own_group) => (user, group) == (own_user, own_group),
            Self::Below(init) => user < init && group < init,
        }
    }

    /// Whether a command may have these supplementary groups.
    fn allow_groups(self, groups: &[u32]) -> bool {
        match self {
            Self::Own(..) => groups.is_empty(),
            Self::Below(init) => groups.iter().all(|group| *group < init),
        }
    }

    /// The ids to take on, where they differ from init's own.
    fn change_to(self, user: u32, group: u32) -> Option<(u32, u32)> {
        matches!(self, Self::Below(_)).then_some((user, group))
    }
}

/// The file descriptors that init opens before it closes everything else. Its standard streams are
/// `/dev/null`, so that no stream of a command ever has their numbers.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// Subreapers write to it when they have news.
    wakeup: OwnedFd,
}

impl Descriptors {
    pub(crate) fn open() -> io::Result<Self> {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        Ok(Self { wakeup: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    pub(crate) fn each(&self) -> [BorrowedFd<'_>; 4] {
        use rustix::stdio::{stderr, stdin, stdout};
        [stdin(), stdout(), stderr(), self.wakeup.as_fd()]
    }
}

/// An init that serves.
#[derive(Debug)]
pub(crate) struct Init {
    listener: OwnedFd,
    descriptors: Descriptors,
    root: OwnedFd,
    /// The network listeners, kept for later clients.
    listeners: Option<Listeners>,
    lease_end: Instant,
    users: Users,
    rlimits: ResourceLimits,
    ruleset: Option<Rc<Ruleset>>,
    /// On how many processors commands start, if not all.
    processors: Option<usize>,
    /// Subreapers may report a command's end to it; each command has its own reference.
    client: Option<Rc<Channel>>,
    reports: VecDeque<(Report, Vec<OwnedFd>)>,
    commands: BTreeMap<u64, Command>,
    idle_subreaper: IdleSubreaper,
    /// What processes inside ask for, where the jail has several users.
    inside: Option<Inside>,
    /// The calls about which the filter asks, where init hears of them.
    calls: Option<Calls>,
    /// The client waits until no rename is under way.
    awaits_renames: bool,
    /// How every process was stopped, while they are.
    stopped: Option<Stopped>,
    /// Everything must be stopped by a signal once every started command has executed its program.
    stops_late: bool,
    /// Whether there may be processes that lost their subreaper.
    orphans: bool,
}

/// What has stopped the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    /// Init, by a signal.
    Signal,
    /// A control group.
    Group,
    /// Both: a process had to be ended, so the group must be thawed.
    Both,
}

/// Whether init continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    End,
}

impl Init {
    pub(crate) fn new(
        listener: OwnedFd,
        descriptors: Descriptors,
        (root, listeners): (OwnedFd, Option<Listeners>),
        lease: Duration,
        (users, rlimits, ruleset): (Users, ResourceLimits, Option<Ruleset>),
    ) -> Self {
        Self {
            listener,
            descriptors,
            root,
            listeners,
            lease_end: Instant::now() + lease,
            users,
            rlimits,
            ruleset: ruleset.map(Rc::new),
            processors: None,
            client: None,
            reports: VecDeque::new(),
            commands: BTreeMap::new(),
            idle_subreaper: IdleSubreaper::default(),
            inside: None,
            calls: None,
            awaits_renames: false,
            stopped: None,
            stops_late: false,
            orphans: false,
        }
    }

    /// Starts each command on this many processors.
    pub(crate) fn starting_on(mut self, processors: Option<usize>) -> Self {
        self.processors = processors;
        self
    }

    /// Serves processes inside too.
    pub(crate) fn serving_inside(mut self, inside: Option<Inside>) -> Self {
        self.inside = inside;
        self
    }

    /// Serves until the lease ends or the end is requested; returns the exit code of init. The
    /// kernel kills all remaining processes when init exits.
    pub(crate) fn run(mut self) -> i32 {
        let Ok(signals) = sys::signal_descriptor(&[libc::SIGCHLD, subreaper::WAKE]) else {
            return 1;
        };
        while self.turn(&signals) == Next::Continue {}
        0
    }

    /// Waits for the next event and handles it.
    fn turn(&mut self, signals: &OwnedFd) -> Next {
        let (child, is_woken, is_connecting, client_events, inside_events, calls) = {
            let left = self.next_deadline().saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
            let events = if self.reports.is_empty() {
                PollFlags::IN
            } else {
                PollFlags::IN | PollFlags::OUT
            };
            let own = [signals, &self.descriptors.wakeup, &self.listener];
            let own = own.into_iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN));
            let client = self.client.as_ref().map(|client| PollFd::new(client, events));
            let inside = self.inside.iter().flat_map(Inside::each);
            let inside =
                inside.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
            let calls = self.calls.iter().flat_map(|calls| calls.sources(Instant::now()));
            let (sources, calls): (Vec<_>, Vec<_>) = calls.unzip();
            let calls = calls.into_iter().map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN));
            let mut waiting: Vec<_> = own.chain(client).chain(inside).chain(calls).collect();
            match poll(&mut waiting, Some(&timeout)) {
                Ok(_) => {}
                // Where commands have init's id, one of them can lower init's limit of file
                // descriptors so far that it cannot even poll. No request can be served any more
                // then.
                Err(rustix::io::Errno::INVAL) => return Next::End,
                Err(_) => return Next::Continue,
            }
            let seen = |at: usize| waiting.get(at).map_or(PollFlags::empty(), PollFd::revents);
            let client = if self.client.is_some() { seen(3) } else { PollFlags::empty() };
            let rest = waiting.iter().skip(3 + usize::from(self.client.is_some()));
            let rest: Vec<bool> = rest.map(|waiting| !waiting.revents().is_empty()).collect();
            let (inside, calls) = rest.split_at(rest.len() - sources.len());
            let calls =
                sources.into_iter().zip(calls).filter_map(|(source, seen)| seen.then_some(source));
            let (inside, calls) = (inside.to_vec(), calls.collect::<Vec<_>>());
            (!seen(0).is_empty(), !seen(1).is_empty(), !seen(2).is_empty(), client, inside, calls)
        };
        let room = client_events.contains(PollFlags::OUT);
        if is_woken {
            // The number only signals that there is news.
            let _ = rustix::io::read(&self.descriptors.wakeup, &mut [0; 8]);
        }
        if child {
            while let Ok(Some(_)) = sys::next_signal(signals.as_fd()) {}
            self.reap();
        }
        if self.orphans {
            self.sweep();
        }
        if !client_events.difference(PollFlags::OUT).is_empty()
            && self.handle_requests() == Next::End
        {
            return Next::End;
        }
        if inside_events.contains(&true) {
            self.serve_inside(&inside_events);
        }
        if !calls.is_empty() {
            self.handle_calls(&calls);
        }
        if is_connecting {
            match Channel::accept(&self.listener) {
                Ok(client) => {
                    // A new client requests all earlier reports.
                    self.hang_up();
                    self.reports.clear();
                    self.client = Some(Rc::new(client));
                }
                // The limit may also be so low that no client can connect any more.
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => return Next::End,
                Err(_) => {}
            }
        }
        if self.update_commands() == Next::End || Instant::now() >= self.lease_end {
            return Next::End;
        }
        if room || !self.reports.is_empty() {
            self.send_reports();
        }
        Next::Continue
    }

    fn next_deadline(&self) -> Instant {
        let sweeping = self.orphans.then(|| Instant::now() + SWEEP_INTERVAL);
        self.commands
            .values()
            .filter_map(|command| command.next_deadline(self.stopped.is_some()))
            .chain(self.idle_subreaper.next_deadline())
            .chain(self.calls.as_ref().and_then(|calls| calls.next_deadline(Instant::now())))
            .chain(sweeping)
            .chain(self.stops_late.then(|| Instant::now() + START_POLL_INTERVAL))
            .chain([self.lease_end])
            .min()
            .unwrap_or(self.lease_end)
    }

    /// Reaps children of init that have ended: subreapers, helpers, and processes that lost their
    /// subreaper.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = raw::reap() {
            if self.calls.as_mut().is_some_and(|calls| calls.ended(pid, status)) {
                continue;
            }
            self.idle_subreaper.note_reaped(pid);
            let own = self.commands.values_mut().find(|command| command.has_subreaper(pid));
            if own.is_some_and(|command| !command.subreaper_ended()) {
                self.orphans = true;
            }
        }
    }

    /// Kills the processes that lost their subreaper: every child of init that is neither a subreaper nor
    /// makes renames.
    fn sweep(&mut self) {
        let (commands, spare) = (&self.commands, &self.idle_subreaper);
        let is_spared = |pid| {
            spare.has(pid)
                || commands.values().any(|command| command.has_subreaper(pid))
                || self.calls.as_ref().is_some_and(|calls| calls.has(pid))
        };
        if subreaper::kill_orphans(is_spared) {
            return;
        }
        self.orphans = false;
        self.commands.values_mut().for_each(Command::orphans_ended);
    }

    /// Sends news, and ends commands that have to end.
    fn update_commands(&mut self) -> Next {
        let now = Instant::now();
        let stopped = self.stopped.is_some();
        let is_up = |command: &Command| command.next_deadline(stopped).is_some_and(|at| at <= now);
        if self.commands.values().any(is_up) {
            self.stop_by_signal();
        }
        self.stop_late();
        self.collect_finished(now);
        self.idle_subreaper.enforce_deadline(now);
        if let Some(calls) = &mut self.calls {
            calls.enforce_deadline(now);
        }
        for (number, command) in &mut self.commands {
            if command.enforce_deadlines(now, stopped).is_err() {
                // A command that cannot be killed alone is killed with everything else.
                return Next::End;
            }
            let reports = command.take_reports(*number);
            match &self.inside {
                Some(inside) if is_inside(*number) => inside.report(*number, reports),
                _ => {
                    self.reports.extend(command.refused_calls_before(*number, &reports));
                    self.reports.extend(reports);
                }
            }
        }
        self.report_finished_renames();
        self.commands.retain(|_, command| !command.is_forgotten());
        Next::Continue
    }

    /// Takes over what subreapers have seen, and reclaims those that are done: no event wakes init
    /// for a command whose end was already reported to the client.
    fn collect_finished(&mut self, now: Instant) {
        for done in self.commands.values_mut().filter_map(Command::take_finished) {
            if let Some(calls) = &mut self.calls {
                calls.forget_family(done.process());
            }
            if self.stopped.is_some() {
                self.idle_subreaper.release(done);
            } else {
                self.idle_subreaper.add(done, now);
            }
        }
    }

    /// Stops everything by a signal that only a control group has stopped, because something must
    /// be ended, which is impossible while the group is frozen.
    fn stop_by_signal(&mut self) {
        if self.stopped == Some(Stopped::Group) {
            self.stops_late = self.commands.values().any(Command::is_starting);
            if !self.stops_late {
                // Frozen processes get the signal when they are thawed, before they run.
                let _ = raw::kill(-1, libc::SIGSTOP);
            }
            self.stopped = Some(Stopped::Both);
            self.reports.push_back((Report::Thaw, Vec::new()));
        }
    }

    /// Stops the processes that were thawed so that commands could execute their programs: if they
    /// were stopped before that, they could not be ended, because their subreapers wait for it.
    fn stop_late(&mut self) {
        if self.stops_late && !self.commands.values().any(Command::is_starting) {
            self.stops_late = false;
            let _ = raw::kill(-1, libc::SIGSTOP);
            self.commands.values().for_each(Command::wake_to_end);
        }
    }

    /// Handles the pending requests.
    fn handle_requests(&mut self) -> Next {
        for _ in 0..REQUESTS_PER_TURN {
            let Some(client) = &self.client else { return Next::Continue };
            let (bytes, mut descriptors) = match client.receive() {
                Ok(Some(message)) => message,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Continue,
                Ok(None) | Err(_) => {
                    self.hang_up();
                    return Next::Continue;
                }
            };
            let Some(request) = Request::receive(&bytes, &mut descriptors) else {
                self.hang_up();
                return Next::Continue;
            };
            if self.handle(request, descriptors) == Next::End {
                return Next::End;
            }
        }
        Next::Continue
    }

    fn handle(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> Next {
        match request {
            Request::Execute(execute) => self.execute(*execute, descriptors),
            Request::Signal { number, signal } => {
                if let Some(command) = self.commands.get(&number) {
                    command.signal(signal);
                }
            }
            Request::Kill { number } if self.commands.contains_key(&number) => {
                self.stop_by_signal();
                if let Some(command) = self.commands.get_mut(&number) {
                    command.end(Cause::Killed, Instant::now());
                }
            }
            Request::Kill { number } => {
                self.reports.push_back((Report::Gone { number }, Vec::new()));
            }
            Request::CloseInput { number } => {
                if let Some(command) = self.commands.get_mut(&number) {
                    command.close_input();
                }
            }
            Request::Forget { number } => {
                if let Some(command) = self.commands.get_mut(&number) {
                    command.forget();
                }
            }
            Request::Connect { number, target, user, group } => {
                let connected = if self.users.allow(user, group) {
                    connect::connect(&target, self.users.change_to(user, group))
                } else {
                    Err(io::Error::from_raw_os_error(libc::EPERM))
                };
                self.reports.push_back(match connected {
                    Ok(connection) => (Report::Connected { number }, vec![connection]),
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(libc::EIO);
                        (Report::Refused { number, errno }, Vec::new())
                    }
                });
            }
            Request::Lease(lease) => {
                let now = Instant::now();
                self.lease_end = now.checked_add(lease).unwrap_or(self.lease_end);
            }
            Request::Stop { by_signal } => {
                if by_signal {
                    self.wait_for_starts();
                    // Init is pid 1, so -1 means every other process here.
                    let _ = raw::kill(-1, libc::SIGSTOP);
                }
                self.stopped = Some(if by_signal { Stopped::Signal } else { Stopped::Group });
                // Where no command runs, no process is left that would have to be stopped.
                self.collect_finished(Instant::now());
                self.idle_subreaper.release_all();
                if self.commands.values().any(Command::is_ending) {
                    // Commands that were being ended must still be ended.
                    self.stop_by_signal();
                    self.commands.values().for_each(Command::wake_to_end);
                }
            }
            Request::FinishRenames => self.finish_renames(),
            Request::Continue => {
                self.resume_renames();
                self.stops_late = false;
                if matches!(self.stopped.take(), Some(Stopped::Signal | Stopped::Both)) {
                    let _ = raw::kill(-1, libc::SIGCONT);
                }
                let now = Instant::now();
                self.commands.values_mut().for_each(|command| command.note_resumed(now));
            }
            Request::Root => {
                let root = self.root.try_clone();
                self.reports.extend(root.map(|root| (Report::Root, vec![root])));
            }
            Request::Listeners => {
                // If init has too few free file descriptors, the client gets none, and requests
                // them again.
                let copies = self.listeners.as_ref().and_then(|own| own.try_clone().ok());
                let copies = copies.into_iter().flat_map(Listeners::into_descriptors);
                self.reports.push_back((Report::Listeners, copies.collect()));
            }
            Request::List => {
                // Ends that subreapers have reported to other clients must be reported again.
                self.collect_finished(Instant::now());
                let commands = self.commands.range(..FIRST_NUMBER);
                for (number, command) in commands.filter(|(_, c)| !c.is_being_forgotten()) {
                    self.reports.push_back(command.record(*number));
                    self.reports.extend(command.refused_calls(*number));
                    if command.is_gone() {
                        self.reports.push_back((Report::Gone { number: *number }, Vec::new()));
                    }
                }
                if self.stopped == Some(Stopped::Both) {
                    // The previous client may not have received it.
                    self.reports.push_back((Report::Thaw, Vec::new()));
                }
                self.reports.push_back((Report::Listed, Vec::new()));
            }
            Request::Limits(CommandLimits { processes, processors }) => {
                self.rlimits.processes = Some(processes);
                self.processors = processors.and_then(|count| usize::try_from(count).ok());
            }
            Request::End => return Next::End,
        }
        Next::Continue
    }

    /// Waits until the started commands have executed their programs, which takes negligible time:
    /// a subreaper that waits for that cannot be stopped.
    fn wait_for_starts(&self) {
        let until = Instant::now() + START_TIMEOUT;
        while self.commands.values().any(Command::is_starting) && Instant::now() < until {
            std::thread::sleep(START_POLL_INTERVAL);
        }
    }

    /// Does what processes inside ask for.
    fn serve_inside(&mut self, events: &[bool]) {
        let alive = self.commands.range(FIRST_NUMBER..).count();
        let wishes = self.inside.as_mut().map(|inside| inside.handle(events, alive));
        for wish in wishes.into_iter().flatten() {
            match wish {
                Wish::Start(execute, streams) => self.start(*execute, streams.into(), None),
                Wish::Signal { number, signal } => {
                    if let Some(command) = self.commands.get(&number) {
                        command.signal(signal);
                    }
                }
                Wish::Abandon(number) => {
                    let Some(command) = self.commands.get_mut(&number) else { continue };
                    command.forget();
                    // As with every command, what one that has ended left in the background stays.
                    if !command.has_exited() {
                        self.stop_by_signal();
                        if let Some(command) = self.commands.get_mut(&number) {
                            command.end(Cause::Killed, Instant::now());
                        }
                    }
                }
            }
        }
    }

    /// Starts a command, unless its key is known.
    fn execute(&mut self, execute: Execute, descriptors: Vec<OwnedFd>) {
        let is_known =
            |command: &Command| command.key() == execute.key && !command.is_being_forgotten();
        let known = self.commands.iter().find(|(_, command)| is_known(command));
        if let Some((number, command)) = known {
            self.reports.push_back(command.record(*number));
            return;
        }
        let number = execute.number;
        let is_full = self.commands.range(..FIRST_NUMBER).count() >= COMMANDS;
        if is_inside(number) || self.commands.contains_key(&number) || is_full {
            let step = "allocate memory for the command".to_owned();
            let report = Report::NotStarted { number, wall: None, step, errno: libc::EAGAIN };
            self.reports.push_back((report, Vec::new()));
            return;
        }
        if execute.may_become_root
            && let Some(inside) = &mut self.inside
        {
            inside.allow(execute.user);
        }
        self.start(execute, descriptors, self.client.clone());
    }

    /// Starts a command whose end its subreaper may report to `client`.
    fn start(&mut self, execute: Execute, descriptors: Vec<OwnedFd>, client: Option<Rc<Channel>>) {
        self.collect_finished(Instant::now());
        let number = execute.number;
        let parts = Parts {
            users: self.users,
            rlimits: self.rlimits,
            ruleset: self.ruleset.clone(),
            processors: self.processors,
            wakeup: self.descriptors.wakeup.as_fd(),
            client,
            idle_subreaper: &mut self.idle_subreaper,
        };
        let command = Command::start(execute, descriptors, parts);
        self.commands.insert(number, command);
    }

    /// Ends the connection, which slots hold too.
    fn hang_up(&mut self) {
        if let Some(client) = self.client.take() {
            client.shut_down();
        }
        self.commands.values().for_each(Command::leave_reports_to_init);
        // A later client does not know that it has to continue.
        if self.stopped.is_none() {
            self.resume_renames();
        }
    }

    /// Sends queued reports, as far as the client receives them.
    fn send_reports(&mut self) {
        let Some(client) = &self.client else {
            self.reports.clear();
            return;
        };
        while let Some((report, descriptors)) = self.reports.front() {
            let borrowed: Vec<_> =
                descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
            match client.send(&report.encode(), &borrowed) {
                Ok(()) => {
                    self.reports.pop_front();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.hang_up();
                    self.reports.clear();
                    return;
                }
            }
        }
        if self.reports.len() > MAX_WAITING_REPORTS {
            self.hang_up();
            self.reports.clear();
        }
    }
}
