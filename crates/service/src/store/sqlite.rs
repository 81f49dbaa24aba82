//! SQL that only SQLite understands, by what it asks for.

/// The condition that a sandbox's metadata holds a pair, whose key and value are the parameters of
/// these numbers. Metadata that cannot be read holds none.
pub(super) fn metadata_holds(key: usize, value: usize) -> String {
    format!(
        "EXISTS (SELECT 1 FROM json_each(iif(json_valid(metadata), metadata, '{{}}')) \
         WHERE key = ?{key} AND value = ?{value})"
    )
}
