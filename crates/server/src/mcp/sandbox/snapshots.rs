//! `snapshot` and `restore`.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_api::{Problem, Restore as RestoreRequest, TakeSnapshot};
use stockade_core::{Code, SnapshotId};

use super::lifecycle::{CreateArguments, SandboxValue};
use super::operation::{Facts, On, Operation, Reply, Scope, Stop};
use crate::mcp::Effects;

/// Takes a snapshot.
#[derive(Debug)]
pub(super) struct Take;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct TakeArguments {}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotValue {
    /// The id, for `restore`.
    snapshot: String,
    size_bytes: u64,
}

#[async_trait]
impl Operation for Take {
    type Arguments = TakeArguments;
    type Value = SnapshotValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "snapshot",
            title: "Take a snapshot",
            text: "Stores the files of a sandbox as a snapshot, from which `restore` creates other sandboxes.",
            effects: Effects::ADDS,
            on_sandbox: true,
            is_long: false,
        }
    }

    async fn call(&self, on: On<'_>, _: TakeArguments) -> Result<Reply<SnapshotValue>, Stop> {
        let sandbox_id = on.sandbox().await?.id;
        let request = TakeSnapshot { sandbox_id, id: None, name: None };
        let taken = on.context.sandboxes.snapshot(&on.call.writer(), request).await?;
        let value = SnapshotValue { snapshot: taken.id.to_string(), size_bytes: taken.size_bytes };
        Ok(Reply::new(value))
    }
}

/// Creates a sandbox from a snapshot.
#[derive(Debug)]
pub(super) struct Restore;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RestoreArguments {
    /// The id of the snapshot.
    snapshot: String,
    /// The properties of the new sandbox, as for `create`.
    #[serde(default)]
    properties: CreateArguments,
}

#[async_trait]
impl Operation for Restore {
    type Arguments = RestoreArguments;
    type Value = SandboxValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "restore",
            title: "Create a sandbox from a snapshot",
            text: "Creates a sandbox with the files of a snapshot. The sandbox from which the snapshot was taken does not change.",
            effects: Effects::ADDS,
            on_sandbox: false,
            is_long: false,
        }
    }

    async fn call(
        &self,
        on: On<'_>,
        arguments: RestoreArguments,
    ) -> Result<Reply<SandboxValue>, Stop> {
        let snapshot_id = SnapshotId::new(arguments.snapshot)
            .map_err(|_| Problem::new(Code::NotFound, "there is no such snapshot"))?;
        let sandbox = arguments.properties.request(&on).await?;
        let request = RestoreRequest { snapshot_id, sandbox };
        let restored = on.context.sandboxes.restore(&on.call.writer(), request).await?;
        Ok(Reply::new(SandboxValue::new(&restored)))
    }
}
