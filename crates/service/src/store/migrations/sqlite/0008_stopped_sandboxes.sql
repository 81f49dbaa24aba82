ALTER TABLE sandbox_instances ADD COLUMN remove_at INTEGER;
ALTER TABLE sandbox_instances ADD COLUMN bundle TEXT;
ALTER TABLE sandbox_instances ADD COLUMN is_bundled INTEGER NOT NULL DEFAULT 0;
