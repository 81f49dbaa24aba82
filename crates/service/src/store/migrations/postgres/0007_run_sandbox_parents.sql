ALTER TABLE run_sandboxes ADD COLUMN parent TEXT COLLATE "C";
ALTER TABLE run_sandboxes ADD COLUMN depth BIGINT NOT NULL DEFAULT 0;
CREATE INDEX run_sandboxes_parent ON run_sandboxes (parent) WHERE parent IS NOT NULL;
