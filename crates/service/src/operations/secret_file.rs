//! `write_secret_file`: writes a field of a stored secret to a file in a sandbox, on a file system in
//! memory. The record has the reference and no value.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stockade_api::{Bytes, Caller, Result, WriteResult, WriteSecretFile};
use stockade_core::access::Level;
use stockade_core::sandbox::{SECRETS_DIRECTORY, User};
use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::{Context, Failure, Step};
use stockade_runtime::{Runtime, SandboxPath, WriteOptions};

use super::files::resolve_allowed;
use super::record_with_next;
use crate::delivery::{Delivery, Principal};
use crate::failure::{invalid, runtime_problem, to_failure};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::owned_sandbox::OwnedSandbox;
use crate::paths::{as_bytes, as_path, resolve};
use crate::service::Service;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.write_secret_file";

/// The permission bits of a file, unless the request has others.
const MODE: u32 = 0o600;
/// Those of a directory that is created for it.
const DIRECTORY_MODE: u32 = 0o700;

/// The input of the workflow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SecretFileInput {
    request: WriteSecretFile,
    flow_owner: Option<OwnerId>,
}

/// Writes the file.
pub(crate) async fn write(
    service: &Service,
    caller: &Caller,
    request: WriteSecretFile,
) -> Result<WriteResult> {
    let used = service.use_sandbox(caller, &request.sandbox_id).await?;
    let runtime = service.inner.runtime(&used.runtime)?;
    check(&**runtime, &used, &request).await?;
    let principal =
        Principal { caller: caller.owner.clone(), flow_owner: caller.flow_owner.clone() };
    let delivery = Delivery {
        inner: &service.inner,
        principal: &principal,
        sandbox: &request.sandbox_id,
        operation: "check",
    };
    delivery.check_one(&request.secret).await?;
    let input = SecretFileInput { request, flow_owner: caller.flow_owner.clone() };
    let size_bytes = operation::run(&service.engine, NAME, caller, &input).await?;
    Ok(WriteResult { size_bytes })
}

/// The path of the file, if the rules allow it and it is on a file system in memory.
async fn check(
    runtime: &dyn Runtime,
    owned: &OwnedSandbox,
    request: &WriteSecretFile,
) -> Result<SandboxPath> {
    user(request)?;
    // The rules come first: who may not write there learns nothing else.
    let path = resolve_allowed(runtime, owned, Level::ReadWrite, &request.path, true).await?;
    in_memory(&as_path(&request.path)?, &request.path)?;
    // Also where links inside lead.
    in_memory(&resolve(runtime, &owned.id, &path, true).await?, &request.path)?;
    Ok(path)
}

/// Refuses a path that a snapshot could contain.
fn in_memory(path: &SandboxPath, named: &Bytes) -> Result<()> {
    let below = as_bytes(path).strip_prefix(SECRETS_DIRECTORY.as_bytes());
    if below.is_some_and(|rest| rest.starts_with(b"/") && rest.len() > 1) {
        return Ok(());
    }
    let named = String::from_utf8_lossy(&named.0).into_owned();
    Err(Problem::new(Code::PathInvalid, format!("{named} is no place for a secret"))
        .because(format!("only files below {SECRETS_DIRECTORY} are in memory, and in no snapshot"))
        .remedied_by(format!("write it below {SECRETS_DIRECTORY}")))
}

fn parent(path: &SandboxPath) -> Option<Bytes> {
    let bytes = as_bytes(path);
    let end = bytes.iter().rposition(|byte| *byte == b'/').filter(|end| *end > 0)?;
    Some(Bytes(bytes.get(..end)?.to_vec()))
}

fn user(request: &WriteSecretFile) -> Result<Option<User>> {
    match (request.uid, request.gid) {
        (None, Some(_)) => Err(invalid("`gid` requires `uid`")),
        (None, None) => Ok(None),
        (Some(user), gid) => Ok(Some(User { user, group: gid.unwrap_or(user) })),
    }
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<SecretFileInput>,
) -> std::result::Result<u64, Failure> {
    let SecretFileInput { request, flow_owner } = &input.request;
    let principal = Principal { caller: input.owner.clone(), flow_owner: flow_owner.clone() };
    let owned = inner.use_in_workflow(&context, &input.owner, &request.sandbox_id, None).await?;
    let written = context
        .step_with("write", record_with_next(), async |_: Step| {
            let delivery = Delivery {
                inner: &inner,
                principal: &principal,
                sandbox: &request.sandbox_id,
                operation: context.id().as_str(),
            };
            deliver(&inner, &owned, request, &delivery).await.map_err(to_failure)
        })
        .await?;
    context.finish_with(vec![owned.touch()]);
    Ok(written)
}

async fn deliver(
    inner: &Inner,
    owned: &OwnedSandbox,
    request: &WriteSecretFile,
    delivery: &Delivery<'_>,
) -> Result<u64> {
    let runtime = &**inner.runtime(&owned.runtime)?;
    let path = check(runtime, owned, request).await?;
    let value = delivery.value(&request.secret).await?;
    let owner = user(request)?;
    let failed = |error| runtime_problem(&error);
    if let Some(parent) = parent(&path) {
        let parent = as_path(&parent)?;
        if runtime.stat(&owned.id, &parent).await.is_err() {
            let options = WriteOptions { mode: DIRECTORY_MODE, owner, make_parents: true };
            runtime.make_directory(&owned.id, &parent, options).await.map_err(failed)?;
        }
    }
    let mode = request.mode.unwrap_or(MODE);
    if runtime.stat(&owned.id, &path).await.is_ok() {
        // An existing file keeps its permissions: they change before it has the value.
        let tightened = runtime.set_attributes(&owned.id, &path, Some(mode), owner);
        tightened.await.map_err(failed)?;
    }
    let content = Box::pin(std::io::Cursor::new(value.as_bytes().to_vec()));
    let options = WriteOptions { mode, owner, make_parents: false };
    runtime.write_file(&owned.id, &path, content, options).await.map_err(failed)
}
