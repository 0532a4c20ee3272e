CREATE TABLE snapshots (
    cid TEXT PRIMARY KEY,
    disk TEXT NOT NULL,
    clean BIGINT NOT NULL,
    created_at BIGINT NOT NULL
)
