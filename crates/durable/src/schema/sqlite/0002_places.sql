-- The place that a workflow belongs to: only executors of that place run it. NULL: any executor may.
ALTER TABLE workflow_status ADD COLUMN place TEXT;
CREATE INDEX workflow_status_place ON workflow_status (place) WHERE place IS NOT NULL AND completed_at IS NULL;
