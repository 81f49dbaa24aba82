//! `stockade collect`: a bundle of the changes that a sandbox made in its workspace, for each sandbox.

use std::sync::Arc;

use std::os::unix::ffi::OsStringExt as _;

use stockade_api::{Bytes, CollectChanges, CollectedChanges};

use super::lifecycle::{named, split};
use super::many::{find_all, side_by_side};
use crate::args::sandbox::Collect;
use crate::commands::print::{notify, print, print_text};
use crate::problem::Failure;
use crate::remote::{self, Remote};
use crate::request::no_limit;
use crate::review::text;

/// Creates them, also if some of them cannot be created.
pub(crate) fn run(arguments: Collect) -> Result<u8, Failure> {
    let exclude: Vec<_> =
        arguments.exclude.into_iter().map(|path| Bytes(path.into_vec())).collect();
    let (limit_bytes, limit_paths) = (arguments.max_bundle.map(no_limit), arguments.max_paths);
    let is_one = arguments.id.len() == 1;
    let (collected, failed) = remote::with(arguments.server_mode, async |remote| {
        let remote = Arc::new(remote);
        let (ids, mut failed) = split(find_all(&remote, &arguments.id).await?);
        let names: Vec<_> = ids.iter().map(ToString::to_string).collect();
        let collect = move |remote: Arc<Remote>, sandbox_id| {
            let exclude = exclude.clone();
            async move {
                let request = CollectChanges { sandbox_id, exclude, limit_bytes, limit_paths };
                Ok(remote.sandboxes.collect_changes(&remote.idempotent(), request).await?)
            }
        };
        let collected = side_by_side(&remote, "collecting", ids, collect).await;
        let (collected, more) = split(named(&names, collected));
        failed.extend(more);
        Ok((collected, failed))
    })?;
    match collected.as_slice() {
        [one] if is_one && arguments.json => print(one)?,
        several if arguments.json && !is_one => {
            return Failure::report(failed, Some(serde_json::json!({ "collected": several })));
        }
        several => {
            for one in several {
                report(one)?;
            }
        }
    }
    Failure::report(failed, None)
}

fn report(collected: &CollectedChanges) -> Result<(), Failure> {
    for note in &collected.notes {
        notify(&format!("note: {note}"));
    }
    match &collected.bundle {
        None => notify("nothing has changed"),
        Some(bundle) => {
            print_text(&format!("{}\n", bundle.id))?;
            notify(&text::next_steps(&bundle.changes, &bundle.id));
        }
    }
    Ok(())
}
