//! Reports of a jail's init. Processes inside may have taken over init: each report affects its own
//! sandbox only, and an invalid one ends that sandbox.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::fs::FileType;
use stockade_core::ExecId;
use stockade_jail::control::{self, Progress, Record, Report};

use super::command::{self, Command, Stage, check_pipe};
use super::desk::{Desk, Reply};
use super::jail::NOBODY;
use super::sandbox::{Life, Sandbox};
use super::timers::Timer;
use crate::wire::{Answer, Failure};
use stockade_runtime::{Ending, Offsets};

/// How many reports of one init are handled in one turn.
const REPORTS: usize = 64;
/// How long the subscribers of an earlier keeper are waited for.
const RETURN: Duration = Duration::from_secs(10);

/// A report that init must not send in this state.
#[derive(Debug)]
pub(super) struct Broken(pub(super) &'static str);

impl Sandbox {
    /// Receives the reports of init.
    pub(super) fn hear(&mut self, desk: &mut Desk) {
        for _ in 0..REPORTS {
            let (Life::Joining(jail) | Life::Held(jail)) = &mut self.life else { return };
            let (report, descriptors) = match jail.hear() {
                Ok(Some(told)) => told,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.distrust(desk, "its init sent an invalid message");
                    return;
                }
                Ok(None) | Err(_) => {
                    self.lost_connection(desk);
                    return;
                }
            };
            if let Err(Broken(what)) = self.heard(desk, report, descriptors) {
                self.distrust(desk, what);
                return;
            }
        }
    }

    /// Init has closed the connection: it is dying, or too many reports waited because the keeper
    /// did not read them. The pidfd reports a dead init.
    fn lost_connection(&mut self, desk: &mut Desk) {
        let key = self.key;
        let place = self.place.as_fd();
        let (Life::Joining(jail) | Life::Held(jail)) = &mut self.life else { return };
        jail.disconnect();
        if !jail.may_come_back() {
            self.distrust(desk, "its init closes every connection");
            return;
        }
        if jail.connect(&desk.reactor, key, place).is_err() {
            return;
        }
        // Unread reports are lost, and open requests get no answer.
        let starting = |command: &&Command| matches!(command.stage, Stage::Starting(_));
        self.unsure = self.commands.values().filter(starting).map(|c| c.number).collect();
        self.say(desk, control::Request::List, Vec::new());
        self.ask_for_listeners_again(desk);
        for (_, (client, target)) in std::mem::take(&mut self.connections) {
            let errno = rustix::io::Errno::CONNRESET.raw_os_error();
            desk.refuse(client, Failure::Connect { target, errno });
        }
    }

    fn heard(
        &mut self,
        desk: &mut Desk,
        report: Report,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Broken> {
        let mut descriptors = descriptors.into_iter();
        match report {
            Report::Started { number } => self.started(desk, number, descriptors.next()),
            Report::NotStarted { number, wall, step, errno } => {
                let step = match wall {
                    Some(wall) => format!("{step} (wall `{wall}`)"),
                    None => step,
                };
                self.was_started(desk, number);
                self.ended_by_init(desk, number, Ending::NotRun { errno, step: step.into() });
                self.gone(desk, number);
                Ok(())
            }
            Report::Exited { number, status, cause } => {
                self.was_started(desk, number);
                let ending = self.corrected(number, command::ending(status, cause));
                self.ended_by_init(desk, number, ending);
                Ok(())
            }
            Report::Finished { number, status } => {
                self.was_started(desk, number);
                let ending = self.corrected(number, command::ending(status, None));
                self.ended_by_init(desk, number, ending);
                self.gone(desk, number);
                Ok(())
            }
            Report::Gone { number: NOBODY } => {
                if let Life::Held(jail) | Life::Joining(jail) = &mut self.life {
                    jail.answered();
                }
                Ok(())
            }
            Report::Gone { number } => {
                self.gone(desk, number);
                Ok(())
            }
            Report::Connected { number } => {
                let Some((client, _)) = self.connections.remove(&number) else { return Ok(()) };
                let connection = descriptors.next().ok_or(Broken("a connection was missing"))?;
                check_socket(&connection)?;
                let answer = Box::new(Answer::Connected);
                desk.replies.push_back((client, Reply::Answer(answer, vec![connection])));
                Ok(())
            }
            Report::Refused { number, errno } => {
                if let Some((client, target)) = self.connections.remove(&number) {
                    desk.refuse(client, Failure::Connect { target, errno });
                }
                Ok(())
            }
            Report::Record(record) => self.recorded(desk, record, descriptors.collect()),
            Report::Root => {
                let root = descriptors.next().ok_or(Broken("the root was missing"))?;
                let stat = rustix::fs::fstat(&root)
                    .map_err(|_| Broken("the root descriptor is invalid"))?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                    return Err(Broken("the root is not a directory"));
                }
                if let Life::Held(jail) | Life::Joining(jail) = &mut self.life {
                    jail.root.get_or_insert(root);
                }
                Ok(())
            }
            Report::Listeners => self.take_listeners(desk, descriptors.collect()),
            Report::Listed => {
                self.listed(desk);
                Ok(())
            }
            Report::Thaw => {
                if let Life::Held(jail) | Life::Joining(jail) = &mut self.life {
                    jail.pause.stopped_by_init();
                }
                self.step_pause(desk);
                Ok(())
            }
        }
    }

    fn started(
        &mut self,
        desk: &mut Desk,
        number: u64,
        terminal: Option<OwnedFd>,
    ) -> Result<(), Broken> {
        let key = self.key;
        if let (Some(terminal), Some(command)) = (terminal, self.commands.get_mut(&number))
            && matches!(command.stage, Stage::Starting(_))
        {
            let taken = command.take_terminal(&desk.reactor, key, terminal);
            taken.map_err(|_| Broken("a terminal descriptor is invalid"))?;
        }
        self.was_started(desk, number);
        Ok(())
    }

    /// Records that a command was started, or that this failed, and notifies the clients that
    /// requested it.
    fn was_started(&mut self, desk: &mut Desk, number: u64) {
        let key = self.key;
        let Some(command) = self.commands.get_mut(&number) else { return };
        let Stage::Starting(clients) = &mut command.stage else { return };
        let clients = std::mem::take(clients);
        command.stage = Stage::Running;
        desk.spare.want();
        for client in clients {
            let input = command.input_for_client();
            let from = Offsets::default();
            let reply = Reply::Attached { sandbox: key, number, from, input };
            desk.replies.push_back((client, reply));
        }
        self.step_pause(desk);
    }

    fn ended_by_init(&mut self, desk: &mut Desk, number: u64, ending: Ending) {
        let Some(command) = self.commands.get_mut(&number) else { return };
        if ending == Ending::OutOfMemory {
            command.doom(self.place.as_fd(), Ending::OutOfMemory);
        }
        command.end(self.place.as_fd(), ending, &mut desk.bench);
        desk.stirred.extend(command.subscribers());
    }

    /// Corrects the ending of a command that the out-of-memory killer has killed.
    fn corrected(&self, number: u64, ending: Ending) -> Ending {
        // The exit code that a shell returns for a killed child: 128 plus the signal.
        if !matches!(ending, Ending::Signaled(9) | Ending::Exited(137)) {
            return ending;
        }
        let (Life::Held(jail), Some(command)) = (&self.life, self.commands.get(&number)) else {
            return ending;
        };
        match jail.group.oom_kills() {
            Ok(kills) if kills > command.kills_before => Ending::OutOfMemory,
            _ => ending,
        }
    }

    fn gone(&mut self, desk: &mut Desk, number: u64) {
        if let Some(command) = self.commands.get_mut(&number) {
            command.gone = true;
            desk.answer_all(std::mem::take(&mut command.killers), &Answer::Done);
        }
    }

    /// Takes over a command that init reports: from an earlier keeper, or from before a connection
    /// was lost.
    fn recorded(
        &mut self,
        desk: &mut Desk,
        record: Record,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Broken> {
        let Record { number, key, terminal, input, progress } = record;
        let id = String::from_utf8(key).ok().and_then(|id| ExecId::new(id).ok());
        let id = id.ok_or(Broken("a command has an unknown key"))?;
        self.unsure.remove(&number);
        let known = self.commands.values().find(|command| command.id == id);
        if known.is_some_and(|known| known.number != number) {
            return Err(Broken("its init confused commands"));
        }
        if known.is_none() {
            if self.commands.len() >= control::COMMANDS || self.commands.contains_key(&number) {
                return Err(Broken("its init reports too many commands"));
            }
            if !self.is_joining() {
                // It was acknowledged, but init did not receive that. Its descriptors are not
                // needed.
                self.say(desk, control::Request::Forget { number }, Vec::new());
                return Ok(());
            }
            let mut command = Command::found(self.place.as_fd(), id, number);
            let taken = take_over(desk, self, &mut command, (terminal, input), descriptors);
            taken.map_err(|_| Broken("the stream descriptors of a command are invalid"))?;
            self.commands.insert(number, command);
            desk.timers.after(RETURN, Timer::Return(self.key));
        }
        match progress {
            Progress::Running => {
                // If it was being started, init reports when it has been.
            }
            Progress::NotStarted { errno } => {
                let step = "start the command".to_owned();
                self.was_started(desk, number);
                self.ended_by_init(desk, number, Ending::NotRun { errno, step: step.into() });
                self.gone(desk, number);
            }
            Progress::Exited { status, cause } => {
                self.was_started(desk, number);
                let ending = self.corrected(number, command::ending(status, cause));
                self.ended_by_init(desk, number, ending);
            }
        }
        Ok(())
    }

    /// How many of its processes the out-of-memory killer has killed.
    pub(super) fn kills(&self) -> u64 {
        match &self.life {
            Life::Held(jail) | Life::Joining(jail) => jail.group.oom_kills().unwrap_or(0),
            _ => 0,
        }
    }

    fn listed(&mut self, desk: &mut Desk) {
        for number in std::mem::take(&mut self.unsure) {
            // The request was lost with the connection, and the command never started.
            let errno = rustix::io::Errno::CONNRESET.raw_os_error();
            let step = "reach its init".to_owned();
            self.was_started(desk, number);
            self.ended_by_init(desk, number, Ending::NotRun { errno, step: step.into() });
            self.gone(desk, number);
        }
        if matches!(self.life, Life::Joining(_)) {
            self.joined(desk);
        }
    }
}

fn take_over(
    desk: &Desk,
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
        return command.take_terminal(&desk.reactor, sandbox.key, next()?);
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
        (Ok(output), Ok(error)) => command.take_pipes(&desk.reactor, sandbox.key, output, error),
        // A command that could not be started has none.
        _ => Ok(()),
    }
}

fn check_socket(socket: &OwnedFd) -> Result<(), Broken> {
    let kind = rustix::fs::fstat(socket).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if kind == Ok(FileType::Socket) {
        Ok(())
    } else {
        Err(Broken("a connection descriptor is invalid"))
    }
}
