CREATE TABLE secret_requests (
    id TEXT COLLATE "C" PRIMARY KEY,
    fingerprint BYTEA NOT NULL,
    answer TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX secret_requests_by_age ON secret_requests (created_at);
