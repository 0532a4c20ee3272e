//! Which versions of variables a deploy takes. Only a deploy makes values and looks for newer ones; a task that restarts or recreates
//! something gets those that were deployed.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use serde_json::Value;
use windlass_planning::desired::{Desired, NamePurpose, VariableDefinition};
use windlass_planning::links::LinkSource;
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::Current;
use windlass_planning::software::VariableSet;
use windlass_variables::{Generation, Mode, Scope, Values, Version};

use super::{KnownValues, Room, Variables, VariablesError, as_given};
use crate::Director;
use crate::store::Event;
use crate::tasks::TaskLog;

/// How many bytes of values a deployment may have, as they are kept, with all versions, until only deploys of admins make more.
const MOST_KEPT: i64 = 128 << 20;

/// What values are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Somebody wants to know: nothing is made.
    Look,
    /// Those of the last deploy.
    Kept,
    /// What is deployed by a task.
    Deploy {
        task: i64,
        /// Also of variables that wait for newer stemcells.
        latest: bool,
    },
}

/// What a manifest and its configs say of variables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedVariables<'a> {
    pub(crate) deployment: &'a DeploymentName,
    pub(crate) definitions: &'a [&'a VariableDefinition],
    /// Whether definitions that do not say otherwise are converged.
    pub(crate) converge: bool,
    pub(crate) desired: &'a Desired,
    pub(crate) current: &'a Current,
    /// The task that deploys.
    pub(crate) log: Option<&'a TaskLog>,
    /// Whether who asks may see what templates make of values.
    pub(crate) sees_values: bool,
}

/// The values for a plan, and the set that its instances get.
pub(crate) async fn gather(
    director: &Director,
    wanted: WantedVariables<'_>,
    purpose: Use,
) -> Result<(KnownValues, Option<VariableSet>), VariablesError> {
    let scope = Scope::of(&director.name, wanted.deployment);
    let variables = &director.variables;
    let mut known = KnownValues { digests: Some(variables.cipher.clone()), ..KnownValues::none(scope.clone()) };
    if !wanted.sees_values {
        let jobs = wanted.current.software.values().flat_map(|software| &software.jobs);
        known.deployed = Some(Arc::new(jobs.map(as_given).collect()));
    }
    // What instances have, to compare with it and for those that keep it.
    let records = wanted.current.instances.iter().map(|instance| &instance.record);
    let specs = records.flat_map(|record| record.spec.iter().chain(&record.applied));
    let present = specs.filter_map(|spec| spec.variables);
    let mut room = Room::default();
    for set in present.collect::<BTreeSet<_>>() {
        known.sets.insert(Some(set), variables.load(&scope, set, &mut room).await?);
    }
    let names = Names::of(&scope, &wanted);
    let had_variables = director.store.last_variable_set(wanted.deployment).await?.is_some();
    if names.all.is_empty() && wanted.definitions.is_empty() && !had_variables {
        return Ok((known, None));
    }
    let set = match purpose {
        Use::Look => {
            let (values, missing) = current_values(variables, &scope, &names.all, &mut room).await?;
            let defined: BTreeSet<_> = wanted.definitions.iter().map(|it| scope.absolute(&it.name.value)).collect();
            known.made_at_deploy = missing.intersection(&defined).cloned().collect();
            known.sets.insert(None, Arc::new(values));
            None
        }
        // As with BOSH: what a failed deploy took is not kept.
        Use::Kept => match director.store.deployed_variable_set(wanted.deployment).await? {
            Some(set) => Some(set),
            None => director.store.last_variable_set(wanted.deployment).await?,
        },
        Use::Deploy { task, latest } => {
            let set = director.store.begin_variable_set(wanted.deployment, task).await?;
            Deploy { director, wanted, scope: &scope, set, task, latest }.note(&names).await?;
            Some(set)
        }
    };
    if let Some(set) = set.filter(|set| !known.sets.contains_key(&Some(*set))) {
        known.sets.insert(Some(set), variables.load(&scope, set, &mut room).await?);
    }
    Ok((known, set))
}

/// The variables that jobs may see.
struct Names {
    all: BTreeSet<String>,
    /// Those that come through links of other deployments alone, by these.
    foreign: BTreeMap<String, BTreeSet<String>>,
}

impl Names {
    fn of(scope: &Scope, wanted: &WantedVariables<'_>) -> Self {
        let desired = wanted.desired;
        let software = desired.groups.iter().filter_map(|group| group.software.as_ref());
        let own = software.flat_map(|software| software.given_values().map(|(_, value)| value));
        let provided = desired.links.providers.iter().map(|provider| &provider.content);
        let mut own = scope.names_in(own.chain(provided));
        let workers = desired.compilation.iter().map(|compilation| &compilation.workers);
        for group in desired.groups.iter().chain(workers) {
            for late in group.late_values() {
                own.extend(scope.names_in([&Value::Object(late.clone())]));
            }
        }
        let (mut all, mut foreign) = (own.clone(), BTreeMap::<_, BTreeSet<_>>::new());
        let mut seen = BTreeSet::new();
        for link in &desired.links.links {
            let Some(LinkSource::Shared(provider)) = &link.source else { continue };
            // Thousands may consume what one provides.
            if !seen.insert(provider.id) {
                continue;
            }
            let names = scope.names_in([&provider.content]);
            all.extend(names.iter().cloned());
            let of_provider = foreign.entry(provider.deployment.clone()).or_default();
            of_provider.extend(names.into_iter().filter(|name| !own.contains(name)));
        }
        Self { all, foreign }
    }
}

/// The newest values, and the names of variables that have none.
pub(super) async fn current_values(
    variables: &Variables,
    scope: &Scope,
    names: &BTreeSet<String>,
    room: &mut Room,
) -> Result<(Values, BTreeSet<String>), VariablesError> {
    let (mut values, mut missing) = (Values::new(scope.clone()), BTreeSet::new());
    for name in names {
        match variables.server.current(name).await? {
            Some(version) => {
                room.take(name, &version.value)?;
                values.insert(version.name, version.value);
            }
            None => {
                missing.insert(name.clone());
            }
        }
    }
    Ok((values, missing))
}

/// Those who may not do everything leave some of the room for values to others.
async fn must_leave_some(director: &Director, user: &str, folder: &str, most: i64) -> Result<(), VariablesError> {
    if director.users.admins().contains(&user) || director.variables.embedded.is_none() {
        return Ok(());
    }
    match director.store.length_of_values_in(folder).await? >= most {
        true => Err(VariablesError::TooManyKept),
        false => Ok(()),
    }
}

struct Deploy<'a> {
    director: &'a Director,
    wanted: WantedVariables<'a>,
    scope: &'a Scope,
    set: VariableSet,
    task: i64,
    latest: bool,
}

impl Deploy<'_> {
    /// Makes what is defined, takes the newest of the rest, and notes which versions those are.
    async fn note(&self, names: &Names) -> Result<(), VariablesError> {
        let store = &self.director.store;
        let server = &self.director.variables.server;
        // A deploy that goes on after a kill, or is planned once more, stays with what it took.
        let taken = store.versions_of(self.set).await?;
        let before = match store.deployed_variable_set(self.wanted.deployment).await? {
            Some(set) => store.versions_of(set).await?,
            None => BTreeMap::new(),
        };
        let takes_latest = self.latest || self.has_other_stemcells();
        // What is made stays in the database, also if the deploy fails because it is too much.
        let mut room = Room::default();
        let mut was_counted = false;
        for definition in self.wanted.definitions {
            let name = self.scope.absolute(&definition.name.value);
            if taken.contains_key(&name) {
                continue;
            }
            if self.wanted.log.is_some_and(TaskLog::is_cancelled) {
                return Err(VariablesError::Cancelled);
            }
            let version = match before.get(&name).filter(|_| definition.waits_for_stemcells && !takes_latest) {
                Some(kept) => kept.clone(),
                None => {
                    self.must_have_space()?;
                    if !mem::replace(&mut was_counted, true) {
                        let user = self.wanted.log.map(TaskLog::user).unwrap_or_default();
                        must_leave_some(self.director, user, &self.scope.absolute(""), MOST_KEPT).await?;
                    }
                    let version = self.make(definition, &name).await?;
                    room.take(&name, &version.value)?;
                    version.id
                }
            };
            if before.get(&name) != Some(&version) {
                store.add_event(&self.event(&name, &version).await?).await?;
            }
            store.note_versions(self.set, &BTreeMap::from([(name, version)])).await?;
        }
        for (provider, names) in &names.foreign {
            // What the provider was deployed with is what it answers to.
            let Some(set) = store.deployed_variable_set(&provider.as_str().into()).await? else { continue };
            let mut versions = store.versions_of(set).await?;
            versions.retain(|name, _| names.contains(name));
            store.note_versions(self.set, &versions).await?;
        }
        let taken = store.versions_of(self.set).await?;
        let mut versions = BTreeMap::new();
        for name in names.all.iter().filter(|name| !taken.contains_key(*name)) {
            if let Some(version) = server.current(name).await? {
                versions.insert(version.name, version.id);
            }
        }
        Ok(store.note_versions(self.set, &versions).await?)
    }

    /// Nobody fills the director's disk, or its database, with values.
    fn must_have_space(&self) -> Result<(), VariablesError> {
        if self.director.has_space() { Ok(()) } else { Err(VariablesError::NoSpace) }
    }

    async fn make(&self, definition: &VariableDefinition, name: &str) -> Result<Version, VariablesError> {
        let mut parameters = self.options(definition).await?;
        if let Some(Value::String(ca)) = parameters.get_mut("ca") {
            *ca = self.scope.absolute(ca);
        }
        self.add_link_names(definition, &mut parameters)?;
        let usual = if self.wanted.converge { Mode::Converge } else { Mode::NoOverwrite };
        let mode = definition.update_mode.and_then(Mode::parse).unwrap_or(usual);
        let request = Generation { name: name.to_owned(), kind: definition.kind.clone(), parameters, mode };
        Ok(self.director.variables.server.generate(&request).await?)
    }

    /// A certificate is also for the names under which links of the deployment are found.
    fn add_link_names(&self, definition: &VariableDefinition, parameters: &mut Value) -> Result<(), VariablesError> {
        for link in &definition.link_names {
            let name = link.name_in(self.wanted.desired, &self.wanted.current.numbers).ok_or_else(|| {
                VariablesError::Options {
                    variable: definition.name.value.clone(),
                    why: format!("no job of the deployment provides the link '{}'", link.from.value),
                }
            })?;
            match link.purpose {
                NamePurpose::Common if parameters.get("common_name").is_none() => {
                    parameters["common_name"] = name.into()
                }
                NamePurpose::Common => {}
                NamePurpose::Alternative => match parameters.get_mut("alternative_names") {
                    Some(Value::Array(names)) => names.push(name.into()),
                    _ => parameters["alternative_names"] = vec![name].into(),
                },
            }
        }
        Ok(())
    }

    /// Options may need values of variables that are defined before.
    async fn options(&self, definition: &VariableDefinition) -> Result<Value, VariablesError> {
        let names = self.scope.names_in([&definition.options]);
        let (values, _) = current_values(&self.director.variables, self.scope, &names, &mut Room::default()).await?;
        values.fill(&definition.options).map_err(|errors| VariablesError::Options {
            variable: definition.name.value.clone(),
            why: errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        })
    }

    /// Whether all stemcells are others than those of the instances that are there.
    fn has_other_stemcells(&self) -> bool {
        let present = self.wanted.current.instances.iter().filter_map(|instance| instance.record.applied_spec());
        let present: BTreeSet<_> =
            present.map(|spec| (spec.stemcell.name.as_str(), spec.stemcell.version.as_str())).collect();
        let mut wanted = self.wanted.desired.groups.iter().flat_map(|group| &group.stemcells);
        wanted.all(|stemcell| !present.contains(&(stemcell.name.as_str(), stemcell.version.as_str())))
    }

    async fn event(&self, name: &str, version: &str) -> Result<Event, VariablesError> {
        let user = self.director.store.task(self.task).await?.map(|task| task.user).unwrap_or_default();
        let mut event = Event::new(&user, "create", "variable", Some(name));
        event.task = Some(self.task);
        event.deployment = Some(self.wanted.deployment.to_string());
        event.context.insert("name".to_owned(), name.into());
        event.context.insert("id".to_owned(), version.into());
        Ok(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDirector;

    /// What deploys of teams make stays when they fail and when their deployments go, and nobody counted it.
    #[tokio::test]
    async fn deploys_of_teams_make_no_more_values_than_a_deployment_may_have() {
        let test = TestDirector::new().await;
        let director = &test.director;
        let server = director.variables.embedded.as_ref().unwrap();
        for name in ["/test/my_shop/a", "/test/my_shop/b", "/test/my-shop/a"] {
            server.set(name, "x".repeat(1000).into()).await.unwrap();
        }
        let (own, other) = ("/test/my_shop/", "/test/my-shop/");
        let kept = director.store.length_of_values_in(own).await.unwrap();
        assert!((2000..3500).contains(&kept), "{kept}");
        must_leave_some(director, "shop-admin", own, kept + 1).await.unwrap();
        let refused = must_leave_some(director, "shop-admin", own, kept).await.unwrap_err().to_string();
        assert!(refused.contains("only deploys of admins make more"), "{refused}");
        must_leave_some(director, "shop-admin", other, kept).await.unwrap();
        must_leave_some(director, "admin", own, kept).await.unwrap();
    }
}
