//! Everything in the clouds that is on record, so that what is not can be found.

use windlass_contract::director::Known;
use windlass_database::sqlx;

use super::{Store, StoreError};

impl Store {
    /// Everything that is on record.
    pub(crate) async fn known(&self) -> Result<Known, StoreError> {
        let mut known = Known::default();
        for (cids, query) in [
            (&mut known.vms, "SELECT cid FROM vms UNION SELECT cid FROM orphaned_vms ORDER BY cid"),
            (&mut known.disks, "SELECT cid FROM disks UNION SELECT cid FROM orphan_disks ORDER BY cid"),
            (&mut known.stemcells, "SELECT cid FROM stemcells ORDER BY cid"),
            (&mut known.snapshots, "SELECT cid FROM snapshots ORDER BY cid"),
        ] {
            *cids = sqlx::query_scalar(query).fetch_all(self.database.pool()).await?.into_iter().collect();
        }
        Ok(known)
    }
}
