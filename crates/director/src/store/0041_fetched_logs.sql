-- Logs that were fetched for operators.
CREATE TABLE fetched_logs (
    blob TEXT PRIMARY KEY,
    created_at BIGINT NOT NULL
)
