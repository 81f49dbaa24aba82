//! The keeper's state of one command: its streams and their spools, its subscribers, and its
//! ending.
//!
//! A subscriber loses nothing, however slowly it reads: while it is far behind, the keeper stops
//! reading the command's output, and the command waits for room in its pipe as for any reader. The
//! keeper does not wait for a client that has unsubscribed.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType};
use serde::{Deserialize, Serialize};
use stockade_core::ExecId;
use stockade_jail::control::Cause;
use stockade_jail::{RefusedCall, RefusedCalls};

use super::reactor::{Interest, Reactor, Source, Watched};
use super::spool::{RETAINED_BYTES, Read, Spool, SpoolContext, TakeOutcome};
use super::{ClientId, Key, record};
use crate::wire::Answer;
use stockade_runtime::{Ending, ExecStatus, Offsets, Stream};

/// The directory of a sandbox's spools, inside the sandbox's directory.
const SPOOL_DIR: &str = "spool";
/// The most that a command may leave in its pipes when it ends: the capacity of a pipe
/// (`fs.pipe-max-size`) and of a terminal's buffers.
const LEFT_BYTES: u64 = 2 << 20;
/// How far a subscriber may be behind in a stream before the keeper stops reading it. Twice that
/// plus what a command may leave in its pipes is less than a spool keeps, so a client that returns
/// to the next keeper loses nothing either.
const AHEAD_BYTES: u64 = 4 << 20;
const _: () = assert!(2 * AHEAD_BYTES + 2 * LEFT_BYTES < RETAINED_BYTES);
/// The device number of a terminal's outer end (`Documentation/admin-guide/devices.txt` of the
/// kernel).
const PTMX: (u32, u32) = (5, 2);

/// One command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) id: ExecId,
    pub(super) number: u64,
    pub(super) stage: Stage,
    /// All processes that it started have ended.
    pub(super) gone: bool,
    /// Whether clients may write to its input.
    pub(super) takes_input: bool,
    /// The outer end of its input's pipe.
    pub(super) input: Option<OwnedFd>,
    /// The length of its input if that was given whole. Unknown for a command that an earlier
    /// keeper started.
    pub(super) input_bytes: u64,
    /// The outer end of its terminal.
    pub(super) terminal: Option<OwnedFd>,
    /// The subscribed clients, and the offsets that each has received.
    subscribers: BTreeMap<ClientId, Offsets>,
    /// The offsets from which the subscribers of an earlier keeper are waited for, while they are.
    awaited_from: Option<Offsets>,
    /// The clients that wait until all its processes have ended.
    pub(super) killers: Vec<ClientId>,
    /// How many processes of the sandbox the out-of-memory killer had killed before it started.
    pub(super) kills_before: u64,
    /// The system calls of the sandbox that were refused while it ran.
    refused_calls: RefusedCalls,
    /// Its output limit in bytes.
    limit_bytes: Option<u64>,
    /// Its ending, if that is not the one that init reports.
    forced_ending: Option<Ending>,
    /// A note about it exists on disk.
    is_noted: bool,
    output: OutputStream,
    error: OutputStream,
}

/// The stage of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// Init was requested to start it, on behalf of these clients.
    Starting(Vec<ClientId>),
    /// It runs.
    Running,
    /// It has ended.
    Ended(Ending),
}

/// One stream of a command.
#[derive(Debug)]
struct OutputStream {
    source: Origin,
    spool: Spool,
    /// The offset at which the stream ends; none while the command runs.
    until: Option<u64>,
    /// The keeper does not read the stream, because a subscriber is far behind.
    is_throttled: bool,
}

#[derive(Debug)]
enum Origin {
    Nothing,
    Pipe(Watched<OwnedFd>),
    Terminal(Watched<OwnedFd>),
}

/// The stored state of a command that its init does not know. Most commands have none.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    limit_bytes: Option<u64>,
    ending: Option<Ending>,
}

/// The result of reading a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// There are more bytes to send.
    More,
    /// Nothing.
    Nothing,
    /// The command has exceeded its output limit.
    TooMuch,
    /// The read blocked the keeper.
    Blocked,
}

impl Command {
    /// A command that will be started.
    pub(super) fn new(id: ExecId, number: u64, limit_bytes: Option<u64>) -> Self {
        let spool = |stream| Spool::new(spool_name(&id, stream));
        let (output, error) = (spool(Stream::Output), spool(Stream::Error));
        Self::with(id, number, Note { limit_bytes, ending: None }, output, error)
    }

    /// A command that an earlier keeper started.
    pub(super) fn adopted(directory: BorrowedFd<'_>, id: ExecId, number: u64) -> Self {
        let spool = |stream| Spool::adopted(directory, spool_name(&id, stream));
        let (output, error) = (spool(Stream::Output), spool(Stream::Error));
        let note = record::read(directory, &note_name(&id)).unwrap_or_default();
        let mut command = Self::with(id, number, note, output, error);
        command.stage = Stage::Running;
        command.awaited_from = Some(command.written());
        command
    }

    fn with(id: ExecId, number: u64, note: Note, output: Spool, error: Spool) -> Self {
        let flow = |spool| OutputStream {
            source: Origin::Nothing,
            spool,
            until: None,
            is_throttled: false,
        };
        Self {
            id,
            number,
            stage: Stage::Starting(Vec::new()),
            gone: false,
            takes_input: false,
            input: None,
            input_bytes: 0,
            terminal: None,
            subscribers: BTreeMap::new(),
            awaited_from: None,
            killers: Vec::new(),
            kills_before: 0,
            refused_calls: RefusedCalls::default(),
            limit_bytes: note.limit_bytes,
            is_noted: note.limit_bytes.is_some() || note.ending.is_some(),
            forced_ending: note.ending,
            output: flow(output),
            error: flow(error),
        }
    }

    /// Stores the state that its init does not know, if there is any.
    pub(super) fn note(&mut self, directory: BorrowedFd<'_>) -> io::Result<()> {
        let note = Note { limit_bytes: self.limit_bytes, ending: self.forced_ending.clone() };
        if note.limit_bytes.is_none() && note.ending.is_none() {
            return Ok(());
        }
        match rustix::fs::mkdirat(directory, SPOOL_DIR, rustix::fs::Mode::RWXU) {
            Err(errno) if errno != rustix::io::Errno::EXIST => return Err(errno.into()),
            _ => {}
        }
        self.is_noted = true;
        record::write(directory, &note_name(&self.id), &note)
    }

    /// Takes over the outer ends of its pipes.
    pub(super) fn set_pipes(
        &mut self,
        key: Key,
        output: Watched<OwnedFd>,
        error: Watched<OwnedFd>,
    ) {
        for (stream, pipe) in [(Stream::Output, output), (Stream::Error, error)] {
            pipe.set_source(Source::Stream(key, self.number, stream));
            self.flow(stream).source = Origin::Pipe(pipe);
        }
    }

    /// Takes over the outer ends of pipes that init has retained.
    ///
    /// # Errors
    /// `InvalidData` for a descriptor that is not a pipe.
    pub(super) fn adopt_pipes(
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
            self.flow(stream).source = Origin::Pipe(pipe);
        }
        Ok(())
    }

    /// Takes over the outer end of its terminal.
    ///
    /// # Errors
    /// `InvalidData` for a descriptor that is not a terminal.
    pub(super) fn adopt_terminal(
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
        self.output.source = Origin::Terminal(watched);
        Ok(())
    }

    fn flow(&mut self, stream: Stream) -> &mut OutputStream {
        match stream {
            Stream::Output => &mut self.output,
            Stream::Error => &mut self.error,
        }
    }

    /// Subscribes a client.
    pub(super) fn subscribe(&mut self, client: ClientId, from: Offsets) {
        self.subscribers.insert(client, from);
        if from.output < u64::MAX {
            self.awaited_from = None;
        }
        self.regulate();
    }

    /// Unsubscribes a client.
    pub(super) fn unsubscribe(&mut self, client: ClientId) {
        self.subscribers.remove(&client);
        self.regulate();
    }

    /// Stops waiting for the subscribers of an earlier keeper.
    pub(super) fn stop_awaiting(&mut self) {
        self.awaited_from = None;
        self.regulate();
    }

    /// Removes all subscribers. Returns each with messages about the output that it has not
    /// received and will not receive.
    pub(super) fn drop_subscribers(&mut self) -> Vec<(ClientId, Vec<Answer>)> {
        let lost = |stream, flow: &OutputStream, offset: u64| {
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

    /// The subscribed clients.
    pub(super) fn subscribers(&self) -> impl Iterator<Item = &ClientId> {
        self.subscribers.keys()
    }

    /// The offsets that a subscribed client has received.
    pub(super) fn position(&self, client: ClientId) -> Option<Offsets> {
        self.subscribers.get(&client).copied()
    }

    /// Records the offsets that a client has received.
    pub(super) fn set_position(&mut self, client: ClientId, at: Offsets) {
        if let Some(position) = self.subscribers.get_mut(&client) {
            *position = at;
            self.regulate();
        }
    }

    /// Stops reading streams of which a subscriber is far behind, and resumes reading the others.
    fn regulate(&mut self) {
        let positions = || self.subscribers.values().chain(&self.awaited_from);
        let output = positions().map(|at| at.output).min();
        let error = positions().map(|at| at.error).min();
        self.output.regulate(output);
        self.error.regulate(error);
    }

    /// Reads a bounded part of what waits in a stream, unless a subscriber is far behind.
    pub(super) fn read_stream(
        &mut self,
        directory: BorrowedFd<'_>,
        stream: Stream,
        spool_context: &mut SpoolContext,
    ) -> ReadOutcome {
        if self.flow(stream).is_throttled {
            return ReadOutcome::Nothing;
        }
        let outcome = self.read_now(directory, stream, spool_context);
        self.regulate();
        outcome
    }

    fn read_now(
        &mut self,
        directory: BorrowedFd<'_>,
        stream: Stream,
        spool_context: &mut SpoolContext,
    ) -> ReadOutcome {
        let room = match self.limit_bytes {
            Some(limit) if matches!(self.stage, Stage::Running | Stage::Starting(_)) => {
                limit.saturating_sub(self.output.spool.end() + self.error.spool.end())
            }
            _ => u64::MAX,
        };
        let flow = self.flow(stream);
        let taken = match &flow.source {
            Origin::Nothing => return ReadOutcome::Nothing,
            Origin::Pipe(pipe) if room == 0 => match super::spool::waiting(pipe) {
                Ok(0) => flow.spool.take_from_pipe(directory, pipe.as_fd(), 1, spool_context),
                _ => return ReadOutcome::TooMuch,
            },
            Origin::Terminal(_) if room == 0 => return ReadOutcome::TooMuch,
            Origin::Pipe(pipe) => {
                flow.spool.take_from_pipe(directory, pipe.as_fd(), room, spool_context)
            }
            Origin::Terminal(terminal) => {
                flow.spool.take_from_terminal(directory, terminal.as_fd(), room, spool_context)
            }
        };
        match taken {
            TakeOutcome::Bytes => ReadOutcome::More,
            TakeOutcome::Nothing => ReadOutcome::Nothing,
            TakeOutcome::Blocked => ReadOutcome::Blocked,
            TakeOutcome::End => {
                flow.source = Origin::Nothing;
                flow.spool.close();
                ReadOutcome::Nothing
            }
        }
    }

    /// Decides its ending, unless that is decided, and stops reading output that exceeds the limit.
    pub(super) fn force_ending(&mut self, directory: BorrowedFd<'_>, ending: Ending) {
        if self.forced_ending.is_some() || matches!(self.stage, Stage::Ended(_)) {
            return;
        }
        if ending == Ending::OutputExceeded {
            self.output.source = Origin::Nothing;
            self.error.source = Origin::Nothing;
        }
        self.forced_ending = Some(ending);
        // If the note cannot be stored, only the next keeper lacks it.
        let _ = self.note(directory);
    }

    /// Records its ending. Output that it had written by then is read, and sent before the ending.
    pub(super) fn end(
        &mut self,
        directory: BorrowedFd<'_>,
        ending: Ending,
        spool_context: &mut SpoolContext,
    ) {
        if matches!(self.stage, Stage::Ended(_)) {
            return;
        }
        for stream in [Stream::Output, Stream::Error] {
            let most = self.flow(stream).spool.end() + LEFT_BYTES;
            while self.flow(stream).spool.end() < most {
                match self.read_now(directory, stream, spool_context) {
                    ReadOutcome::More => {}
                    ReadOutcome::Nothing | ReadOutcome::Blocked => break,
                    ReadOutcome::TooMuch => {
                        self.force_ending(directory, Ending::OutputExceeded);
                        break;
                    }
                }
            }
            let flow = self.flow(stream);
            flow.until = Some(flow.spool.end());
        }
        self.stage = Stage::Ended(self.forced_ending.take().unwrap_or(ending));
        self.input = None;
        self.regulate();
    }

    /// Closes the streams: no process writes to them any more.
    pub(super) fn close_streams(&mut self) {
        for flow in [&mut self.output, &mut self.error] {
            flow.source = Origin::Nothing;
            flow.spool.close();
        }
        self.terminal = None;
        self.input = None;
    }

    /// Closes the spool files; they are opened again when a client subscribes.
    pub(super) fn close_files(&mut self) {
        self.output.spool.close();
        self.error.spool.close();
    }

    /// Reads the part of a stream that is to be sent, from an offset on.
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
        // Without a free descriptor the client can only receive output.
        end.try_clone().ok()
    }

    /// How many bytes it has written.
    pub(super) fn written(&self) -> Offsets {
        Offsets { output: self.output.spool.end(), error: self.error.spool.end() }
    }

    /// Records a refused system call, if it has not ended.
    pub(super) fn refused(&mut self, call: RefusedCall) {
        if !matches!(self.stage, Stage::Ended(_)) {
            self.refused_calls.insert(call);
        }
    }

    /// Records the refused system calls of which init has heard while it ran.
    pub(super) fn add_refused(&mut self, calls: RefusedCalls) {
        self.refused_calls.add(calls);
    }

    /// The names of the system calls that were refused while it ran.
    pub(super) fn refused_calls(&self) -> Vec<String> {
        self.refused_calls.names().into_iter().map(str::to_owned).collect()
    }

    /// Its status.
    pub(super) fn status(&self) -> ExecStatus {
        let ending = match &self.stage {
            Stage::Ended(ending) => Some(ending.clone()),
            Stage::Starting(_) | Stage::Running => None,
        };
        ExecStatus { id: self.id.clone(), ending, written: self.written() }
    }

    /// Whether it may still act.
    pub(super) const fn is_alive(&self) -> bool {
        !self.gone
    }

    /// Removes its spools and note.
    pub(super) fn remove(self, directory: BorrowedFd<'_>) {
        if self.is_noted {
            // A remaining file is removed with the sandbox.
            let _ = rustix::fs::unlinkat(directory, note_name(&self.id), AtFlags::empty());
        }
        let OutputStream { source, spool, .. } = self.output;
        drop(source);
        spool.remove(directory);
        let OutputStream { source, spool, .. } = self.error;
        drop(source);
        spool.remove(directory);
    }
}

impl OutputStream {
    /// Stops reading while the subscriber that has received least is far behind.
    fn regulate(&mut self, position: Option<u64>) {
        let behind = position.map_or(0, |heard| self.spool.end().saturating_sub(heard));
        // Hysteresis: the state does not change with every message.
        let most = if self.is_throttled { AHEAD_BYTES / 2 } else { AHEAD_BYTES };
        let waits = behind >= most;
        if std::mem::replace(&mut self.is_throttled, waits) == waits {
            return;
        }
        // Epoll reports the end of a pipe whatever the interest is; edge-triggered, it does so
        // once.
        let interest = if waits { Interest::ET } else { Interest::IN };
        if let Origin::Pipe(source) | Origin::Terminal(source) = &mut self.source {
            // If this fails, an event that is reported too often only causes superfluous polls.
            let _ = source.set_interest(interest);
        }
    }
}

/// The ending for a status of `wait(2)` and init's cause.
pub(super) fn ending(status: i32, cause: Option<Cause>) -> Ending {
    match cause {
        Some(Cause::TimedOut) => return Ending::TimedOut,
        Some(Cause::Killed) => return Ending::Killed,
        Some(Cause::SubreaperLost) => return Ending::Unknown,
        None => {}
    }
    // `WIFEXITED` and `WTERMSIG` of the C library.
    match status & 0x7f {
        0 => Ending::Exited(u8::try_from((status >> 8) & 0xff).unwrap_or(u8::MAX)),
        signal => Ending::Signaled(signal),
    }
}

/// Refuses a descriptor that is not a pipe: a jail's init may send anything that it can open.
pub(super) fn check_pipe(pipe: BorrowedFd<'_>) -> io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(pipe)?.st_mode);
    if kind == FileType::Fifo { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn spool_name(id: &ExecId, stream: Stream) -> String {
    let stream = match stream {
        Stream::Output => "output",
        Stream::Error => "error",
    };
    format!("{SPOOL_DIR}/{id}.{stream}")
}

fn note_name(id: &ExecId) -> String {
    format!("{SPOOL_DIR}/{id}.json")
}
