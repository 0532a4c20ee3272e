//! What DNS knows: the instances with their addresses, the numbers that names are made of, and which agent was told what.
//!
//! Names are not kept: they follow from the records of instances and VMs. What is kept is a digest of all of them, under a number
//! that rises whenever it changes, so that a kill between a change and the news of it loses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::TryStreamExt;
use serde::Deserialize;
use windlass_contract::{Networks, VmCid};
use windlass_database::Transaction;
use windlass_database::sqlx::{self, AssertSqlSafe, Row};
use windlass_operations::clock;
use windlass_planning::dns::{DnsAlias, DnsNumbers, GroupKind, NamedInstance};
use windlass_planning::links::LinkAlias;
use windlass_planning::names::{DeploymentName, InstanceId};
use windlass_planning::plan::is_compilation_group;
use windlass_planning::records::VmRecord;

use super::dns_groups::{INSTANCE_GROUP, LINK};
use super::{Store, StoreError, from_json, optional_json, resources};

/// What names are made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct NamesOnRecord {
    pub instances: Vec<NamedInstance>,
    pub aliases: Vec<DnsAlias>,
    pub numbers: DnsNumbers,
}

/// A VM whose agent has an older version than there is.
#[derive(Debug)]
pub(crate) struct VmBehind(pub VmRecord);

#[derive(Deserialize)]
struct Networked {
    networks: Networks,
}

fn addresses(networks: &Networks) -> Vec<(String, String)> {
    networks.iter().filter_map(|(name, network)| Some((name.clone(), network.ip.clone()?))).collect()
}

impl Store {
    /// Everything that has a name, with numbers for all of it.
    pub(crate) async fn names_on_record(&self) -> Result<NamesOnRecord, StoreError> {
        let (links, aliases) = self.named_links().await?;
        let links: BTreeMap<_, _> = links.into_iter().map(|(group, links)| (group, Arc::new(links))).collect();
        // One that is detached keeps its names, as it keeps its addresses.
        // One row after the other: what is on record of a VM is far more than its addresses.
        let mut rows = sqlx::query(
            "SELECT i.id, i.deployment, i.instance_group, i.position, i.az, v.agent_id, v.record,
             CASE WHEN v.cid IS NULL AND i.state = 'detached' THEN i.spec END AS spec
             FROM instances i LEFT JOIN vms v ON v.instance = i.id AND v.spare = 0
             ORDER BY i.deployment, i.instance_group, i.position, v.created_at, v.cid",
        )
        .fetch(self.database.pool());
        let mut instances: Vec<NamedInstance> = Vec::new();
        while let Some(row) = rows.try_next().await? {
            let row = &row;
            let (id, group): (String, String) = (row.try_get("id")?, row.try_get("instance_group")?);
            let id = InstanceId::from(id);
            let is_named = instances.last().is_some_and(|known| known.id == id);
            if is_named || is_compilation_group(&group) {
                continue;
            }
            let of_vm: Option<Networked> = optional_json(row, "record")?;
            let of_vm = if of_vm.is_some() { of_vm } else { optional_json(row, "spec")? };
            let addresses = of_vm.map(|of_vm| addresses(&of_vm.networks)).unwrap_or_default();
            if addresses.is_empty() {
                continue;
            }
            let deployment: String = row.try_get("deployment")?;
            let links = links.get(&(deployment.clone(), group.clone())).cloned().unwrap_or_default();
            instances.push(NamedInstance {
                id,
                index: row.try_get("position")?,
                deployment,
                group,
                az: row.try_get("az")?,
                agent_id: row.try_get("agent_id")?,
                addresses,
                links,
            });
        }
        drop(rows);
        let mut numbers = self.dns_numbers().await?;
        if self.number_the_rest(&instances, &numbers).await? {
            numbers = self.dns_numbers().await?;
        }
        Ok(NamesOnRecord { instances, aliases, numbers })
    }

    /// The links that groups provide, by deployment and group, and the other names of those who do.
    async fn named_links(&self) -> Result<(BTreeMap<(String, String), Vec<String>>, Vec<DnsAlias>), StoreError> {
        let rows = sqlx::query(
            "SELECT p.deployment, p.instance_group, p.name, p.link_type, p.aliases FROM link_providers p
             JOIN deployments d ON d.name = p.deployment AND p.serial = d.links_serial WHERE p.kind = 'job' ORDER BY p.id",
        )
        .fetch_all(self.database.pool())
        .await?;
        let (mut links, mut aliases) = (BTreeMap::<_, Vec<String>>::new(), Vec::new());
        for row in &rows {
            let (deployment, group): (String, String) = (row.try_get("deployment")?, row.try_get("instance_group")?);
            let link_group =
                format!("{}-{}", row.try_get::<String, _>("name")?, row.try_get::<String, _>("link_type")?);
            let others: Vec<LinkAlias> = from_json("link_providers.aliases", row.try_get("aliases")?)?;
            aliases.extend(others.into_iter().map(|alias| DnsAlias {
                deployment: deployment.clone(),
                link_group: link_group.clone(),
                domain: alias.domain,
                health_filter: alias.health_filter,
                initial_health_check: alias.initial_health_check,
                placeholder_type: alias.placeholder_type,
            }));
            let known = links.entry((deployment, group)).or_default();
            if !known.contains(&link_group) {
                known.push(link_group);
            }
        }
        Ok((links, aliases))
    }

    /// The deployments and domains of all aliases but those of one deployment.
    pub(crate) async fn aliases_beside(
        &self,
        deployment: &DeploymentName,
    ) -> Result<Vec<(DeploymentName, String)>, StoreError> {
        let (_, aliases) = self.named_links().await?;
        let others = aliases.into_iter().filter(|alias| deployment != alias.deployment.as_str());
        Ok(others.map(|alias| (alias.deployment.into(), alias.domain)).collect())
    }

    /// All numbers that were given.
    pub(crate) async fn dns_numbers(&self) -> Result<DnsNumbers, StoreError> {
        self.numbers_of_groups("SELECT * FROM dns_groups WHERE deployment <> $1", "").await
    }

    /// The same, with the groups of one deployment only: each deploy may name thousands of links, and all of them keep their numbers.
    pub(crate) async fn dns_numbers_of(&self, deployment: &DeploymentName) -> Result<DnsNumbers, StoreError> {
        self.numbers_of_groups("SELECT * FROM dns_groups WHERE deployment = $1", deployment.as_str()).await
    }

    async fn numbers_of_groups(&self, groups: &'static str, deployment: &str) -> Result<DnsNumbers, StoreError> {
        let mut numbers = self.numbers_of_places().await?;
        for row in sqlx::query(groups).bind(deployment).fetch_all(self.database.pool()).await? {
            let kind = match row.try_get::<String, _>("kind")?.as_str() {
                LINK => GroupKind::Link,
                _ => GroupKind::InstanceGroup,
            };
            numbers.groups.insert((row.try_get("deployment")?, kind, row.try_get("name")?), row.try_get("id")?);
        }
        Ok(numbers)
    }

    /// Those of zones and networks alone.
    pub(crate) async fn numbers_of_places(&self) -> Result<DnsNumbers, StoreError> {
        let mut numbers = DnsNumbers::default();
        for (statement, into) in [
            ("SELECT name, id FROM dns_zones", &mut numbers.azs),
            ("SELECT name, id FROM dns_networks", &mut numbers.networks),
        ] {
            for row in sqlx::query(statement).fetch_all(self.database.pool()).await? {
                into.insert(row.try_get("name")?, row.try_get("id")?);
            }
        }
        Ok(numbers)
    }

    /// Numbers for what was deployed by a director that gave none; says whether there was any.
    async fn number_the_rest(&self, instances: &[NamedInstance], known: &DnsNumbers) -> Result<bool, StoreError> {
        let azs: BTreeSet<&str> = instances.iter().filter_map(|instance| instance.az.as_deref()).collect();
        let networks: BTreeSet<&str> =
            instances.iter().flat_map(|instance| &instance.addresses).map(|(network, _)| network.as_str()).collect();
        let groups: BTreeSet<(&str, GroupKind, &str)> = instances
            .iter()
            .flat_map(|of| {
                let own = (of.deployment.as_str(), GroupKind::InstanceGroup, of.group.as_str());
                let links = of.links.iter().map(|link| (of.deployment.as_str(), GroupKind::Link, link.as_str()));
                links.chain([own])
            })
            .filter(|(deployment, kind, name)| known.group(deployment, *kind, name) == 0)
            .collect();
        let azs: Vec<_> = azs.into_iter().filter(|az| !known.azs.contains_key(*az)).collect();
        let networks: Vec<_> = networks.into_iter().filter(|network| !known.networks.contains_key(*network)).collect();
        if azs.is_empty() && networks.is_empty() && groups.is_empty() {
            return Ok(false);
        }
        let mut transaction = self.database.begin().await?;
        number(&mut transaction, "dns_zones", &azs).await?;
        number(&mut transaction, "dns_networks", &networks).await?;
        for (deployment, kind, name) in groups {
            sqlx::query(
                "INSERT INTO dns_groups (kind, name, deployment) VALUES ($1, $2, $3) ON CONFLICT (kind, name, deployment) DO NOTHING",
            )
            .bind(if kind == GroupKind::Link { LINK } else { INSTANCE_GROUP })
            .bind(name)
            .bind(deployment)
            .execute(transaction.connection())
            .await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// The version of names whose digest this is: the newest one, or a new one if that has others.
    pub(crate) async fn dns_version(&self, content: &str) -> Result<i64, StoreError> {
        let mut transaction = self.database.begin().await?;
        let newest = sqlx::query("SELECT id, content FROM dns_versions ORDER BY id DESC LIMIT 1")
            .fetch_optional(transaction.connection())
            .await?;
        if let Some(row) = newest
            && row.try_get::<String, _>("content")? == content
        {
            return Ok(row.try_get("id")?);
        }
        let version: i64 =
            sqlx::query_scalar("INSERT INTO dns_versions (content, created_at) VALUES ($1, $2) RETURNING id")
                .bind(content)
                .bind(clock::now())
                .fetch_one(transaction.connection())
                .await?;
        sqlx::query("DELETE FROM dns_versions WHERE id < $1").bind(version).execute(transaction.connection()).await?;
        transaction.commit().await?;
        Ok(version)
    }

    /// The VMs whose agents answer and have an older version.
    pub(crate) async fn vms_behind(&self, version: i64) -> Result<Vec<VmBehind>, StoreError> {
        let mut rows = sqlx::query(
            "SELECT v.record, v.ready, v.spare, i.instance_group FROM vms v JOIN instances i ON i.id = v.instance
             WHERE v.dns_version < $1 AND v.ready = 1 AND v.spare = 0 ORDER BY v.created_at, v.cid",
        )
        .bind(version)
        .fetch(self.database.pool());
        let mut behind = Vec::new();
        while let Some(row) = rows.try_next().await? {
            if !is_compilation_group(&row.try_get::<String, _>("instance_group")?) {
                behind.push(VmBehind(resources::vm_to_talk_to(&row)?));
            }
        }
        Ok(behind)
    }

    /// The version that the agent of a VM has; 0 if it has none.
    pub(crate) async fn dns_version_of(&self, vm: &VmCid) -> Result<i64, StoreError> {
        let found = sqlx::query_scalar("SELECT dns_version FROM vms WHERE cid = $1").bind(vm.as_str());
        Ok(found.fetch_optional(self.database.pool()).await?.unwrap_or_default())
    }

    /// These agents have the version. One that is forgotten to have it is told again.
    pub(crate) async fn note_dns_version(&self, vms: &[VmCid], version: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_unflushed().await?;
        for vm in vms {
            sqlx::query("UPDATE vms SET dns_version = $1 WHERE cid = $2 AND dns_version < $1")
                .bind(version)
                .bind(vm.as_str())
                .execute(transaction.connection())
                .await?;
        }
        Ok(transaction.commit().await?)
    }
}

/// Numbers for names that have none. `table` is a constant of the program, as all SQL here.
pub(super) async fn number(
    transaction: &mut Transaction,
    table: &'static str,
    names: &[&str],
) -> Result<(), StoreError> {
    for name in names {
        let statement = format!("INSERT INTO {table} (name) VALUES ($1) ON CONFLICT (name) DO NOTHING");
        sqlx::query(AssertSqlSafe(statement)).bind(*name).execute(transaction.connection()).await?;
    }
    Ok(())
}
