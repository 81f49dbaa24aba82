CREATE TABLE run_cache (
    owner_id TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    output TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C" NOT NULL,
    node_id TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    PRIMARY KEY (owner_id, key)
);
CREATE INDEX run_cache_expires_at ON run_cache (expires_at) WHERE expires_at IS NOT NULL;
