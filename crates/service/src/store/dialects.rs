//! SQL that SQLite and PostgreSQL write differently, one function for each purpose.

/// The condition that a sandbox's metadata contains a pair, whose key and value are the parameters
/// with these numbers, for SQLite and for PostgreSQL. Unreadable metadata contains none.
pub(super) fn metadata_holds(key: usize, value: usize) -> [String; 2] {
    let sqlite = format!(
        "EXISTS (SELECT 1 FROM json_each(iif(json_valid(metadata), metadata, '{{}}')) \
         WHERE key = ?{key} AND value = ?{value})"
    );
    // `metadata_pairs` is a function of the schema: a cast of unreadable text would fail the query.
    let postgres = format!(
        "EXISTS (SELECT 1 FROM metadata_pairs(metadata) AS pairs (key, value) \
         WHERE pairs.key = ?{key} AND pairs.value = ?{value})"
    );
    [sqlite, postgres]
}
