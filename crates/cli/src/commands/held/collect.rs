//! `stockade collect`: a bundle of the changes that a sandbox made in its workspace.

use std::os::unix::ffi::OsStringExt as _;

use stockade_api::{Bytes, CollectChanges};

use super::{find, print, print_text, say};
use crate::args::held::Collect;
use crate::problem::Failure;
use crate::remote;
use crate::review::words;

/// Creates it.
pub(crate) fn run(arguments: Collect) -> Result<u8, Failure> {
    let exclude = arguments.exclude.into_iter().map(|path| Bytes(path.into_vec())).collect();
    let collected = remote::with(arguments.way, async |remote| {
        let sandbox_id = find(&remote, &arguments.id).await?;
        let request = CollectChanges { sandbox_id, exclude, limit_bytes: arguments.max_bundle };
        Ok(remote.sandboxes.collect_changes(&remote.once(), request).await?)
    })?;
    if arguments.json {
        print(&collected)?;
        return Ok(0);
    }
    for note in &collected.notes {
        say(&format!("note: {note}"));
    }
    match &collected.bundle {
        None => say("nothing has changed"),
        Some(bundle) => {
            print_text(&format!("{}\n", bundle.id))?;
            say(&words::next(bundle.changes.total, &bundle.id));
        }
    }
    Ok(0)
}
