-- The numbers of groups of instances in DNS: those of an instance group, and those that provide a link.
CREATE TABLE dns_groups (
    id {id},
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    deployment TEXT NOT NULL,
    UNIQUE (kind, name, deployment)
);
