//! A session over a connection: frames in both directions.

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use stockade_api::wire::{read_event, write_input};
use stockade_api::{Items, OperationId, Result, Session, SessionEvent, SessionInput};
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc;

use crate::{CHANNEL_CAPACITY, unreachable};

type Connection = TokioIo<Upgraded>;

/// Creates a session over a connection.
pub(crate) fn open(id: String, connection: Connection) -> Session {
    let (from, to) = split(connection);
    let (events, event_receiver) = mpsc::channel(CHANNEL_CAPACITY);
    let (input, input_receiver) = mpsc::channel(CHANNEL_CAPACITY);
    tokio::spawn(receive_events(from, events));
    tokio::spawn(send_input(to, input_receiver));
    Session { workflow_id: OperationId(id), events: Items::new(event_receiver), input }
}

/// Reads frames until the end: the end of the command, or an error.
async fn receive_events(
    mut from: ReadHalf<Connection>,
    events: mpsc::Sender<Result<SessionEvent>>,
) {
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
async fn send_input(
    mut to: WriteHalf<Connection>,
    mut input_receiver: mpsc::Receiver<SessionInput>,
) {
    while let Some(input) = input_receiver.recv().await {
        if write_input(&mut to, &input).await.is_err() {
            return;
        }
    }
    // Output of the command may still be received.
    let _ = to.shutdown().await;
}
