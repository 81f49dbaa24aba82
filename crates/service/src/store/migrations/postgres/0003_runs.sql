CREATE TABLE run_programs (
    hash TEXT COLLATE "C" PRIMARY KEY,
    sources TEXT COLLATE "C" NOT NULL
);
CREATE TABLE runs (
    id TEXT COLLATE "C" PRIMARY KEY,
    owner_id TEXT COLLATE "C" NOT NULL,
    parent_id TEXT COLLATE "C",
    generation BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    file TEXT COLLATE "C" NOT NULL,
    program TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    input TEXT COLLATE "C" NOT NULL,
    environment TEXT COLLATE "C" NOT NULL,
    max_concurrency BIGINT,
    idempotency_key TEXT COLLATE "C",
    output TEXT COLLATE "C",
    error TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    finished_at BIGINT
);
CREATE INDEX runs_owner_id ON runs (owner_id, created_at);
CREATE TABLE run_tasks (
    run_id TEXT COLLATE "C" NOT NULL,
    node_id TEXT COLLATE "C" NOT NULL,
    iteration BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    label TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL,
    executions BIGINT NOT NULL,
    place BIGINT NOT NULL,
    output_table TEXT COLLATE "C",
    output TEXT COLLATE "C",
    error TEXT COLLATE "C",
    meta TEXT COLLATE "C" NOT NULL,
    wake_at BIGINT,
    started_at BIGINT NOT NULL,
    finished_at BIGINT,
    PRIMARY KEY (run_id, node_id, iteration)
);
CREATE TABLE run_loops (
    run_id TEXT COLLATE "C" NOT NULL,
    loop_id TEXT COLLATE "C" NOT NULL,
    iteration BIGINT NOT NULL,
    has_ended BIGINT NOT NULL,
    PRIMARY KEY (run_id, loop_id)
);
CREATE TABLE run_events (
    run_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    event TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, seq)
);
CREATE TABLE run_answers (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    correlation TEXT COLLATE "C",
    payload TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    used_by TEXT COLLATE "C"
);
CREATE INDEX run_answers_run_id ON run_answers (run_id, seq);
