CREATE TABLE workflow_status (
    number BIGINT GENERATED ALWAYS AS IDENTITY,
    workflow_uuid TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    authenticated_user TEXT COLLATE "C",
    inputs TEXT COLLATE "C" NOT NULL,
    output TEXT COLLATE "C",
    error TEXT COLLATE "C",
    executor_id TEXT COLLATE "C",
    executor_incarnation BIGINT,
    application_version TEXT COLLATE "C" NOT NULL,
    recovery_attempts BIGINT NOT NULL DEFAULT 0,
    forgiven_attempts BIGINT NOT NULL DEFAULT 0,
    queue_name TEXT COLLATE "C",
    deduplication_id TEXT COLLATE "C",
    priority BIGINT NOT NULL DEFAULT 0,
    workflow_timeout_ms BIGINT,
    workflow_deadline_epoch_ms BIGINT,
    delay_until_epoch_ms BIGINT,
    parent_workflow_id TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    started_at_epoch_ms BIGINT,
    completed_at BIGINT
);
CREATE INDEX workflow_status_in_flight ON workflow_status (queue_name, status, priority, created_at, number)
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
CREATE INDEX workflow_status_created ON workflow_status (created_at, number);

CREATE TABLE operation_outputs (
    workflow_uuid TEXT COLLATE "C" NOT NULL,
    function_id BIGINT NOT NULL,
    function_name TEXT COLLATE "C" NOT NULL,
    output TEXT COLLATE "C",
    error TEXT COLLATE "C",
    child_workflow_id TEXT COLLATE "C",
    started_at_epoch_ms BIGINT NOT NULL,
    completed_at_epoch_ms BIGINT NOT NULL,
    PRIMARY KEY (workflow_uuid, function_id)
);

CREATE TABLE streams (
    workflow_uuid TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    "offset" BIGINT NOT NULL,
    value TEXT COLLATE "C",
    function_id BIGINT,
    PRIMARY KEY (workflow_uuid, key, "offset")
);

CREATE TABLE workflow_events (
    workflow_uuid TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (workflow_uuid, key)
);

CREATE TABLE notifications (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_uuid TEXT COLLATE "C" NOT NULL UNIQUE,
    destination_uuid TEXT COLLATE "C" NOT NULL,
    topic TEXT COLLATE "C" NOT NULL,
    message TEXT COLLATE "C" NOT NULL,
    consumed BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL
);
CREATE INDEX notifications_waiting ON notifications (destination_uuid, topic, number);

CREATE TABLE queues (
    name TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    concurrency BIGINT,
    worker_concurrency BIGINT,
    rate_limit_max BIGINT,
    rate_limit_period_ms BIGINT
);

CREATE TABLE executors (
    executor_id TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    incarnation BIGINT NOT NULL,
    application_version TEXT COLLATE "C" NOT NULL,
    heartbeat_at BIGINT NOT NULL
);

CREATE TABLE application_versions (
    version TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    created_at BIGINT NOT NULL
);
