//! Values of variables: where they are held, and which of them a deploy uses.
//!
//! What is stored of deployments has `((placeholders))`, and the versions of variables that were deployed are noted in sets.
//! Values are in memory only while something is rendered with them.
//!
//! - [`embedded`]: the config server of this director, in its database.
//! - [`vault`]: the key that it encrypts with, which is not there.
//! - [`deployed`]: which versions a deploy takes, and makes.

pub(crate) mod deployed;
pub(crate) mod embedded;
pub(crate) mod vault;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;
use windlass_planning::software::{JobOfGroup, RenderedAtDeploy, Software, VariableSet};
use windlass_variables::{ConfigServer, External, FillError, Scope, ServerError, Values};

use crate::store::{Store, StoreError};
use embedded::Embedded;

/// Who holds values.
#[derive(Debug, Clone)]
pub(crate) struct Variables {
    pub(crate) server: Arc<dyn ConfigServer>,
    /// None if another server holds them.
    pub(crate) embedded: Option<Arc<Embedded>>,
    store: Store,
}

/// why values are not to be had
#[derive(Debug, thiserror::Error)]
pub(crate) enum VariablesError {
    /// the records failed
    #[error(transparent)]
    Store(#[from] StoreError),
    /// the config server has a reason
    #[error(transparent)]
    Server(#[from] ServerError),
    /// options of a variable need values that are not there
    #[error("the options of the variable '{variable}' cannot be filled in: {why}")]
    Options { variable: String, why: String },
}

impl Variables {
    pub(crate) fn embedded(store: Store, server: Embedded) -> Self {
        let server = Arc::new(server);
        Self { server: server.clone(), embedded: Some(server), store }
    }

    pub(crate) fn elsewhere(store: Store, server: External) -> Self {
        Self { server: Arc::new(server), embedded: None, store }
    }

    /// The values of a set. Versions that are gone are left out, and named by who needs them.
    pub(crate) async fn load(&self, scope: &Scope, set: VariableSet) -> Result<Arc<Values>, VariablesError> {
        let mut values = Values::new(scope.clone());
        for (name, version) in self.store.versions_of(set).await? {
            if let Some(version) = self.server.version(&name, &version).await? {
                values.insert(name, version.value);
            }
        }
        Ok(Arc::new(values))
    }
}

/// The values of sets that a task needs, which are gone with it.
#[derive(Debug, Default)]
pub(crate) struct LoadedSets(tokio::sync::Mutex<HashMap<VariableSet, Arc<Values>>>);

impl LoadedSets {
    pub(crate) async fn get(
        &self,
        variables: &Variables,
        scope: &Scope,
        set: VariableSet,
    ) -> Result<Arc<Values>, VariablesError> {
        let mut loaded = self.0.lock().await;
        if let Some(known) = loaded.get(&set) {
            return Ok(known.clone());
        }
        let values = variables.load(scope, set).await?;
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
}

impl KnownValues {
    pub(crate) fn none(scope: Scope) -> Self {
        Self { scope, sets: HashMap::new(), made_at_deploy: BTreeSet::new() }
    }

    pub(crate) fn of_set(scope: Scope, set: Option<VariableSet>, values: Arc<Values>) -> Self {
        Self { sets: HashMap::from([(set, values)]), ..Self::none(scope) }
    }

    /// What stands in the way of rendering software before it is deployed.
    pub(crate) fn rendered_at_deploy(&self, software: &Software) -> Option<RenderedAtDeploy> {
        if self.made_at_deploy.is_empty() {
            return None;
        }
        let scope = &self.scope;
        software.given_values().find_map(|(job, value)| {
            let found = scope.names_in([value]).into_iter().find(|name| self.made_at_deploy.contains(name))?;
            let variable = scope.relative(&found).to_owned();
            Some(RenderedAtDeploy { job: job.name.clone(), variable })
        })
    }

    /// A job with values in the places of placeholders.
    pub(crate) fn fill(&self, job: &JobOfGroup, set: Option<VariableSet>) -> Result<JobOfGroup, BTreeSet<FillError>> {
        let nothing = || Arc::new(Values::new(self.scope.clone()));
        let values = self.sets.get(&set).cloned().unwrap_or_else(nothing);
        let mut errors = BTreeSet::new();
        let mut filled = |value: &Value| {
            values.fill(value).unwrap_or_else(|found| {
                errors.extend(found);
                Value::Null
            })
        };
        let properties = filled(&job.properties);
        let links = job.links.iter().map(|(name, link)| (name.clone(), filled(link))).collect();
        if errors.is_empty() { Ok(JobOfGroup { properties, links, ..job.clone() }) } else { Err(errors) }
    }
}
