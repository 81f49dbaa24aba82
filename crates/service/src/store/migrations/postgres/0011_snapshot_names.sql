-- The name that clients may give a snapshot. It identifies nothing.
ALTER TABLE sandbox_snapshots ADD COLUMN name TEXT COLLATE "C";
