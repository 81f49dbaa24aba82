//! `stockade image prune`.

use serde_json::json;

use super::open;
use super::used::in_use;
use crate::args::image::ImagePrune;
use crate::commands::print::{notify, print, print_text};
use crate::problem::Failure;
use crate::registry;
use crate::table::size;

/// Removes what is not used.
pub(super) fn run(arguments: &ImagePrune) -> Result<u8, Failure> {
    let (data, store) = open()?;
    let used = in_use(&data, &store)?;
    let removed = store.prune(arguments.all, &used);
    let removed = removed.map_err(|error| registry::store_problem(&error))?;
    let bytes = removed.bytes + registry::remove_unused(&data)?;
    let names: Vec<_> = removed.records.iter().map(|record| record.reference.familiar()).collect();
    if arguments.json {
        print(&json!({
            "removed": removed.records.iter().map(super::list::to_json).collect::<Vec<_>>(),
            "removedBlobs": removed.blobs,
            "removedLayers": removed.layers,
            "layersInUse": removed.kept_layers,
            "freedBytes": bytes,
        }))?;
        return Ok(0);
    }
    print_text(&names.iter().map(|name| format!("{name}\n")).collect::<String>())?;
    if removed.kept_layers > 0 {
        notify(&format!("{} layers are still used by commands that run", removed.kept_layers));
    }
    notify(&format!("{} freed", size(bytes)));
    Ok(0)
}
