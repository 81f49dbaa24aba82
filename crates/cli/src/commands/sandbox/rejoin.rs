//! `stockade attach`: this program's streams are joined with those of a command that was started
//! before. The command continues when they are separated.

use stockade_api::{
    AttachCommand, CommandInfo, Items, OutputEnd, Session, SessionEvent, SessionInput,
};
use stockade_core::Code;
use stockade_core::ending::signal_exit_code;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::attach::{
    INCOMPLETE, InputSender, PIPE, Stream, Streams, connection_lost, follow_size, input_sender,
    io_failure, report_failure, report_refused_calls, size,
};
use super::command_name::{find_command, name};
use crate::args::live::{Attach, DetachKeys};
use crate::commands::print::notify;
use crate::problem::Failure;
use crate::remote::{self, Remote};
use crate::streams;
use crate::terminal::{self, RawMode};

/// How often a command is joined again without any news of it.
const ATTEMPTS: u32 = 3;

/// Joins a command; the exit code is the command's, or 0 after the keys that leave it.
pub(crate) fn run(arguments: Attach) -> Result<u8, Failure> {
    remote::with(arguments.server_mode, async |remote| {
        let command = find_command(&remote, &arguments.command).await?;
        let name = name(&command);
        let takes_input = command.input && !arguments.no_stdin;
        let is_terminal = command.terminal && terminal::is_on_input();
        let raw = match takes_input && is_terminal {
            true => RawMode::enter().map_err(io_failure)?,
            false => None,
        };
        let keys = raw.is_some().then_some(arguments.detach_keys);
        let typed = takes_input.then(|| read_keys(keys));
        let mut joined = JoinedCommand { remote: &remote, command: &command, typed, lost: 0 };
        let outcome = joined.follow(is_terminal).await;
        let lost = joined.lost;
        drop(raw);
        match outcome? {
            Outcome::Detached(code) => {
                notify(&format!("the command continues; join it again: stockade attach {name}"));
                Ok(code)
            }
            Outcome::Ended(end) => {
                report_failure(&end);
                let code = end.ending.process_exit_code(end.exit_code);
                report_refused_calls(&end, code);
                Ok(if lost > 0 && code == 0 { INCOMPLETE } else { code })
            }
        }
    })
}

/// How joining a command ended.
enum Outcome {
    /// The command has ended.
    Ended(OutputEnd),
    /// This program left it, with this exit code.
    Detached(u8),
}

/// What a user types.
enum Typed {
    Bytes(Vec<u8>),
    Leave,
}

/// A command whose streams are joined with those of this program.
struct JoinedCommand<'a> {
    remote: &'a Remote,
    command: &'a CommandInfo,
    typed: Option<mpsc::Receiver<Typed>>,
    /// How many bytes of the output were lost.
    lost: u64,
}

impl JoinedCommand<'_> {
    /// Relays until the command has ended or the user leaves it. A server that ends is replaced by
    /// the next one, without gaps or repetitions.
    async fn follow(&mut self, is_terminal: bool) -> Result<Outcome, Failure> {
        let mut request = AttachCommand {
            workflow_id: self.command.workflow_id.clone(),
            stdout_offset: 0,
            stderr_offset: 0,
        };
        let mut signals = signals().map_err(io_failure)?;
        let mut streams = Streams::start();
        let mut attempts = 0;
        let outcome = loop {
            let before = (request.stdout_offset, request.stderr_offset);
            let caller = self.remote.caller();
            let session = self.remote.sandboxes.attach_command(caller, request.clone()).await?;
            let Session { events, input, .. } = session;
            if is_terminal {
                // A program that draws a screen draws it again.
                follow_size(input.clone()).map_err(io_failure)?;
                let _ = input.send(SessionInput::Resize(size())).await;
            }
            let input = input_sender(input);
            let parts = (&mut streams, &mut signals, &input);
            match self.relay(events, &mut request, parts).await {
                // Lost bytes have no offsets.
                Err(failure) if failure.code() == Code::Unreachable && self.lost == 0 => {
                    let is_same = before == (request.stdout_offset, request.stderr_offset);
                    attempts = if is_same { attempts + 1 } else { 0 };
                    if attempts >= ATTEMPTS {
                        return Err(failure);
                    }
                }
                outcome => break outcome?,
            }
        };
        match streams.write_error() {
            Some(error) => Err(Failure::from_write_error(&error)),
            None => Ok(outcome),
        }
    }

    /// Relays the streams of one connection.
    async fn relay(
        &mut self,
        mut events: Items<SessionEvent>,
        request: &mut AttachCommand,
        (streams, signals, input): (&mut Streams, &mut Signals, &InputSender),
    ) -> Result<Outcome, Failure> {
        loop {
            tokio::select! {
                () = streams.wait_written(), if streams.is_writing => {}
                event = events.next(), if !streams.is_writing => match event {
                    Some(Ok(SessionEvent::Stdout { data })) => {
                        request.stdout_offset += data.0.len() as u64;
                        streams.write(Stream::Output, data.0, input);
                    }
                    Some(Ok(SessionEvent::Stderr { data })) => {
                        request.stderr_offset += data.0.len() as u64;
                        streams.write(Stream::Error, data.0, input);
                    }
                    Some(Ok(SessionEvent::Lost { bytes })) => {
                        self.lost += bytes;
                        notify(&format!("{bytes} bytes of the output were lost here"));
                    }
                    Some(Ok(SessionEvent::Ended(end))) => return Ok(Outcome::Ended(end)),
                    Some(Err(problem)) => return Err(problem.into()),
                    None => return Err(connection_lost("the connection was interrupted").into()),
                },
                typed = next_typed(&mut self.typed) => match typed {
                    Some(Typed::Bytes(bytes)) => {
                        // The command may have ended meanwhile.
                        let _ = input.send(SessionInput::Stdin { data: bytes.into() });
                    }
                    Some(Typed::Leave) => return Ok(Outcome::Detached(0)),
                    // The input stays open for the next client.
                    None => self.typed = None,
                },
                Some(kind) = signals.recv() => {
                    if kind != SignalKind::interrupt() {
                        // This program must end, and the command must not.
                        return Ok(Outcome::Detached(signal_exit_code(kind.as_raw_value())));
                    }
                    let _ = input.send(SessionInput::Signal { signal: kind.as_raw_value() });
                }
            }
            if streams.is_broken() {
                return Ok(Outcome::Detached(signal_exit_code(PIPE)));
            }
        }
    }
}

/// What the user types next; never returns when there is no input any more.
async fn next_typed(typed: &mut Option<mpsc::Receiver<Typed>>) -> Option<Typed> {
    match typed {
        Some(typed) => typed.recv().await,
        None => std::future::pending().await,
    }
}

/// Reads standard input, and the keys that leave the command if there are any.
fn read_keys(keys: Option<DetachKeys>) -> mpsc::Receiver<Typed> {
    let (sender, receiver) = mpsc::channel(1);
    let mut filter = KeyFilter { keys: keys.map(|keys| keys.0).unwrap_or_default(), matched: 0 };
    tokio::spawn(async move {
        let mut pieces = streams::stdin_chunks();
        while let Some(piece) = pieces.recv().await {
            let (bytes, leaves) = filter.pass(&piece);
            if !bytes.is_empty() && sender.send(Typed::Bytes(bytes)).await.is_err() {
                return;
            }
            if leaves {
                let _ = sender.send(Typed::Leave).await;
                return;
            }
        }
    });
    receiver
}

/// Finds a sequence of keys in what is typed. The start of a sequence is held back until it is
/// decided whether the rest follows.
struct KeyFilter {
    keys: Vec<u8>,
    matched: usize,
}

impl KeyFilter {
    /// The bytes for the command, and whether the sequence is complete.
    fn pass(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut bytes = Vec::with_capacity(typed.len());
        for byte in typed {
            if self.keys.get(self.matched) == Some(byte) {
                self.matched += 1;
                if self.matched == self.keys.len() {
                    return (bytes, true);
                }
                continue;
            }
            bytes.extend_from_slice(&self.keys[..self.matched]);
            self.matched = usize::from(self.keys.first() == Some(byte) && self.keys.len() > 1);
            if self.matched == 0 {
                bytes.push(*byte);
            }
        }
        (bytes, false)
    }
}

type Signals = mpsc::Receiver<SignalKind>;

/// The signals of a user: an interrupt is for the command, others are for this program.
fn signals() -> std::io::Result<Signals> {
    let (to, receiver) = mpsc::channel(1);
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let (mut signals, to) = (signal(kind)?, to.clone());
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if to.send(kind).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_leave_are_found_and_all_others_are_passed_on() {
        let filter = |keys: &[u8]| KeyFilter { keys: keys.to_vec(), matched: 0 };
        let mut one = filter(&[16, 17]);
        assert_eq!(one.pass(b"ab\x10"), (b"ab".to_vec(), false));
        assert_eq!(one.pass(b"c"), (b"\x10c".to_vec(), false));
        assert_eq!(one.pass(b"\x10\x10\x11z"), (b"\x10".to_vec(), true));
        assert_eq!(filter(&[]).pass(b"\x10\x11"), (b"\x10\x11".to_vec(), false));
        assert_eq!(filter(&[16]).pass(b"a\x10b"), (b"a".to_vec(), true));
        assert_eq!(filter(&[16, 17]).pass(b"\x11"), (b"\x11".to_vec(), false));
    }
}
