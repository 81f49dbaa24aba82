//! A session over a connection: frames in both directions.

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use stockade_api::wire::{read_event, write_input};
use stockade_api::{Items, OperationId, Result, Session, SessionEvent, SessionInput};
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc;

use crate::{AHEAD, unreachable};

type Connection = TokioIo<Upgraded>;

/// Creates a session over a connection.
pub(crate) fn over(id: String, connection: Connection) -> Session {
    let (from, to) = split(connection);
    let (events, heard) = mpsc::channel(AHEAD);
    let (input, said) = mpsc::channel(AHEAD);
    tokio::spawn(hear(from, events));
    tokio::spawn(say(to, said));
    Session { workflow_id: OperationId(id), events: Items::new(heard), input }
}

/// Reads frames until the end: the end of the command, or an error.
async fn hear(mut from: ReadHalf<Connection>, events: mpsc::Sender<Result<SessionEvent>>) {
    loop {
        let event = match read_event(&mut from).await {
            Ok(Some(event)) => event,
            Ok(None) => Err(unreachable("it closed the session")),
            Err(error) => Err(unreachable(error)),
        };
        let last = matches!(event, Err(_) | Ok(SessionEvent::Ended(_)));
        if events.send(event).await.is_err() || last {
            return;
        }
    }
}

/// Writes frames until all senders are dropped. The other side treats that as the end of the
/// input.
async fn say(mut to: WriteHalf<Connection>, mut said: mpsc::Receiver<SessionInput>) {
    while let Some(input) = said.recv().await {
        if write_input(&mut to, &input).await.is_err() {
            return;
        }
    }
    // Output of the command may still be received.
    let _ = to.shutdown().await;
}
