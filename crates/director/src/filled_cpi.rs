//! A CPI whose properties have variables: it is called with the newest values, which stand in no file and no record.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use windlass_contract::Object;
use windlass_contract::cpi::CpiInfo;
use windlass_cpi_client::{CallError, Cpi};
use windlass_operations::cpi_caller::{CpiCall, CpiCaller};

use crate::variables::Variables;

type Make = dyn Fn(Object) -> Cpi + Send + Sync;

/// Makes a new CPI when a value changes.
pub(crate) struct FilledCpi {
    name: String,
    /// With variables.
    properties: Object,
    variables: Variables,
    make: Box<Make>,
    /// The one that was called last, and its properties.
    last: Mutex<Option<(Object, Arc<Cpi>)>>,
}

impl std::fmt::Debug for FilledCpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Properties have secrets.
        f.debug_struct("FilledCpi").field("name", &self.name).finish_non_exhaustive()
    }
}

impl FilledCpi {
    pub(crate) fn new(
        name: String,
        properties: Object,
        variables: Variables,
        make: impl Fn(Object) -> Cpi + Send + Sync + 'static,
    ) -> Self {
        Self { name, properties, variables, make: Box::new(make), last: Mutex::default() }
    }

    async fn cpi(&self, method: &str) -> Result<Arc<Cpi>, CallError> {
        let filled = self.variables.put_in_newest(&self.properties).await;
        let unfilled = |why| CallError::NoValues { cpi: self.name.clone(), method: method.to_owned(), why };
        let filled = filled.map_err(unfilled)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((properties, cpi)) = &*last
            && *properties == filled
        {
            return Ok(cpi.clone());
        }
        let cpi = Arc::new((self.make)(filled.clone()));
        *last = Some((filled, cpi.clone()));
        Ok(cpi)
    }
}

#[async_trait]
impl CpiCaller for FilledCpi {
    async fn info(&self) -> Result<CpiInfo, CallError> {
        self.cpi("info").await?.info().await
    }

    async fn info_now(&self) -> Result<CpiInfo, CallError> {
        self.cpi("info").await?.info_now().await
    }

    async fn ask(&self, call: CpiCall<'_>) -> Result<(), CallError> {
        let cpi = self.cpi(call.method.as_str()).await?;
        CpiCaller::ask(&*cpi, call).await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use serde_json::json;
    use windlass_contract::ApiVersion;
    use windlass_cpi_client::{CpiCommand, CpiOptions, Environment};

    use super::*;
    use crate::testing::TestDirector;

    /// A cloud would be called with placeholders in the place of credentials, or with those that were changed.
    #[tokio::test]
    async fn a_cpi_is_called_with_the_newest_values_and_not_without_them() {
        let bench = TestDirector::new().await;
        let folder = tempfile::tempdir().unwrap();
        let (script, asked) = (folder.path().join("cpi"), folder.path().join("asked"));
        let answer = r#"{"result":{"stemcell_formats":[],"api_version":2},"error":null,"log":""}"#;
        let body = format!("#!/bin/sh\ncat > {}\necho '{answer}'\n", asked.display());
        std::fs::write(&script, body).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let command = CpiCommand { executable: script, arguments: Vec::new(), environment: Environment::Director };
        let make = move |properties| {
            let options = CpiOptions {
                director_uuid: "uuid".into(),
                properties,
                preferred_version: ApiVersion::V2,
                deadline: Duration::from_secs(60),
            };
            Cpi::new(command.clone(), options)
        };
        let properties = json!({"region": "r", "user": {"key": "((/aws/key))"}}).as_object().unwrap().clone();
        let variables = bench.director.variables.clone();
        let cpi = FilledCpi::new("aws".into(), properties, variables.clone(), make);
        let error = cpi.info_now().await.unwrap_err();
        assert!(!asked.exists() && !error.effect_is_unknown(), "{error}");
        assert!(error.to_string().contains("Failed to find variable '/aws/key'"), "{error}");
        for key in ["hunter2", "hunter3"] {
            variables.embedded.as_ref().unwrap().set("/aws/key", json!(key)).await.unwrap();
            cpi.info_now().await.unwrap();
            let told = std::fs::read_to_string(&asked).unwrap();
            assert!(told.contains(&format!(r#""key":"{key}""#)) && told.contains(r#""region":"r""#), "{told}");
        }
        assert!(!format!("{cpi:?}").contains("hunter"));
    }
}
