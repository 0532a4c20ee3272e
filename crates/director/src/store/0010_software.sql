-- What runs on the instances of a group, under a digest of it.
CREATE TABLE software (
    digest TEXT PRIMARY KEY,
    content TEXT NOT NULL
);

ALTER TABLE instances ADD COLUMN software TEXT;

CREATE TABLE compiled_packages (
    id {id},
    package BIGINT NOT NULL REFERENCES release_packages (id),
    os TEXT NOT NULL,
    stemcell TEXT NOT NULL,
    dependency_key TEXT NOT NULL,
    build BIGINT NOT NULL,
    sha1 TEXT NOT NULL,
    blob TEXT NOT NULL,
    UNIQUE (package, os, stemcell, dependency_key)
);
