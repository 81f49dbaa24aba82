ALTER TABLE sandbox_instances ADD COLUMN remove_at BIGINT;
ALTER TABLE sandbox_instances ADD COLUMN bundle TEXT COLLATE "C";
ALTER TABLE sandbox_instances ADD COLUMN is_bundled BIGINT NOT NULL DEFAULT 0;
