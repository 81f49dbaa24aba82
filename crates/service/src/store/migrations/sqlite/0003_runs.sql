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
