//! What is asked of the server, and recorded before: from the specification of a sandbox.

use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use stockade_core::sandbox::{LimitName, Root};
use stockade_core::{SandboxId, SandboxSpec};
use stockade_runtime::{Error, Result};
use stockade_runtime_remote::{Copies, Failure, Records, now_ms};

use crate::SERVICE;
use crate::lifecycle::NewSandbox;
use crate::record::Record;

/// The image of another Stockade that means its own programs.
const HOST: &str = "host";
/// The metadata by which the sandboxes of a data directory are found at the server.
pub(crate) const OWNER: &str = "stockade-owner";
pub(crate) const ID: &str = "stockade-id";
/// The shortest time to live that a server accepts, and what a sandbox lives longer there than its lease
/// here: if nobody renews it, the server removes it.
const SHORTEST: Duration = Duration::from_secs(60);
const MARGIN: Duration = Duration::from_secs(300);

pub(crate) fn new_record(id: &SandboxId, spec: &SandboxSpec, requested: String) -> Result<Record> {
    let directory = spec.working_directory.as_ref().map(|path| {
        path.to_str()
            .map(str::to_owned)
            .ok_or_else(|| Error::Invalid("the working directory is not text".to_owned()))
    });
    let copies = Copies::of(spec)?;
    Ok(Record {
        id: id.clone(),
        remote: None,
        is_being_filled: !copies.is_empty(),
        copies,
        requested,
        labels: spec.labels.clone(),
        working_directory: directory.transpose()?,
        is_endless: spec.lease.is_none(),
        created_at_ms: now_ms(),
        lease_until_ms: spec.lease.map(|lease| now_ms().saturating_add(millis(lease))),
        ended: None,
        limits: limits(spec)?,
        execs: BTreeMap::new(),
    })
}

/// The limits that were requested: a server does not say whether it enforces them, so they are refused
/// unless best effort is enough.
pub(crate) fn limits(spec: &SandboxSpec) -> Result<Vec<(String, bool)>> {
    let all = [
        (LimitName::Memory, spec.limits.memory_bytes.is_some()),
        (LimitName::Cpus, spec.limits.cpu_millis.is_some()),
        (LimitName::Processes, spec.limits.processes.is_some()),
        (LimitName::Disk, spec.limits.disk_bytes.is_some()),
    ];
    let requested = all.into_iter().filter(|(_, requested)| *requested);
    requested
        .map(|(limit, _)| {
            if spec.best_effort.contains(&limit.into()) {
                return Ok((limit.as_str().to_owned(), false));
            }
            Err(Error::Limit {
                limit,
                reason: "the server does not say whether it enforces a limit".to_owned(),
                remedy: format!("--best-effort {limit}"),
            })
        })
        .collect()
}

pub(crate) fn new_sandbox(
    records: &Records<Record>,
    id: &SandboxId,
    spec: &SandboxSpec,
) -> Result<NewSandbox> {
    let image = match &spec.root {
        Root::Image(name) => name.clone(),
        _ => HOST.to_owned(),
    };
    let mut environment = BTreeMap::new();
    for (name, value) in &spec.environment {
        let value = String::from_utf8(value.0.clone()).map_err(|_| {
            Error::Invalid(format!("the variable {name} is not text, as the server needs it"))
        })?;
        environment.insert(name.clone(), value);
    }
    let mut wanted = BTreeMap::new();
    if let Some(bytes) = spec.limits.memory_bytes {
        wanted.insert("memory", bytes.to_string());
    }
    if let Some(millis) = spec.limits.cpu_millis {
        wanted.insert("cpu", format!("{millis}m"));
    }
    let metadata = [(OWNER, records.owner.as_str()), (ID, id.as_str())];
    Ok(NewSandbox {
        image,
        timeout: spec.lease.map(|lease| remote_lease(lease).as_secs()),
        limits: wanted,
        environment,
        metadata: metadata.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    })
}

/// How long a sandbox lives at the server after a renewal.
pub(crate) fn remote_lease(lease: Duration) -> Duration {
    (lease + MARGIN).max(SHORTEST)
}

pub(crate) fn image_error(failure: Failure, id: &SandboxId, spec: &SandboxSpec) -> Error {
    match (&failure, &spec.root) {
        (Failure::Refused { status: 404, message, .. }, Root::Image(image)) => Error::NoImage {
            image: image.clone(),
            remedy: format!("provide it at the server: {message}"),
        },
        _ => failure.of_sandbox(SERVICE, id, "the creation"),
    }
}

/// A hash of a request, with its environment, which is not stored.
pub(crate) fn fingerprint(spec: &SandboxSpec) -> Result<String> {
    let text = serde_json::to_vec(spec).map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
