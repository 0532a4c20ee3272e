-- What export-release made for clients to fetch, until the next clean-up.
CREATE TABLE exported_releases (
    blob TEXT PRIMARY KEY,
    sha1 TEXT NOT NULL,
    created_at BIGINT NOT NULL
)
