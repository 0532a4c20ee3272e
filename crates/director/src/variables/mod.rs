//! Values of variables: where they are held, and which of them a deploy uses.
//!
//! What is stored of deployments has `((placeholders))`, and the versions of variables that were deployed are noted in sets.
//! Values are in memory only while something is rendered with them.
//!
//! - [`embedded`]: the config server of this director, in its database.
//! - [`vault`]: the key that it encrypts with, which is not there.
//! - [`border`]: which variables are not for a team.
//! - [`deployed`]: which versions a deploy takes, and makes.

pub(crate) mod border;
pub(crate) mod deployed;
pub(crate) mod embedded;
pub(crate) mod vault;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use windlass_contract::{Object, explain};
use windlass_operations::clouds::{LateValues, Owner};
use windlass_planning::software::{JobOfGroup, RenderedAtDeploy, Software, VariableSet, has_variables};
use windlass_variables::{Cipher, ConfigServer, External, FillError, Scope, ServerError, Values};

use crate::store::{Store, StoreError};
use embedded::Embedded;

/// How many bytes all values may have that are in memory for a plan, or for a task: a manifest may name ten thousand variables.
const MOST_BYTES: usize = 16 << 20;

/// How many bytes there is room for.
#[derive(Debug)]
pub(crate) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MOST_BYTES)
    }
}

impl Room {
    /// A short value has its name beside it, once for each set that instances have.
    fn take(&mut self, name: &str, value: &Value) -> Result<(), VariablesError> {
        let bytes = 128 + name.len() + windlass_variables::size(value);
        self.0 = self.0.checked_sub(bytes).ok_or(VariablesError::TooMuch)?;
        Ok(())
    }
}

/// The values of variables: the config server that holds them, and what the director knows of them.
#[derive(Debug, Clone)]
pub(crate) struct Variables {
    pub(crate) server: Arc<dyn ConfigServer>,
    /// None if another server holds them.
    pub(crate) embedded: Option<Arc<Embedded>>,
    store: Store,
    /// Makes digests of values, also of those in another config server.
    cipher: Arc<Cipher>,
}

/// why values are not to be had
#[derive(Debug, thiserror::Error)]
pub(crate) enum VariablesError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// the config server has a reason
    #[error(transparent)]
    Server(#[from] ServerError),
    /// somebody asked for the end of the task
    #[error("the task was cancelled")]
    Cancelled,
    /// they would take the memory of all
    #[error("values of variables have more than {} MiB together; use fewer, or shorter ones", MOST_BYTES >> 20)]
    TooMuch,
    /// the disk has its reserve left
    #[error("there is no space left on the director's disk for values of variables; make room there")]
    NoSpace,
    /// they would fill the database
    #[error(
        "the values of variables of this deployment have more than 128 MiB together, with all versions, so only deploys of admins make \
         more; an admin can delete some that nothing uses (DELETE /v1/data)"
    )]
    TooManyKept,
    /// options of a variable need values that are not there
    #[error("the options of the variable '{variable}' cannot be filled in: {why}")]
    Options { variable: String, why: String },
}

impl Variables {
    pub(crate) fn embedded(store: Store, cipher: Arc<Cipher>) -> Self {
        let server = Arc::new(Embedded::new(store.clone(), cipher.clone()));
        Self { server: server.clone(), embedded: Some(server), store, cipher }
    }

    pub(crate) fn elsewhere(store: Store, cipher: Arc<Cipher>, server: External) -> Self {
        Self { server: Arc::new(server), embedded: None, store, cipher }
    }

    /// The values of a set. Versions that are gone are left out; code that needs one fails with its name.
    pub(crate) async fn load(
        &self,
        scope: &Scope,
        set: VariableSet,
        room: &mut Room,
    ) -> Result<Arc<Values>, VariablesError> {
        let versions = self.store.versions_of(set).await?;
        self.load_versions(scope, versions, room).await
    }

    async fn load_versions(
        &self,
        scope: &Scope,
        versions: BTreeMap<String, String>,
        room: &mut Room,
    ) -> Result<Arc<Values>, VariablesError> {
        let mut values = Values::new(scope.clone());
        for (name, version) in versions {
            if let Some(version) = self.server.version(&name, &version).await? {
                room.take(&name, &version.value)?;
                values.insert(name, version.value);
            }
        }
        Ok(Arc::new(values))
    }
}

/// The values of sets that a task needs, which are gone with it.
#[derive(Debug, Default)]
pub(crate) struct LoadedSets(tokio::sync::Mutex<(HashMap<VariableSet, Arc<Values>>, Room)>);

impl LoadedSets {
    pub(crate) async fn get(
        &self,
        variables: &Variables,
        scope: &Scope,
        set: VariableSet,
    ) -> Result<Arc<Values>, VariablesError> {
        let mut known = self.0.lock().await;
        let (loaded, room) = &mut *known;
        if let Some(known) = loaded.get(&set) {
            return Ok(known.clone());
        }
        let values = variables.load(scope, set, room).await?;
        loaded.insert(set, values.clone());
        Ok(values)
    }
}

/// The values that templates see, by what instances are brought to.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownValues {
    scope: Scope,
    sets: HashMap<Option<VariableSet>, Arc<Values>>,
    /// Absolute names of variables that get their first value at deploy.
    made_at_deploy: BTreeSet<String>,
    digests: Option<Arc<Cipher>>,
    /// What may be rendered for a user who sees no values: jobs as they were deployed. None for a user who sees them.
    deployed: Option<Arc<HashSet<String>>>,
}

/// A job with all that has variables in it. Who chooses a template and what it sees could ask it about a value, one letter after the
/// other.
fn as_given(job: &JobOfGroup) -> String {
    let links: Vec<_> = job.links.iter().filter(|(_, link)| has_variables(link)).collect();
    serde_json::json!([job.release, job.name, job.version, job.properties, links]).to_string()
}

/// What stands for the values of an env that are made at deploy.
const NOT_YET: &str = "made at deploy";

impl KnownValues {
    pub(crate) fn none(scope: Scope) -> Self {
        Self { scope, sets: HashMap::new(), made_at_deploy: BTreeSet::new(), digests: None, deployed: None }
    }

    pub(crate) fn of_set(scope: Scope, set: Option<VariableSet>, values: Arc<Values>) -> Self {
        Self { sets: HashMap::from([(set, values)]), ..Self::none(scope) }
    }

    /// What stands in the way of rendering software before it is deployed.
    pub(crate) fn rendered_at_deploy(&self, software: &Software) -> Option<RenderedAtDeploy> {
        if self.made_at_deploy.is_empty() && self.deployed.is_none() {
            return None;
        }
        let scope = &self.scope;
        software.given_values().find_map(|(job, value)| {
            let mut names = scope.names_in([value]).into_iter();
            let is_hidden = self.deployed.as_ref().is_some_and(|deployed| !deployed.contains(&as_given(job)));
            let found = names.find(|name| is_hidden || self.made_at_deploy.contains(name))?;
            let variable = scope.relative(&found).to_owned();
            Some(RenderedAtDeploy { job: job.name.clone(), variable, is_hidden })
        })
    }

    fn values(&self, set: Option<VariableSet>) -> Arc<Values> {
        self.sets.get(&set).cloned().unwrap_or_else(|| Arc::new(Values::new(self.scope.clone())))
    }

    /// Stands for the values of variables in an env and in cloud_properties; none if they have no variables.
    pub(crate) fn env_values(&self, env: &Object, set: Option<VariableSet>) -> Result<Option<String>, String> {
        let env = Value::Object(env.clone());
        let names = self.scope.names_in([&env]);
        let Some(digests) = self.digests.as_ref().filter(|_| !names.is_empty()) else { return Ok(None) };
        if names.iter().any(|name| self.made_at_deploy.contains(name)) {
            return Ok(Some(NOT_YET.to_owned()));
        }
        match self.values(set).fill(&env) {
            Ok(filled) => Ok(Some(digests.digest(filled.to_string().as_bytes()))),
            Err(errors) => {
                let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
                Err(format!("its env or cloud_properties: {}", errors.join("; ")))
            }
        }
    }

    /// A job with values in the places of placeholders.
    pub(crate) fn fill<'j>(
        &self,
        job: &'j JobOfGroup,
        set: Option<VariableSet>,
    ) -> Result<Cow<'j, JobOfGroup>, BTreeSet<FillError>> {
        if !job.has_variables() {
            return Ok(Cow::Borrowed(job));
        }
        let values = self.values(set);
        let mut errors = BTreeSet::new();
        let mut filled = |value: &Value| {
            values.fill(value).unwrap_or_else(|found| {
                errors.extend(found);
                Value::Null
            })
        };
        let properties = filled(&job.properties);
        let links = job.links.iter().map(|(name, link)| (name.clone(), filled(link))).collect();
        let filled = || JobOfGroup { properties, links, ..job.clone() };
        if errors.is_empty() { Ok(Cow::Owned(filled())) } else { Err(errors) }
    }
}

/// Values for VMs, disks and their tags, when a CPI is asked for them.
#[derive(Debug)]
pub(crate) struct ValuesOfInstances {
    pub(crate) director: String,
    pub(crate) variables: Variables,
}

#[async_trait]
impl LateValues for ValuesOfInstances {
    async fn put_in(
        &self,
        owner: Owner<'_>,
        set: Option<VariableSet>,
        value: &Value,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let store = &self.variables.store;
        let deployment = match owner {
            Owner::Deployment(name) => name.into(),
            Owner::Instance(instance) => {
                let record = store.instance(instance).await?;
                record.ok_or_else(|| format!("the instance {instance} is not on record"))?.deployment
            }
        };
        let scope = Scope::of(&self.director, &deployment);
        // What no versions were noted for goes by those of the latest deploy.
        let set = match set {
            Some(set) => Some(set),
            None => store.last_variable_set(&deployment).await?,
        };
        let values = match set {
            // Many calls may be under way at once, and each needs few of them.
            Some(set) => {
                let (mut versions, names) = (store.versions_of(set).await?, scope.names_in([value]));
                versions.retain(|name, _| names.contains(name));
                let loading = self.variables.load_versions(&scope, versions, &mut Room::default()).await;
                loading.map_err(|error| explain(&error))?
            }
            None => Arc::new(Values::new(scope)),
        };
        values.fill(value).map_err(|errors| joined(&errors).into())
    }
}

fn joined(errors: &BTreeSet<FillError>) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Variables {
    /// Properties of a CPI with the newest values: no deployment has versions of its own of them.
    pub(crate) async fn put_in_newest(&self, properties: &Object) -> Result<Object, String> {
        let scope = Scope::default();
        let value = Value::Object(properties.clone());
        let names = scope.names_in([&value]);
        let values = deployed::current_values(self, &scope, &names, &mut Room::default()).await;
        let (values, _) = values.map_err(|error| explain(&error))?;
        match values.fill(&value) {
            Ok(Value::Object(filled)) => Ok(filled),
            Ok(_) => Err("properties are an object".to_owned()),
            Err(errors) => Err(joined(&errors)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::TestDirector;

    /// A team's four thousand passwords of 64 KiB took 312 MiB, at each plan.
    #[tokio::test]
    async fn values_of_very_many_variables_are_refused_before_they_take_all_memory() {
        let test = TestDirector::new().await;
        let variables = &test.director.variables;
        let (scope, value) = (Scope::of("d", "shop"), json!("x".repeat(200 << 10)));
        let mut versions = BTreeMap::new();
        for number in 0..100 {
            let name = format!("/d/shop/{number}");
            let version = variables.embedded.as_ref().unwrap().set(&name, value.clone()).await.unwrap();
            versions.insert(name, version.id);
        }
        let names = versions.keys().cloned().collect();
        let all = deployed::current_values(variables, &scope, &names, &mut Room::default()).await;
        let told = all.unwrap_err().to_string();
        assert!(told.contains("more than 16 MiB together; use fewer"), "{told}");
        // The sets of a plan have it together.
        let mut room = Room::default();
        let half = || versions.clone().into_iter().take(50).collect();
        variables.load_versions(&scope, half(), &mut room).await.unwrap();
        assert!(variables.load_versions(&scope, half(), &mut room).await.is_err());
        // Names are there with each set.
        let (mut room, name) = (Room::default(), "n".repeat(1000));
        let fits = (0..20_000).take_while(|_| room.take(&name, &json!(1)).is_ok()).count();
        assert!((10_000..16_000).contains(&fits), "{fits}");
    }

    /// A reader who uploads releases, or finds one that fits, would read every password: each plan tells whether a template fails.
    #[test]
    fn templates_see_no_values_for_who_may_only_look_unless_nothing_was_chosen() {
        let job = |properties: Value, links: Value| JobOfGroup {
            name: "app".into(),
            release: "web".into(),
            release_version: "1".into(),
            version: "fp".into(),
            properties,
            links: BTreeMap::from([("db".to_owned(), links)]),
            provides: Vec::new(),
        };
        let deployed = job(json!({"password": "((password))"}), json!({"instances": []}));
        let known = |deployed: Option<&JobOfGroup>| KnownValues {
            deployed: Some(Arc::new(deployed.into_iter().map(as_given).collect())),
            ..KnownValues::none(Scope::of("director", "shop"))
        };
        let hidden = |known: &KnownValues, job: &JobOfGroup| {
            let software = Software { jobs: vec![job.clone()], packages: Vec::new() };
            known.rendered_at_deploy(&software).map(|later| later.to_string())
        };
        assert_eq!(hidden(&known(Some(&deployed)), &deployed), None);
        let of_instances = job(json!({"password": "((password))"}), json!({"instances": ["another"]}));
        assert_eq!(hidden(&known(Some(&deployed)), &of_instances), None, "what has no variables may change");
        for chosen in [
            job(json!({"password": "((/director/bank/password))"}), Value::Null),
            job(json!({"password": "((password))", "guess": "a"}), Value::Null),
            job(json!({}), json!({"properties": {"x": "((password))"}})),
            JobOfGroup { version: "other".into(), ..deployed.clone() },
        ] {
            let said = hidden(&known(Some(&deployed)), &chosen).unwrap_or_default();
            assert!(said.contains("is not for who may only look"), "{said}");
        }
        let plain = job(json!({"password": "plain"}), Value::Null);
        assert_eq!(hidden(&known(None), &plain), None);
        assert_eq!(hidden(&KnownValues::none(Scope::of("director", "shop")), &deployed), None, "an admin sees all");
    }
}
