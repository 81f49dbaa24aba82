//! The events of a session on their way to its caller, who receives all, however slowly it reads. The output of a command
//! that was killed waits only for a caller that still reads: one may have requested the kill and wait for its response.

use std::time::Duration;

use stockade_api::{OutputEnd, Result, SessionEvent};
use tokio::sync::mpsc;

use crate::kill_notices::KillNotice;

/// How long the caller of a session may take to receive each event, once the command was killed.
const PATIENCE: Duration = Duration::from_secs(1);

/// The caller of a session.
#[derive(Debug)]
pub(super) struct SessionEvents {
    caller: mpsc::Sender<Result<SessionEvent>>,
    kill: KillNotice,
    /// The caller receives nothing any more.
    is_given_up: bool,
    /// How many bytes of output the caller did not receive.
    lost_bytes: u64,
}

impl SessionEvents {
    pub(super) const fn new(caller: mpsc::Sender<Result<SessionEvent>>, kill: KillNotice) -> Self {
        Self { caller, kill, is_given_up: false, lost_bytes: 0 }
    }

    /// Sends an event. A caller that has disconnected receives nothing. Cancel-safe, but for [`SessionEvents::lose`].
    pub(super) async fn send(&mut self, event: SessionEvent) {
        let length = length_bytes(&event);
        if self.is_given_up {
            return self.lose(length);
        }
        tokio::select! {
            biased;
            _ = self.caller.send(Ok(event)) => {}
            () = self.kill.passed(PATIENCE) => {
                self.is_given_up = true;
                self.lose(length);
            }
        }
    }

    /// Records output that is not sent.
    pub(super) const fn lose(&mut self, bytes: u64) {
        self.lost_bytes = self.lost_bytes.saturating_add(bytes);
    }

    /// Sends the end, and before it how much the caller did not receive.
    pub(super) async fn end(&mut self, end: OutputEnd) {
        // The caller may have begun to read again.
        self.is_given_up = false;
        if self.lost_bytes > 0 {
            self.send(SessionEvent::Lost { bytes: self.lost_bytes }).await;
        }
        self.send(SessionEvent::Ended(end)).await;
    }
}

/// How many bytes of output an event contains.
pub(super) const fn length_bytes(event: &SessionEvent) -> u64 {
    match event {
        SessionEvent::Stdout { data } | SessionEvent::Stderr { data } => data.0.len() as u64,
        SessionEvent::Lost { bytes } => *bytes,
        SessionEvent::Ended(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use stockade_api::Ending;
    use stockade_core::ExecId;

    use super::*;
    use crate::kill_notices::KillNotices;

    fn output(text: &str) -> SessionEvent {
        SessionEvent::Stdout { data: text.as_bytes().into() }
    }

    fn end() -> OutputEnd {
        OutputEnd {
            ending: Ending::Killed,
            exit_code: None,
            signal: None,
            reason: None,
            duration_ms: 0,
            stdout_bytes: 0,
            stderr_bytes: 0,
            refused_calls: Vec::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_output_of_a_killed_command_is_given_up() {
        let (notices, exec) = (KillNotices::default(), ExecId::new("x-1").unwrap());
        let (caller, mut received) = mpsc::channel(1);
        let mut events = SessionEvents::new(caller, notices.watch(&exec));
        events.send(output("one")).await;
        let long = Duration::from_secs(3600);
        let waits = tokio::time::timeout(long, events.send(output("two"))).await;
        assert!(waits.is_err());
        notices.give(&exec);
        events.send(output("three")).await;
        events.send(output("four")).await;
        assert_eq!(received.recv().await.unwrap().unwrap(), output("one"));
        let (_, ()) = tokio::join!(events.end(end()), async {
            let lost = received.recv().await.unwrap().unwrap();
            assert_eq!(lost, SessionEvent::Lost { bytes: 9 });
            assert_eq!(received.recv().await.unwrap().unwrap(), SessionEvent::Ended(end()));
        });
    }

    /// A caller that reads slowly receives everything, also after the kill.
    #[tokio::test(start_paused = true)]
    async fn a_caller_that_reads_receives_all() {
        let (notices, exec) = (KillNotices::default(), ExecId::new("x-1").unwrap());
        let (caller, mut received) = mpsc::channel(1);
        let mut events = SessionEvents::new(caller, notices.watch(&exec));
        notices.give(&exec);
        let reader = async {
            let mut seen = 0;
            while let Some(event) = received.recv().await {
                seen += length_bytes(&event.unwrap());
                tokio::time::sleep(PATIENCE / 2).await;
            }
            seen
        };
        let writer = async {
            for _ in 0..20 {
                events.send(output("x")).await;
            }
            events.end(end()).await;
            drop(events);
        };
        assert_eq!(tokio::join!(reader, writer).0, 20);
    }
}
