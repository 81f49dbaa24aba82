CREATE TABLE run_cache (
    owner_id TEXT NOT NULL,
    key TEXT NOT NULL,
    output TEXT NOT NULL,
    run_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (owner_id, key)
) WITHOUT ROWID;
CREATE INDEX run_cache_expires_at ON run_cache (expires_at) WHERE expires_at IS NOT NULL;
