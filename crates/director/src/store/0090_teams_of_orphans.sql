-- Whose the deployment was that left an orphaned disk: what a team has on record has a limit.
CREATE TABLE orphan_disk_teams (
    disk TEXT NOT NULL REFERENCES orphan_disks (cid) ON DELETE CASCADE,
    team TEXT NOT NULL,
    PRIMARY KEY (disk, team)
)
