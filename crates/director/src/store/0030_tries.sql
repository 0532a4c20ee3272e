-- How often a task was begun. It stays at 0 for tasks that a director began which did not count.
ALTER TABLE tasks ADD COLUMN tries BIGINT NOT NULL DEFAULT 0;
