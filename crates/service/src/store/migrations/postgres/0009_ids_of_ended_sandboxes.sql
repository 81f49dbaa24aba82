ALTER TABLE sandbox_instances ADD COLUMN incarnation TEXT COLLATE "C" NOT NULL DEFAULT '';
