//! The input of a command: a call of its own, in which each piece is confirmed when the command's side has taken it.
//! After a lost connection no piece is sent twice: one that was not confirmed ends the input.

use stockade_core::{ExecId, SandboxId};
use stockade_pod::{Frame, Request};
use stockade_runtime::Input;
use tokio::sync::mpsc;

use crate::client::Kubernetes;
use crate::session::Session;

/// The size of the pieces.
const PIECE: usize = 64 << 10;

/// The task that writes the input of a command.
#[derive(Debug)]
pub(crate) struct InputTask(tokio::task::JoinHandle<()>);

impl InputTask {
    /// Starts it. A connection is made when there is something to write.
    pub(crate) fn start(runtime: &Kubernetes, id: &SandboxId, exec: &ExecId) -> (Input, Self) {
        let (sender, receiver) = mpsc::channel(1);
        let request = Request::Input { exec: exec.clone() };
        let task = tokio::spawn(write(runtime.clone(), id.clone(), request, receiver));
        (Input::new(sender), Self(task))
    }

    /// Ends it, and returns when nothing is accepted any more.
    pub(crate) async fn stop(self) {
        self.0.abort();
        // It was aborted, or has ended.
        let _ = self.0.await;
    }
}

async fn write(
    runtime: Kubernetes,
    id: SandboxId,
    request: Request,
    mut pieces: mpsc::Receiver<Option<Vec<u8>>>,
) {
    let mut open: Option<Session> = None;
    while let Some(piece) = pieces.recv().await {
        let frames: Vec<_> = match &piece {
            Some(bytes) => bytes.chunks(PIECE).map(|piece| Frame::Data(piece.to_vec())).collect(),
            None => vec![Frame::End],
        };
        for frame in frames {
            let mut session = match open.take() {
                Some(session) => session,
                None => match runtime.begin(&id, &request, None).await {
                    Ok((_, session)) => session,
                    Err(_) => return,
                },
            };
            if session.sender.send(&frame).await.is_err() {
                return;
            }
            let Ok(Some(Frame::Accepted)) = session.receiver.receive().await else { return };
            open = Some(session);
        }
        if piece.is_none() {
            // The call ends the input, and lives until the command has ended.
            drop(pieces);
            if let Some(mut session) = open {
                let _ = session.receiver.receive().await;
            }
            return;
        }
    }
}
