//! [`OpenSandbox`]: the server, the records of the data directory, and the way to `execd` of a sandbox. The
//! operations are in other modules.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use stockade_core::SandboxId;
use stockade_core::runtime::{RuntimeName, Support};
use stockade_core::sandbox::User;
use stockade_runtime::{Capability, EndCause, Error, Result, Unsupported};
use stockade_runtime_remote::{Records, now_ms};

use crate::SERVICE;
use crate::address::Address;
use crate::execd::Execd;
use crate::lifecycle::Server;
use crate::record::Record;
use crate::status::mark_ended;

/// How sandboxes elsewhere are held.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data directory.
    pub data: PathBuf,
    /// The server, or why the environment names none.
    pub address: std::result::Result<Option<Address>, String>,
}

/// Sandboxes that a server of OpenSandbox holds.
#[derive(Debug, Clone)]
pub struct OpenSandbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    server: std::result::Result<Server, Unsupported>,
    records: OnceLock<Records<Record>>,
    /// The numbers of owners by a sandbox and their names.
    owners: Mutex<HashMap<OwnerNames, User>>,
}

/// A sandbox, a user and a group.
type OwnerNames = (SandboxId, String, String);

/// How many owners are remembered.
const OWNERS: usize = 1000;

impl OpenSandbox {
    /// The sandboxes of a data directory. Nothing is asked before there is a request.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let unset = || Unsupported {
            reason: "no server of OpenSandbox is configured".to_owned(),
            remedy: Some(
                "OPENSANDBOX_DOMAIN=HOST:PORT OPENSANDBOX_API_KEY=KEY stockade serve".to_owned(),
            ),
        };
        let invalid = |reason| Unsupported { reason, remedy: None };
        let server = match options.address {
            Ok(Some(address)) => Server::new(&address).map_err(invalid),
            Ok(None) => Err(unset()),
            Err(reason) => Err(invalid(reason)),
        };
        let directory = options.data.join("runtime-opensandbox");
        Self(Arc::new(Inner {
            directory,
            server,
            records: OnceLock::new(),
            owners: Mutex::default(),
        }))
    }

    pub(crate) fn known_owner(&self, names: &OwnerNames) -> Option<User> {
        self.0.owners.lock().unwrap_or_else(PoisonError::into_inner).get(names).copied()
    }

    pub(crate) fn remember_owner(&self, names: OwnerNames, owner: User) {
        let mut owners = self.0.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.len() >= OWNERS {
            owners.clear();
        }
        owners.insert(names, owner);
    }

    /// The server, or why none is configured.
    pub(crate) fn configured(&self) -> std::result::Result<&Server, Unsupported> {
        self.0.server.as_ref().map_err(Clone::clone)
    }

    /// The server, which an operation needs.
    pub(crate) fn server(&self) -> Result<&Server> {
        self.configured().map_err(|missing| Error::Unavailable {
            what: "the server of OpenSandbox".to_owned(),
            reason: missing.reason,
            remedy: missing.remedy.unwrap_or_else(|| "correct the variable".to_owned()),
        })
    }

    /// The file that says what the copy of the workspace of a sandbox was.
    pub(crate) fn base(&self, id: &SandboxId) -> PathBuf {
        self.0.directory.join("workspaces").join(format!("{id}.json"))
    }

    /// Whether there may be records.
    pub(crate) fn has_records(&self) -> bool {
        self.0.directory.exists()
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
    pub(crate) async fn current(&self, id: &SandboxId) -> Result<Record> {
        let record = self.records()?.get(id)?;
        let is_over = record.lease_until_ms.is_some_and(|until| until <= now_ms());
        if !is_over || record.ended.is_some() {
            return Ok(record);
        }
        Ok(mark_ended(record, EndCause::LeaseExpired))
    }

    /// `execd` of a sandbox.
    pub(crate) async fn execd(&self, record: &Record) -> Result<Execd> {
        let Some(remote) = &record.remote else {
            return Err(Error::OutcomeUnknown(format!("the creation of {}", record.id)));
        };
        let place = self.server()?.execd(remote).await;
        place.map(Execd).map_err(|failure| failure.of_reading(SERVICE, &record.id))
    }

    /// `execd` of a sandbox whose files can be reached.
    pub(crate) async fn usable(&self, id: &SandboxId) -> Result<Execd> {
        let record = self.current(id).await?;
        self.execd(&record).await
    }

    /// The refusal of a capability that the interface does not have.
    pub(crate) fn refused(capability: Capability) -> Error {
        let reason = missing(capability).unwrap_or("it is not supported here").to_owned();
        (capability, Unsupported { reason, remedy: None }).into()
    }
}

/// The reason why the interface does not have a capability; `None` if it does.
pub(crate) const fn missing(capability: Capability) -> Option<&'static str> {
    match RuntimeName::OpenSandbox.declares(capability) {
        Support::No(reason) => Some(reason),
        Support::Yes | Support::Conditional(_) => None,
    }
}
