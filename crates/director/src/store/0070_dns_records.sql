-- Numbers that names in DNS are made of. None is ever given to anything else.
CREATE TABLE dns_zones (
    id {id},
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE dns_networks (
    id {id},
    name TEXT NOT NULL UNIQUE
);

-- What agents are told: the number of the newest row is its version. Rows that are not the newest go.
CREATE TABLE dns_versions (
    id {id},
    content TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- Other names for the instances that provide the link.
ALTER TABLE link_providers ADD COLUMN aliases TEXT NOT NULL DEFAULT '[]';

-- The version that the agent of a VM has.
ALTER TABLE vms ADD COLUMN dns_version BIGINT NOT NULL DEFAULT 0;
