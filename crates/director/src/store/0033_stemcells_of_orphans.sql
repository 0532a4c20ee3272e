-- The version of the stemcell that a disk was used with: calls about the disk still carry it.
ALTER TABLE orphan_disks ADD COLUMN stemcell_version BIGINT
