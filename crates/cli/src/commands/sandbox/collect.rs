//! `stockade collect`: a bundle of the changes that a sandbox made in its workspace.

use std::os::unix::ffi::OsStringExt as _;

use stockade_api::{Bytes, CollectChanges};

use super::find;
use crate::args::sandbox::Collect;
use crate::commands::print::{notify, print, print_text};
use crate::problem::Failure;
use crate::remote;
use crate::request::no_limit;
use crate::review::text;

/// Creates it.
pub(crate) fn run(arguments: Collect) -> Result<u8, Failure> {
    let exclude = arguments.exclude.into_iter().map(|path| Bytes(path.into_vec())).collect();
    let collected = remote::with(arguments.server_mode, async |remote| {
        let sandbox_id = find(&remote, &arguments.id).await?;
        let request = CollectChanges {
            sandbox_id,
            exclude,
            limit_bytes: arguments.max_bundle.map(no_limit),
            limit_paths: arguments.max_paths,
        };
        Ok(remote.sandboxes.collect_changes(&remote.idempotent(), request).await?)
    })?;
    if arguments.json {
        print(&collected)?;
        return Ok(0);
    }
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
    Ok(0)
}
