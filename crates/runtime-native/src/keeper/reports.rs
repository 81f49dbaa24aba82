//! Reports of a jail's init. Processes inside may have taken over init: each report affects its own
//! sandbox only, and an invalid one ends that sandbox.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::fs::FileType;
use stockade_core::ExecId;
use stockade_jail::cgroup;
use stockade_jail::control::{self, Progress, Record, Report};

use super::command::{self, Command, Stage, check_pipe};
use super::context::{Context, Reply};
use super::jail::NOBODY;
use super::sandbox::{Lifecycle, Sandbox};
use super::timers::Timer;
use crate::wire::{Answer, Failure};
use stockade_runtime::{Ending, Offsets};

/// How many reports of one init are handled in one turn.
const REPORTS: usize = 64;
/// How long the subscribers of an earlier keeper are waited for.
const RETURN: Duration = Duration::from_secs(10);

/// A report that init must not send in this state.
#[derive(Debug)]
pub(super) struct ProtocolViolation(pub(super) &'static str);

impl Sandbox {
    /// Receives the reports of init.
    pub(super) fn receive_reports(&mut self, context: &mut Context) {
        for _ in 0..REPORTS {
            let (Lifecycle::Connecting(jail) | Lifecycle::Running(jail)) = &mut self.life else {
                return;
            };
            let (report, descriptors) = match jail.recv() {
                Ok(Some(told)) => told,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.distrust(context, "its init sent an invalid message");
                    return;
                }
                Ok(None) | Err(_) => {
                    self.lost_connection(context);
                    return;
                }
            };
            if let Err(ProtocolViolation(what)) = self.handle_report(context, report, descriptors) {
                self.distrust(context, what);
                return;
            }
        }
    }

    /// Init has closed the connection: it is dying, or too many reports waited because the keeper
    /// did not read them. The pidfd reports a dead init.
    fn lost_connection(&mut self, context: &mut Context) {
        let key = self.key;
        let dir = self.dir.as_fd();
        let (Lifecycle::Connecting(jail) | Lifecycle::Running(jail)) = &mut self.life else {
            return;
        };
        jail.disconnect();
        if !jail.may_reconnect() {
            self.distrust(context, "its init closes every connection");
            return;
        }
        if jail.connect(&context.reactor, key, dir).is_err() {
            return;
        }
        // Unread reports are lost, and open requests get no answer.
        let starting = |command: &&Command| matches!(command.stage, Stage::Starting(_));
        self.unsure = self.commands.values().filter(starting).map(|c| c.number).collect();
        self.send(context, control::Request::List, Vec::new());
        self.request_listeners_again(context);
        for (_, (client, target)) in std::mem::take(&mut self.connections) {
            let errno = rustix::io::Errno::CONNRESET.raw_os_error();
            context.refuse(client, Failure::Connect { target, errno });
        }
    }

    fn handle_report(
        &mut self,
        context: &mut Context,
        report: Report,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), ProtocolViolation> {
        let mut descriptors = descriptors.into_iter();
        match report {
            Report::Started { number } => self.started(context, number, descriptors.next()),
            Report::NotStarted { number, wall, step, errno } => {
                let step = match wall {
                    Some(wall) => format!("{step} (wall `{wall}`)"),
                    None => step,
                };
                self.was_started(context, number);
                self.ended_by_init(context, number, Ending::NotRun { errno, step: step.into() });
                self.gone(context, number);
                Ok(())
            }
            Report::Exited { number, status, cause } => {
                self.was_started(context, number);
                let ending = self.corrected(number, command::ending(status, cause));
                self.ended_by_init(context, number, ending);
                Ok(())
            }
            Report::Finished { number, status } => {
                self.was_started(context, number);
                let ending = self.corrected(number, command::ending(status, None));
                self.ended_by_init(context, number, ending);
                self.gone(context, number);
                Ok(())
            }
            Report::Gone { number: NOBODY } => {
                if let Lifecycle::Running(jail) | Lifecycle::Connecting(jail) = &mut self.life {
                    jail.answered();
                }
                Ok(())
            }
            Report::Gone { number } => {
                self.gone(context, number);
                Ok(())
            }
            Report::Connected { number } => {
                let Some((client, _)) = self.connections.remove(&number) else { return Ok(()) };
                let connection =
                    descriptors.next().ok_or(ProtocolViolation("a connection was missing"))?;
                check_socket(&connection)?;
                let answer = Box::new(Answer::Connected);
                context.replies.push_back((client, Reply::Answer(answer, vec![connection])));
                Ok(())
            }
            Report::Refused { number, errno } => {
                if let Some((client, target)) = self.connections.remove(&number) {
                    context.refuse(client, Failure::Connect { target, errno });
                }
                Ok(())
            }
            Report::Record(record) => self.recorded(context, record, descriptors.collect()),
            Report::Root => {
                let root = descriptors.next().ok_or(ProtocolViolation("the root was missing"))?;
                let stat = rustix::fs::fstat(&root)
                    .map_err(|_| ProtocolViolation("the root descriptor is invalid"))?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                    return Err(ProtocolViolation("the root is not a directory"));
                }
                if let Lifecycle::Running(jail) | Lifecycle::Connecting(jail) = &mut self.life {
                    jail.root.get_or_insert(root);
                }
                Ok(())
            }
            Report::Listeners => self.take_listeners(context, descriptors.collect()),
            Report::Listed => {
                self.listed(context);
                Ok(())
            }
            Report::RefusedCalls { number, calls } => {
                if let Some(command) = self.commands.get_mut(&number) {
                    command.add_refused(calls);
                }
                Ok(())
            }
            Report::RenamesFinished => {
                if let Lifecycle::Running(jail) | Lifecycle::Connecting(jail) = &mut self.life {
                    jail.pause.renames_finished();
                }
                self.step_pause(context);
                Ok(())
            }
            Report::Thaw => {
                if let Lifecycle::Running(jail) | Lifecycle::Connecting(jail) = &mut self.life {
                    jail.pause.stopped_by_init();
                }
                self.step_pause(context);
                Ok(())
            }
        }
    }

    fn started(
        &mut self,
        context: &mut Context,
        number: u64,
        terminal: Option<OwnedFd>,
    ) -> Result<(), ProtocolViolation> {
        let key = self.key;
        if let (Some(terminal), Some(command)) = (terminal, self.commands.get_mut(&number))
            && matches!(command.stage, Stage::Starting(_))
        {
            let taken = command.adopt_terminal(&context.reactor, key, terminal);
            taken.map_err(|_| ProtocolViolation("a terminal descriptor is invalid"))?;
        }
        self.was_started(context, number);
        Ok(())
    }

    /// Records that a command was started, or that this failed, and notifies the clients that
    /// requested it.
    fn was_started(&mut self, context: &mut Context, number: u64) {
        let key = self.key;
        let Some(command) = self.commands.get_mut(&number) else { return };
        let Stage::Starting(clients) = &mut command.stage else { return };
        let clients = std::mem::take(clients);
        command.stage = Stage::Running;
        context.pipe_pool.want();
        for client in clients {
            let input = command.input_for_client();
            let from = Offsets::default();
            let reply = Reply::Attached { sandbox: key, number, from, input };
            context.replies.push_back((client, reply));
        }
        self.step_pause(context);
    }

    fn ended_by_init(&mut self, context: &mut Context, number: u64, ending: Ending) {
        let Some(command) = self.commands.get_mut(&number) else { return };
        if ending == Ending::OutOfMemory {
            command.force_ending(self.dir.as_fd(), Ending::OutOfMemory);
        }
        command.end(self.dir.as_fd(), ending, &mut context.spool_context);
        context.dirty_clients.extend(command.subscribers());
    }

    /// Corrects the ending of a command that the out-of-memory killer has killed.
    fn corrected(&self, number: u64, ending: Ending) -> Ending {
        // The exit code that a shell returns for a killed child: 128 plus the signal.
        if !matches!(ending, Ending::Signaled(9) | Ending::Exited(137)) {
            return ending;
        }
        match self.commands.get(&number) {
            Some(command) if self.kills() > command.kills_before => Ending::OutOfMemory,
            _ => ending,
        }
    }

    fn gone(&mut self, context: &mut Context, number: u64) {
        if let Some(command) = self.commands.get_mut(&number) {
            command.gone = true;
            context.answer_all(std::mem::take(&mut command.killers), &Answer::Done);
        }
        let killers = self.killers_of_acknowledged.remove(&number).unwrap_or_default();
        context.answer_all(killers, &Answer::Done);
    }

    /// Takes over a command that init reports: from an earlier keeper, or from before a connection
    /// was lost.
    fn recorded(
        &mut self,
        context: &mut Context,
        record: Record,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), ProtocolViolation> {
        let Record { number, key, terminal, input, progress } = record;
        let id = String::from_utf8(key).ok().and_then(|id| ExecId::new(id).ok());
        let id = id.ok_or(ProtocolViolation("a command has an unknown key"))?;
        self.unsure.remove(&number);
        let known = self.commands.values().find(|command| command.id == id);
        if known.is_some_and(|known| known.number != number) {
            return Err(ProtocolViolation("its init confused commands"));
        }
        if known.is_none() {
            if self.commands.len() >= control::COMMANDS || self.commands.contains_key(&number) {
                return Err(ProtocolViolation("its init reports too many commands"));
            }
            if !self.is_joining() {
                // It was acknowledged, but init did not receive that. Its descriptors are not
                // needed.
                self.send(context, control::Request::Forget { number }, Vec::new());
                return Ok(());
            }
            let mut command = Command::adopted(self.dir.as_fd(), id, number);
            let taken = take_over(context, self, &mut command, (terminal, input), descriptors);
            taken.map_err(|_| {
                ProtocolViolation("the stream descriptors of a command are invalid")
            })?;
            self.commands.insert(number, command);
            context.timers.after(RETURN, Timer::Return(self.key));
        }
        match progress {
            Progress::Running => {
                // If it was being started, init reports when it has been.
            }
            Progress::NotStarted { errno } => {
                let step = "start the command".to_owned();
                self.was_started(context, number);
                self.ended_by_init(context, number, Ending::NotRun { errno, step: step.into() });
                self.gone(context, number);
            }
            Progress::Exited { status, cause } => {
                self.was_started(context, number);
                let ending = self.corrected(number, command::ending(status, cause));
                self.ended_by_init(context, number, ending);
            }
        }
        Ok(())
    }

    /// How many of its processes the out-of-memory killer has killed.
    pub(super) fn kills(&self) -> u64 {
        match &self.life {
            Lifecycle::Running(jail) | Lifecycle::Connecting(jail) => {
                let is_limited = self.record.spec.limits.memory_bytes.is_some();
                let counted = match (self.record.is_container, is_limited) {
                    (false, _) => jail.group.oom_kills(),
                    (true, true) => cgroup::oom_kills_beside(jail.record.init),
                    (true, false) => Ok(0),
                };
                counted.unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Requests once more the end of each command that a client waits for: with the connection, the request or the report may have
    /// been lost.
    fn kill_again(&mut self, context: &mut Context) {
        let waited_for = |command: &&Command| command.is_alive() && !command.killers.is_empty();
        let killed = self.commands.values().filter(waited_for).map(|command| command.number);
        let numbers: Vec<u64> =
            killed.chain(self.killers_of_acknowledged.keys().copied()).collect();
        for number in numbers {
            self.send(context, control::Request::Kill { number }, Vec::new());
        }
    }

    fn listed(&mut self, context: &mut Context) {
        for number in std::mem::take(&mut self.unsure) {
            // The request was lost with the connection, and the command never started.
            let errno = rustix::io::Errno::CONNRESET.raw_os_error();
            let step = "reach its init".to_owned();
            self.was_started(context, number);
            self.ended_by_init(context, number, Ending::NotRun { errno, step: step.into() });
            self.gone(context, number);
        }
        self.kill_again(context);
        if matches!(self.life, Lifecycle::Connecting(_)) {
            self.joined(context);
        }
    }
}

fn take_over(
    context: &Context,
    sandbox: &Sandbox,
    command: &mut Command,
    (terminal, input): (bool, bool),
    descriptors: Vec<OwnedFd>,
) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(invalid);
    if terminal {
        command.takes_input = true;
        return command.adopt_terminal(&context.reactor, sandbox.key, next()?);
    }
    if input {
        let end = next()?;
        // A command that takes no input has an empty file.
        if check_pipe(end.as_fd()).is_ok() {
            command.takes_input = true;
            command.input = Some(end);
        }
    }
    match (next(), next()) {
        (Ok(output), Ok(error)) => {
            command.adopt_pipes(&context.reactor, sandbox.key, output, error)
        }
        // A command that could not be started has none.
        _ => Ok(()),
    }
}

fn check_socket(socket: &OwnedFd) -> Result<(), ProtocolViolation> {
    let kind = rustix::fs::fstat(socket).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if kind == Ok(FileType::Socket) {
        Ok(())
    } else {
        Err(ProtocolViolation("a connection descriptor is invalid"))
    }
}
