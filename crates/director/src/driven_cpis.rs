//! Which CPIs a director drives: the default one of its settings, and those of the cpi config.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use windlass_contract::{Object, explain};
use windlass_cpi_client::{Configuration, Cpi, CpiCommand, CpiOptions};
use windlass_operations::clouds::{Clouds, DrivenCpi};
use windlass_operations::cpi_caller::CpiCaller;
use windlass_planning::desired::{Configs, CpiConfig, CpiEntry, Findings};
use windlass_planning::names::CpiName;
use windlass_planning::records::ConfigRecord;
use windlass_planning::software::has_variables;

use crate::built_in::{self, BuiltInError};
use crate::filled_cpi::FilledCpi;
use crate::metrics::Metrics;
use crate::settings::{CpiChoice, Settings};
use crate::state_dir::StateDir;
use crate::variables::Variables;

/// Where releases install the CPI of a type.
fn installed(kind: &str) -> String {
    format!("/var/vcap/jobs/{kind}_cpi/bin/cpi")
}

/// Makes CPIs ready to be called.
#[derive(Debug)]
pub(crate) struct Drivers {
    /// Our own executable.
    pub own_cpi: CpiCommand,
    /// What the operator set.
    pub settings: Settings,
    /// Where configurations are written.
    pub folders: StateDir,
    pub director_uuid: String,
    /// Where calls are counted.
    pub metrics: Arc<Metrics>,
    /// Values of variables in properties of CPIs; none where nobody holds any.
    pub variables: Option<Variables>,
    /// Ids of the configs whose CPIs are driven now.
    pub driven: Mutex<Vec<i64>>,
}

impl Drivers {
    /// Drives the CPIs of these cpi configs from now on.
    pub(crate) fn configure(&self, clouds: &Clouds, configs: &[ConfigRecord]) -> Result<(), BuiltInError> {
        let mut driven = self.driven.lock().unwrap_or_else(PoisonError::into_inner);
        let ids: Vec<i64> = configs.iter().map(|config| config.id).collect();
        if *driven == ids {
            return Ok(());
        }
        // A config that is wrong was refused when it was sent.
        let config = Configs::read(configs, &mut Findings::new()).cpis;
        clouds.configure(self.configured(&config)?);
        *driven = ids;
        Ok(())
    }

    /// The CPI that serves everything while there is no cpi config.
    pub(crate) fn default_cpi(&self) -> Result<DrivenCpi, BuiltInError> {
        self.driven(vec![CpiName::Default], &self.settings.cpi, Object::new())
    }

    /// The CPIs of a cpi config. One that this director cannot drive is told in its log and left out, so that the others work, and
    /// somebody can send another config.
    pub(crate) fn configured(&self, config: &CpiConfig) -> Result<Vec<DrivenCpi>, BuiltInError> {
        let mut driven = Vec::new();
        for entry in &config.cpis {
            let choice = self.choice(entry);
            match self.must_be_possible(&choice) {
                Ok(()) => driven.push(self.driven(entry.names(), &choice, entry.properties.clone())?),
                Err(error) => {
                    tracing::error!(cpi = entry.name, error = explain(&error), "a CPI of the cpi config is left out")
                }
            }
        }
        Ok(driven)
    }

    /// Why a cpi config cannot be used; none if it can.
    pub(crate) fn refusal(&self, config: &CpiConfig) -> Option<String> {
        let refusal = |entry: &CpiEntry| {
            let error = self.must_be_possible(&self.choice(entry)).err()?;
            Some(format!("the CPI '{}': {error}", entry.name))
        };
        config.cpis.iter().find_map(refusal)
    }

    fn choice(&self, entry: &CpiEntry) -> CpiChoice {
        let path = |path: &str| CpiChoice::named(path, None, Vec::new());
        match (&entry.exec_path, entry.kind.as_str(), &self.settings.cpi) {
            (Some(exec), ..) => {
                CpiChoice::named(&exec.display().to_string(), entry.config.clone(), entry.arguments.clone())
            }
            // With the configuration that the operator gave to it.
            (None, "local", own @ CpiChoice::Local { .. })
            | (None, "incus", own @ CpiChoice::Incus { .. })
            | (None, "sim", own @ CpiChoice::Sim { .. }) => own.clone(),
            (None, built_in @ ("local" | "incus" | "sim"), _) => path(built_in),
            (None, kind, _) => self.of_type(kind),
        }
    }

    fn must_be_possible(&self, choice: &CpiChoice) -> Result<(), BuiltInError> {
        match choice {
            CpiChoice::Local { .. } if self.settings.shared_dir.is_some() => Err(BuiltInError::OnOneMachine),
            _ => Ok(()),
        }
    }

    /// The CPI of a type: installed under that name, or under the name that BOSH's releases give to its job, or where BOSH
    /// installs it.
    fn of_type(&self, kind: &str) -> CpiChoice {
        let cpis = self.folders.installed_cpis();
        let names = [kind.to_owned(), format!("{kind}_cpi")];
        match names.into_iter().find(|name| cpis.launcher(name).is_some()) {
            Some(name) => CpiChoice::Installed { name },
            None => CpiChoice::named(&installed(kind), None, Vec::new()),
        }
    }

    fn driven(&self, names: Vec<CpiName>, choice: &CpiChoice, properties: Object) -> Result<DrivenCpi, BuiltInError> {
        let Settings { isolation, preferred_version, cpi_deadline, enable_cpi_resize_disk, .. } = &self.settings;
        self.must_be_possible(choice)?;
        let command = built_in::command(choice, &self.own_cpi, *isolation, &self.folders)?;
        let options = CpiOptions {
            director_uuid: self.director_uuid.clone(),
            properties: Object::new(),
            preferred_version: *preferred_version,
            deadline: *cpi_deadline,
        };
        let resizes_disks = enable_cpi_resize_disk.unwrap_or_else(|| choice.is_built_in());
        let meter = self.metrics.meter(names.first().map(CpiName::as_str).unwrap_or_default());
        let name = names.first().cloned().unwrap_or_default().into();
        let configuration = match choice {
            CpiChoice::Installed { name } => {
                Some(Configuration::InFile(self.folders.installed_cpis().properties_file(name)))
            }
            _ => None,
        };
        let make = move |properties: Object| {
            let options = CpiOptions { properties, ..options.clone() };
            let cpi = Cpi::new(command.clone(), options).measured_by(meter.clone());
            match &configuration {
                Some(configuration) => cpi.configured_with(configuration.clone()),
                None => cpi,
            }
        };
        let cpi: Arc<dyn CpiCaller> = match &self.variables {
            Some(variables) if has_variables(&Value::Object(properties.clone())) => {
                Arc::new(FilledCpi::new(name, properties, variables.clone(), make))
            }
            _ => Arc::new(make(properties)),
        };
        Ok(DrivenCpi { names, cpi, resizes_disks })
    }
}

/// Asks every CPI what it can do, so that one that does not start is known before it is needed.
pub(crate) async fn ask_all(clouds: &Clouds) {
    let ask = |name: CpiName| async move {
        let Ok(cpi) = clouds.cpi(&name) else { return };
        match cpi.info().await {
            Ok(_) => tracing::info!(cpi = name.as_str(), "the CPI answers"),
            Err(error) => tracing::error!(
                cpi = name.as_str(),
                error = explain(&error),
                "the CPI does not answer 'info'; until it does, nothing can be made in its cloud"
            ),
        }
    };
    futures_util::future::join_all(clouds.names().into_iter().map(ask)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_cpi_client::Environment;
    use windlass_manifest::Document;

    fn drivers(folder: &tempfile::TempDir, settings: Settings) -> Drivers {
        let folders = StateDir::open(&folder.path().join("state")).unwrap();
        let own_cpi = CpiCommand { executable: "own".into(), arguments: vec![], environment: Environment::Director };
        Drivers {
            own_cpi,
            settings,
            folders,
            director_uuid: "uuid".into(),
            metrics: Default::default(),
            variables: None,
            driven: Default::default(),
        }
    }

    fn config(yaml: &str) -> CpiConfig {
        let (mut config, mut findings) = (CpiConfig::default(), Findings::new());
        config.read(&Document::parse(yaml).unwrap(), &mut findings);
        assert!(findings.is_clean(), "{findings}");
        config
    }

    #[test]
    fn a_cpi_is_found_by_the_name_that_it_is_installed_under() {
        let folder = tempfile::tempdir().unwrap();
        let drivers = drivers(&folder, Settings::default());
        let aws = CpiChoice::Installed { name: "aws".into() };
        let error = drivers.driven(vec![CpiName::Default], &aws, Object::new()).unwrap_err().to_string();
        assert!(error.contains("'windlass cpi install'"), "{error}");
        assert!(matches!(drivers.of_type("aws"), CpiChoice::Executable { .. }));
        let launcher = folder.path().join("state/cpis/aws_cpi/cpi");
        std::fs::create_dir_all(launcher.parent().unwrap()).unwrap();
        std::fs::write(&launcher, "").unwrap();
        assert_eq!(drivers.of_type("aws"), CpiChoice::Installed { name: "aws_cpi".into() });
        std::fs::rename(folder.path().join("state/cpis/aws_cpi"), folder.path().join("state/cpis/aws")).unwrap();
        assert_eq!(drivers.of_type("aws"), aws);
        let command = built_in::command(&aws, &drivers.own_cpi, Default::default(), &drivers.folders).unwrap();
        assert!(command.executable.ends_with("cpis/aws/cpi") && command.environment == Environment::Director);
    }

    /// A director could not be started any more after `update-cpi-config` with such an entry.
    #[test]
    fn a_cloud_on_one_machine_is_left_out_by_directors_that_share_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            shared_dir: Some("/shared".into()),
            cpi: CpiChoice::Sim { config: None },
            ..Settings::default()
        };
        let drivers = drivers(&folder, settings);
        let both = config("cpis: [{name: here, type: local}, {name: there, type: aws}]\n");
        let names: Vec<_> = drivers.configured(&both).unwrap().into_iter().flat_map(|driven| driven.names).collect();
        assert_eq!(names, [CpiName::Named("there".into())]);
        let refusal = drivers.refusal(&both).unwrap();
        assert!(refusal.starts_with("the CPI 'here': ") && refusal.contains("on one machine"), "{refusal}");
        assert_eq!(drivers.refusal(&config("cpis: [{name: there, type: aws}]\n")), None);
        assert!(drivers.default_cpi().is_ok());
    }

    #[test]
    fn an_executable_of_a_cpi_config_gets_the_path_of_its_configuration_where_it_wants_it() {
        let folder = tempfile::tempdir().unwrap();
        let config =
            config("cpis: [{name: a, type: x, exec_path: bin/cpi, config: /a.json, arguments: ['-c={config}']}]\n");
        let CpiChoice::Executable { arguments, .. } = drivers(&folder, Settings::default()).choice(&config.cpis[0])
        else {
            panic!("no executable");
        };
        assert_eq!(arguments, ["-c=/a.json"]);
    }

    /// Clouds of others that say they resized a disk may have done nothing.
    #[test]
    fn disks_are_resized_in_place_by_built_in_clouds_unless_the_operator_decides() {
        let folder = tempfile::tempdir().unwrap();
        let several = config("cpis: [{name: a, type: sim}, {name: b, type: aws, migrated_from: [{name: ''}]}]\n");
        for (decided, expected) in [(None, [true, false]), (Some(true), [true, true]), (Some(false), [false, false])] {
            let settings = Settings { enable_cpi_resize_disk: decided, ..Settings::default() };
            let driven = drivers(&folder, settings).configured(&several).unwrap();
            assert_eq!(driven.iter().map(|driven| driven.resizes_disks).collect::<Vec<_>>(), expected);
            assert_eq!(driven[1].names, [CpiName::Named("b".into()), CpiName::Default]);
        }
    }
}
