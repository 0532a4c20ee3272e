ALTER TABLE vms ADD COLUMN spare BIGINT NOT NULL DEFAULT 0;

CREATE TABLE orphaned_vms (
    cid TEXT PRIMARY KEY,
    cpi TEXT NOT NULL,
    record TEXT NOT NULL,
    az TEXT,
    deployment TEXT NOT NULL,
    instance TEXT NOT NULL,
    orphaned_at BIGINT NOT NULL
);

CREATE INDEX vms_instance ON vms (instance);

CREATE INDEX disks_instance ON disks (instance);

CREATE INDEX addresses_instance ON addresses (instance)
