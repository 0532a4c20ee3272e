-- The task that fetched logs, whose teams may have them.
ALTER TABLE fetched_logs ADD COLUMN task BIGINT
