//! What is asked for often and of everything: as few queries as possible, each with what is shown and no more.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures_util::TryStreamExt;
use serde::Deserialize;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, AssertSqlSafe, Row};
use windlass_planning::names::{DeploymentName, InstanceId};
use windlass_planning::plan::Selection;
use windlass_planning::records::{InstanceRecord, InstanceState, VmRecord};

use super::{LockName, Store, StoreError, damaged, from_json, instances, resources};

/// A deployment in a list of all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedDeployment {
    /// The configs that its last deploy used.
    pub(crate) configs: BTreeSet<i64>,
    /// Names and versions.
    pub(crate) stemcells: Vec<(String, String)>,
    pub(crate) locked: bool,
    /// By name.
    pub(crate) teams: Vec<String>,
}

/// The newest version of a cloud config's name, of those that belong to the same team or to none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CurrentCloudConfig {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) team: Option<String>,
}

impl ListedDeployment {
    /// Whether its last deploy used all the cloud configs that its next one would.
    pub(crate) fn is_up_to_date(&self, current: &[CurrentCloudConfig]) -> bool {
        let is_for = |config: &&CurrentCloudConfig| config.team.as_ref().is_none_or(|team| self.teams.contains(team));
        let replaced = |config: &CurrentCloudConfig| {
            current.iter().filter(is_for).any(|other| other.name == config.name && other.id > config.id)
        };
        let mut newest = current.iter().filter(is_for).filter(|config| !replaced(config));
        newest.all(|config| self.configs.contains(&config.id))
    }
}

/// An instance in a list of a deployment's, without what its agent knows.
#[derive(Debug)]
pub(crate) struct BriefInstance {
    pub(crate) id: InstanceId,
    pub(crate) group: String,
    pub(crate) index: i64,
    pub(crate) az: Option<String>,
    pub(crate) state: InstanceState,
    pub(crate) vm: Option<BriefVm>,
}

/// The VM of an instance in a list.
#[derive(Debug)]
pub(crate) struct BriefVm {
    pub(crate) cid: String,
    pub(crate) agent_id: String,
    /// The address of the network with the gateway first.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) created_at: i64,
}

/// Of what is on record of a VM, what a list shows.
#[derive(Deserialize)]
struct Networked<'r> {
    #[serde(borrow)]
    networks: BTreeMap<Cow<'r, str>, BriefNetwork<'r>>,
}

#[derive(Deserialize)]
struct BriefNetwork<'r> {
    #[serde(borrow)]
    ip: Option<Cow<'r, str>>,
    #[serde(borrow, default)]
    default: Option<Vec<Cow<'r, str>>>,
}

impl Networked<'_> {
    /// As [`windlass_operations::agents::addresses`] has them.
    fn addresses(&self) -> Vec<IpAddr> {
        let is_first = |network: &BriefNetwork<'_>| network.default.iter().flatten().any(|what| what == "gateway");
        let address = |network: &BriefNetwork<'_>| network.ip.as_ref()?.parse().ok();
        let (first, others): (Vec<_>, Vec<_>) = self.networks.values().partition(|network| is_first(network));
        first.into_iter().chain(others).filter_map(address).collect()
    }
}

/// An instance whose agent may be talked to.
#[derive(Debug)]
pub(crate) struct Contact {
    /// Without specs, which may be large.
    pub(crate) record: InstanceRecord,
    /// Without what only its cloud needs.
    pub(crate) vm: Option<VmRecord>,
}

/// An instance that is looked after.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) deployment: DeploymentName,
    pub(crate) group: String,
    pub(crate) id: InstanceId,
    pub(crate) state: InstanceState,
    pub(crate) ignored: bool,
    pub(crate) has_jobs: bool,
    /// An error if the record is damaged.
    pub(crate) vm: Result<Option<VmRecord>, StoreError>,
}

pub(super) const BRIEF: &str =
    "SELECT i.id, i.instance_group, i.position, i.az, i.state, v.cid, v.agent_id, v.record, v.created_at
     FROM instances i LEFT JOIN vms v ON v.instance = i.id AND v.spare = 0 WHERE i.deployment = $1
     ORDER BY i.instance_group, i.position, v.created_at, v.cid";

/// Without specs, which may be large.
const CONTACTS: &str =
    "SELECT i.id, i.deployment, i.instance_group, i.position, i.az, i.bootstrap, i.state, i.converged, i.ignored,
        v.cid, v.record, v.ready, v.spare FROM instances i LEFT JOIN vms v ON v.instance = i.id AND v.spare = 0";

fn contact(row: &AnyRow) -> Result<Contact, StoreError> {
    let has_vm = row.try_get::<Option<String>, _>("cid")?.is_some();
    Ok(Contact {
        record: instances::read_without_specs(row)?,
        vm: has_vm.then(|| resources::vm_to_talk_to(row)).transpose()?,
    })
}

fn state(row: &AnyRow) -> Result<InstanceState, StoreError> {
    let state: String = row.try_get("state")?;
    from_json("state", &format!("\"{state}\""))
}

fn brief(row: &AnyRow) -> Result<BriefInstance, StoreError> {
    let vm = match row.try_get::<Option<String>, _>("cid")? {
        None => None,
        Some(cid) => {
            let record: String = row.try_get("record")?;
            let addresses = serde_json::from_str::<Networked<'_>>(&record).map_err(damaged("vms.record"))?.addresses();
            Some(BriefVm { cid, agent_id: row.try_get("agent_id")?, addresses, created_at: row.try_get("created_at")? })
        }
    };
    Ok(BriefInstance {
        id: row.try_get::<String, _>("id")?.into(),
        group: row.try_get("instance_group")?,
        index: row.try_get("position")?,
        az: row.try_get("az")?,
        state: state(row)?,
        vm,
    })
}

impl Store {
    /// All deployments by name, with what a list shows of them, and the current cloud configs.
    pub(crate) async fn deployment_list(
        &self,
    ) -> Result<(BTreeMap<String, ListedDeployment>, Vec<CurrentCloudConfig>), StoreError> {
        let mut connection = self.database.pool().acquire().await?;
        let mut listed: BTreeMap<String, ListedDeployment> = BTreeMap::new();
        for name in sqlx::query_scalar("SELECT name FROM deployments").fetch_all(&mut *connection).await? {
            listed.insert(name, ListedDeployment::default());
        }
        let used = sqlx::query("SELECT deployment, config FROM deployment_configs").fetch_all(&mut *connection).await?;
        for row in used {
            if let Some(deployment) = listed.get_mut(&row.try_get::<String, _>("deployment")?) {
                deployment.configs.insert(row.try_get("config")?);
            }
        }
        let stemcells = "SELECT u.deployment, s.name, s.version FROM deployment_stemcells u JOIN stemcells s ON s.id = u.stemcell \
             ORDER BY s.name, s.id";
        for row in sqlx::query(stemcells).fetch_all(&mut *connection).await? {
            if let Some(deployment) = listed.get_mut(&row.try_get::<String, _>("deployment")?) {
                deployment.stemcells.push((row.try_get("name")?, row.try_get("version")?));
            }
        }
        let locks = "SELECT locks.name FROM locks JOIN tasks ON tasks.id = locks.task \
             WHERE tasks.state IN ('queued', 'processing', 'cancelling')";
        for lock in sqlx::query_scalar::<_, String>(locks).fetch_all(&mut *connection).await? {
            let lock = LockName::from(lock);
            if let Some(deployment) = lock.deployment().and_then(|name| listed.get_mut(name)) {
                deployment.locked = true;
            }
        }
        let teams = "SELECT deployment, team FROM deployment_teams ORDER BY team";
        for row in sqlx::query(teams).fetch_all(&mut *connection).await? {
            if let Some(deployment) = listed.get_mut(&row.try_get::<String, _>("deployment")?) {
                deployment.teams.push(row.try_get("team")?);
            }
        }
        let current =
            "SELECT MAX(id) AS id, name, team FROM configs WHERE deleted = 0 AND type = 'cloud' GROUP BY name, team";
        let current = sqlx::query(current).fetch_all(&mut *connection).await?;
        let read = |row: &AnyRow| -> Result<_, sqlx::Error> {
            Ok(CurrentCloudConfig { id: row.try_get("id")?, name: row.try_get("name")?, team: row.try_get("team")? })
        };
        Ok((listed, current.iter().map(read).collect::<Result<_, _>>()?))
    }

    /// The instances of a deployment, each with its VM.
    pub(crate) async fn brief_instances(&self, deployment: &DeploymentName) -> Result<Vec<BriefInstance>, StoreError> {
        let mut instances: Vec<BriefInstance> = Vec::new();
        // One after the other: what is on record of a VM is far more than what is shown of it.
        let mut rows = sqlx::query(BRIEF).bind(deployment.as_str()).fetch(self.database.pool());
        while let Some(row) = rows.try_next().await? {
            let instance = brief(&row)?;
            // One that is being replaced may have two VMs for a moment; the older one counts.
            if instances.last().is_none_or(|last| last.id != instance.id) {
                instances.push(instance);
            }
        }
        Ok(instances)
    }

    /// The same, each with what is needed to talk to its agent.
    pub(crate) async fn contacts(&self, deployment: &DeploymentName) -> Result<Vec<Contact>, StoreError> {
        let statement =
            format!("{CONTACTS} WHERE i.deployment = $1 ORDER BY i.instance_group, i.position, v.created_at, v.cid");
        let mut rows = sqlx::query(AssertSqlSafe(statement)).bind(deployment.as_str()).fetch(self.database.pool());
        let mut contacts: Vec<Contact> = Vec::new();
        while let Some(row) = rows.try_next().await? {
            let contact = contact(&row)?;
            // The older VM counts, as above.
            if contacts.last().is_none_or(|last| last.record.id != contact.record.id) {
                contacts.push(contact);
            }
        }
        Ok(contacts)
    }

    /// One of them.
    pub(crate) async fn contact(&self, instance: &InstanceId) -> Result<Option<Contact>, StoreError> {
        let statement = format!("{CONTACTS} WHERE i.id = $1 ORDER BY v.created_at, v.cid LIMIT 1");
        let row = sqlx::query(AssertSqlSafe(statement)).bind(instance.as_str());
        let row = row.fetch_optional(self.database.pool()).await?;
        row.as_ref().map(contact).transpose()
    }

    /// The ids of some instances of a deployment, in the order of its groups.
    pub(crate) async fn selected_instances(
        &self,
        deployment: &DeploymentName,
        selection: &Selection,
    ) -> Result<Vec<InstanceId>, StoreError> {
        let ids = sqlx::query_scalar::<_, String>(
            "SELECT id FROM instances WHERE deployment = $1 AND ($2 = '' OR instance_group = $2)
                AND ($3 = '' OR id = $3 OR CAST(position AS TEXT) = $3) ORDER BY instance_group, position",
        );
        let ids = ids
            .bind(deployment.as_str())
            .bind(selection.group.as_deref().unwrap_or_default())
            .bind(selection.instance.as_deref().unwrap_or_default());
        Ok(ids.fetch_all(self.database.pool()).await?.into_iter().map(Into::into).collect())
    }

    /// All instances of all deployments, each with its VM.
    pub(crate) async fn watched(&self) -> Result<Vec<Watched>, StoreError> {
        let mut rows = sqlx::query(
            "SELECT i.deployment, i.instance_group, i.id, i.state, i.ignored, i.software, v.cid, v.record, v.ready, v.spare
             FROM instances i LEFT JOIN vms v ON v.instance = i.id AND v.spare = 0
             ORDER BY i.deployment, i.instance_group, i.position, v.created_at, v.cid",
        )
        .fetch(self.database.pool());
        let one = |row: &AnyRow| {
            let has_vm = row.try_get::<Option<String>, _>("cid")?.is_some();
            Ok::<_, StoreError>(Watched {
                deployment: row.try_get::<String, _>("deployment")?.into(),
                group: row.try_get("instance_group")?,
                id: row.try_get::<String, _>("id")?.into(),
                state: state(row)?,
                ignored: row.try_get::<i64, _>("ignored")? != 0,
                has_jobs: row.try_get::<Option<String>, _>("software")?.is_some(),
                vm: has_vm.then(|| resources::vm_to_talk_to(row)).transpose(),
            })
        };
        let mut watched: Vec<Watched> = Vec::new();
        while let Some(row) = rows.try_next().await? {
            let next = one(&row)?;
            if watched.last().is_none_or(|kept| kept.id != next.id) {
                watched.push(next);
            }
        }
        Ok(watched)
    }
}

#[cfg(test)]
mod tests {
    use windlass_database::sqlx::AssertSqlSafe;

    use super::*;
    use crate::store::{deployments, events, ledger, snapshots};
    use crate::testing::TestDirector;

    /// Three hundred VMs with an env of a megabyte took a gigabyte whenever it was looked who is well.
    #[tokio::test]
    async fn of_all_vms_only_what_talks_to_them_is_in_memory() {
        use windlass_contract::VmCid;
        use windlass_operations::ledger::{Fact, Ledger};
        use windlass_operations::testing::{new_instance_record, new_vm_record};

        let bench = TestDirector::new().await;
        let store = &bench.director.store;
        store.add_deployment(&"shop".into(), &[]).await.unwrap();
        store.begin_instances(&[new_instance_record("shop", "web", "a")], &[]).await.unwrap();
        let vm = new_vm_record(VmCid::new("vm-1").unwrap(), &"a".into(), false);
        assert!(!vm.cloud_properties.is_empty() && !vm.wanted_env.is_empty());
        store.record(&Fact::VmCreated { vm: Box::new(vm.clone()) }).await.unwrap();
        let watched = store.watched().await.unwrap();
        let known = watched[0].vm.as_ref().unwrap().as_ref().unwrap();
        assert_eq!((&known.agent_id, &known.mbus_password), (&vm.agent_id, &vm.mbus_password));
        assert!(known.cloud_properties.is_empty() && known.wanted_env.is_empty());
    }

    /// With many deployments, a query that reads a whole table to find one row makes everything slow.
    #[tokio::test]
    async fn what_is_looked_for_is_found_without_reading_a_whole_table() {
        let bench = TestDirector::new().await;
        let mut connection = bench.director.store.database.pool().acquire().await.unwrap();
        // A connection that is older than an index learns of it when it reads, and not from a question about a plan.
        sqlx::query("SELECT COUNT(*) FROM disks").fetch_one(&mut *connection).await.unwrap();
        for statement in [
            deployments::DEPLOYMENT,
            resources::ORPHAN_DISK,
            resources::DISKS_OF_DEPLOYMENT,
            BRIEF,
            ledger::DISKS_LEAVE_VM,
            snapshots::OF_ORPHAN,
            events::END_EVENTS_OF,
        ] {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
            let rows = sqlx::query(explain).fetch_all(&mut *connection).await.unwrap();
            let steps: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
            assert!(steps.iter().any(|step| step.starts_with("SEARCH")), "{statement}: {steps:?}");
            assert!(!steps.iter().any(|step| step.starts_with("SCAN")), "{statement}: {steps:?}");
        }
    }
}
