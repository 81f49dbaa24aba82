CREATE TABLE browser_codes (
    hash TEXT COLLATE "C" PRIMARY KEY,
    site TEXT COLLATE "C" NOT NULL,
    owner_id TEXT COLLATE "C" NOT NULL,
    sandbox_created_at BIGINT NOT NULL,
    challenge TEXT COLLATE "C",
    expires_at BIGINT NOT NULL,
    session_hash TEXT COLLATE "C"
);

CREATE INDEX browser_codes_by_expiry ON browser_codes (expires_at);

CREATE TABLE browser_sessions (
    hash TEXT COLLATE "C" PRIMARY KEY,
    site TEXT COLLATE "C" NOT NULL,
    owner_id TEXT COLLATE "C" NOT NULL,
    sandbox_created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE INDEX browser_sessions_by_expiry ON browser_sessions (expires_at);
