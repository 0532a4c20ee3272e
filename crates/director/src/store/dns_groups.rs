//! The numbers of groups of instances in DNS. Jobs find those of the links that they provide in `.bosh/links.json`.

use std::collections::{BTreeMap, BTreeSet};

use windlass_database::Transaction;
use windlass_database::sqlx::{self, Row};
use windlass_planning::desired::Desired;

use super::{Store, StoreError};

const INSTANCE_GROUP: &str = "instance-group";
const LINK: &str = "link";

impl Store {
    /// The numbers of the groups that provide links of a deployment, by name.
    pub(crate) async fn link_groups(&self, deployment: &str) -> Result<BTreeMap<String, i64>, StoreError> {
        let rows = sqlx::query("SELECT name, id FROM dns_groups WHERE deployment = $1 AND kind = $2")
            .bind(deployment)
            .bind(LINK)
            .fetch_all(self.database.pool())
            .await?;
        rows.iter().map(|row| Ok((row.try_get("name")?, row.try_get("id")?))).collect()
    }

    /// Gives each group of a deployment a number that it keeps, in the order in which BOSH counts.
    pub(crate) async fn number_groups(&self, desired: &Desired) -> Result<(), StoreError> {
        let rows = sqlx::query("SELECT kind, name FROM dns_groups WHERE deployment = $1")
            .bind(desired.deployment.as_str())
            .fetch_all(self.database.pool())
            .await?;
        let mut known = BTreeSet::new();
        for row in &rows {
            known.insert((row.try_get::<String, _>("kind")?, row.try_get::<String, _>("name")?));
        }
        let groups = desired.groups.iter().map(|group| (INSTANCE_GROUP.to_owned(), group.name.clone()));
        let links = desired.links.providers.iter().map(|provider| (LINK.to_owned(), provider.group_name()));
        let new: Vec<_> = groups.chain(links).filter(|group| known.insert(group.clone())).collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut transaction = self.database.begin().await?;
        for (kind, name) in new {
            sqlx::query("INSERT INTO dns_groups (kind, name, deployment) VALUES ($1, $2, $3)")
                .bind(kind)
                .bind(name)
                .bind(desired.deployment.as_str())
                .execute(transaction.connection())
                .await?;
        }
        Ok(transaction.commit().await?)
    }
}

/// Forgets the groups of a deployment.
pub(super) async fn forget_all(transaction: &mut Transaction, deployment: &str) -> Result<(), StoreError> {
    let forget = sqlx::query("DELETE FROM dns_groups WHERE deployment = $1").bind(deployment);
    forget.execute(transaction.connection()).await?;
    Ok(())
}
