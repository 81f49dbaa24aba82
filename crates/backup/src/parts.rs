//! What of a data directory is in an archive: everything but what belongs to running processes, can be
//! made again, or is stored in another form.

use std::collections::BTreeSet;

use stockade_bundle::RelativePath;

use crate::RECORDS;

/// Entries of the data directory that are not in an archive.
const LEFT_OUT: [&str; 13] = [
    // Of processes.
    "server",
    "views",
    "mcp",
    // Of sandboxes that another server or an engine holds.
    "runtime-opensandbox",
    "runtime-docker",
    // Made again when they are needed.
    "bases",
    "downloads",
    "etc",
    "programs",
    "reserve",
    // Where the records are; they are in the archive as a file.
    "database",
    "database.new",
    "database.unfinished",
];
/// The directories of runtimes. Of these, an archive has the snapshots, and the files of stopped
/// sandboxes.
const RUNTIMES: [&str; 2] = ["runtime", "runtime-bwrap"];
const SNAPSHOTS: &[u8] = b"snapshots";
const SANDBOXES: &[u8] = b"sandboxes";
/// The directory of an overlay for the kernel's own use: what is in it is no content, only root can read it, and
/// the next mount removes it.
const WORK: &[u8] = b"work";

/// Whether a path of a data directory with these stopped sandboxes is in its archive.
pub(crate) fn is_included(path: &RelativePath, stopped: &BTreeSet<String>) -> bool {
    let mut components = path.components();
    let first = components.next().unwrap_or_default();
    let is = |name: &&str| name.as_bytes() == first;
    if LEFT_OUT.iter().any(is) || first.starts_with(RECORDS.as_bytes()) {
        return false;
    }
    if RUNTIMES.iter().any(is) {
        let _version = components.next();
        return match (components.next(), components.next()) {
            (None, _) | (Some(SNAPSHOTS), _) | (Some(SANDBOXES), None) => true,
            (Some(SANDBOXES), Some(id)) => {
                let of_kernel = matches!(
                    (components.next(), components.next(), components.next()),
                    (Some(b"layers" | b"workspace"), Some(WORK), Some(_))
                );
                !of_kernel && stopped.iter().any(|stopped| stopped.as_bytes() == id)
            }
            _ => false,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_processes_is_left_out() {
        for (path, expected) in [
            ("bundles", true),
            ("bundles/x/manifest.json", true),
            ("volumes/a/b/data/server", true),
            ("agents.json", true),
            ("unknown-to-this-version", true),
            ("server/socket", false),
            ("views/a", false),
            ("stockade.db", false),
            ("stockade.db-wal", false),
            ("database.unfinished", false),
            ("runtime", true),
            ("runtime/7", true),
            ("runtime/7/snapshots/s/upper/server", true),
            ("runtime/7/sandboxes", true),
            ("runtime/7/sandboxes/box/upper/server", true),
            ("runtime/7/sandboxes/other/upper", false),
            ("runtime/7/sandboxes/box/layers/work", true),
            ("runtime/7/sandboxes/box/layers/work/work", false),
            ("runtime/7/sandboxes/box/workspace/work/work", false),
            ("runtime/7/sandboxes/box/workspace/upper/work/work", true),
            ("runtime-docker/runtime", false),
            ("runtime/7/socket", false),
            ("runtime-bwrap/7/trash/x", false),
        ] {
            let stopped = BTreeSet::from(["box".to_owned()]);
            let found = is_included(&RelativePath::new(path).unwrap(), &stopped);
            assert_eq!(found, expected, "{path}");
        }
    }
}
