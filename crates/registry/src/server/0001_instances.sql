-- The original's table, so that its PostgreSQL database can be taken over as it is.
CREATE TABLE IF NOT EXISTS registry_instances (
    id {id},
    instance_id TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL
)
