//! Following a command: its events arrive through a call, and after a lost connection through another one, from
//! where the last one ended.

use std::time::Duration;

use stockade_core::{ExecId, SandboxId};
use stockade_pod::{Frame, Reply, Request};
use stockade_runtime::{Ending, Error, Event, Events, Exec, Offsets, Stream};
use tokio::sync::mpsc;

use crate::client::Kubernetes;
use crate::input::InputTask;
use crate::session::{Receiver, Session};

/// How many events wait for a reader; then the command's side waits.
const WAITING: usize = 16;
/// How often a connection is made again in a row, and the first pause before that.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(100);

/// Follows a command through a call that has replied, from these offsets on.
pub(crate) fn follow(
    runtime: &Kubernetes,
    (id, exec): (&SandboxId, &ExecId),
    from: Offsets,
    session: Session,
    has_input: bool,
) -> Exec {
    let (sender, receiver) = mpsc::channel(WAITING);
    let input = has_input.then(|| InputTask::start(runtime, id, exec));
    let (input, task) = input.map_or((None, None), |(input, task)| (Some(input), Some(task)));
    let follower = Follower {
        runtime: runtime.clone(),
        id: id.clone(),
        exec: exec.clone(),
        at: from,
        sender,
        input: task,
    };
    tokio::spawn(follower.run(session));
    Exec { events: Events::new(receiver), input }
}

struct Follower {
    runtime: Kubernetes,
    id: SandboxId,
    exec: ExecId,
    at: Offsets,
    sender: mpsc::Sender<Event>,
    input: Option<InputTask>,
}

/// Why a call brings no more events.
enum Stop {
    /// The command has ended, or nobody listens.
    Over,
    /// The connection is lost.
    Lost,
}

impl Follower {
    async fn run(mut self, session: Session) {
        let mut session = Some(session);
        let (mut failures, mut pause) = (0, PAUSE);
        loop {
            if let Some(session) = session.take() {
                let before = self.at;
                // The sender stays open: its end would be the end of the call.
                let Session { sender: _sender, mut receiver } = session;
                match self.relay(&mut receiver).await {
                    Stop::Over => return,
                    Stop::Lost if self.at != before => (failures, pause) = (0, PAUSE),
                    Stop::Lost => {}
                }
            }
            failures += 1;
            if failures > ATTEMPTS {
                // Without an ending, it is reported as unknown.
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.sender.closed() => return,
            }
            pause *= 2;
            let request = Request::Attach { exec: self.exec.clone(), from: self.at };
            let ending = match self.runtime.begin(&self.id, &request, None).await {
                Ok((_, again)) => {
                    session = Some(again);
                    continue;
                }
                Err(Error::NoSandbox(_) | Error::WrongState { .. } | Error::OutcomeUnknown(_)) => {
                    Ending::SandboxEnded
                }
                Err(Error::NoExec { .. }) => Ending::Unknown,
                Err(_) => continue,
            };
            self.end(ending).await;
            return;
        }
    }

    /// Passes on what a call brings.
    async fn relay(&mut self, receiver: &mut Receiver) -> Stop {
        loop {
            let frame = tokio::select! {
                frame = receiver.receive() => frame,
                () = self.sender.closed() => return Stop::Over,
            };
            let event = match frame {
                Ok(Some(Frame::Output { stream, offset, bytes })) => {
                    *self.position(stream) = offset.saturating_add(bytes.len() as u64);
                    Event::Output { stream, offset, bytes }
                }
                Ok(Some(Frame::Message(message))) => match serde_json::from_slice(&message) {
                    Ok(Reply::Lost { is_error, offset, length }) => {
                        let stream = if is_error { Stream::Error } else { Stream::Output };
                        *self.position(stream) = offset.saturating_add(length);
                        Event::Lost { stream, offset, length }
                    }
                    Ok(Reply::RefusedCalls(names)) => Event::RefusedCalls(names),
                    Ok(Reply::Ended(ending)) => {
                        self.end(ending).await;
                        return Stop::Over;
                    }
                    _ => return Stop::Lost,
                },
                _ => return Stop::Lost,
            };
            if self.sender.send(event).await.is_err() {
                return Stop::Over;
            }
        }
    }

    fn position(&mut self, stream: Stream) -> &mut u64 {
        match stream {
            Stream::Output => &mut self.at.output,
            Stream::Error => &mut self.at.error,
        }
    }

    async fn end(&mut self, ending: Ending) {
        // Who has read the end may not write any more.
        if let Some(input) = self.input.take() {
            input.stop().await;
        }
        // Nobody may listen any more.
        let _ = self.sender.send(Event::Ended(ending)).await;
    }
}
