CREATE TABLE release_versions (
    id {id},
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    commit_hash TEXT NOT NULL,
    uncommitted_changes BIGINT NOT NULL,
    UNIQUE (name, version)
);

-- Jobs and packages belong to a release by its name, and its versions share them.
CREATE TABLE release_jobs (
    id {id},
    release TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    sha1 TEXT NOT NULL,
    blob TEXT NOT NULL,
    spec TEXT NOT NULL,
    UNIQUE (release, name, version)
);

CREATE TABLE release_packages (
    id {id},
    release TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    sha1 TEXT NOT NULL,
    blob TEXT NOT NULL,
    dependencies TEXT NOT NULL,
    UNIQUE (release, name, version)
);

CREATE INDEX release_packages_fingerprint ON release_packages (fingerprint);

CREATE TABLE release_version_jobs (
    release_version BIGINT NOT NULL REFERENCES release_versions (id),
    job BIGINT NOT NULL REFERENCES release_jobs (id),
    PRIMARY KEY (release_version, job)
);

CREATE TABLE release_version_packages (
    release_version BIGINT NOT NULL REFERENCES release_versions (id),
    package BIGINT NOT NULL REFERENCES release_packages (id),
    PRIMARY KEY (release_version, package)
);

CREATE TABLE deployment_releases (
    deployment TEXT NOT NULL REFERENCES deployments (name),
    release_version BIGINT NOT NULL REFERENCES release_versions (id),
    PRIMARY KEY (deployment, release_version)
);
