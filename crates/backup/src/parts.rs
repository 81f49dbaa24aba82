//! What of a data directory is in an archive: everything but what belongs to running processes, can be
//! made again, or is stored in another form.

use stockade_bundle::RelativePath;

use crate::RECORDS;

/// Entries of the data directory that are not in an archive.
const LEFT_OUT: [&str; 10] = [
    // Of processes.
    "server",
    "views",
    "mcp",
    // Of sandboxes that another server holds.
    "runtime-opensandbox",
    // Made again when they are needed.
    "bases",
    "downloads",
    "etc",
    "programs",
    "reserve",
    // Where the records are; they are in the archive as a file.
    "database",
];
/// The directories of runtimes. Of these, an archive has the snapshots, which stopped sandboxes are, too.
const RUNTIMES: [&str; 3] = ["runtime", "runtime-bwrap", "runtime-docker"];
const SNAPSHOTS: &[u8] = b"snapshots";

/// Whether a path of a data directory is in its archive.
pub(crate) fn is_included(path: &RelativePath) -> bool {
    let mut components = path.components();
    let first = components.next().unwrap_or_default();
    let is = |name: &&str| name.as_bytes() == first;
    if LEFT_OUT.iter().any(|name| is(&name)) || first.starts_with(RECORDS.as_bytes()) {
        return false;
    }
    if RUNTIMES.iter().any(|name| is(&name)) {
        let _version = components.next();
        return components.next().is_none_or(|part| part == SNAPSHOTS);
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
            ("runtime", true),
            ("runtime/7", true),
            ("runtime/7/snapshots/s/upper/server", true),
            ("runtime/7/sandboxes", false),
            ("runtime/7/socket", false),
            ("runtime-bwrap/7/trash/x", false),
        ] {
            assert_eq!(is_included(&RelativePath::new(path).unwrap()), expected, "{path}");
        }
    }
}
