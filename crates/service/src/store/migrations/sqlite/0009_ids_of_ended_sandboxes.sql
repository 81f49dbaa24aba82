ALTER TABLE sandbox_instances ADD COLUMN incarnation TEXT NOT NULL DEFAULT '';
