ALTER TABLE run_tasks ADD COLUMN bundle TEXT COLLATE "C";
CREATE INDEX run_tasks_wake_at ON run_tasks (run_id, wake_at)
    WHERE wake_at IS NOT NULL AND finished_at IS NULL;
