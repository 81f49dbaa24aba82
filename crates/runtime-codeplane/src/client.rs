//! [`Codeplane`]: its configuration, its records, and the connections to its workspaces.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use stockade_core::SandboxId;
use stockade_core::runtime::{RuntimeName, Support};
use stockade_runtime::{Capability, Content, EndCause, Error, Result, Unsupported};
use stockade_runtime_remote::{Records, Repeat, now_ms};

use crate::address::Address;
use crate::api::Api;
use crate::record::Record;
use crate::shell::{Ran, SHORT, Shell, ShellFailure, Sink};

/// How often a script that may run twice is tried.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(200);

/// How workspaces are held.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data directory.
    pub data: PathBuf,
    /// Where Codeplane is, or what is wrong with the variables.
    pub address: std::result::Result<Address, String>,
}

/// Workspaces that Codeplane holds.
#[derive(Debug, Clone)]
pub struct Codeplane(pub(crate) Arc<Inner>);

/// One connection of a sandbox, made when it is needed.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Shell>>>>;

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) directory: PathBuf,
    pub(crate) api: std::result::Result<Api, String>,
    known_hosts: Option<PathBuf>,
    records: OnceLock<Records<Record>>,
    shells: Mutex<HashMap<SandboxId, Slot>>,
}

impl Codeplane {
    /// The workspaces of a data directory. Nothing is asked before there is a request.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let known_hosts = options.address.as_ref().ok().and_then(|it| it.known_hosts.clone());
        let api = options.address.and_then(|address| Api::new(&address));
        let directory = options.data.join("runtime-codeplane");
        Self(Arc::new(Inner {
            directory,
            api,
            known_hosts,
            records: OnceLock::new(),
            shells: Mutex::default(),
        }))
    }

    pub(crate) fn api(&self) -> Result<&Api> {
        self.0.api.as_ref().map_err(|reason| Error::Invalid(reason.clone()))
    }

    /// The records, whose directory is created when it is needed.
    pub(crate) fn records(&self) -> Result<&Records<Record>> {
        if let Some(records) = self.0.records.get() {
            return Ok(records);
        }
        let opened = Records::open(self.0.directory.clone())?;
        Ok(self.0.records.get_or_init(|| opened))
    }

    /// The record of a sandbox, with the end of its lease.
    pub(crate) fn current(&self, id: &SandboxId) -> Result<Record> {
        let record = self.records()?.get(id)?;
        let is_over = record.lease_until_ms.is_some_and(|until| until <= now_ms());
        Ok(if is_over { record.ended_by(EndCause::LeaseExpired) } else { record })
    }

    /// Runs a script in the workspace of a record.
    pub(crate) async fn run(
        &self,
        record: &Record,
        script: &[u8],
        input: Vec<u8>,
        repeat: Repeat,
    ) -> std::result::Result<Ran, ShellFailure> {
        let Some(remote) = &record.remote else {
            return Err(ShellFailure::Lost(record.name.clone()));
        };
        self.run_at(&record.id, remote, script, input, repeat).await
    }

    /// Runs a script in a workspace. It is repeated after a failure where it may be.
    pub(crate) async fn run_at(
        &self,
        id: &SandboxId,
        remote: &str,
        script: &[u8],
        input: Vec<u8>,
        repeat: Repeat,
    ) -> std::result::Result<Ran, ShellFailure> {
        let mut attempt = 1;
        loop {
            let content: Content = Box::pin(std::io::Cursor::new(input.clone()));
            let ran = match self.shell(id, remote).await {
                Ok(shell) => shell.run(script, Some(content), Sink::Result, SHORT).await,
                Err(failure) => Err(failure),
            };
            let failure = match ran {
                Ok(ran) => return Ok(ran),
                Err(failure) => failure,
            };
            let may_repeat = match repeat {
                Repeat::Always => failure.is_transient(),
                Repeat::IfUnseen => failure.is_unseen(),
            };
            if !may_repeat || attempt == ATTEMPTS {
                return Err(failure);
            }
            tracing::debug!(%id, %failure, "a script is run again");
            tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
            attempt += 1;
        }
    }

    /// Runs a script once whose input or output may be long.
    pub(crate) async fn transfer(
        &self,
        record: &Record,
        script: &[u8],
        input: Option<Content>,
        sink: Sink<'_>,
    ) -> std::result::Result<Ran, ShellFailure> {
        let Some(remote) = &record.remote else {
            return Err(ShellFailure::Lost(record.name.clone()));
        };
        let shell = self.shell(&record.id, remote).await?;
        shell.run(script, input, sink, crate::shell::LONG).await
    }

    /// The connection to a workspace.
    pub(crate) async fn shell(
        &self,
        id: &SandboxId,
        remote: &str,
    ) -> std::result::Result<Arc<Shell>, ShellFailure> {
        let slot = {
            let mut shells = self.0.shells.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(shells.entry(id.clone()).or_default())
        };
        let mut slot = slot.lock().await;
        if let Some(shell) = slot.as_ref().filter(|shell| !shell.is_closed()) {
            return Ok(Arc::clone(shell));
        }
        let shell = Arc::new(self.new_shell(remote).await?);
        *slot = Some(Arc::clone(&shell));
        Ok(shell)
    }

    /// Another connection to a workspace.
    pub(crate) async fn new_shell(&self, remote: &str) -> std::result::Result<Shell, ShellFailure> {
        let unusable =
            |reason: &String| ShellFailure::Connect("Codeplane".to_owned(), reason.clone());
        let access = self.0.api.as_ref().map_err(unusable)?.ssh(remote).await?;
        Shell::connect(&access, self.0.known_hosts.clone()).await
    }

    /// Ends the connection to a workspace, if there is one.
    pub(crate) async fn disconnect(&self, id: &SandboxId) {
        let slot = self.0.shells.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(slot) = slot
            && let Some(shell) = slot.lock().await.take()
        {
            shell.close().await;
        }
    }

    /// The refusal of a capability that a workspace does not have.
    pub(crate) fn refused(capability: Capability) -> Error {
        let reason = missing(capability).unwrap_or("it is not supported here").to_owned();
        (capability, Unsupported { reason, remedy: None }).into()
    }
}

/// The reason why workspaces do not have a capability; `None` if they do.
pub(crate) const fn missing(capability: Capability) -> Option<&'static str> {
    match RuntimeName::Codeplane.declares(capability) {
        Support::No(reason) => Some(reason),
        Support::Yes | Support::Conditional(_) => None,
    }
}
