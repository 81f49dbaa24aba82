//! `change_metadata`: adds, replaces and removes labels of a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use stockade_api::{Caller, ChangeMetadata, Result, Sandbox};
use stockade_core::Operation;
use stockade_durable::{Context, Failure, Step, StepOptions};

use crate::failure::to_failure;
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::service::Service;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.change_metadata";

/// Changes labels.
pub(crate) async fn change(
    service: &Service,
    caller: &Caller,
    request: ChangeMetadata,
) -> Result<Sandbox> {
    service.owned_sandbox(caller, &request.id, Operation::Renew).await?;
    operation::run(&service.engine, NAME, caller, &request).await
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<ChangeMetadata>,
) -> std::result::Result<Sandbox, Failure> {
    let request = &input.request;
    context.hold(inner.lock_sandbox(&request.id).await.map_err(to_failure)?);
    let found = inner.acl(&context, &input.owner, &request.id, Operation::Renew).await?;
    let mut row = (*found).clone();
    let metadata: BTreeMap<String, String> = context
        .transact("record", StepOptions::default(), async |_: Step| {
            let mut row = (*found).clone();
            let mut metadata = row.request.metadata.clone();
            for (name, value) in request.metadata.clone() {
                match value {
                    Some(value) => drop(metadata.insert(name, value)),
                    None => drop(metadata.remove(&name)),
                }
            }
            let change = row.change_metadata(metadata.clone());
            Ok((metadata, vec![change]))
        })
        .await?;
    row.request.metadata = metadata;
    Ok(row.to_sandbox(None))
}
