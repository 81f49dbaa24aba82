//! The resource use of a sandbox, measured by the client, because the keeper must not spend time on
//! it.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::io::Errno;
use stockade_bundle::beneath::{self, Dir};
use stockade_core::SandboxId;
use stockade_jail::cgroup::Group;
use stockade_jail::watch;

use super::call::Client;
use super::files::blocking;
use crate::keeper::helpers::disk;
use crate::keeper::record::{self, RunningProcesses};
use stockade_runtime::{Error, Result, Usage};

/// The resource use of a sandbox.
pub(super) async fn measure(client: &Arc<Client>, id: &SandboxId) -> Result<Usage> {
    let (client, id) = (client.clone(), id.clone());
    blocking(move || {
        let dir = client.directory.sandbox(&id).map_err(|error| missing(&id, error))?;
        let mut usage = Usage::default();
        match record::running_processes(dir.as_fd()) {
            Ok(Some(living)) => processes(&living, &mut usage),
            Ok(None) => usage.reasons.push("none of its processes exists".to_owned()),
            Err(error) => usage.reasons.push(format!("its record cannot be read: {error}")),
        }
        files(&dir, &mut usage);
        Ok(usage)
    })
    .await
}

fn missing(id: &SandboxId, error: beneath::Error) -> Error {
    match error.errno() {
        Some(Errno::NOENT) => Error::NoSandbox(id.clone()),
        _ => {
            let source = io::Error::other(error.to_string());
            Error::Unreachable { what: format!("the files of the sandbox {id}"), source }
        }
    }
}

fn processes(living: &RunningProcesses, usage: &mut Usage) {
    let is_it = || watch::start_time(living.init).is_ok_and(|at| at == living.init_started);
    let counted = watch::usage_of_tree(living.init);
    // In this order: the counted processes were the sandbox's if its init still exists.
    match counted {
        Ok(counted) if is_it() => {
            usage.processes = Some(counted.processes);
            usage.cpu_time = Some(counted.cpu_time);
            usage.memory_bytes = Some(counted.memory_bytes);
        }
        Ok(_) => usage.reasons.push("its processes have just exited".to_owned()),
        Err(error) => usage.reasons.push(format!("its processes cannot be counted: {error}")),
    }
    if let Some(group) = Group::from_record(&living.groups) {
        usage.memory_bytes = group.memory_current().ok().or(usage.memory_bytes);
        // The keeper removes the groups.
        group.release();
    }
}

fn files(dir: &Dir, usage: &mut Usage) {
    match disk::used_bytes(dir) {
        Ok(Some(bytes)) => usage.disk_bytes = Some(bytes),
        Ok(None) => usage.reasons.push("some of its files cannot be read".to_owned()),
        Err(error) => usage.reasons.push(format!("its files cannot be read: {error}")),
    }
}
