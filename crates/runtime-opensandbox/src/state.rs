//! Whether a sandbox runs, as the server says, and its end.

use stockade_core::SandboxId;
use stockade_runtime::{EndCause, Result, State, Status};

use crate::SERVICE;
use crate::client::OpenSandbox;
use crate::commands::interrupt;
use crate::record::Record;
use crate::status::{mark_ended, status};

impl OpenSandbox {
    /// The state of a sandbox, as the server says.
    pub(crate) async fn state(&self, id: &SandboxId) -> Result<Status> {
        let record = self.current(id).await?;
        let Some(remote) = record.remote.clone() else { return Ok(status(&record)) };
        if record.ended.is_some() {
            if self.records()?.get(id)?.ended.is_none() {
                self.finish(id, EndCause::LeaseExpired).await?;
            }
            return Ok(status(&record));
        }
        let found = self.server_of(&record)?.get_sandbox(&remote).await;
        match found {
            Ok(found) => match found.status.state.as_str() {
                "Terminated" | "Failed" | "Stopping" => {
                    let ended = self.lost(id, found.status.reason).await?;
                    Ok(status(&ended))
                }
                "Pausing" | "Paused" => Ok(Status { state: State::Paused, ..status(&record) }),
                _ => Ok(status(&record)),
            },
            Err(failure) if matches!(failure.status(), Some(404 | 410)) => {
                let ended = self.lost(id, None).await?;
                Ok(status(&ended))
            }
            Err(failure) => Err(failure.of_reading(SERVICE, id)),
        }
    }

    /// Records that the server has no sandbox any more.
    async fn lost(&self, id: &SandboxId, reason: Option<String>) -> Result<Record> {
        let reason = reason.unwrap_or_else(|| "the server has ended it".to_owned());
        let end = |record: &mut Record| {
            record.ended.get_or_insert((EndCause::ProcessesLost, reason));
        };
        self.records()?.change(id, end).await
    }

    /// Ends all commands of a sandbox; its files stay at the server until it is removed.
    pub(crate) async fn finish(&self, id: &SandboxId, cause: EndCause) -> Result<()> {
        let record = self.records()?.get(id)?;
        if record.ended.is_none() && record.remote.is_some() {
            let execd = self.execd(&record).await?;
            for (exec, found) in record.execs.iter().filter(|(_, exec)| exec.ending.is_none()) {
                let ended = interrupt(&execd, exec, found).await;
                ended.map_err(|failure| failure.of_sandbox(SERVICE, id, "the end"))?;
            }
        }
        let end = |record: &mut Record| *record = mark_ended(record.clone(), cause);
        self.records()?.change(id, end).await.map(drop)
    }
}
