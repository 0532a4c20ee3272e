//! The numbers of groups of instances in DNS. Jobs find those of the links that they provide in `.bosh/links.json`.

use std::collections::BTreeSet;

use windlass_database::Transaction;
use windlass_database::sqlx::{self, AssertSqlSafe, Row};
use windlass_planning::desired::Desired;
use windlass_planning::names::DeploymentName;

use super::dns_records::number;
use super::{Store, StoreError};

pub(super) const INSTANCE_GROUP: &str = "instance-group";
pub(super) const LINK: &str = "link";

/// From how many numbers on those go that nothing has: of groups and links of one deployment, and of zones or networks. Each deploy may name
/// thousands of new ones, also one that fails, and plans read them.
const MANY: usize = 10_000;

/// What a deployment has that is numbered.
struct Named<'n> {
    deployment: &'n str,
    /// By kind, in the order in which BOSH counts.
    groups: Vec<(String, String)>,
    azs: Vec<&'n str>,
    networks: Vec<&'n str>,
}

impl Store {
    /// Gives each group, zone and network of a deployment a number that it keeps, in the order in which BOSH counts.
    pub(crate) async fn number_groups(&self, desired: &Desired) -> Result<(), StoreError> {
        let groups = desired.groups.iter().map(|group| (INSTANCE_GROUP.to_owned(), group.name.clone()));
        let links = desired.links.providers.iter().map(|provider| (LINK.to_owned(), provider.group_name()));
        let (azs, networks) = desired.named_places();
        let named =
            Named { deployment: desired.deployment.as_str(), groups: groups.chain(links).collect(), azs, networks };
        self.number_all(&named, MANY).await
    }

    async fn number_all(&self, named: &Named<'_>, most: usize) -> Result<(), StoreError> {
        self.number_places(named, most).await?;
        let rows = sqlx::query("SELECT kind, name FROM dns_groups WHERE deployment = $1")
            .bind(named.deployment)
            .fetch_all(self.database.pool())
            .await?;
        let mut known = BTreeSet::new();
        for row in &rows {
            known.insert((row.try_get::<String, _>("kind")?, row.try_get::<String, _>("name")?));
        }
        let new: Vec<_> = named.groups.iter().filter(|group| known.insert((*group).clone())).collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut transaction = self.database.begin().await?;
        if rows.len() + new.len() > most {
            forget_unused(&mut transaction, named).await?;
        }
        for (kind, name) in new {
            sqlx::query("INSERT INTO dns_groups (kind, name, deployment) VALUES ($1, $2, $3)")
                .bind(kind)
                .bind(name)
                .bind(named.deployment)
                .execute(transaction.connection())
                .await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn number_places(&self, named: &Named<'_>, most: usize) -> Result<(), StoreError> {
        let known = self.numbers_of_places().await?;
        let (mut azs, mut networks) = (named.azs.clone(), named.networks.clone());
        azs.retain(|az| !known.azs.contains_key(*az));
        networks.retain(|network| !known.networks.contains_key(*network));
        if azs.is_empty() && networks.is_empty() {
            return Ok(());
        }
        let is_much = known.azs.len() + azs.len() > most || known.networks.len() + networks.len() > most;
        let in_use = if is_much { Some(self.places_in_use(named).await?) } else { None };
        let mut transaction = self.database.begin().await?;
        if let Some((used_azs, used_networks)) = in_use {
            forget_places(&mut transaction, "dns_zones", known.azs.keys(), &used_azs).await?;
            forget_places(&mut transaction, "dns_networks", known.networks.keys(), &used_networks).await?;
        }
        number(&mut transaction, "dns_zones", &azs).await?;
        number(&mut transaction, "dns_networks", &networks).await?;
        Ok(transaction.commit().await?)
    }

    /// The zones and networks of all instances that have names, and of this deployment.
    async fn places_in_use(&self, named: &Named<'_>) -> Result<(BTreeSet<String>, BTreeSet<String>), StoreError> {
        let mut azs: BTreeSet<String> = named.azs.iter().map(|az| (*az).to_owned()).collect();
        let mut networks: BTreeSet<String> = named.networks.iter().map(|network| (*network).to_owned()).collect();
        let all = "SELECT DISTINCT az FROM instances WHERE az IS NOT NULL";
        azs.extend(sqlx::query_scalar::<_, String>(all).fetch_all(self.database.pool()).await?);
        let all = "SELECT DISTINCT network FROM addresses";
        networks.extend(sqlx::query_scalar::<_, String>(all).fetch_all(self.database.pool()).await?);
        for instance in self.names_on_record().await?.instances {
            networks.extend(instance.addresses.into_iter().map(|(network, _)| network));
        }
        Ok((azs, networks))
    }
}

/// `table` is a constant of the program, as all SQL here.
async fn forget_places(
    transaction: &mut Transaction,
    table: &'static str,
    known: impl Iterator<Item = &String>,
    used: &BTreeSet<String>,
) -> Result<(), StoreError> {
    let statement = format!("DELETE FROM {table} WHERE name = $1");
    for name in known.filter(|name| !used.contains(*name)) {
        sqlx::query(AssertSqlSafe(statement.as_str())).bind(name).execute(transaction.connection()).await?;
    }
    Ok(())
}

/// Forgets groups of a deployment that neither it will have, nor its instances and links have.
async fn forget_unused(transaction: &mut Transaction, named: &Named<'_>) -> Result<(), StoreError> {
    let deployment = named.deployment;
    let mut used: BTreeSet<(String, String)> = named.groups.iter().cloned().collect();
    for (kind, statement) in [
        (INSTANCE_GROUP, "SELECT DISTINCT instance_group FROM instances WHERE deployment = $1"),
        (LINK, "SELECT DISTINCT name || '-' || link_type FROM link_providers WHERE deployment = $1"),
    ] {
        let found = sqlx::query_scalar::<_, String>(statement).bind(deployment);
        used.extend(found.fetch_all(transaction.connection()).await?.into_iter().map(|name| (kind.to_owned(), name)));
    }
    let known =
        sqlx::query_as::<_, (i64, String, String)>("SELECT id, kind, name FROM dns_groups WHERE deployment = $1");
    for (id, kind, name) in known.bind(deployment).fetch_all(transaction.connection()).await? {
        if !used.contains(&(kind, name)) {
            sqlx::query("DELETE FROM dns_groups WHERE id = $1").bind(id).execute(transaction.connection()).await?;
        }
    }
    Ok(())
}

/// Forgets the groups of a deployment.
pub(super) async fn forget_all(transaction: &mut Transaction, deployment: &DeploymentName) -> Result<(), StoreError> {
    let forget = sqlx::query("DELETE FROM dns_groups WHERE deployment = $1").bind(deployment.as_str());
    forget.execute(transaction.connection()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use windlass_operations::testing::new_instance_record;
    use windlass_planning::dns::GroupKind;

    use super::*;
    use crate::testing::TestDirector;

    /// Each deploy named forty thousand links, and zones and networks that everybody's plans read, and all of them stayed.
    #[tokio::test]
    async fn numbers_of_what_nothing_has_any_more_go_when_there_are_many_and_those_in_use_stay() {
        let test = TestDirector::new().await;
        let store = &test.director.store;
        store.add_deployment(&"shop".into(), &[]).await.unwrap();
        let number = async |deployment: &str, group: &str, place: &str| {
            let groups = vec![(INSTANCE_GROUP.to_owned(), group.to_owned()), (LINK.to_owned(), group.to_owned())];
            let named = Named { deployment, groups, azs: vec![place], networks: vec![place] };
            store.number_all(&named, 10).await.unwrap();
        };
        number("other", "kept", "other").await;
        number("shop", "kept", "used").await;
        let instance = windlass_planning::records::InstanceRecord {
            az: Some("used".to_owned()),
            ..new_instance_record("shop", "kept", "i".to_owned())
        };
        store.begin_instances(&[instance], &[]).await.unwrap();
        let before = store.dns_numbers().await.unwrap();
        for round in 0..40 {
            number("shop", &format!("g{round}"), &format!("z{round}")).await;
        }
        let after = store.dns_numbers().await.unwrap();
        assert!(after.groups.len() <= 12 && after.azs.len() <= 10 && after.networks.len() <= 10, "{after:?}");
        let kinds = [GroupKind::InstanceGroup, GroupKind::Link];
        for (deployment, kind) in [("other", kinds[0]), ("other", kinds[1]), ("shop", kinds[0])] {
            let both = (before.group(deployment, kind, "kept"), after.group(deployment, kind, "kept"));
            assert!(both.0 > 0 && both.0 == both.1, "{deployment} {both:?}");
        }
        assert_eq!(after.azs.get("used"), before.azs.get("used"));
        assert!(after.azs.contains_key("z39") && after.group("shop", GroupKind::Link, "g39") > 0);
        assert!(after.azs["z39"] > 30, "no number is given twice: {after:?}");
    }
}
