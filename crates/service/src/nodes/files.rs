//! Nodes that transfer files.

use serde_json::{Map, Value, json};
use stockade_api::{
    Bytes, OperationInfo, OperationStatus, Problem, Result, SecretReference, SyncFiles, Vfs,
    WriteSecretFile,
};
use stockade_core::Code;
use stockade_core::access::Level;

use super::ports::{Call, members};
use super::table::SYNC;
use crate::failure::invalid;

/// The ports that are no members of the request: they name the two directories, or are about the node.
const OWN: [&str; 7] = ["path", "vfs", "workspaceId", "directory", "vfsPath", "branch", "wait"];
/// The ports that are members of the report.
const REPORTED: [&str; 7] =
    ["copied", "unchanged", "skipped", "deleted", "bytes", "conflicts", "commitId"];

/// Synchronizes a directory of the container with one outside.
pub(super) async fn sync(call: &Call<'_>, into_sandbox: bool) -> Result<Map<String, Value>> {
    let ports = call.ports;
    let path: Bytes = ports.required("path")?;
    ports.check_path(if into_sandbox { Level::ReadWrite } else { Level::Read }, &path.0)?;
    let vfs = match ports.optional("vfs")? {
        Some(vfs) => vfs,
        None => Vfs {
            directory: ports.optional("directory")?,
            workspace: ports.optional("workspaceId")?,
            path: ports.optional("vfsPath")?,
            branch: ports.optional("branch")?,
        },
    };
    let mut request = serde_json::to_value(SyncFiles::new(ports.sandbox()?, path, vfs))
        .map_err(|error| invalid(error.to_string()))?;
    for name in SYNC.iter().copied().filter(|name| !OWN.contains(name)) {
        if let Some(value) = ports.value(name) {
            request[name] = value.clone();
        }
    }
    let request: SyncFiles = serde_json::from_value(request).map_err(|error| {
        Problem::new(Code::InvalidInput, "an input is invalid").because(error.to_string())
    })?;
    let caller = call.caller_of("sync");
    let started = match into_sandbox {
        true => call.sandboxes.sync_from_vfs(&caller, request).await?,
        false => call.sandboxes.sync_to_vfs(&caller, request).await?,
    };
    let info = match ports.optional("wait")? {
        Some(false) => started,
        _ => end(call, started).await?,
    };
    let report = info.result.clone().unwrap_or_default();
    let mut outputs = members(json!({
        "workflowId": info.workflow_id, "status": info.status, "report": report,
    }));
    for name in REPORTED {
        outputs.insert(name.to_owned(), report.get(name).cloned().unwrap_or_default());
    }
    Ok(outputs)
}

/// Waits for the end of an operation.
async fn end(call: &Call<'_>, mut info: OperationInfo) -> Result<OperationInfo> {
    while matches!(info.status, OperationStatus::Waiting | OperationStatus::Running) {
        info = call.sandboxes.wait_operation(call.caller, info.workflow_id).await?;
    }
    match info.error {
        Some(problem) => Err(problem),
        None => Ok(info),
    }
}

/// Writes a secret of the vault as a file inside.
pub(super) async fn write_secret(call: &Call<'_>) -> Result<Map<String, Value>> {
    let ports = call.ports;
    let path: Bytes = ports.required("path")?;
    ports.check_path(Level::ReadWrite, &path.0)?;
    let mut secret = SecretReference::new(ports.required::<String>("secret")?);
    secret.field = ports.optional("field")?;
    secret.scope = ports.optional("scope")?.unwrap_or_default();
    let request = WriteSecretFile {
        sandbox_id: ports.sandbox()?,
        path: path.clone(),
        secret,
        mode: None,
        uid: ports.optional("uid")?,
        gid: None,
    };
    call.sandboxes.write_secret_file(&call.caller_of("secret"), request).await?;
    Ok(members(json!({ "path": path })))
}
