CREATE TABLE notices (
    id {id},
    body TEXT NOT NULL,
    created_at BIGINT NOT NULL
)
