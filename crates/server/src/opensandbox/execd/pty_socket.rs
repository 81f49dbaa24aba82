//! The WebSocket of a client of a shell. Binary messages begin with a byte that says what they are;
//! text messages are JSON.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use serde::Deserialize;
use serde_json::{Value, json};
use stockade_api::{
    AttachCommand, OperationId, OperationStatus, Problem, Session, SessionEvent, SessionInput,
    Terminal,
};
use stockade_core::Code;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, MissedTickBehavior};

use super::super::target::{PortState, Target};
use super::super::terminal_clients::Place;
use super::pty::Pty;
use super::{command, pty_output};
use crate::failure::Failure;

/// The largest message of a client, in bytes.
pub(super) const MESSAGE_BYTES: usize = 1 << 20;
/// The first byte of binary messages: input, output, errors, and earlier output with its offset.
const INPUT: u8 = 0;
const OUTPUT: u8 = 1;
const ERROR: u8 = 2;
const REPLAY: u8 = 3;
/// The code with which a connection is closed when another client takes over.
const TAKEN_OVER: u16 = 4001;
const NORMAL: u16 = 1000;
/// The code when the server stops (RFC 6455, section 7.4.1).
const GOING_AWAY: u16 = 1001;
/// The code of a failure of the server.
const FAILED: u16 = 1011;

/// How often the connection is checked, and how long a client may send nothing at all.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_secs(75);
/// How long the client before may take to leave.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a shell may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const START_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The most bytes of earlier output that a client receives at once, and how long no more of it comes.
const REPLAYED_BYTES: usize = 1 << 20;
const REPLAY_GAP: Duration = Duration::from_millis(30);
/// How many inputs may wait for a shell that does not read; then the client waits.
const WAITING_INPUTS: usize = 64;

/// A client that joins a shell.
pub(super) struct Client {
    pub(super) state: PortState,
    pub(super) target: Target,
    pub(super) pty: Pty,
    pub(super) place: Arc<Place>,
    pub(super) is_terminal: bool,
    /// How much of the output the client knows.
    pub(super) since: u64,
}

/// A text message of a client.
#[derive(Debug, Deserialize)]
struct Frame {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    data: String,
    #[serde(default)]
    cols: u16,
    #[serde(default)]
    rows: u16,
    #[serde(default)]
    signal: String,
}

impl Client {
    /// Serves the connection until the shell has ended, the client has left, or another one has taken
    /// over.
    pub(super) async fn serve(self, mut socket: WebSocket, taken: Option<OwnedMutexGuard<()>>) {
        let _taken = match taken {
            Some(taken) => taken,
            None => match tokio::time::timeout(TAKEOVER_TIMEOUT, self.place.take_over()).await {
                Ok(taken) => taken,
                Err(_) => {
                    let message = "the other client did not leave in time";
                    let _ = send(&mut socket, error("ALREADY_CONNECTED", message)).await;
                    return;
                }
            },
        };
        let place = Arc::clone(&self.place);
        let taken_over = place.taken_over.notified();
        tokio::pin!(taken_over);
        // From here on, a client that takes over is noticed.
        taken_over.as_mut().enable();
        let mut shell = match self.join().await {
            Ok(shell) => shell,
            Err(Failure(problem)) => {
                let _ = send(&mut socket, error("START_FAILED", &problem.message)).await;
                return;
            }
        };
        tokio::select! {
            _ = shell.relay(&mut socket) => {}
            () = taken_over => {
                let reason = "TAKEN_OVER".into();
                let close = CloseFrame { code: TAKEN_OVER, reason };
                let last = socket.send(Message::Close(Some(close)));
                // A client that does not read cannot keep the place.
                let _ = tokio::time::timeout(Duration::from_millis(200), last).await;
            }
        }
    }

    /// Starts the shell if this is its first client, and joins it.
    async fn join(self) -> Result<Shell, Failure> {
        let Self { state, target, mut pty, is_terminal, since, .. } = self;
        let id = pty.id.clone();
        let before = pty.started.take();
        let is_new = before.is_none();
        let started = match before {
            Some(started) => started,
            None => pty.start(&state, &target, is_terminal).await?,
        };
        let is_terminal = started.is_terminal;
        // A terminal has one stream of output.
        let known = match is_terminal {
            true => (since, 0),
            false => pty_output::split(&state, &target, &started.operation, since).await?,
        };
        let session = attach(&state, &target, &started.operation, known).await?;
        let mut shell =
            Shell { id, session, is_terminal, waiting: VecDeque::new(), replay: None, next: None };
        if !is_new {
            shell.gather(since).await;
        }
        Ok(shell)
    }
}

/// Joins the command with its input; one that has ended has none.
async fn attach(
    state: &PortState,
    target: &Target,
    operation: &OperationId,
    (stdout_offset, stderr_offset): (u64, u64),
) -> Result<Session, Failure> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let request =
            AttachCommand { workflow_id: operation.clone(), stdout_offset, stderr_offset };
        let before = command::find(state, target, &operation.0).await?;
        let attached = state.sandboxes.attach_command(&target.caller, request).await;
        let is_live = matches!(before.status, OperationStatus::Running | OperationStatus::Waiting);
        match attached {
            Ok(session) if !session.input.is_closed() || !is_live => return Ok(session),
            Err(problem) if problem.code != Code::InvalidState || !is_live => {
                return Err(problem.into());
            }
            Ok(_) | Err(_) if Instant::now() > deadline => {
                return Err(Problem::new(Code::TimedOut, "the shell did not start in time").into());
            }
            // It is about to start.
            Ok(_) | Err(_) => tokio::time::sleep(START_POLL_INTERVAL).await,
        }
    }
}

/// A shell that a client has joined.
struct Shell {
    id: String,
    session: Session,
    is_terminal: bool,
    waiting: VecDeque<SessionInput>,
    /// The output before the client joined, with its offset.
    replay: Option<(u64, Vec<u8>)>,
    /// An event after that.
    next: Option<Option<Result<SessionEvent, Problem>>>,
}

impl Shell {
    /// Receives the output that there is already, from an offset on.
    async fn gather(&mut self, since: u64) {
        let (mut offset, mut bytes) = (since, Vec::new());
        while bytes.len() < REPLAYED_BYTES {
            let next = tokio::time::timeout(REPLAY_GAP, self.session.events.next()).await;
            match next {
                Ok(Some(Ok(SessionEvent::Stdout { data } | SessionEvent::Stderr { data }))) => {
                    bytes.extend(data.0);
                }
                Ok(Some(Ok(SessionEvent::Lost { bytes: lost }))) => {
                    offset += bytes.len() as u64 + lost;
                    bytes.clear();
                }
                Ok(end) => {
                    self.next = Some(end);
                    break;
                }
                Err(_) => break,
            }
        }
        self.replay = (!bytes.is_empty()).then_some((offset, bytes));
    }

    /// `None` if the client has left.
    async fn relay(&mut self, socket: &mut WebSocket) -> Option<()> {
        if let Some((offset, bytes)) = self.replay.take() {
            let mut replay = vec![REPLAY];
            replay.extend(offset.to_be_bytes());
            replay.extend(bytes);
            send(socket, Message::Binary(replay.into())).await?;
        }
        let mode = if self.is_terminal { "pty" } else { "pipe" };
        let connected = json!({ "type": "connected", "session_id": self.id, "mode": mode });
        send(socket, text(&connected)).await?;
        if let Some(event) = self.next.take()
            && self.event(socket, event).await?
        {
            return Some(());
        }
        let mut pings = tokio::time::interval(PING_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut received_at = Instant::now();
        let input = self.session.input.clone();
        loop {
            let has_room = self.waiting.len() < WAITING_INPUTS;
            tokio::select! {
                event = self.session.events.next() => {
                    if self.event(socket, event).await? {
                        return Some(());
                    }
                }
                message = socket.recv(), if has_room => {
                    received_at = Instant::now();
                    self.message(socket, message?.ok()?).await?;
                }
                permit = input.reserve(), if !self.waiting.is_empty() => {
                    match (permit, self.waiting.pop_front()) {
                        (Ok(permit), Some(input)) => permit.send(input),
                        // The shell has ended; its end is the next event.
                        _ => self.waiting.clear(),
                    }
                }
                _ = pings.tick() => {
                    if received_at.elapsed() > SILENCE {
                        return None;
                    }
                    send(socket, Message::Ping(Default::default())).await?;
                }
            }
        }
    }

    /// Passes on an event of the shell; true after its end.
    async fn event(
        &self,
        socket: &mut WebSocket,
        event: Option<Result<SessionEvent, Problem>>,
    ) -> Option<bool> {
        let binary = |kind: u8, data: Vec<u8>| {
            let mut message = vec![kind];
            message.extend(data);
            Message::Binary(message.into())
        };
        match event {
            Some(Ok(SessionEvent::Stdout { data })) => {
                send(socket, binary(OUTPUT, data.0)).await?;
            }
            Some(Ok(SessionEvent::Stderr { data })) => send(socket, binary(ERROR, data.0)).await?,
            // The next replay begins after it.
            Some(Ok(SessionEvent::Lost { .. })) => {}
            Some(Ok(SessionEvent::Ended(end))) => {
                let code = end.exit_code.unwrap_or(-1);
                send(socket, text(&json!({ "type": "exit", "exit_code": code }))).await?;
                let reason = "process exited".into();
                let close = CloseFrame { code: NORMAL, reason };
                send(socket, Message::Close(Some(close))).await?;
                return Some(true);
            }
            Some(Err(problem)) => {
                send(socket, error("RUNTIME_ERROR", &problem.message)).await?;
                let code = if problem.code == Code::Unreachable { GOING_AWAY } else { FAILED };
                let close = CloseFrame { code, reason: "RUNTIME_ERROR".into() };
                send(socket, Message::Close(Some(close))).await?;
                return Some(true);
            }
            None => return Some(true),
        }
        Some(false)
    }

    /// Handles a message of the client.
    async fn message(&mut self, socket: &mut WebSocket, message: Message) -> Option<()> {
        match message {
            Message::Binary(data) => {
                if let Some((&INPUT, data)) = data.split_first() {
                    self.waiting.push_back(SessionInput::Stdin { data: data.to_vec().into() });
                }
            }
            Message::Text(json) => match serde_json::from_str::<Frame>(&json) {
                Ok(frame) => match input(&frame) {
                    Ok(Some(input)) => self.waiting.push_back(input),
                    Ok(None) => send(socket, text(&json!({ "type": "pong" }))).await?,
                    Err(message) => send(socket, error("INVALID_FRAME", &message)).await?,
                },
                Err(cause) => send(socket, error("INVALID_FRAME", &cause.to_string())).await?,
            },
            Message::Close(_) => return None,
            // The library answers pings.
            Message::Ping(_) | Message::Pong(_) => {}
        }
        Some(())
    }
}

/// The input that a text message stands for; `None` for a ping.
fn input(frame: &Frame) -> Result<Option<SessionInput>, String> {
    match frame.kind.as_str() {
        "stdin" => Ok(Some(SessionInput::Stdin { data: frame.data.as_bytes().into() })),
        "resize" if frame.cols > 0 && frame.rows > 0 => {
            let (rows, columns) = (frame.rows, frame.cols);
            Ok(Some(SessionInput::Resize(Terminal { rows, columns })))
        }
        "resize" => Err("`cols` and `rows` are at least 1".to_owned()),
        "signal" => match signal(&frame.signal) {
            Some(signal) => Ok(Some(SessionInput::Signal { signal })),
            None => Err(format!("there is no signal {:?}", frame.signal)),
        },
        "ping" => Ok(None),
        other => Err(format!("unknown frame type {other:?}")),
    }
}

/// The number of a signal.
fn signal(name: &str) -> Option<i32> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    Some(match name {
        "HUP" => 1,
        "INT" => 2,
        "QUIT" => 3,
        "KILL" => 9,
        "USR1" => 10,
        "USR2" => 12,
        "TERM" => 15,
        "CONT" => 18,
        "STOP" => 19,
        "TSTP" => 20,
        "WINCH" => 28,
        _ => return None,
    })
}

fn text(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

fn error(code: &str, message: &str) -> Message {
    text(&json!({ "type": "error", "code": code, "error": message }))
}

/// Sends a message; `None` if the client has left.
async fn send(socket: &mut WebSocket, message: Message) -> Option<()> {
    socket.send(message).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Option<SessionInput>, String> {
        input(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn text_messages_are_input_sizes_and_signals() {
        let stdin = SessionInput::Stdin { data: b"ls\n".into() };
        assert_eq!(parse(r#"{"type":"stdin","data":"ls\n"}"#), Ok(Some(stdin)));
        let size = SessionInput::Resize(Terminal { rows: 40, columns: 120 });
        assert_eq!(parse(r#"{"type":"resize","cols":120,"rows":40}"#), Ok(Some(size)));
        let interrupt = SessionInput::Signal { signal: 2 };
        assert_eq!(parse(r#"{"type":"signal","signal":"SIGINT"}"#), Ok(Some(interrupt)));
        assert_eq!(parse(r#"{"type":"ping"}"#), Ok(None));
        for wrong in
            [r#"{"type":"resize"}"#, r#"{"type":"signal","signal":"SIGX"}"#, r#"{"type":"x"}"#]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
