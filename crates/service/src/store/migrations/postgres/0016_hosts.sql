-- Which server holds each sandbox, and the servers that use these tables. A server that was alone until
-- now has the id `local`.
ALTER TABLE sandbox_instances ADD COLUMN host TEXT COLLATE "C" NOT NULL DEFAULT 'local';
CREATE INDEX sandbox_instances_host ON sandbox_instances (host) WHERE status <> 'terminated';
ALTER TABLE audit_starts ADD COLUMN host TEXT COLLATE "C" NOT NULL DEFAULT 'local';
-- Its operations and runs belong to it as well.
UPDATE workflow_status SET place = CASE name WHEN 'workflow.run' THEN 'local-workflows' ELSE 'local' END
    WHERE completed_at IS NULL AND place IS NULL;

CREATE TABLE sandbox_hosts (
    id TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    address TEXT COLLATE "C" NOT NULL,
    holds_sandboxes BIGINT NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    announced_at BIGINT NOT NULL,
    lost_at BIGINT
);
