//! Input that is streamed to a command: each piece is a numbered file inside, which the script of the
//! command passes on in order, and a last file says that none follows.

use std::io::Cursor;
use std::time::Duration;

use stockade_core::{ExecId, SandboxId};
use stockade_runtime::{Error, Input, Result};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::SERVICE;
use crate::client::OpenSandbox;
use crate::execd::{Execd, NewFile};
use crate::record::Record;
use crate::script::{self, CLOSED, PIECE};

/// How often it is checked whether a command that gets or reads no input has ended.
const INTERVAL: Duration = Duration::from_millis(300);
/// The first pause between two looks at a piece that is not read.
const SHORTEST: Duration = Duration::from_millis(10);
/// How many pieces may wait inside until the command reads them.
const WAITING: u64 = 4;

impl OpenSandbox {
    /// The handle of a command's input.
    pub(crate) fn feed(&self, id: &SandboxId, exec: &ExecId) -> Input {
        let (sender, receiver) = mpsc::channel(1);
        let (runtime, id, exec) = (self.clone(), id.clone(), exec.clone());
        tokio::spawn(async move {
            if let Err(error) = runtime.pass_all(&id, &exec, receiver).await {
                tracing::warn!(%error, "an input cannot be passed on");
            }
        });
        Input::new(sender)
    }

    /// Passes on all pieces. It ends when the command has ended, so that the next write fails.
    async fn pass_all(
        &self,
        id: &SandboxId,
        exec: &ExecId,
        mut pieces: mpsc::Receiver<Option<Vec<u8>>>,
    ) -> Result<()> {
        let mut checked = Instant::now();
        loop {
            if checked.elapsed() >= INTERVAL {
                checked = Instant::now();
                if self.has_ended(id, exec).await {
                    return Ok(());
                }
            }
            match tokio::time::timeout(INTERVAL, pieces.recv()).await {
                // Other handles of the input may follow: it stays open.
                Ok(None) => return Ok(()),
                Ok(Some(None)) => return self.close_input(id, exec).await,
                Ok(Some(Some(bytes))) => self.pass_on(id, exec, bytes).await?,
                Err(_) => {}
            }
        }
    }

    async fn has_ended(&self, id: &SandboxId, exec: &ExecId) -> bool {
        match self.ending(id, exec).await {
            Ok(ending) => ending.is_some(),
            Err(error) => matches!(error, Error::NoSandbox(_) | Error::NoExec { .. }),
        }
    }

    async fn pass_on(&self, id: &SandboxId, exec: &ExecId, bytes: Vec<u8>) -> Result<()> {
        let mut number = 0;
        let count = |record: &mut Record| {
            if let Some(found) = record.execs.get_mut(exec) {
                found.pieces += 1;
                number = found.pieces;
            }
        };
        let record = self.records()?.change(id, count).await?;
        record.exec(exec)?;
        let execd = self.execd(&record).await?;
        let piece = |number: u64| format!("{}/{PIECE}{number}", script::directory(exec));
        if let Some(unread) = number.checked_sub(WAITING).filter(|number| *number > 0) {
            self.wait_until_read(&execd, id, exec, &piece(unread)).await?;
        }
        // The script sees it when it is complete.
        let passed = execd.replace(&piece(number), bytes).await;
        passed.map_err(|failure| failure.of_sandbox(SERVICE, id, "an input"))
    }

    /// Waits until the script has removed a piece, or the command has ended: input that nobody reads must
    /// not fill the disk of the sandbox.
    async fn wait_until_read(
        &self,
        execd: &Execd,
        id: &SandboxId,
        exec: &ExecId,
        piece: &str,
    ) -> Result<()> {
        let mut pause = SHORTEST;
        loop {
            match execd.file(piece).await {
                Ok(_) => {}
                Err(failure) if matches!(failure.status(), Some(400 | 404)) => return Ok(()),
                Err(failure) => return Err(failure.of_reading(SERVICE, id)),
            }
            if self.has_ended(id, exec).await {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(INTERVAL);
        }
    }

    async fn close_input(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        let execd = self.usable(id).await?;
        let path = format!("{}/{CLOSED}", script::directory(exec));
        let file = NewFile { path, mode: Some(0o600), owner: None };
        let closed = execd.upload(&file, Box::pin(Cursor::new(Vec::new()))).await;
        closed.map_err(|failure| failure.of_sandbox(SERVICE, id, "the end of an input"))
    }
}
