-- What the embedded config server holds: each value under a name, encrypted, and never changed. The newest one counts.
CREATE TABLE variable_values (
    id {id},
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    -- Stands for what it was made from. None for one that somebody set.
    recipe TEXT,
    created_at BIGINT NOT NULL
);
CREATE INDEX variable_values_by_name ON variable_values (name, id);
-- The versions of variables that a deploy uses, which its instances keep until the next one.
CREATE TABLE variable_sets (
    id {id},
    deployment TEXT NOT NULL,
    task BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    deployed BIGINT NOT NULL DEFAULT 0,
    UNIQUE (deployment, task)
);
CREATE TABLE variables (
    variable_set BIGINT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    PRIMARY KEY (variable_set, name)
);
ALTER TABLE instances ADD COLUMN variable_set BIGINT;
