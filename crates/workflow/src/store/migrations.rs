//! The tables of workflows, in the order in which databases get them. A migration that was released
//! is never edited.
//!
//! The numbers are those of one database, which the tables of the service come first in: the next
//! migration of either crate has the next number.

use stockade_durable::Migration;

/// The migrations of the service and of this crate.
pub const MIGRATIONS: &[Migration] = &[
    stockade_service::MIGRATIONS[0],
    stockade_service::MIGRATIONS[1],
    RUNS,
    CACHE,
    BUNDLES,
    SANDBOXES,
    NESTED_SANDBOXES,
];
const _: () = assert!(stockade_service::MIGRATIONS.len() == 2);

const RUNS: Migration = Migration {
    number: 3,
    name: "runs of workflows, their tasks and events",
    sql: "
CREATE TABLE run_programs (
    hash TEXT PRIMARY KEY,
    sources TEXT NOT NULL
);
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    owner_id TEXT NOT NULL,
    parent_id TEXT,
    generation INTEGER NOT NULL,
    name TEXT NOT NULL,
    file TEXT NOT NULL,
    program TEXT NOT NULL,
    status TEXT NOT NULL,
    input TEXT NOT NULL,
    environment TEXT NOT NULL,
    max_concurrency INTEGER,
    idempotency_key TEXT,
    output TEXT,
    error TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    finished_at INTEGER
);
CREATE INDEX runs_owner_id ON runs (owner_id, created_at);
CREATE TABLE run_tasks (
    run_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    kind TEXT NOT NULL,
    label TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    executions INTEGER NOT NULL,
    place INTEGER NOT NULL,
    output_table TEXT,
    output TEXT,
    error TEXT,
    meta TEXT NOT NULL,
    wake_at INTEGER,
    started_at INTEGER NOT NULL,
    finished_at INTEGER,
    PRIMARY KEY (run_id, node_id, iteration)
) WITHOUT ROWID;
CREATE TABLE run_loops (
    run_id TEXT NOT NULL,
    loop_id TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    has_ended INTEGER NOT NULL,
    PRIMARY KEY (run_id, loop_id)
) WITHOUT ROWID;
CREATE TABLE run_events (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
CREATE TABLE run_answers (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    correlation TEXT,
    payload TEXT NOT NULL,
    at INTEGER NOT NULL,
    used_by TEXT
);
CREATE INDEX run_answers_run_id ON run_answers (run_id, seq);
",
};

const CACHE: Migration = Migration {
    number: 4,
    name: "what tasks gave, for other runs",
    sql: "
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
",
};

const BUNDLES: Migration = Migration {
    number: 5,
    name: "what tasks changed in their projects, and when they go on",
    sql: "
ALTER TABLE run_tasks ADD COLUMN bundle TEXT;
CREATE INDEX run_tasks_wake_at ON run_tasks (run_id, wake_at)
    WHERE wake_at IS NOT NULL AND finished_at IS NULL;
",
};

const SANDBOXES: Migration = Migration {
    number: 6,
    name: "sandboxes of runs",
    sql: "
CREATE TABLE run_sandboxes (
    run_id TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    runtime TEXT NOT NULL,
    remote_run_id TEXT,
    workspace_id TEXT,
    container_id TEXT,
    config_json TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    heartbeat_at_ms INTEGER,
    shipped_at_ms INTEGER,
    completed_at_ms INTEGER,
    bundle_path TEXT,
    name TEXT NOT NULL,
    base_ref TEXT,
    review TEXT,
    decision TEXT,
    PRIMARY KEY (run_id, sandbox_id, iteration)
) WITHOUT ROWID;
",
};

const NESTED_SANDBOXES: Migration = Migration {
    number: 7,
    name: "sandboxes in sandboxes",
    sql: "
ALTER TABLE run_sandboxes ADD COLUMN parent TEXT;
ALTER TABLE run_sandboxes ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
CREATE INDEX run_sandboxes_parent ON run_sandboxes (parent) WHERE parent IS NOT NULL;
",
};
