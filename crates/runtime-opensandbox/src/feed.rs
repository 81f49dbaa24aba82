//! Input that is streamed to a command: each piece is a numbered file inside, which the script of the
//! command passes on in order, and a last file says that none follows.

use std::io::Cursor;
use std::time::Duration;

use stockade_core::{ExecId, SandboxId};
use stockade_runtime::{Error, Input, Result};
use tokio::sync::mpsc;

use crate::commands::no_exec;
use crate::execd::NewFile;
use crate::runtime::OpenSandbox;
use crate::script::{self, CLOSED, PIECE};

/// How often it is checked whether a command that gets no input has ended.
const INTERVAL: Duration = Duration::from_millis(300);

impl OpenSandbox {
    /// The handle of a command's input.
    pub(crate) fn feed(&self, id: &SandboxId, exec: &ExecId) -> Input {
        let (sender, mut receiver) = mpsc::channel(1);
        let (runtime, id, exec) = (self.clone(), id.clone(), exec.clone());
        tokio::spawn(async move {
            let mut checked = tokio::time::Instant::now();
            loop {
                // Who writes to a command that has ended is told so.
                if checked.elapsed() >= INTERVAL {
                    checked = tokio::time::Instant::now();
                    let ending = runtime.ending(&id, &exec).await;
                    let is_gone = matches!(ending, Err(Error::NoSandbox(_) | Error::NoExec { .. }));
                    if is_gone || matches!(ending, Ok(Some(_))) {
                        return;
                    }
                }
                let piece = tokio::time::timeout(INTERVAL, receiver.recv()).await;
                let passed = match piece {
                    // Other handles of the input may follow: it stays open.
                    Ok(None) => return,
                    Ok(Some(Some(bytes))) => runtime.pass_on(&id, &exec, bytes).await,
                    Ok(Some(None)) => {
                        if let Err(error) = runtime.close_input(&id, &exec).await {
                            tracing::warn!(%error, "an input cannot be closed");
                        }
                        return;
                    }
                    Err(_) => Ok(()),
                };
                if let Err(error) = passed {
                    tracing::warn!(%error, "an input cannot be passed on");
                    return;
                }
            }
        });
        Input::new(sender)
    }

    async fn pass_on(&self, id: &SandboxId, exec: &ExecId, bytes: Vec<u8>) -> Result<()> {
        let mut number = 0;
        let count = |record: &mut crate::record::Record| {
            if let Some(found) = record.execs.get_mut(exec) {
                found.pieces += 1;
                number = found.pieces;
            }
        };
        let record = self.records()?.change(id, count).await?;
        no_exec(&record, exec)?;
        let execd = self.execd(&record).await?;
        let name = format!("{}/{PIECE}{number}", script::directory(exec));
        let new = format!("{name}.new");
        let failed = |failure: crate::failure::Failure| failure.of_sandbox(id, "an input");
        let file = NewFile { path: new.clone(), mode: Some(0o600), owner: None };
        execd.upload(&file, Box::pin(Cursor::new(bytes))).await.map_err(failed)?;
        // The script sees it when it is complete.
        execd.rename(&new, &name).await.map_err(failed)
    }

    async fn close_input(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        let execd = self.usable(id).await?;
        let path = format!("{}/{CLOSED}", script::directory(exec));
        let file = NewFile { path, mode: Some(0o600), owner: None };
        let closed = execd.upload(&file, Box::pin(Cursor::new(Vec::new()))).await;
        closed.map_err(|failure| failure.of_sandbox(id, "the end of an input"))
    }
}
