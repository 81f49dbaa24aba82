//! `stockade snapshot` and `stockade snapshots`.

use stockade_api::{Empty, TakeSnapshot};
use stockade_core::{Code, SnapshotId};

use super::find;
use crate::args::sandbox::{Snapshot, Snapshots};
use crate::commands::print::{notify, print, print_text};
use crate::problem::{Failure, caused};
use crate::remote;
use crate::table::Table;

/// Takes a snapshot.
pub(crate) fn take(arguments: Snapshot) -> Result<u8, Failure> {
    let id = arguments.name.map(SnapshotId::new).transpose();
    let id = id.map_err(|error| caused(Code::InvalidInput, &error))?;
    let taken = remote::with(arguments.server_mode, async |remote| {
        let sandbox_id = find(&remote, &arguments.id).await?;
        let request = TakeSnapshot { sandbox_id, id, name: None };
        Ok(remote.sandboxes.snapshot(&remote.idempotent(), request).await?)
    })?;
    if arguments.json {
        print(&taken)?;
    } else {
        print_text(&format!("{}\n", taken.id))?;
        notify(&format!("create a sandbox from it: stockade restore {}", taken.id));
    }
    Ok(0)
}

/// Lists snapshots, or removes one.
pub(crate) fn list(arguments: Snapshots) -> Result<u8, Failure> {
    if let Some(id) = arguments.remove {
        let id = SnapshotId::new(id).map_err(|error| caused(Code::InvalidInput, &error))?;
        remote::with(arguments.server_mode, async |remote| {
            Ok(remote.sandboxes.remove_snapshot(&remote.idempotent(), id).await?)
        })?;
        return Ok(0);
    }
    let all = remote::with(arguments.server_mode, async |remote| {
        Ok(remote.sandboxes.snapshots(remote.caller(), Empty {}).await?)
    })?;
    if arguments.json {
        print(&serde_json::json!({ "snapshots": all }))?;
    } else {
        let mut table = Table::new(["ID", "SANDBOX", "CREATED", "BYTES"]);
        for snapshot in &all {
            table.row([
                snapshot.id.to_string(),
                snapshot.sandbox_id.to_string(),
                format!("{:.0}", snapshot.created_at),
                snapshot.size_bytes.to_string(),
            ]);
        }
        if all.is_empty() {
            notify("no snapshots; take one: stockade snapshot ID");
        } else {
            print_text(&table.text())?;
        }
    }
    Ok(0)
}
