//! Creating a sandbox at the server once, also when an answer is lost, and waiting until it can be used.

use std::time::Duration;

use stockade_core::sandbox::Root;
use stockade_core::{SandboxId, SandboxSpec};
use stockade_runtime::{Capability, Error, Result, Status};
use stockade_runtime_remote::{Failure, Records};

use crate::SERVICE;
use crate::client::OpenSandbox;
use crate::execd::Execd;
use crate::lifecycle::{RemoteSandbox, Server};
use crate::record::Record;
use crate::request::{ID, OWNER, fingerprint, image_error, new_record, new_sandbox};
use crate::status::{mark_lease, status};

/// How long a sandbox may take to start.
const START: Duration = Duration::from_secs(120);
const START_POLL: Duration = Duration::from_millis(50);

impl OpenSandbox {
    /// Refuses what cannot be requested.
    fn check(&self, spec: &SandboxSpec) -> Result<()> {
        let requested = [
            (spec.private_base, Capability::PrivateBase),
            (!spec.volumes.is_empty() || !spec.caches.is_empty(), Capability::Volumes),
            (spec.ssh_agent, Capability::SshAgent),
            (!spec.access.is_empty(), Capability::AccessRules),
            (spec.network.is_some(), Capability::Egress),
            (matches!(spec.root, Root::Snapshot(_)), Capability::Snapshot),
            (spec.user.is_some() || !spec.groups.is_empty(), Capability::Users),
        ];
        if let Some((_, capability)) = requested.iter().find(|(requested, _)| *requested) {
            return Err(Self::refused(*capability));
        }
        if matches!(spec.root, Root::Directory(_)) {
            let text = "a directory of this host cannot be the root of a sandbox elsewhere";
            return Err(Error::Invalid(text.to_owned()));
        }
        Ok(())
    }

    /// Creates a sandbox, or finds the one with this id that was created before.
    pub(crate) async fn make(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        self.check(spec)?;
        let server = self.server()?;
        let records = self.records()?;
        let _lock = records.lock(id).await?;
        let requested = fingerprint(spec)?;
        let mut record = match records.find(id)? {
            Some(record) if record.requested != requested => {
                return Err(Error::Conflict(format!("the sandbox {id}")));
            }
            Some(record) if record.remote.is_some() && !record.is_being_filled => {
                return Ok(status(&mark_lease(record)));
            }
            // A creation that was not finished.
            Some(record) => record,
            None => {
                let record = new_record(id, spec, requested)?;
                records.store(&record)?;
                record
            }
        };
        let made = async {
            record.remote = Some(self.create_remote(server, records, &record, spec).await?);
            records.store(&record)?;
            if record.is_being_filled {
                self.fill(&record, spec).await?;
                record.is_being_filled = false;
                records.store(&record)?;
            }
            Ok::<_, Error>(status(&record))
        };
        match made.await {
            Ok(status) => Ok(status),
            Err(error) => {
                // Where it is unknown whether there is one, the record stays, and it is looked for.
                if matches!(error, Error::OutcomeUnknown(_) | Error::Unreachable { .. }) {
                    return Err(error);
                }
                if let Some(remote) = &record.remote {
                    // Nothing is left there of what cannot be used.
                    let deleted = server.delete(remote).await;
                    deleted.map_err(|failure| failure.of_sandbox(SERVICE, id, "the creation"))?;
                    self.forget_base(id)?;
                }
                records.remove(id)?;
                Err(error)
            }
        }
    }

    /// Creates the sandbox at the server, or finds the one that an earlier attempt has created.
    async fn create_remote(
        &self,
        server: &Server,
        records: &Records<Record>,
        record: &Record,
        spec: &SandboxSpec,
    ) -> Result<String> {
        let id = &record.id;
        let failed = |failure: Failure| failure.of_sandbox(SERVICE, id, "the creation");
        let found = server.list(&[(OWNER, &records.owner), (ID, id.as_str())]).await;
        let created = match found.map_err(failed)?.into_iter().next() {
            Some(found) => found,
            None => {
                let new = new_sandbox(records, id, spec)?;
                let created = server.create(&new).await;
                match created {
                    Ok(created) => created,
                    // It may have been created although no answer came.
                    Err(failure @ (Failure::Lost(..) | Failure::TimedOut(_))) => {
                        let wanted = [(OWNER, records.owner.as_str()), (ID, id.as_str())];
                        let found = server.list(&wanted).await.map_err(failed)?.into_iter().next();
                        found.ok_or_else(|| failed(failure))?
                    }
                    Err(failure) => return Err(image_error(failure, id, spec)),
                }
            }
        };
        let ready = self.wait_until_ready(server, id, created).await;
        match ready {
            Ok(remote) => Ok(remote),
            Err((remote, error)) => {
                // Nothing is left there of what cannot be used.
                server.delete(&remote).await.map_err(failed)?;
                Err(error)
            }
        }
    }

    async fn wait_until_ready(
        &self,
        server: &Server,
        id: &SandboxId,
        created: RemoteSandbox,
    ) -> std::result::Result<String, (String, Error)> {
        let end = tokio::time::Instant::now() + START;
        let remote = created.id.clone();
        let failed = |error| (remote.clone(), error);
        let mut now = created;
        loop {
            match now.status.state.as_str() {
                "Running" => {
                    let place = server.execd(&now.id).await;
                    let place = place.map_err(|f| failed(f.of_reading(SERVICE, id)))?;
                    if Execd(place).ping().await.is_ok() {
                        return Ok(now.id);
                    }
                }
                "Failed" | "Terminated" | "Stopping" => {
                    let reason = now.status.reason.unwrap_or_else(|| now.status.state.clone());
                    return Err(failed(Error::Exhausted(format!("the server reports: {reason}"))));
                }
                _ => {}
            }
            if tokio::time::Instant::now() >= end {
                return Err(failed(Error::Deadline("start a sandbox at the server")));
            }
            tokio::time::sleep(START_POLL).await;
            now =
                server.get_sandbox(&remote).await.map_err(|f| failed(f.of_reading(SERVICE, id)))?;
        }
    }
}
