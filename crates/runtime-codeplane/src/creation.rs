//! Making a sandbox of a workspace, and removing it.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use stockade_core::sandbox::{LimitName, RemoteWorkspace, Root};
use stockade_core::{SandboxId, SandboxSpec};
use stockade_runtime::{Capability, Error, Result, SandboxPath, Status};
use stockade_runtime_remote::{Copies, Failure, Repeat, now_ms};

use crate::api::{Api, SERVICE, Workspace};
use crate::client::Codeplane;
use crate::record::Record;
use crate::script;
use crate::shell::ShellFailure;
use crate::status::status;

/// How long a workspace may take to start, and between two looks.
const START: Duration = Duration::from_secs(180);
const START_POLL: Duration = Duration::from_millis(100);
/// How much of the name of the data directory is in the names of its workspaces.
const OWNER_CHARACTERS: usize = 12;

impl Codeplane {
    pub(crate) async fn make(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        let api = self.api()?;
        check(spec)?;
        let records = self.records()?;
        let _lock = records.lock(id).await?;
        let requested = fingerprint(spec)?;
        let mut record = match records.find(id)? {
            Some(record) if record.requested != requested => {
                return Err(Error::Conflict(format!("the sandbox {id}")));
            }
            Some(record) if record.remote.is_some() => return Ok(status(&self.current(id)?)),
            // A creation that was not finished.
            Some(record) => record,
            None => {
                let record = new_record(&records.owner, id, spec, requested)?;
                // Stored first: of two at once, neither misses the other.
                records.store(&record)?;
                if let Err(used) = self.is_free(&record) {
                    records.remove(id)?;
                    return Err(used);
                }
                record
            }
        };
        match self.prepare(api, &mut record, spec).await {
            Ok(()) => {
                records.store(&record)?;
                Ok(status(&record))
            }
            Err(error) => {
                // Where it is unknown whether there is one, the record stays, and it is looked for.
                if !matches!(error, Error::OutcomeUnknown(_) | Error::Unreachable { .. }) {
                    self.release(api, &record).await?;
                    records.remove(id)?;
                }
                Err(error)
            }
        }
    }

    /// Refuses a workspace of the user that another sandbox uses.
    fn is_free(&self, record: &Record) -> Result<()> {
        let is_other = |other: &Record| other.name == record.name && other.id != record.id;
        match self.records()?.all()?.into_iter().find(is_other) {
            None => Ok(()),
            Some(other) => {
                let (name, user) = (&record.name, other.id);
                Err(Error::Invalid(format!("the sandbox {user} uses the workspace {name}")))
            }
        }
    }

    /// Creates the workspace or finds it, and makes it ready.
    async fn prepare(&self, api: &Api, record: &mut Record, spec: &SandboxSpec) -> Result<()> {
        let id = record.id.clone();
        let snapshot = spec.remote_workspace.as_ref().and_then(|it| it.snapshot.as_deref());
        let created = create_or_find(api, record, snapshot).await?;
        let remote = created.id.clone();
        wait_until_running(api, &id, created).await?;
        let variables =
            spec.environment.iter().map(|(name, value)| (name.as_str(), value.0.as_slice()));
        let environment = script::assignments(variables);
        let text = script::prepare(&record.directory(), environment.len());
        let failed = |failure: ShellFailure| failure.of_sandbox(&id, "the creation");
        let ran = self.run_at(&id, &remote, text.as_bytes(), environment, Repeat::Always).await;
        let ran = ran.map_err(failed)?;
        if ran.code != 0 {
            let directory = record.directory();
            return Err(Error::Invalid(format!("{directory} cannot be made: {}", ran.errors)));
        }
        record.remote = Some(remote);
        let copied = self.copy_all(record, spec).await;
        if copied.is_err() {
            record.remote = None;
        }
        copied
    }

    /// Copies what the sandbox sees of the host.
    async fn copy_all(&self, record: &Record, spec: &SandboxSpec) -> Result<()> {
        if let Some(workspace) = &spec.workspace {
            let inside = SandboxPath::new(&workspace.inside)?;
            self.copy_workspace(record, &workspace.host, &inside).await?;
        }
        for mount in &spec.mounts {
            self.copy_mount(record, mount).await?;
        }
        Ok(())
    }

    /// Gives a workspace back: one that is kept is suspended, another one is deleted.
    pub(crate) async fn release(&self, api: &Api, record: &Record) -> Result<()> {
        let id = &record.id;
        let failed = |failure: Failure| failure.of_sandbox(SERVICE, id, "the removal");
        // Also what a creation has left whose answer never came.
        let found = api.find(&record.name).await.map_err(failed)?;
        let released = match found {
            Some(workspace) if !record.is_sticky => api.delete(&workspace.id).await.map_err(failed),
            Some(workspace) if workspace.status == "running" => {
                if record.remote.is_some() {
                    self.empty(record).await?;
                }
                api.suspend(&workspace.id).await.map_err(failed)
            }
            _ => Ok(()),
        };
        self.disconnect(id).await;
        released
    }

    /// Ends the commands of a sandbox, and removes its directory from a workspace that is kept.
    async fn empty(&self, record: &Record) -> Result<()> {
        self.kill_all(record).await?;
        let text = format!("rm -rf {}", record.directory());
        let ran = self.run(record, text.as_bytes(), Vec::new(), Repeat::Always).await;
        ran.map(drop).map_err(|failure| failure.of_sandbox(&record.id, "the removal"))
    }
}

/// Creates the workspace, or finds the one that is kept or that an earlier attempt has created.
async fn create_or_find(api: &Api, record: &Record, snapshot: Option<&str>) -> Result<Workspace> {
    let (id, name) = (&record.id, &record.name);
    let failed = |failure: Failure| failure.of_sandbox(SERVICE, id, "the creation");
    if let Some(found) = api.find(name).await.map_err(failed)? {
        let other =
            found.snapshot_id.as_deref().filter(|own| snapshot.is_some_and(|it| it != *own));
        return match other {
            Some(other) => Err(Error::Invalid(format!(
                "the workspace {name} exists, and was restored from the snapshot {other}: name \
                 that one, or another workspace"
            ))),
            None => Ok(found),
        };
    }
    match api.create(name, snapshot).await {
        Ok(created) => Ok(created),
        // It may have been created although no answer came.
        Err(failure @ (Failure::Lost(..) | Failure::TimedOut(_))) => {
            let found = api.find(name).await.map_err(failed)?;
            found.ok_or_else(|| failed(failure))
        }
        Err(failure) if snapshot.is_some() && failure.status() == Some(404) => {
            let snapshot = snapshot.unwrap_or_default();
            Err(Error::Invalid(format!("Codeplane has no snapshot {snapshot}")))
        }
        // There is no sandbox yet that could be missing: it is the repository.
        Err(failure) if failure.status() == Some(404) => {
            Err(Error::Invalid("Codeplane has no such repository, or does not show it".to_owned()))
        }
        Err(failure) => Err(failed(failure)),
    }
}

async fn wait_until_running(api: &Api, id: &SandboxId, created: Workspace) -> Result<()> {
    let end = tokio::time::Instant::now() + START;
    let remote = created.id.clone();
    let mut now = created;
    let mut is_resumed = false;
    loop {
        match now.status.as_str() {
            "running" => return Ok(()),
            "failed" => {
                return Err(Error::Exhausted("Codeplane could not start the workspace".to_owned()));
            }
            "suspended" | "stopped" if !is_resumed => {
                let resumed = api.resume(&remote).await;
                resumed.map_err(|failure| failure.of_sandbox(SERVICE, id, "the creation"))?;
                is_resumed = true;
            }
            _ => {}
        }
        if tokio::time::Instant::now() >= end {
            return Err(Error::Deadline("start a workspace at Codeplane"));
        }
        tokio::time::sleep(START_POLL).await;
        now = api.workspace(&remote).await.map_err(|failure| failure.of_reading(SERVICE, id))?;
    }
}

/// Refuses what a workspace cannot have, before anything is made.
fn check(spec: &SandboxSpec) -> Result<()> {
    let requested = [
        (matches!(spec.root, Root::Image(_)), Capability::Images),
        (matches!(spec.root, Root::Snapshot(_)), Capability::Snapshot),
        (spec.private_base, Capability::PrivateBase),
        (!spec.volumes.is_empty() || !spec.caches.is_empty(), Capability::Volumes),
        (!spec.access.is_empty(), Capability::AccessRules),
        (spec.network.is_some(), Capability::Egress),
        (spec.ssh_agent, Capability::SshAgent),
        (spec.user.is_some() || !spec.groups.is_empty() || spec.sudo, Capability::Users),
    ];
    if let Some((_, capability)) = requested.iter().find(|(requested, _)| *requested) {
        return Err(Codeplane::refused(*capability));
    }
    if matches!(spec.root, Root::Directory(_)) {
        let text = "a directory of this host cannot be the root of a workspace elsewhere";
        return Err(Error::Invalid(text.to_owned()));
    }
    Copies::of(spec)?;
    let is_word = |name: &&String| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !name.starts_with(|first: char| first.is_ascii_digit()) && name.bytes().all(is_part)
    };
    if let Some(name) = spec.environment.keys().find(|name| name.is_empty() || !is_word(name)) {
        return Err(Error::Invalid(format!("{name:?} is no name of a variable of a shell")));
    }
    spec.remote_workspace.as_ref().map_or(Ok(()), RemoteWorkspace::check).map_err(Error::Invalid)
}

fn new_record(
    owner: &str,
    id: &SandboxId,
    spec: &SandboxSpec,
    requested: String,
) -> Result<Record> {
    let path = |path: &std::path::Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| Error::Invalid(format!("the path {} is not text", path.display())))
    };
    let own: String = owner.chars().rev().take(OWNER_CHARACTERS).collect();
    // One that is not kept has a name that no workspace of the user has: it will be deleted.
    let (name, is_sticky) = match &spec.remote_workspace {
        Some(RemoteWorkspace { name, keep: true, .. }) => (name.clone(), true),
        Some(RemoteWorkspace { name, .. }) => (format!("{name}-stockade-{own}-{id}"), false),
        None => (format!("stockade-{own}-{id}"), false),
    };
    let now = now_ms();
    Ok(Record {
        id: id.clone(),
        name,
        is_sticky,
        remote: None,
        requested,
        labels: spec.labels.clone(),
        working_directory: spec.working_directory.as_deref().map(path).transpose()?,
        copies: Copies::of(spec)?,
        created_at_ms: now,
        lease_until_ms: spec.lease.map(|lease| now.saturating_add(millis(lease))),
        ended: None,
        limits: limits(spec)?,
        execs: std::collections::BTreeMap::new(),
    })
}

/// The limits that were requested: Codeplane has none to request, so they are refused unless best effort is
/// enough.
fn limits(spec: &SandboxSpec) -> Result<Vec<String>> {
    let all = [
        (LimitName::Memory, spec.limits.memory_bytes.is_some()),
        (LimitName::Cpus, spec.limits.cpu_millis.is_some()),
        (LimitName::Processes, spec.limits.processes.is_some()),
        (LimitName::Disk, spec.limits.disk_bytes.is_some()),
    ];
    let requested = all.into_iter().filter(|(_, requested)| *requested);
    requested
        .map(|(limit, _)| match spec.best_effort.contains(&limit.into()) {
            true => Ok(limit.as_str().to_owned()),
            false => Err(Error::Limit {
                limit,
                reason: "Codeplane decides how large a workspace is".to_owned(),
                remedy: format!("--best-effort {limit}"),
            }),
        })
        .collect()
}

/// A hash of a request, with its environment, which is not stored.
fn fingerprint(spec: &SandboxSpec) -> Result<String> {
    let text = serde_json::to_vec(spec).map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
