//! `stockade image prune`.

use serde_json::json;
use stockade_plan::private_base;

use super::open;
use super::used::in_use;
use crate::args::image::ImagePrune;
use crate::base;
use crate::commands::print::{notify, print, print_text};
use crate::many_ids;
use crate::problem::Failure;
use crate::registry;
use crate::table::size;

/// The directory of private bases, below the data directory.
const BASES: &str = "bases";

/// Removes what is not used.
pub(super) fn run(arguments: &ImagePrune) -> Result<u8, Failure> {
    let (mut data, mut store) = open()?;
    if many_ids::enter_to_remove(&store)? {
        (data, store) = open()?;
    }
    let used = in_use(&data, &store)?;
    let removed = store.prune(arguments.all, &used);
    let removed = removed.map_err(|error| registry::store_problem(&error))?;
    // The copies of the host's programs are bases of sandboxes, as images are.
    let bases = match data.path().join(BASES).is_dir() {
        true => private_base::prune(&data, arguments.all).map_err(|error| base::problem(&error))?,
        false => private_base::Pruned::default(),
    };
    let bytes = removed.bytes + bases.bytes + registry::remove_unused(&data)?;
    let names: Vec<_> = removed.records.iter().map(|record| record.reference.familiar()).collect();
    if arguments.json {
        print(&json!({
            "removed": removed.records.iter().map(super::list::to_json).collect::<Vec<_>>(),
            "removedBlobs": removed.blobs,
            "removedLayers": removed.layers,
            "removedBases": bases.removed,
            "layersInUse": removed.kept_layers,
            "freedBytes": bytes,
        }))?;
        return Ok(0);
    }
    print_text(&names.iter().map(|name| format!("{name}\n")).collect::<String>())?;
    if removed.kept_layers > 0 {
        notify(&format!("{} layers are still used by commands that run", removed.kept_layers));
    }
    if bases.removed > 0 {
        notify(&format!("{} private bases were removed", bases.removed));
    }
    notify(&format!("{} freed", size(bytes)));
    Ok(0)
}
