//! The loop around a running jail: relays its streams, forwards signals, enforces its deadlines and
//! reports how it ended.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::channel::{FromInit, ToInit};
use crate::deferred_close::DeferredClose;
use crate::launch::{self, Error, Jail, OuterStreams};
use crate::network::StubListeners;
use crate::pty;
use crate::refused_calls::{CallListener, CallsState, REST, RefusedCall, RefusedCalls};
use crate::relay::{self, Captured, Pump, Sink};
use crate::spec::WindowSize;
use crate::sys;

/// Signals that are forwarded to the command.
const FORWARDED_SIGNALS: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];
/// Those of them that request the end of the command.
const TERMINATION_SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The character that ends the input of a terminal (`VEOF`, `termios(3)`).
const END_OF_INPUT: u8 = 4;

/// The signals of this process, blocked from now on so that [`supervise`] forwards them.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
    /// The signal that the command gets instead of `SIGTERM`.
    stop: i32,
}

impl Signals {
    /// Blocks them. If it is called before the launch, no signal is lost; the command itself starts
    /// with none blocked.
    pub fn block() -> io::Result<Self> {
        Self::of(&[&FORWARDED_SIGNALS[..], &[libc::SIGWINCH]].concat())
    }

    /// Lets a command that is asked to end by `SIGTERM` get another signal instead.
    #[must_use]
    pub fn stopping_with(self, signal: i32) -> Self {
        Self { stop: signal, ..self }
    }

    fn of(signals: &[i32]) -> io::Result<Self> {
        sys::signal_descriptor(signals).map(|descriptor| Self { descriptor, stop: libc::SIGTERM })
    }

    /// Blocks only the signals that terminal keys send to end a program, for as long as another
    /// program has the terminal.
    pub fn block_keyboard() -> io::Result<Self> {
        Self::of(&[libc::SIGINT, libc::SIGQUIT])
    }
}

/// The parameters of the supervision.
#[derive(Debug)]
pub struct Supervision {
    /// The command's input; empty when absent.
    pub input: Option<OwnedFd>,
    /// The destination of its output; with a terminal, of both streams.
    pub output: Sink,
    /// The destination of its errors.
    pub error: Sink,
    /// The wall-clock time limit, counted from the start of the supervision.
    pub timeout: Option<Duration>,
    /// The maximal number of bytes that it may write to both streams together.
    pub output_limit_bytes: Option<u64>,
    /// How long a command may take to end after a signal that requests it.
    pub grace: Duration,
    /// How long it may take to end after its input has ended, until it gets `SIGTERM`; as long as it
    /// likes when absent.
    pub after_input: Option<Duration>,
    /// The caller's terminal; the jail's terminal follows its size.
    pub terminal: Option<OwnedFd>,
    /// Periodic checks of the jail from outside.
    pub watches: Vec<Watch>,
    /// What happens when a program inside first uses one of the jail's listeners.
    pub first_request: Option<FirstRequest>,
}

/// Listeners that no process serves yet.
pub struct FirstRequest {
    /// The listeners.
    pub listeners: StubListeners,
    /// Called once, with the listeners.
    pub serve: Box<dyn FnOnce(StubListeners)>,
}

impl std::fmt::Debug for FirstRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FirstRequest").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

/// A periodic check that may end the jail.
pub struct Watch {
    /// The name of the limit that it watches.
    pub limit: &'static str,
    /// The time between two checks.
    pub interval: Duration,
    /// True once the limit is exceeded.
    pub exceeded: Box<dyn FnMut() -> bool>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exited(u8),
    /// By this signal.
    Signaled(i32),
    /// It was killed when it timed out.
    TimedOut,
    /// It was killed for lack of memory.
    OutOfMemory,
    /// It was killed for writing too much output.
    OutputExceeded,
    /// It was killed because a watched limit was exceeded.
    LimitExceeded(&'static str),
    /// It was killed after this signal, because it did not end in time.
    Stopped(i32),
    /// Its working directory could not be entered, with this error number.
    NotEntered(i32),
    /// The program could not be run, with this error number.
    NotRun(i32),
}

/// The end of a jail's init. Dropping the value waits for it, so that no process is left to the
/// process that adopts orphans; until then the caller can do other work. After that the kernel
/// unmounts the jail's mounts and closes what depends on them, and no process waits for it.
#[derive(Debug)]
pub struct Teardown {
    init: OwnedFd,
    _mounts: Option<DeferredClose>,
}

impl Drop for Teardown {
    fn drop(&mut self) {
        sys::wait(&self.init);
    }
}

/// How a command ended, and what was captured of it.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended. No process of the jail is alive any more.
    pub ending: Ending,
    /// The captured part of its output.
    pub output: Captured,
    /// The captured part of its errors.
    pub error: Captured,
    /// Why its output could not be written completely. A reader that has closed its end is no such
    /// reason.
    pub unwritten: Option<io::Error>,
    /// Its peak memory use, where its control group reports it.
    pub memory_peak_bytes: Option<u64>,
    /// How many processes the kernel killed for lack of memory, the command itself or others.
    pub out_of_memory_kills: u64,
    /// The system calls that its processes made and that were refused, if the spec requested that.
    pub refused_calls: RefusedCalls,
    /// The end of init, which still has to be waited for.
    pub teardown: Teardown,
}

/// Supervises the jail until nothing in it is alive.
///
/// # Errors
/// [`Error::Wall`] when the command's own process could not enable its walls: nothing of the
/// command has run then.
pub fn supervise(
    mut jail: Jail,
    supervision: Supervision,
    signals: Signals,
) -> Result<Outcome, Error> {
    let Signals { descriptor: signals, stop } = signals;
    let mut session = Session::new(&mut jail, supervision).map_err(Error::Pipe)?;
    session.stop = stop;
    session.follow_window_size();
    while session.ending.is_none() {
        session.turn(&jail, Some(signals.as_fd()))?;
    }
    session.serve_late_request();
    // Init has seen everything else end, or must be killed.
    if session.killed {
        sys::kill_and_reap(&jail.init);
    }
    jail.ended = true;
    session.drain(signals.as_fd())?;
    let mut ending = session.ending.unwrap_or(Ending::Signaled(libc::SIGKILL));
    let (mut memory_peak_bytes, mut out_of_memory_kills) = (None, 0);
    if let Some(group) = jail.cgroup.take() {
        memory_peak_bytes = group.memory_peak().ok();
        out_of_memory_kills = group.oom_kills().unwrap_or(0);
        let killed = matches!(ending, Ending::Signaled(libc::SIGKILL) | Ending::Exited(137));
        if killed && out_of_memory_kills > 0 {
            ending = Ending::OutOfMemory;
        }
        // A group can be removed once init has left it. A group that cannot be removed now is swept
        // later.
        sys::kill_and_reap(&jail.init);
        let _ = group.remove();
    }
    let init = jail.init.try_clone().map_err(Error::Pipe)?;
    let teardown = Teardown { init, _mounts: jail.mounts.take() };
    let Session { output, error, refused_calls, .. } = session;
    let unwritten = output.failure().or_else(|| error.as_ref().and_then(Pump::failure));
    Ok(Outcome {
        ending,
        output: output.into_captured(),
        error: error.map(Pump::into_captured).unwrap_or_default(),
        unwritten,
        memory_peak_bytes,
        out_of_memory_kills,
        refused_calls,
        teardown,
    })
}

/// The state of the loop.
struct Session {
    input: Pump,
    output: Pump,
    error: Option<Pump>,
    /// The jail's terminal, for its size.
    master: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
    deadlines: Deadlines,
    watches: Vec<(Instant, Watch)>,
    first_request: Option<FirstRequest>,
    /// Hears of refused system calls, until there can be none any more. None where init does.
    call_listener: Option<CallListener>,
    /// When it is listened to again, after too many calls.
    listens_again: Option<Instant>,
    refused_calls: RefusedCalls,
    output_limit_bytes: u64,
    grace: Duration,
    /// Until the input has ended.
    after_input: Option<Duration>,
    stopping: Option<i32>,
    /// The signal that the command gets instead of `SIGTERM`.
    stop: i32,
    not_run: Option<Ending>,
    ending: Option<Ending>,
    killed: bool,
    end_of_input_sent: bool,
    to_send: VecDeque<i32>,
}

struct Deadlines {
    timeout: Option<Instant>,
    grace: Option<Instant>,
    /// When the command must end because its input has.
    input: Option<Instant>,
}

impl Session {
    fn new(jail: &mut Jail, supervision: Supervision) -> io::Result<Self> {
        let Supervision {
            input,
            output,
            error,
            timeout,
            output_limit_bytes,
            grace,
            after_input,
            terminal,
            watches,
            first_request,
        } = supervision;
        let now = Instant::now();
        let input_source = match input {
            Some(input) => input,
            None => std::fs::File::open("/dev/null")?.into(),
        };
        let streams = jail.streams.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (input, output, error, master) = match streams {
            OuterStreams::Pipes { input: to, output: from, error: errors } => {
                for end in [&to, &from, &errors] {
                    relay::set_nonblocking(end)?;
                }
                (
                    Pump::new(input_source, Sink::Descriptor(to)),
                    Pump::new(from, output),
                    Some(Pump::new(errors, error)),
                    None,
                )
            }
            OuterStreams::Terminal(master) => {
                relay::set_nonblocking(&master)?;
                (
                    Pump::new(input_source, Sink::Descriptor(master.try_clone()?)),
                    Pump::new(master.try_clone()?, output),
                    None,
                    Some(master),
                )
            }
        };
        Ok(Self {
            input,
            output,
            error,
            master,
            terminal,
            deadlines: Deadlines { timeout: timeout.map(|t| now + t), grace: None, input: None },
            watches: watches.into_iter().map(|watch| (now + watch.interval, watch)).collect(),
            first_request,
            call_listener: jail.refused_calls.take(),
            listens_again: None,
            refused_calls: RefusedCalls::default(),
            output_limit_bytes: output_limit_bytes.unwrap_or(u64::MAX),
            grace,
            after_input,
            stopping: None,
            stop: libc::SIGTERM,
            not_run: None,
            ending: None,
            killed: false,
            end_of_input_sent: false,
            to_send: VecDeque::new(),
        })
    }

    /// Waits for the next event and handles it.
    fn turn(&mut self, jail: &Jail, signals: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let timeout = self.next_deadline().map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 })
        });
        let ready = {
            let sources = [
                Some((Event::Init, jail.channel.as_fd(), PollFlags::IN)),
                signals.map(|signals| (Event::Signal, signals, PollFlags::IN)),
            ];
            let requests = self.first_request.iter().flat_map(|first| first.listeners.each());
            let requests = requests.map(|listener| (Event::Request, listener, PollFlags::IN));
            if self.listens_again.is_some_and(|at| at <= Instant::now()) {
                self.listens_again = None;
            }
            let calls = self.call_listener.as_ref().filter(|_| self.listens_again.is_none());
            let calls = calls.map(|calls| (Event::RefusedCall, calls.as_fd(), PollFlags::IN));
            // A command that does not read must not hide the end of the input.
            let blocked = self.after_input.and_then(|_| self.input.blocked_source());
            let blocked = blocked.map(|source| (Event::InputOver, source, PollFlags::RDHUP));
            let sources = sources.into_iter().flatten().chain(requests).chain(calls);
            self.poll(sources.chain(blocked).collect(), timeout)?
        };
        for event in ready {
            match event {
                Event::Init => self.recv_from_init(jail)?,
                Event::Request => self.serve_request(),
                Event::RefusedCall => self.answer_calls(),
                Event::Signal => self.take_signals(jail, signals),
                Event::Read(stream) => self.read(stream),
                Event::Ended(stream) => self.pump(stream).end_source(),
                Event::Write(stream) => self.pump(stream).write(),
                Event::InputOver => self.end_after_input(),
            }
        }
        if self.input.is_done() {
            self.end_after_input();
        }
        if self.deadlines.input.is_some_and(|at| at <= Instant::now()) {
            self.deadlines.input = None;
            self.stop_command(jail);
        }
        if self.master.is_none() {
            self.input.close_sink_when_done();
        } else if self.input.is_done() && !self.end_of_input_sent {
            // The only end of input of a terminal is this character.
            self.input.append(&[END_OF_INPUT]);
            self.end_of_input_sent = true;
        }
        self.enforce_deadlines();
        Ok(())
    }

    /// Relays what is still in the streams once no process writes to them any more.
    fn drain(&mut self, signals: BorrowedFd<'_>) -> Result<(), Error> {
        self.input.end();
        self.master = None;
        if self.ending == Some(Ending::OutputExceeded) {
            self.output.stop_reading();
            self.error.iter_mut().for_each(Pump::stop_reading);
        }
        // A process that is stuck in the kernel could hold a stream open for ever.
        let mut give_up = Instant::now() + Duration::from_secs(2);
        while !(self.output.is_done() && self.error.as_ref().is_none_or(Pump::is_done)) {
            let before = self.written();
            let left = give_up.saturating_duration_since(Instant::now());
            let waiting_for_reader = self.output.wants_write().is_some()
                || self.error.as_ref().is_some_and(|error| error.wants_write().is_some());
            if left.is_zero() && !waiting_for_reader {
                break;
            }
            let timeout = if waiting_for_reader { None } else { Timespec::try_from(left).ok() };
            let events = self.poll(vec![(Event::Signal, signals, PollFlags::IN)], timeout)?;
            for event in events {
                match event {
                    Event::Init | Event::Request | Event::RefusedCall | Event::InputOver => {}
                    // A user who does not read the output but requests the end, gets the end.
                    Event::Signal => match sys::next_signal(signals) {
                        Ok(Some(signal)) if TERMINATION_SIGNALS.contains(&signal) => return Ok(()),
                        _ => {}
                    },
                    Event::Read(stream) => self.read(stream),
                    Event::Ended(stream) => self.pump(stream).end_source(),
                    Event::Write(stream) => self.pump(stream).write(),
                }
            }
            if self.written() > before {
                give_up = Instant::now() + Duration::from_secs(2);
            }
        }
        Ok(())
    }

    fn poll<'a>(
        &'a self,
        mut sources: Vec<(Event, BorrowedFd<'a>, PollFlags)>,
        timeout: Option<Timespec>,
    ) -> Result<Vec<Event>, Error> {
        let pumps = [
            Some((Stream::Input, &self.input)),
            Some((Stream::Output, &self.output)),
            self.error.as_ref().map(|error| (Stream::Error, error)),
        ];
        for (stream, pump) in pumps.into_iter().flatten() {
            sources.extend(pump.wants_read().map(|fd| (Event::Read(stream), fd, PollFlags::IN)));
            sources.extend(pump.wants_write().map(|fd| (Event::Write(stream), fd, PollFlags::OUT)));
        }
        let mut waiting: Vec<_> =
            sources.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        match poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::Pipe(e.into())),
        }
        Ok(sources
            .iter()
            .zip(&waiting)
            .filter(|(_, waited)| !waited.revents().is_empty())
            .map(|((event, ..), waited)| match event {
                // No process writes to it any more, and all written data has been read.
                Event::Read(stream) if waited.revents() == PollFlags::HUP => Event::Ended(*stream),
                event => *event,
            })
            .collect())
    }

    fn answer_calls(&mut self) {
        let Some(listener) = &self.call_listener else { return };
        let calls = &mut self.refused_calls;
        match listener.answer(|call| _ = calls.insert(call)) {
            CallsState::All => {}
            CallsState::Flood => self.listens_again = Some(Instant::now() + REST),
            CallsState::Over => self.call_listener = None,
        }
    }

    fn serve_request(&mut self) {
        if let Some(FirstRequest { listeners, serve }) = self.first_request.take() {
            serve(listeners);
        }
    }

    /// Serves a request that arrived together with the end of the command.
    fn serve_late_request(&mut self) {
        let Some(first) = &self.first_request else { return };
        let listeners = first.listeners.each();
        let mut waiting = listeners.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        if matches!(poll(&mut waiting, Some(&Timespec::default())), Ok(count) if count > 0) {
            self.serve_request();
        }
    }

    fn read(&mut self, stream: Stream) {
        let room = match stream {
            Stream::Input => u64::MAX,
            Stream::Output | Stream::Error => {
                self.output_limit_bytes.saturating_sub(self.written())
            }
        };
        self.pump(stream).read(room);
    }

    /// How many bytes the command has written to its output and errors.
    fn written(&self) -> u64 {
        self.output.total_bytes + self.error.as_ref().map_or(0, |error| error.total_bytes)
    }

    fn pump(&mut self, stream: Stream) -> &mut Pump {
        match (stream, &mut self.error) {
            (Stream::Input, _) => &mut self.input,
            (Stream::Error, Some(error)) => error,
            (Stream::Output | Stream::Error, _) => &mut self.output,
        }
    }

    /// Handles a message of init.
    fn recv_from_init(&mut self, jail: &Jail) -> Result<(), Error> {
        let Some((bytes, _)) = jail.channel.receive().map_err(Error::Pipe)? else {
            // Init ended without a message: it was killed, and with it everything else.
            self.end_with(self.not_run.unwrap_or(Ending::Signaled(libc::SIGKILL)));
            return Ok(());
        };
        match FromInit::decode(&bytes) {
            Some(FromInit::Failed { wall, errno, step }) => Err(launch::failed(wall, step, errno)),
            Some(FromInit::EnterFailed { errno }) => {
                self.not_run = Some(Ending::NotEntered(errno));
                Ok(())
            }
            Some(FromInit::ExecFailed { errno }) => {
                self.not_run = Some(Ending::NotRun(errno));
                Ok(())
            }
            Some(FromInit::RefusedCall { number }) => {
                self.refused_calls.insert(RefusedCall { process: 0, number });
                Ok(())
            }
            Some(FromInit::Ended { status }) => {
                self.ending = Some(match self.not_run {
                    Some(ending) => ending,
                    None if libc::WIFSIGNALED(status) => Ending::Signaled(libc::WTERMSIG(status)),
                    None => Ending::Exited(libc::WEXITSTATUS(status).try_into().unwrap_or(u8::MAX)),
                });
                Ok(())
            }
            Some(FromInit::Ready { .. }) | None => Err(Error::Lost),
        }
    }

    fn take_signals(&mut self, jail: &Jail, signals: Option<BorrowedFd<'_>>) {
        let Some(signals) = signals else { return };
        while let Ok(Some(signal)) = sys::next_signal(signals) {
            if signal == libc::SIGWINCH {
                self.follow_window_size();
                continue;
            }
            if TERMINATION_SIGNALS.contains(&signal) {
                if self.stopping.is_some() {
                    self.end_with(Ending::Stopped(signal));
                    return;
                }
                self.stopping = Some(signal);
                self.deadlines.grace = Some(Instant::now() + self.grace);
            }
            self.to_send.push_back(if signal == libc::SIGTERM { self.stop } else { signal });
        }
        while let Some(signal) = self.to_send.pop_front() {
            // If init has ended, the loop notices that next.
            let _ = jail.channel.send(&ToInit::Signal(signal).encode(), &[]);
        }
    }

    /// The input has ended: from now on the command has limited time.
    fn end_after_input(&mut self) {
        if let Some(time) = self.after_input.take() {
            self.deadlines.input = Some(Instant::now() + time);
        }
    }

    /// Requests the end of the command, unless that was done already.
    fn stop_command(&mut self, jail: &Jail) {
        if self.stopping.is_none() {
            self.stopping = Some(libc::SIGTERM);
            self.deadlines.grace = Some(Instant::now() + self.grace);
            // If init has ended, the loop notices that next.
            let _ = jail.channel.send(&ToInit::Signal(self.stop).encode(), &[]);
        }
    }

    fn follow_window_size(&self) {
        let (Some(master), Some(terminal)) = (&self.master, &self.terminal) else { return };
        if let Ok(size) = rustix::termios::tcgetwinsize(terminal) {
            let size = WindowSize { rows: size.ws_row, columns: size.ws_col };
            // The size is not essential; a terminal that is just closing has none.
            let _ = pty::resize(master, size);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        [self.deadlines.timeout, self.deadlines.grace, self.deadlines.input, self.listens_again]
            .into_iter()
            .flatten()
            .chain(self.watches.iter().map(|(next, _)| *next))
            .min()
    }

    fn enforce_deadlines(&mut self) {
        if self.ending.is_some() {
            return;
        }
        let now = Instant::now();
        if self.written() > self.output_limit_bytes {
            self.end_with(Ending::OutputExceeded);
        } else if self.deadlines.timeout.is_some_and(|at| at <= now) {
            self.end_with(Ending::TimedOut);
        } else if let (Some(at), Some(signal)) = (self.deadlines.grace, self.stopping)
            && at <= now
        {
            self.end_with(Ending::Stopped(signal));
        }
        for (next, watch) in &mut self.watches {
            if *next > now {
                continue;
            }
            *next = now + watch.interval;
            if (watch.exceeded)() && self.ending.is_none() {
                self.ending = Some(Ending::LimitExceeded(watch.limit));
                self.killed = true;
            }
        }
    }

    fn end_with(&mut self, ending: Ending) {
        self.ending = Some(ending);
        self.killed = true;
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Init,
    Request,
    RefusedCall,
    Signal,
    Read(Stream),
    Ended(Stream),
    Write(Stream),
    InputOver,
}

#[derive(Debug, Clone, Copy)]
enum Stream {
    Input,
    Output,
    Error,
}
