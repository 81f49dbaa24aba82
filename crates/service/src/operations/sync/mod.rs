//! `sync_from_vfs`, `sync_to_vfs`: a directory of a sandbox and one outside become equal, as one
//! durable operation. A plan is made and recorded with all contents that it needs; then it is
//! executed. A crash in between repeats nothing that was done: each change is recognized by the
//! content that is there.
//!
//! `outside` is the side of the host or of a workspace, `inside` the side of the sandbox, `planning`
//! compares them, `staging` has what is on disk meanwhile, and `report` says what was done.

mod inside;
mod outside;
mod planning;
mod report;
mod staging;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stockade_api::{Caller, OperationId, OperationInfo, Result, SyncFiles, SyncReport};
use stockade_bundle::RelativePath;
use stockade_core::access::Level;
use stockade_core::event::{self, Payload};
use stockade_core::{Code, Problem};
use stockade_durable::{Builder, Context, Failure, StartOptions, Step};

use self::staging::Staging;
use super::workflow_fn;
use crate::events;
use crate::failure::{invalid, to_failure};
use crate::inner::Inner;
use crate::operation::{self, Input, workflow_id};
use crate::service::Service;

/// The workflows' names.
const FROM_VFS: &str = "sandbox.sync_from_vfs";
const TO_VFS: &str = "sandbox.sync_to_vfs";

/// From where to where is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Direction {
    FromVfs,
    ToVfs,
}

impl Direction {
    const fn workflow(self) -> &'static str {
        match self {
            Self::FromVfs => FROM_VFS,
            Self::ToVfs => TO_VFS,
        }
    }
}

/// Registers the workflows.
pub(crate) fn register(builder: Builder, inner: &Arc<Inner>) -> Builder {
    let from = |inner, context, input| perform(inner, context, input, Direction::FromVfs);
    let to = |inner, context, input| perform(inner, context, input, Direction::ToVfs);
    builder.workflow(FROM_VFS, workflow_fn(inner, from)).workflow(TO_VFS, workflow_fn(inner, to))
}

/// Starts a synchronization. Its result is a [`SyncReport`].
pub(crate) async fn start(
    service: &Service,
    caller: &Caller,
    mut request: SyncFiles,
    direction: Direction,
) -> Result<OperationInfo> {
    let used = service.use_sandbox(caller, &request.sandbox_id).await?;
    // Before anything of the sandbox is read.
    outside::check(&service.inner, caller, &mut request, direction)?;
    check(&request, direction)?;
    let level = match direction {
        Direction::FromVfs => Level::ReadWrite,
        Direction::ToVfs if request.two_way => Level::ReadWrite,
        Direction::ToVfs => Level::Read,
    };
    used.allows(level, &request.path.0)?;
    let options = StartOptions { id: Some(workflow_id(caller)?), ..StartOptions::default() };
    let name = direction.workflow();
    let started = operation::start(&service.engine, name, caller, &request, options).await?;
    let id = OperationId(started.workflow_id().as_str().to_owned());
    operation::info(&service.engine, caller, &id).await
}

/// Refuses what contradicts itself.
fn check(request: &SyncFiles, direction: Direction) -> Result<()> {
    let refuse = |is_bad: bool, message: &str| if is_bad { Err(invalid(message)) } else { Ok(()) };
    let writes = direction == Direction::ToVfs || request.two_way;
    refuse(request.mirror && request.two_way, "`mirror` and `twoWay` exclude each other")?;
    refuse(
        request.git_directories && writes,
        "`.git` directories are never copied out of a sandbox",
    )?;
    refuse(request.commit && !writes, "`commit` needs a copy out of the sandbox")?;
    refuse(!request.commit && request.message.is_some(), "`message` needs `commit`")?;
    let patterns = || request.include.iter().chain(&request.exclude);
    refuse(patterns().any(|pattern| pattern.contains(['\n', '\0'])), "a pattern is one line")?;
    refuse(patterns().count() > 10_000, "there are more than 10000 patterns")?;
    let message = request.message.as_deref().unwrap_or("x");
    refuse(message.trim().is_empty() || message.contains('\0'), "a commit needs a message")
}

/// What the first step records.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Planned {
    report: SyncReport,
    /// Whether the plan is to be executed.
    execute: bool,
}

/// What the second step records: the paths that changed after the plan was made.
type ChangedPaths = Vec<RelativePath>;

/// The workflow.
async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<SyncFiles>,
    direction: Direction,
) -> std::result::Result<SyncReport, Failure> {
    let request = &input.request;
    let owned = inner.use_in_workflow(&context, &input.owner, &request.sandbox_id, None).await?;
    let deadline = inner.options.deadline.saturating_mul(4);
    let lock = tokio::time::timeout(deadline, inner.sync_locks.lock(&request.sandbox_id)).await;
    let busy = || {
        let message =
            format!("another synchronization of the sandbox {} is running", request.sandbox_id);
        to_failure(Problem::new(Code::Busy, message))
    };
    context.hold(lock.map_err(|_| busy())?);
    let again = context.run_number() > 1;
    let staging = Staging::open(&inner, context.id().as_str()).map_err(to_failure)?;
    let job = planning::Job {
        inner: &inner,
        owned: &owned,
        owner: &input.owner,
        request,
        direction,
        staging: &staging,
        again,
        at_ms: planning::created_at(&context).await.map_err(to_failure)?,
    };
    let planned = context.step("plan", async |_: Step| job.plan().await.map_err(to_failure)).await;
    let planned: Planned = match planned {
        Ok(planned) => planned,
        Err(failure) => {
            staging.remove();
            return Err(failure);
        }
    };
    let mut report = planned.report;
    if planned.execute {
        let place = async |_: Step| job.place().await.map_err(to_failure);
        let placed: std::result::Result<ChangedPaths, Failure> = context.step("place", place).await;
        let committed: std::result::Result<_, Failure> = async {
            let changed = placed?;
            let commit = async |_: Step| job.commit(&changed).await.map_err(to_failure);
            let id: Option<String> = context.step("commit", commit).await?;
            let base = async |_: Step| job.record_base(&changed).await.map_err(to_failure);
            context.step("base", base).await?;
            Ok((changed, id))
        }
        .await;
        let (changed, commit_id) = match committed {
            Ok(done) => done,
            Err(failure) => {
                staging.remove_unless_stopping(&inner);
                return Err(failure);
            }
        };
        report::complete(&mut report, &changed, commit_id);
        let sync = event::Sync {
            copied: report.copied,
            unchanged: report.unchanged,
            skipped: report.skipped,
            deleted: report.deleted,
            bytes: report.bytes,
            conflicts: report.conflicts,
            commit_id: report.commit_id.clone(),
        };
        let payload = match direction {
            Direction::FromVfs => Payload::SyncFromVfsCompleted(sync),
            Direction::ToVfs => Payload::SyncToVfsCompleted(sync),
        };
        context.finish_with(vec![owned.touch(), events::record(&context, &owned, payload)]);
    }
    staging.remove();
    Ok(report)
}
