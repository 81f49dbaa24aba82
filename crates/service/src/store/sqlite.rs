//! SQL that only SQLite understands, one function for each purpose.

/// The condition that a sandbox's metadata contains a pair, whose key and value are the parameters
/// with these numbers. Unreadable metadata contains none.
pub(super) fn metadata_holds(key: usize, value: usize) -> String {
    format!(
        "EXISTS (SELECT 1 FROM json_each(iif(json_valid(metadata), metadata, '{{}}')) \
         WHERE key = ?{key} AND value = ?{value})"
    )
}
