CREATE TABLE events (
    id {id},
    parent BIGINT,
    happened_at BIGINT NOT NULL,
    username TEXT NOT NULL,
    action TEXT NOT NULL,
    object_type TEXT NOT NULL,
    object_name TEXT,
    task BIGINT,
    deployment TEXT,
    instance TEXT,
    error TEXT,
    context TEXT NOT NULL
);

ALTER TABLE intents ADD COLUMN event BIGINT
