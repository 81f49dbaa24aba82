CREATE TABLE secret_requests (
    id TEXT PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    answer TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX secret_requests_by_age ON secret_requests (created_at);
