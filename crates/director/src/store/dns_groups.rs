//! The numbers of groups of instances in DNS. Jobs find those of the links that they provide in `.bosh/links.json`.

use std::collections::BTreeSet;

use windlass_database::Transaction;
use windlass_database::sqlx::{self, Row};
use windlass_planning::desired::Desired;
use windlass_planning::names::DeploymentName;

use super::dns_records::number;
use super::{Store, StoreError};

pub(super) const INSTANCE_GROUP: &str = "instance-group";
pub(super) const LINK: &str = "link";

impl Store {
    /// Gives each group, zone and network of a deployment a number that it keeps, in the order in which BOSH counts.
    pub(crate) async fn number_groups(&self, desired: &Desired) -> Result<(), StoreError> {
        self.number_places(desired).await?;
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

    async fn number_places(&self, desired: &Desired) -> Result<(), StoreError> {
        let known = self.numbers_of_places().await?;
        let (mut azs, mut networks) = desired.named_places();
        azs.retain(|az| !known.azs.contains_key(*az));
        networks.retain(|network| !known.networks.contains_key(*network));
        if azs.is_empty() && networks.is_empty() {
            return Ok(());
        }
        let mut transaction = self.database.begin().await?;
        number(&mut transaction, "dns_zones", &azs).await?;
        number(&mut transaction, "dns_networks", &networks).await?;
        Ok(transaction.commit().await?)
    }
}

/// Forgets the groups of a deployment.
pub(super) async fn forget_all(transaction: &mut Transaction, deployment: &DeploymentName) -> Result<(), StoreError> {
    let forget = sqlx::query("DELETE FROM dns_groups WHERE deployment = $1").bind(deployment.as_str());
    forget.execute(transaction.connection()).await?;
    Ok(())
}
