CREATE INDEX sandbox_instances_owner_age ON sandbox_instances (owner_id, created_at, id);
CREATE INDEX sandbox_instances_owner_alive ON sandbox_instances (owner_id, created_at, id)
    WHERE status <> 'terminated';
