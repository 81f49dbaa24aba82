//! Init's state of one command: its streams, its subreaper, and what was reported about it.

use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::fs::Gid;

use super::idle_subreaper::IdleSubreaper;
use super::subreaper::{self, CommandSlot, ReportSinks, Subreaper};
use super::{Users, connect};
use crate::channel::Channel;
use crate::command::{self, Failure, Prepared, Program, Step, Streams};
use crate::control::{Cause, Execute, Progress, Record, Report};
use crate::landlock::Ruleset;
use crate::refused_calls::{RefusedCall, RefusedCalls};
use crate::rlimits::ResourceLimits;

/// How long killing a command with all that it has started may take; after that the whole jail is
/// ended.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// The permission bits that new files of commands do not get.
const UMASK: u32 = 0o022;

/// The inputs for the start of every command of a jail.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) users: Users,
    pub(super) rlimits: ResourceLimits,
    pub(super) ruleset: Option<Rc<Ruleset>>,
    /// On how many processors it starts, if not all.
    pub(super) processors: Option<usize>,
    pub(super) wakeup: BorrowedFd<'a>,
    /// The connection to the client that requested it.
    pub(super) client: Option<Rc<Channel>>,
    pub(super) idle_subreaper: &'a mut IdleSubreaper,
}

/// One command.
#[derive(Debug)]
pub(super) struct Command {
    key: Vec<u8>,
    outer: OuterStreams,
    /// `None` before it has a subreaper, and when the subreaper no longer exists.
    handle: Option<SubreaperHandle>,
    started: bool,
    /// The step that failed, and the kernel's error number.
    not_started: Option<(Step, i32)>,
    /// The status as `wait(2)` gives it.
    exited: Option<i32>,
    /// No process of it is alive.
    gone: bool,
    deadline: Option<Instant>,
    /// Why it is being ended, and the deadline for that.
    ending: Option<(Cause, Instant)>,
    reported: Reported,
    /// The system calls that the filter has refused while it ran, where init hears of them.
    refused_calls: RefusedCalls,
    forget: bool,
}

#[derive(Debug)]
struct SubreaperHandle {
    subreaper: Subreaper,
    slot: Box<CommandSlot>,
    /// The subreaper is dead and reaped.
    reaped: bool,
}

/// A report with its file descriptors.
pub(super) type OwnReport = (Report, Vec<OwnedFd>);

/// What was reported about a command.
#[derive(Debug, Default)]
struct Reported {
    start: bool,
    end: bool,
    gone: bool,
}

/// The outer ends of a command's streams.
#[derive(Debug)]
enum OuterStreams {
    None,
    Pipes { input: Option<OwnedFd>, output: OwnedFd, error: OwnedFd },
    Terminal(OwnedFd),
}

impl OuterStreams {
    fn clones(&self) -> Vec<OwnedFd> {
        let each: Vec<&OwnedFd> = match self {
            Self::None => Vec::new(),
            Self::Pipes { input, output, error } => input.iter().chain([output, error]).collect(),
            Self::Terminal(terminal) => vec![terminal],
        };
        each.into_iter().filter_map(|descriptor| descriptor.try_clone().ok()).collect()
    }
}

impl Command {
    /// Starts a command. A failure to start is recorded as its end.
    pub(super) fn start(execute: Execute, descriptors: Vec<OwnedFd>, parts: Parts<'_>) -> Self {
        let mut command = Self {
            key: execute.key.clone(),
            outer: OuterStreams::None,
            handle: None,
            started: false,
            not_started: None,
            exited: None,
            gone: false,
            deadline: execute.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            ending: None,
            reported: Reported::default(),
            refused_calls: RefusedCalls::default(),
            forget: false,
        };
        if let Err((step, error)) = command.try_start(execute, descriptors, parts) {
            command.not_started = Some(subreaper::refused(step, &error));
            command.gone = true;
        }
        command
    }

    fn try_start(
        &mut self,
        execute: Execute,
        descriptors: Vec<OwnedFd>,
        parts: Parts<'_>,
    ) -> Result<(), (Step, io::Error)> {
        let Execute { arguments, environment, working_directory, user, group, groups, .. } =
            execute;
        if !parts.users.allow(user, group) || !parts.users.allow_groups(&groups) {
            return Err((Step::Ids, io::Error::from_raw_os_error(libc::EPERM)));
        }
        let become_ids = parts.users.change_to(user, group);
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let streams = match execute.terminal {
            Some(size) => {
                let (outer, inner) = connect::terminal(size, (user, group), become_ids)
                    .map_err(|error| (Step::Streams, error))?;
                self.outer = OuterStreams::Terminal(outer);
                Streams::Terminal(inner)
            }
            None => {
                let mut inner = descriptors;
                let outer = inner.split_off(inner.len().min(3));
                // A command that was requested inside has the streams of a process there.
                if !outer.is_empty() {
                    let [input, output, error]: [OwnedFd; 3] =
                        outer.try_into().map_err(|_| (Step::Streams, invalid()))?;
                    self.outer = OuterStreams::Pipes { input: Some(input), output, error };
                }
                Streams::Pipes(inner.try_into().map_err(|_| (Step::Streams, invalid()))?)
            }
        };
        let strings = |list: Vec<Vec<u8>>| {
            let strings: Result<Vec<_>, _> = list.into_iter().map(CString::new).collect();
            strings.map_err(|_| (Step::Exec, invalid()))
        };
        let prepared = Prepared {
            program: Program::file(strings(arguments)?, strings(environment)?),
            become_ids,
            groups: groups.into_iter().map(Gid::from_raw).collect(),
            working_directory: CString::new(working_directory)
                .map_err(|_| (Step::Directory, invalid()))?,
            rlimits: parts.rlimits,
            umask: UMASK,
            processors: parts.processors.and_then(command::processors),
            not_before: None,
            failure: Failure::default(),
        };
        // A terminal is sent with the report of the start, which must be sent first then.
        let client = parts.client.filter(|_| matches!(streams, Streams::Pipes(_)));
        let sinks = ReportSinks { wakeup: parts.wakeup, client };
        let slot = CommandSlot::new(execute.number, prepared, streams, parts.ruleset, sinks);
        let subreaper = match parts.idle_subreaper.take() {
            Some(subreaper) => {
                // SAFETY: the slot is dropped in `take_finished` and `orphans_ended` alone, which keep the
                // conditions, and at the end of init, which ends the jail.
                unsafe { subreaper.assign(&slot) };
                subreaper
            }
            // SAFETY: as above.
            None => unsafe { Subreaper::start(&slot) }.map_err(|error| (Step::Start, error))?,
        };
        self.handle = Some(SubreaperHandle { subreaper, slot, reaped: false });
        // Failures from here on are reported as its end.
        self.started = true;
        Ok(())
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether this process is the command's subreaper.
    pub(super) fn has_subreaper(&self, pid: i32) -> bool {
        self.handle.as_ref().is_some_and(|under| under.subreaper.is(pid) && !under.reaped)
    }

    /// The process id of its subreaper.
    pub(super) fn subreaper(&self) -> Option<i32> {
        self.handle.as_ref().filter(|under| !under.reaped).map(|under| under.subreaper.process())
    }

    /// Records that the subreaper is dead; false when it had not seen everything end.
    pub(super) fn subreaper_ended(&mut self) -> bool {
        let Some(handle) = &mut self.handle else { return true };
        handle.reaped = true;
        let clean = handle.slot.snapshot().gone;
        if !clean && self.ending.is_none() {
            self.ending = Some((Cause::SubreaperLost, Instant::now() + KILL_TIMEOUT));
        }
        clean
    }

    /// Records that no process is left that lost its subreaper.
    pub(super) fn orphans_ended(&mut self) {
        if self.handle.as_ref().is_some_and(|under| under.reaped && !under.slot.snapshot().gone) {
            // Its exit status is unknown.
            self.exited = self.exited.or(Some(libc::SIGKILL));
            self.gone = true;
            self.handle = None;
        }
    }

    /// The time of its next deadline, if any. While everything is `stopped`, init cannot influence
    /// how long a kill takes.
    pub(super) fn next_deadline(&self, stopped: bool) -> Option<Instant> {
        match self.ending {
            Some((_, until)) if !self.gone && !stopped => Some(until),
            None if self.exited.is_none() && !self.gone => self.deadline,
            _ => None,
        }
    }

    /// Ends the command when it times out.
    ///
    /// # Errors
    /// When it could not be ended in time.
    pub(super) fn enforce_deadlines(&mut self, now: Instant, stopped: bool) -> Result<(), ()> {
        if self.next_deadline(stopped).is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        if self.ending.is_some() {
            return Err(());
        }
        self.end(Cause::TimedOut, now);
        Ok(())
    }

    /// Takes over what the subreaper has seen; returns the subreaper when it is done.
    pub(super) fn take_finished(&mut self) -> Option<Subreaper> {
        let handle = self.handle.as_ref()?;
        let state = handle.slot.snapshot();
        self.not_started = self.not_started.or(state.not_started);
        self.exited = self.exited.or(state.exited);
        self.gone |= state.gone;
        if state.reported {
            self.reported.end = true;
            self.reported.gone = true;
        }
        let done = self.handle.take_if(|_| state.gone)?;
        (!done.reaped).then_some(done.subreaper)
    }

    /// Lets only init report its end, because the client has disconnected.
    pub(super) fn leave_reports_to_init(&self) {
        if let Some(handle) = &self.handle {
            handle.slot.leave_reports_to_init();
        }
    }

    /// Kills the command and everything that it has started.
    pub(super) fn end(&mut self, cause: Cause, now: Instant) {
        if self.gone {
            self.reported.gone = false;
            return;
        }
        self.ending.get_or_insert((cause, now + KILL_TIMEOUT));
        self.wake_to_end();
    }

    /// Whether it is being ended, and something of it is still alive.
    pub(super) const fn is_ending(&self) -> bool {
        self.ending.is_some() && !self.gone
    }

    /// Makes the subreaper end it, if it is being ended.
    pub(super) fn wake_to_end(&self) {
        if let Some(handle) = self.handle.as_ref().filter(|under| self.is_ending() && !under.reaped)
        {
            handle.slot.request_kill();
            handle.subreaper.wake();
        }
    }

    /// Restarts the time for ending it: it was stopped, so it could not be ended, and it has
    /// resumed.
    pub(super) fn note_resumed(&mut self, now: Instant) {
        if let Some((_, until)) = &mut self.ending {
            *until = now + KILL_TIMEOUT;
        }
    }

    /// Sends a signal to the command's process group.
    pub(super) fn signal(&self, signal: i32) {
        let handle = self.handle.as_ref().filter(|_| self.exited.is_none() && !self.gone);
        if let Some(handle) = handle.filter(|_| (1..=64).contains(&signal)) {
            handle.slot.signal(signal);
        }
    }

    /// Whether it has ended, or was never started.
    pub(super) const fn has_exited(&self) -> bool {
        self.exited.is_some() || self.gone
    }

    /// Whether it is about to execute its program.
    pub(super) fn is_starting(&self) -> bool {
        self.handle.as_ref().is_some_and(|under| !under.reaped && under.slot.is_starting())
    }

    pub(super) fn close_input(&mut self) {
        if let OuterStreams::Pipes { input, .. } = &mut self.outer {
            *input = None;
        }
    }

    /// Closes the streams; drops everything once nothing of it is alive.
    pub(super) fn forget(&mut self) {
        self.outer = OuterStreams::None;
        self.forget = true;
    }

    /// Whether it is being forgotten, so that its key is free.
    pub(super) const fn is_being_forgotten(&self) -> bool {
        self.forget
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.forget && self.gone && self.handle.is_none()
    }

    /// Records a refused system call, unless it has ended. From then on only init reports its end, because
    /// the calls are reported before.
    pub(super) fn note_refused(&mut self, call: RefusedCall) {
        if !self.has_exited() && self.refused_calls.insert(call) {
            self.leave_reports_to_init();
        }
    }

    /// The refused calls, if its end is among these reports.
    pub(super) fn refused_calls_before(
        &self,
        number: u64,
        reports: &[OwnReport],
    ) -> Option<OwnReport> {
        let is_end = |report: &Report| matches!(report, Report::Exited { .. });
        reports.iter().any(|(report, _)| is_end(report)).then(|| self.refused_calls(number))?
    }

    /// A report of the refused calls, if there are any.
    pub(super) fn refused_calls(&self, number: u64) -> Option<OwnReport> {
        let calls = self.refused_calls;
        (!calls.is_empty()).then(|| (Report::RefusedCalls { number, calls }, Vec::new()))
    }

    /// The reports that were not sent yet.
    pub(super) fn take_reports(&mut self, number: u64) -> Vec<(Report, Vec<OwnedFd>)> {
        let mut reports = Vec::new();
        if let Some((step, errno)) = self.not_started.filter(|_| !self.reported.end) {
            let (wall, step) = (step.wall(), step.as_str().to_owned());
            reports.push((Report::NotStarted { number, wall, step, errno }, Vec::new()));
            self.reported = Reported { start: true, end: true, gone: self.reported.gone };
        }
        if self.started && !self.reported.start {
            self.reported.start = true;
            let terminal = match &self.outer {
                OuterStreams::Terminal(_) => self.outer.clones(),
                OuterStreams::None | OuterStreams::Pipes { .. } => Vec::new(),
            };
            reports.push((Report::Started { number }, terminal));
        }
        // A command that is being ended has ended when nothing of it is left.
        if let Some(status) = self.exited.filter(|_| !self.reported.end)
            && (self.ending.is_none() || self.gone)
        {
            self.reported.end = true;
            let cause = self.ending.map(|(cause, _)| cause);
            reports.push((Report::Exited { number, status, cause }, Vec::new()));
        }
        if self.gone && !self.reported.gone {
            self.reported.gone = true;
            reports.push((Report::Gone { number }, Vec::new()));
        }
        reports
    }

    /// Its complete state as a report.
    pub(super) fn record(&self, number: u64) -> (Report, Vec<OwnedFd>) {
        let progress = match (self.not_started, self.exited) {
            (Some((_, errno)), _) => Progress::NotStarted { errno },
            (None, Some(status)) if self.ending.is_none() || self.gone => {
                Progress::Exited { status, cause: self.ending.map(|(cause, _)| cause) }
            }
            _ => Progress::Running,
        };
        let record = Record {
            number,
            key: self.key.clone(),
            terminal: matches!(self.outer, OuterStreams::Terminal(_)),
            input: matches!(self.outer, OuterStreams::Pipes { input: Some(_), .. }),
            progress,
        };
        (Report::Record(record), self.outer.clones())
    }

    /// Whether no process of it is alive.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }
}
