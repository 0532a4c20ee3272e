-- Counts the deploys of a deployment. What a deploy touched has its number, and the rest goes when it has succeeded.
ALTER TABLE deployments ADD COLUMN links_serial BIGINT NOT NULL DEFAULT 0;

CREATE TABLE link_providers (
    id {id},
    deployment TEXT NOT NULL REFERENCES deployments (name),
    instance_group TEXT NOT NULL,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    original_name TEXT NOT NULL,
    link_type TEXT NOT NULL,
    name TEXT NOT NULL,
    shared BIGINT NOT NULL,
    consumable BIGINT NOT NULL,
    content TEXT NOT NULL,
    serial BIGINT NOT NULL,
    UNIQUE (deployment, instance_group, owner, kind, original_name)
);

CREATE TABLE link_consumers (
    id {id},
    deployment TEXT NOT NULL REFERENCES deployments (name),
    instance_group TEXT NOT NULL,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    original_name TEXT NOT NULL,
    link_type TEXT NOT NULL,
    name TEXT NOT NULL,
    optional BIGINT NOT NULL,
    serial BIGINT NOT NULL,
    UNIQUE (deployment, instance_group, owner, kind, original_name)
);

-- A provider of another deployment may go before its consumers.
CREATE TABLE links (
    id {id},
    name TEXT NOT NULL,
    provider BIGINT REFERENCES link_providers (id),
    consumer BIGINT NOT NULL REFERENCES link_consumers (id),
    content TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    serial BIGINT NOT NULL
);

CREATE INDEX links_consumer ON links (consumer);

CREATE INDEX links_provider ON links (provider)
