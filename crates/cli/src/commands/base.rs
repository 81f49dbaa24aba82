//! `stockade base`: makes, renews or removes the private base.

use serde_json::json;
use stockade_plan::private_base::{self, Base as Copy, Pruned};

use crate::args::Base;
use crate::base::{Shown, problem};
use crate::commands::print::{escaped, notify, print, print_text};
use crate::data_dir::{data_path, open_data_dir};
use crate::problem::Failure;

/// Makes the base of the present state of the host, or removes all that no sandbox uses.
pub(crate) fn run(arguments: &Base) -> Result<u8, Failure> {
    let data = open_data_dir(&data_path()?)?;
    if arguments.rm {
        let pruned = private_base::prune(&data, true).map_err(|error| problem(&error))?;
        return print_removed(&pruned, arguments.json);
    }
    let mut shown = Shown::default();
    let made = match arguments.renew {
        true => private_base::renew(&data, &mut |progress| shown.report(progress)),
        false => private_base::ensure(&data, &mut |progress| shown.report(progress)),
    };
    shown.end();
    print_base(&made.map_err(|error| problem(&error))?, arguments.json)
}

fn print_base(base: &Copy, wants_json: bool) -> Result<u8, Failure> {
    let content = base.content();
    let path = base.path().to_string_lossy();
    if wants_json {
        print(&json!({
            "path": path,
            "made": base.made(),
            "entries": content.entries,
            "sizeBytes": content.bytes,
            "sharedOnDisk": base.is_shared(),
            "unreadable": content.unreadable,
            "special": content.special,
        }))?;
        return Ok(0);
    }
    let shared = if base.is_shared() { ", shared with the host on disk" } else { "" };
    print_text(&format!(
        "{}\n{} files, {} MiB{shared}, made {}\n",
        escaped(&path),
        content.entries,
        content.bytes >> 20,
        base.made()
    ))?;
    if content.unreadable + content.special > 0 {
        notify(&format!(
            "left out: {} files that not every user may read, {} devices, sockets and pipes",
            content.unreadable, content.special
        ));
    }
    Ok(0)
}

fn print_removed(pruned: &Pruned, wants_json: bool) -> Result<u8, Failure> {
    if wants_json {
        print(&json!({
            "removed": pruned.removed,
            "freedBytes": pruned.bytes,
            "inUse": pruned.in_use,
        }))?;
        return Ok(0);
    }
    let Pruned { removed, bytes, in_use } = pruned;
    print_text(&format!("{removed} removed, {} MiB freed, {in_use} in use\n", bytes >> 20))?;
    Ok(0)
}
