//! One command as the keeper knows it: its streams and what was spooled of them, who hears of it,
//! and how it ended.
//!
//! Nothing is lost on one who listens, however slowly: what a command writes is not taken while
//! somebody is far behind, and the command waits for room in its pipe as it would for any reader.
//! Who stops listening is waited for no longer.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType};
use serde::{Deserialize, Serialize};
use stockade_core::ExecId;
use stockade_jail::control::Cause;

use super::reactor::{Interest, Reactor, Source, Watched};
use super::spool::{Bench, KEPT_BYTES, Read, Spool, Taken};
use super::{ClientId, Key, record};
use crate::wire::Answer;
use stockade_runtime::{Ending, ExecStatus, Offsets, Stream};

/// Where the spools of a sandbox are, in its directory.
const PLACE: &str = "spool";
/// How much a command that has ended may have left in its pipes: the most that a pipe holds
/// (`fs.pipe-max-size`), and in a terminal's buffers.
const LEFT_BYTES: u64 = 2 << 20;
/// How far who listens may be behind in a stream until no more of it is taken. Twice that and what a
/// command may leave is less than is kept, so that nothing is lost either on one who comes back to
/// the next keeper.
const AHEAD_BYTES: u64 = 4 << 20;
const _: () = assert!(2 * AHEAD_BYTES + 2 * LEFT_BYTES < KEPT_BYTES);
/// The device number of what opens a terminal's outer end (`Documentation/admin-guide/devices.txt`
/// of the kernel).
const PTMX: (u32, u32) = (5, 2);

/// One command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) id: ExecId,
    pub(super) number: u64,
    pub(super) stage: Stage,
    /// Nothing that it started is alive.
    pub(super) gone: bool,
    /// Whether somebody may write to its input.
    pub(super) takes_input: bool,
    /// The outer end of its input's pipe.
    pub(super) input: Option<OwnedFd>,
    /// How long the input is that it was given whole. Of one that another keeper has started, that is
    /// not known any more.
    pub(super) given_bytes: u64,
    /// The outer end of its terminal.
    pub(super) terminal: Option<OwnedFd>,
    /// Who hears of it, and how far each has.
    subscribers: BTreeMap<ClientId, Offsets>,
    /// From where on those who heard of it from another keeper are waited for, while they are.
    awaited: Option<Offsets>,
    /// Who wants to know when all of it is gone.
    pub(super) killers: Vec<ClientId>,
    /// How many processes of the sandbox had been killed for want of memory before it started.
    pub(super) kills_before: u64,
    /// How many bytes it may write.
    limit_bytes: Option<u64>,
    /// How it ends, when that is not what its init says.
    doom: Option<Ending>,
    /// Something is written down of it.
    noted: bool,
    output: Flow,
    error: Flow,
}

/// Where a command is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its init was asked to start it, by these clients.
    Starting(Vec<ClientId>),
    /// It runs.
    Running,
    /// It has ended.
    Ended(Ending),
}

/// One stream of a command.
#[derive(Debug)]
struct Flow {
    source: From,
    spool: Spool,
    /// Up to where bytes are told; none while it runs.
    until: Option<u64>,
    /// No more is taken, for somebody is far behind.
    waits: bool,
}

#[derive(Debug)]
enum From {
    Nothing,
    Pipe(Watched<OwnedFd>),
    Terminal(Watched<OwnedFd>),
}

/// What is written down of a command, besides what its init knows. Most have nothing.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    limit_bytes: Option<u64>,
    ending: Option<Ending>,
}

/// What has come of reading a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// There are more bytes to tell.
    More,
    /// Nothing.
    Nothing,
    /// It has written more than it may.
    TooMuch,
    /// The keeper was made to wait for it.
    Blocked,
}

impl Command {
    /// A command that is about to be started.
    pub(super) fn new(id: ExecId, number: u64, limit_bytes: Option<u64>) -> Self {
        let spool = |stream| Spool::new(spool_name(&id, stream));
        let (output, error) = (spool(Stream::Output), spool(Stream::Error));
        Self::with(id, number, Note { limit_bytes, ending: None }, output, error)
    }

    /// A command that another keeper has started.
    pub(super) fn found(directory: BorrowedFd<'_>, id: ExecId, number: u64) -> Self {
        let spool = |stream| Spool::found(directory, spool_name(&id, stream));
        let (output, error) = (spool(Stream::Output), spool(Stream::Error));
        let note = record::read(directory, &note_name(&id)).unwrap_or_default();
        let mut found = Self::with(id, number, note, output, error);
        found.stage = Stage::Running;
        found.awaited = Some(found.written());
        found
    }

    fn with(id: ExecId, number: u64, note: Note, output: Spool, error: Spool) -> Self {
        let flow = |spool| Flow { source: From::Nothing, spool, until: None, waits: false };
        Self {
            id,
            number,
            stage: Stage::Starting(Vec::new()),
            gone: false,
            takes_input: false,
            input: None,
            given_bytes: 0,
            terminal: None,
            subscribers: BTreeMap::new(),
            awaited: None,
            killers: Vec::new(),
            kills_before: 0,
            limit_bytes: note.limit_bytes,
            noted: note.limit_bytes.is_some() || note.ending.is_some(),
            doom: note.ending,
            output: flow(output),
            error: flow(error),
        }
    }

    /// Writes down what its init does not know, where there is anything.
    pub(super) fn note(&mut self, directory: BorrowedFd<'_>) -> io::Result<()> {
        let note = Note { limit_bytes: self.limit_bytes, ending: self.doom.clone() };
        if note.limit_bytes.is_none() && note.ending.is_none() {
            return Ok(());
        }
        match rustix::fs::mkdirat(directory, PLACE, rustix::fs::Mode::RWXU) {
            Err(errno) if errno != rustix::io::Errno::EXIST => return Err(errno.into()),
            _ => {}
        }
        self.noted = true;
        record::write(directory, &note_name(&self.id), &note)
    }

    /// Takes the outer ends of its pipes.
    pub(super) fn take_own_pipes(
        &mut self,
        key: Key,
        output: Watched<OwnedFd>,
        error: Watched<OwnedFd>,
    ) {
        for (stream, pipe) in [(Stream::Output, output), (Stream::Error, error)] {
            pipe.becomes(Source::Stream(key, self.number, stream));
            self.flow(stream).source = From::Pipe(pipe);
        }
    }

    /// Takes over the outer ends of pipes that init has kept.
    ///
    /// # Errors
    /// `InvalidData` for what is no pipe.
    pub(super) fn take_pipes(
        &mut self,
        reactor: &Reactor,
        key: Key,
        output: OwnedFd,
        error: OwnedFd,
    ) -> io::Result<()> {
        for (stream, pipe) in [(Stream::Output, output), (Stream::Error, error)] {
            check_pipe(pipe.as_fd())?;
            let source = Source::Stream(key, self.number, stream);
            let pipe = reactor.watch(pipe, source, Interest::IN)?;
            self.flow(stream).source = From::Pipe(pipe);
        }
        Ok(())
    }

    /// Takes over the outer end of its terminal.
    ///
    /// # Errors
    /// `InvalidData` for what is none.
    pub(super) fn take_terminal(
        &mut self,
        reactor: &Reactor,
        key: Key,
        terminal: OwnedFd,
    ) -> io::Result<()> {
        let stat = rustix::fs::fstat(&terminal)?;
        let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::CharacterDevice || device != PTMX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        rustix::io::ioctl_fionbio(&terminal, true)?;
        self.terminal = Some(terminal.try_clone()?);
        let source = Source::Stream(key, self.number, Stream::Output);
        let watched = reactor.watch(terminal, source, Interest::IN)?;
        self.output.source = From::Terminal(watched);
        Ok(())
    }

    fn flow(&mut self, stream: Stream) -> &mut Flow {
        match stream {
            Stream::Output => &mut self.output,
            Stream::Error => &mut self.error,
        }
    }

    /// Notes that a client hears of it from now on.
    pub(super) fn subscribe(&mut self, client: ClientId, from: Offsets) {
        self.subscribers.insert(client, from);
        if from.output < u64::MAX {
            self.awaited = None;
        }
        self.regulate();
    }

    /// Notes that a client does not hear of it any more.
    pub(super) fn unsubscribe(&mut self, client: ClientId) {
        self.subscribers.remove(&client);
        self.regulate();
    }

    /// Waits no longer for those who heard of it from another keeper.
    pub(super) fn await_nobody(&mut self) {
        self.awaited = None;
        self.regulate();
    }

    /// Lets go of all who hear of it: each with what it has not heard, and will not.
    pub(super) fn leave_subscribers(&mut self) -> Vec<(ClientId, Vec<Answer>)> {
        let lost = |stream, flow: &Flow, offset: u64| {
            let until = flow.until.unwrap_or(u64::MAX).min(flow.spool.end());
            let length = until.checked_sub(offset).filter(|length| *length > 0)?;
            Some(Answer::Lost { stream, offset, length })
        };
        let unheard = |at: Offsets| {
            let output = lost(Stream::Output, &self.output, at.output);
            output.into_iter().chain(lost(Stream::Error, &self.error, at.error)).collect()
        };
        let subscribers = std::mem::take(&mut self.subscribers);
        subscribers.into_iter().map(|(client, at)| (client, unheard(at))).collect()
    }

    /// Who hears of it.
    pub(super) fn subscribers(&self) -> impl Iterator<Item = &ClientId> {
        self.subscribers.keys()
    }

    /// How far a client that hears of it has.
    pub(super) fn heard(&self, client: ClientId) -> Option<Offsets> {
        self.subscribers.get(&client).copied()
    }

    /// Notes how far a client has heard.
    pub(super) fn told(&mut self, client: ClientId, at: Offsets) {
        if let Some(heard) = self.subscribers.get_mut(&client) {
            *heard = at;
            self.regulate();
        }
    }

    /// Stops taking what it writes where somebody is far behind, and goes on where nobody is.
    fn regulate(&mut self) {
        let heard = || self.subscribers.values().chain(&self.awaited);
        let output = heard().map(|at| at.output).min();
        let error = heard().map(|at| at.error).min();
        self.output.regulate(output);
        self.error.regulate(error);
    }

    /// Takes what waits in a stream, a bounded part at once, unless somebody is far behind.
    pub(super) fn take(
        &mut self,
        directory: BorrowedFd<'_>,
        stream: Stream,
        bench: &mut Bench,
    ) -> News {
        if self.flow(stream).waits {
            return News::Nothing;
        }
        let news = self.take_now(directory, stream, bench);
        self.regulate();
        news
    }

    fn take_now(&mut self, directory: BorrowedFd<'_>, stream: Stream, bench: &mut Bench) -> News {
        let room = match self.limit_bytes {
            Some(limit) if matches!(self.stage, Stage::Running | Stage::Starting(_)) => {
                limit.saturating_sub(self.output.spool.end() + self.error.spool.end())
            }
            _ => u64::MAX,
        };
        let flow = self.flow(stream);
        let taken = match &flow.source {
            From::Nothing => return News::Nothing,
            From::Pipe(pipe) if room == 0 => match super::spool::waiting(pipe) {
                Ok(0) => flow.spool.take_from_pipe(directory, pipe.as_fd(), 1, bench),
                _ => return News::TooMuch,
            },
            From::Terminal(_) if room == 0 => return News::TooMuch,
            From::Pipe(pipe) => flow.spool.take_from_pipe(directory, pipe.as_fd(), room, bench),
            From::Terminal(terminal) => {
                flow.spool.take_from_terminal(directory, terminal.as_fd(), room, bench)
            }
        };
        match taken {
            Taken::Bytes => News::More,
            Taken::Nothing => News::Nothing,
            Taken::Blocked => News::Blocked,
            Taken::End => {
                flow.source = From::Nothing;
                flow.spool.close();
                News::Nothing
            }
        }
    }

    /// Decides how it ends, unless that was decided, and stops reading what it writes.
    pub(super) fn doom(&mut self, directory: BorrowedFd<'_>, ending: Ending) {
        if self.doom.is_some() || matches!(self.stage, Stage::Ended(_)) {
            return;
        }
        if ending == Ending::OutputExceeded {
            self.output.source = From::Nothing;
            self.error.source = From::Nothing;
        }
        self.doom = Some(ending);
        // When it cannot be written down, only the next keeper does not know it.
        let _ = self.note(directory);
    }

    /// Notes its end. What it had written by then is taken, and told before the end.
    pub(super) fn end(&mut self, directory: BorrowedFd<'_>, ending: Ending, bench: &mut Bench) {
        if matches!(self.stage, Stage::Ended(_)) {
            return;
        }
        for stream in [Stream::Output, Stream::Error] {
            let most = self.flow(stream).spool.end() + LEFT_BYTES;
            while self.flow(stream).spool.end() < most {
                match self.take_now(directory, stream, bench) {
                    News::More => {}
                    News::Nothing | News::Blocked => break,
                    News::TooMuch => {
                        self.doom(directory, Ending::OutputExceeded);
                        break;
                    }
                }
            }
            let flow = self.flow(stream);
            flow.until = Some(flow.spool.end());
        }
        self.stage = Stage::Ended(self.doom.take().unwrap_or(ending));
        self.input = None;
        self.regulate();
    }

    /// Forgets the streams: nobody writes to them any more.
    pub(super) fn close_streams(&mut self) {
        for flow in [&mut self.output, &mut self.error] {
            flow.source = From::Nothing;
            flow.spool.close();
        }
        self.terminal = None;
        self.input = None;
    }

    /// Closes the files of what it wrote, which are opened again when somebody wants to hear.
    pub(super) fn close_files(&mut self) {
        self.output.spool.close();
        self.error.spool.close();
    }

    /// Reads what is to be told of a stream from an offset on.
    pub(super) fn read(
        &mut self,
        directory: BorrowedFd<'_>,
        stream: Stream,
        offset: u64,
        buffer: &mut [u8],
    ) -> Read {
        let flow = self.flow(stream);
        let until = flow.until.unwrap_or(u64::MAX);
        flow.spool.read(directory, offset, until, buffer)
    }

    /// The outer end of its input, for a client that may write to it.
    pub(super) fn input_for_client(&self) -> Option<OwnedFd> {
        let end = self.input.as_ref().or(self.terminal.as_ref()).filter(|_| self.takes_input)?;
        // Without a descriptor to spare the client can only listen.
        end.try_clone().ok()
    }

    /// How much it has written.
    pub(super) fn written(&self) -> Offsets {
        Offsets { output: self.output.spool.end(), error: self.error.spool.end() }
    }

    /// What is known of it.
    pub(super) fn status(&self) -> ExecStatus {
        let ending = match &self.stage {
            Stage::Ended(ending) => Some(ending.clone()),
            Stage::Starting(_) | Stage::Running => None,
        };
        ExecStatus { id: self.id.clone(), ending, written: self.written() }
    }

    /// Whether it may still do something.
    pub(super) const fn is_alive(&self) -> bool {
        !self.gone
    }

    /// Removes what is kept of it.
    pub(super) fn remove(self, directory: BorrowedFd<'_>) {
        if self.noted {
            // What is left goes with the sandbox.
            let _ = rustix::fs::unlinkat(directory, note_name(&self.id), AtFlags::empty());
        }
        let Flow { source, spool, .. } = self.output;
        drop(source);
        spool.remove(directory);
        let Flow { source, spool, .. } = self.error;
        drop(source);
        spool.remove(directory);
    }
}

impl Flow {
    /// Takes no more while who has heard least is far behind.
    fn regulate(&mut self, heard: Option<u64>) {
        let behind = heard.map_or(0, |heard| self.spool.end().saturating_sub(heard));
        // Not for every message anew.
        let most = if self.waits { AHEAD_BYTES / 2 } else { AHEAD_BYTES };
        let waits = behind >= most;
        if std::mem::replace(&mut self.waits, waits) == waits {
            return;
        }
        // The end of a pipe is told whatever is wanted; like this it is told once.
        let interest = if waits { Interest::ET } else { Interest::IN };
        if let From::Pipe(source) | From::Terminal(source) = &mut self.source {
            // Where it fails, what is told of too often is looked at too often.
            let _ = source.want(interest);
        }
    }
}

/// The ending that a status of `wait(2)` and init's cause tell.
pub(super) fn ending(status: i32, cause: Option<Cause>) -> Ending {
    match cause {
        Some(Cause::TimedOut) => return Ending::TimedOut,
        Some(Cause::Killed) => return Ending::Killed,
        Some(Cause::Unseen) => return Ending::Unknown,
        None => {}
    }
    // `WIFEXITED` and `WTERMSIG` of the C library.
    match status & 0x7f {
        0 => Ending::Exited(u8::try_from((status >> 8) & 0xff).unwrap_or(u8::MAX)),
        signal => Ending::Signaled(signal),
    }
}

/// Refuses what is no pipe: a jail's init may hand out anything that it can open.
pub(super) fn check_pipe(pipe: BorrowedFd<'_>) -> io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(pipe)?.st_mode);
    if kind == FileType::Fifo { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn spool_name(id: &ExecId, stream: Stream) -> String {
    let stream = match stream {
        Stream::Output => "output",
        Stream::Error => "error",
    };
    format!("{PLACE}/{id}.{stream}")
}

fn note_name(id: &ExecId) -> String {
    format!("{PLACE}/{id}.json")
}
