CREATE TABLE sandbox_instances (
    id TEXT PRIMARY KEY,
    owner_id TEXT NOT NULL,
    execution_id TEXT,
    workflow_id TEXT,
    image TEXT NOT NULL,
    status TEXT NOT NULL,
    visibility TEXT NOT NULL DEFAULT 'private',
    workspace_id TEXT,
    access_rules TEXT NOT NULL DEFAULT '[]',
    sandbox_users TEXT NOT NULL DEFAULT '[]',
    default_uid INTEGER,
    metadata TEXT NOT NULL DEFAULT '{}',
    resource_spec TEXT NOT NULL DEFAULT '{}',
    proxy_config TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    terminated_at INTEGER,
    reason TEXT,
    requested_runtime TEXT,
    runtime TEXT NOT NULL,
    spec TEXT NOT NULL,
    idle_timeout_ms INTEGER,
    on_idle TEXT NOT NULL DEFAULT 'pause',
    last_used_at INTEGER NOT NULL,
    idle_paused INTEGER NOT NULL DEFAULT 0,
    files TEXT,
    generation INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX sandbox_instances_owner_id ON sandbox_instances (owner_id);
CREATE INDEX sandbox_instances_execution_id ON sandbox_instances (execution_id);
CREATE INDEX sandbox_instances_status ON sandbox_instances (status);

CREATE TABLE sandbox_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    execution_id TEXT,
    at INTEGER NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX sandbox_events_sandbox_id ON sandbox_events (sandbox_id, seq);
CREATE INDEX sandbox_events_owner_id ON sandbox_events (owner_id, seq);

CREATE TABLE sandbox_snapshots (
    id TEXT PRIMARY KEY,
    owner_id TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    size_bytes INTEGER
);
CREATE INDEX sandbox_snapshots_owner_id ON sandbox_snapshots (owner_id);

CREATE TABLE sandbox_service (
    id TEXT PRIMARY KEY
);
