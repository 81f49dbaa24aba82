CREATE TABLE browser_codes (
    hash TEXT PRIMARY KEY,
    site TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    sandbox_created_at INTEGER NOT NULL,
    challenge TEXT,
    expires_at INTEGER NOT NULL,
    session_hash TEXT
);

CREATE INDEX browser_codes_by_expiry ON browser_codes (expires_at);

CREATE TABLE browser_sessions (
    hash TEXT PRIMARY KEY,
    site TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    sandbox_created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);

CREATE INDEX browser_sessions_by_expiry ON browser_sessions (expires_at);
