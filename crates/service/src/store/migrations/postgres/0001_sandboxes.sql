CREATE TABLE sandbox_instances (
    id TEXT COLLATE "C" PRIMARY KEY,
    owner_id TEXT COLLATE "C" NOT NULL,
    execution_id TEXT COLLATE "C",
    workflow_id TEXT COLLATE "C",
    image TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    visibility TEXT COLLATE "C" NOT NULL DEFAULT 'private',
    workspace_id TEXT COLLATE "C",
    access_rules TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    sandbox_users TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    default_uid BIGINT,
    metadata TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    resource_spec TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    proxy_config TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    terminated_at BIGINT,
    reason TEXT COLLATE "C",
    requested_runtime TEXT COLLATE "C",
    runtime TEXT COLLATE "C" NOT NULL,
    spec TEXT COLLATE "C" NOT NULL,
    idle_timeout_ms BIGINT,
    on_idle TEXT COLLATE "C" NOT NULL DEFAULT 'pause',
    last_used_at BIGINT NOT NULL,
    idle_paused BIGINT NOT NULL DEFAULT 0,
    files TEXT COLLATE "C",
    generation BIGINT NOT NULL DEFAULT 1
);
CREATE INDEX sandbox_instances_owner_id ON sandbox_instances (owner_id);
CREATE INDEX sandbox_instances_execution_id ON sandbox_instances (execution_id);
CREATE INDEX sandbox_instances_status ON sandbox_instances (status);

CREATE TABLE sandbox_events (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    type TEXT COLLATE "C" NOT NULL,
    sandbox_id TEXT COLLATE "C" NOT NULL,
    owner_id TEXT COLLATE "C" NOT NULL,
    execution_id TEXT COLLATE "C",
    at BIGINT NOT NULL,
    data TEXT COLLATE "C" NOT NULL
);
CREATE INDEX sandbox_events_sandbox_id ON sandbox_events (sandbox_id, seq);
CREATE INDEX sandbox_events_owner_id ON sandbox_events (owner_id, seq);

CREATE TABLE sandbox_snapshots (
    id TEXT COLLATE "C" PRIMARY KEY,
    owner_id TEXT COLLATE "C" NOT NULL,
    sandbox_id TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    size_bytes BIGINT
);
CREATE INDEX sandbox_snapshots_owner_id ON sandbox_snapshots (owner_id);

CREATE TABLE sandbox_service (
    id TEXT COLLATE "C" PRIMARY KEY
);

-- The pairs of an object of texts; none of a text that is not one.
CREATE FUNCTION metadata_pairs(metadata TEXT)
RETURNS TABLE (key TEXT, value TEXT)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN QUERY SELECT pairs.key, pairs.value FROM json_each_text(metadata::json) AS pairs;
EXCEPTION WHEN OTHERS THEN
    RETURN;
END
$$;
