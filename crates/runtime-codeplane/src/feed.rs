//! Input that is streamed to a command: each piece is a numbered file inside, which the script of the
//! command passes on in order, and a last file says that none follows.

use std::time::Duration;

use stockade_core::{ExecId, SandboxId};
use stockade_runtime::{Error, Input, Offsets, Result};
use stockade_runtime_remote::Repeat;
use tokio::sync::mpsc;

use crate::client::Codeplane;
use crate::record::Record;
use crate::script::{self, CLOSED, PIECE};

/// How often it is checked whether a command that gets no input has ended.
const INTERVAL: Duration = Duration::from_millis(300);

impl Codeplane {
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
                    // Only the end is asked for, not the output.
                    let far = Offsets { output: u64::MAX >> 2, error: u64::MAX >> 2 };
                    let look = runtime.look(&id, &exec, far).await;
                    let is_gone = matches!(look, Err(Error::NoSandbox(_) | Error::NoExec { .. }));
                    if is_gone || look.is_ok_and(|look| look.ending.is_some()) {
                        return;
                    }
                }
                let passed = match tokio::time::timeout(INTERVAL, receiver.recv()).await {
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
        let count = |record: &mut Record| {
            if let Some(found) = record.execs.get_mut(exec) {
                found.pieces += 1;
                number = found.pieces;
            }
        };
        let record = self.records()?.change(id, count).await?;
        record.exec(exec)?;
        let own = script::directory(&record.directory(), exec);
        self.store(&record, &format!("{own}/{PIECE}{number}"), bytes).await
    }

    async fn close_input(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        let record = self.current(id)?;
        let own = script::directory(&record.directory(), exec);
        self.store(&record, &format!("{own}/{CLOSED}"), Vec::new()).await
    }

    /// Stores a file of a command, which its script sees when it is complete. The script removes it, so it
    /// is not sent again if it may have been stored.
    async fn store(&self, record: &Record, path: &str, bytes: Vec<u8>) -> Result<()> {
        let text = script::store(path, bytes.len());
        let ran = self.run(record, text.as_bytes(), bytes, Repeat::IfUnseen).await;
        match ran.map_err(|failure| failure.of_sandbox(&record.id, "an input"))?.code {
            0 => Ok(()),
            _ => Err(Error::Invalid("the command's input is closed".to_owned())),
        }
    }
}
