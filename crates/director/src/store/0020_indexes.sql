CREATE INDEX disks_vm ON disks (vm);

CREATE INDEX snapshots_disk ON snapshots (disk);

CREATE INDEX events_task ON events (task)
