CREATE TABLE workflow_status (
    workflow_uuid TEXT PRIMARY KEY NOT NULL,
    status TEXT NOT NULL,
    name TEXT NOT NULL,
    authenticated_user TEXT,
    inputs TEXT NOT NULL,
    output TEXT,
    error TEXT,
    executor_id TEXT,
    executor_incarnation INTEGER,
    application_version TEXT NOT NULL,
    recovery_attempts INTEGER NOT NULL DEFAULT 0,
    forgiven_attempts INTEGER NOT NULL DEFAULT 0,
    queue_name TEXT,
    deduplication_id TEXT,
    priority INTEGER NOT NULL DEFAULT 0,
    workflow_timeout_ms INTEGER,
    workflow_deadline_epoch_ms INTEGER,
    delay_until_epoch_ms INTEGER,
    parent_workflow_id TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    started_at_epoch_ms INTEGER,
    completed_at INTEGER
) STRICT;
CREATE INDEX workflow_status_in_flight ON workflow_status (queue_name, status, priority, created_at)
    WHERE queue_name IS NOT NULL AND completed_at IS NULL;
CREATE INDEX workflow_status_started ON workflow_status (queue_name, started_at_epoch_ms)
    WHERE queue_name IS NOT NULL AND started_at_epoch_ms IS NOT NULL;
CREATE INDEX workflow_status_pending ON workflow_status (executor_id) WHERE status = 'PENDING';
CREATE UNIQUE INDEX workflow_status_deduplication ON workflow_status (queue_name, deduplication_id)
    WHERE deduplication_id IS NOT NULL;
CREATE INDEX workflow_status_parent ON workflow_status (parent_workflow_id)
    WHERE parent_workflow_id IS NOT NULL;
CREATE INDEX workflow_status_owner ON workflow_status (authenticated_user, created_at)
    WHERE authenticated_user IS NOT NULL;
CREATE INDEX workflow_status_completed ON workflow_status (completed_at)
    WHERE completed_at IS NOT NULL;
CREATE INDEX workflow_status_created ON workflow_status (created_at);

CREATE TABLE operation_outputs (
    workflow_uuid TEXT NOT NULL,
    function_id INTEGER NOT NULL,
    function_name TEXT NOT NULL,
    output TEXT,
    error TEXT,
    child_workflow_id TEXT,
    started_at_epoch_ms INTEGER NOT NULL,
    completed_at_epoch_ms INTEGER NOT NULL,
    PRIMARY KEY (workflow_uuid, function_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE streams (
    workflow_uuid TEXT NOT NULL,
    key TEXT NOT NULL,
    "offset" INTEGER NOT NULL,
    value TEXT,
    function_id INTEGER,
    PRIMARY KEY (workflow_uuid, key, "offset")
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_events (
    workflow_uuid TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (workflow_uuid, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE notifications (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    message_uuid TEXT NOT NULL UNIQUE,
    destination_uuid TEXT NOT NULL,
    topic TEXT NOT NULL,
    message TEXT NOT NULL,
    consumed INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX notifications_waiting ON notifications (destination_uuid, topic, number);

CREATE TABLE queues (
    name TEXT PRIMARY KEY NOT NULL,
    concurrency INTEGER,
    worker_concurrency INTEGER,
    rate_limit_max INTEGER,
    rate_limit_period_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE executors (
    executor_id TEXT PRIMARY KEY NOT NULL,
    incarnation INTEGER NOT NULL,
    application_version TEXT NOT NULL,
    heartbeat_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE application_versions (
    version TEXT PRIMARY KEY NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
