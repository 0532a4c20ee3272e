//! Jobs of instances: read from uploaded releases, and rendered, for a plan and again for the VM that runs them.
//!
//! - [`Library`]: the jobs of releases, read once.
//! - [`Rendering`]: templates become files; a plan compares their hash with what an instance has.
//! - [`delivery`]: the files on their way to a VM. [`changed_files`]: what people may see of a change in them.
//! - [`exported`]: a release with its compiled packages, as a tarball.
//! - [`template_time`]: how long the templates of a plan may take.
//! - [`known_hashes`]: what templates gave before. [`known_jobs`]: jobs that were read before. [`ruby_needs`]: what they need Ruby for.

pub(crate) mod changed_files;
pub(crate) mod delivery;
pub(crate) mod exported;
mod known_hashes;
mod known_jobs;
pub(crate) mod ruby_needs;
mod template_time;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_blobs::{BlobError, Blobstore};
use windlass_contract::Object;
use windlass_planning::records::JobRecord;
use windlass_planning::software::{
    JobOfGroup, ProvidedLink, RenderedAtDeploy, Software, TemplateInstance, Templates, VariableSet,
};
use windlass_planning::template_spec;
use windlass_release::Job;
use windlass_render::{Backends, Cage, RenderError, RenderedJob, Renderer, Ruby, RubySetup, configuration_hash};
use windlass_variables::FillError;

use self::known_hashes::KnownHashes;
use self::known_jobs::KnownJobs;
use self::ruby_needs::{NotKnownYet, RubyNeeds, WaitForRubyNeeds};
use self::template_time::TemplateTime;
use crate::blobs::RELEASES;
use crate::limits::Limits;
use crate::settings::RubyUse;
use crate::store::{Store, StoreError};
use crate::tasks::TaskLog;
use crate::variables::{KnownValues, VariablesError};

/// why a job is not to be had
#[derive(Debug, thiserror::Error)]
pub(crate) enum SoftwareError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// the release is gone
    #[error("the {what} of release '{release}' is not here any more; upload the release again")]
    Gone {
        /// Such as `job 'app'`.
        what: String,
        release: String,
    },
    /// the archive is damaged
    #[error("the job '{job}' of release '{release}' cannot be read; upload the release again with --fix")]
    Damaged {
        job: String,
        release: String,
        #[source]
        source: Box<windlass_release::ReleaseError>,
    },
    /// an archive is not to be had
    #[error("an archive of a release is not to be had; if it is gone for good, upload the release again with --fix")]
    Archive(#[source] Box<BlobError>),
    /// what is kept on record of the jobs is gone
    #[error("nothing on record says which jobs run on {0}; deploy it again")]
    NotOnRecord(String),
    /// a package was compiled and is not any more
    #[error("the package '{package}' is not compiled for {stemcell}; deploy again")]
    NotCompiled { package: String, stemcell: String },
    /// templates cannot be rendered
    #[error(transparent)]
    Render(#[from] NotRendered),
    /// values of variables are not to be had
    #[error(transparent)]
    Variables(#[from] VariablesError),
    /// they would take the memory of all
    #[error(
        "the templates of all jobs have more than {} MiB together; deploy fewer jobs at once, or ones with less in them",
        MOST_TEMPLATES >> 20
    )]
    TooMuch,
    /// there is no room in memory
    #[error("cannot pack the files of the jobs")]
    Pack(#[source] io::Error),
    /// a mistake of ours
    #[error("rendering ended early; this is a defect of Windlass, please report it")]
    Panicked,
}

/// everything that is wrong with the templates of an instance
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct NotRendered {
    text: String,
    /// Whether Ruby would have been needed, and cannot be asked.
    lacks_ruby: bool,
}

/// How many letters the errors of an instance's templates may have: they are stored with the task, and sent.
const LONGEST: usize = 16 << 10;

const INSTEAD_OF_CAGE: &str =
    ", or set 'ruby: uncaged' in director.yml, which lets templates read every file that the director can read";

/// What renders templates: natively, and with this program around the Ruby of this machine.
pub(crate) fn renderer(ruby: RubyUse) -> io::Result<Backends> {
    let setup = RubySetup { instead_of_cage: INSTEAD_OF_CAGE, ..RubySetup::caged(std::env::current_exe()?) };
    Ok(Backends::new(match ruby {
        RubyUse::Caged => Some(Ruby::new(setup)),
        RubyUse::Uncaged => Some(Ruby::new(RubySetup { cage: Cage::Open, ..setup })),
        RubyUse::None => None,
    }))
}

/// The archive of a job or package, on this machine.
pub(crate) async fn archive(
    blobs: &Blobstore,
    id: &str,
    digest: &str,
) -> Result<windlass_blobs::BlobFile, SoftwareError> {
    blobs.file(RELEASES, id, Some(digest)).await.map_err(|error| SoftwareError::Archive(Box::new(error)))
}

/// A job of a release; versions are fingerprints, so what is read once stays true.
type JobKey = (String, String, String);

fn key(job: &JobOfGroup) -> JobKey {
    (job.release.clone(), job.name.clone(), job.version.clone())
}

/// The jobs of uploaded releases.
#[derive(Debug)]
pub(crate) struct Library {
    store: Store,
    blobs: Arc<Blobstore>,
    read: Mutex<KnownJobs>,
    renderer: Backends,
    hashes: Arc<KnownHashes>,
    ruby_needs: Arc<RubyNeeds>,
}

/// How many bytes the templates of all jobs may have together that are rendered for one purpose: they are in memory meanwhile.
const MOST_TEMPLATES: usize = 64 << 20;

/// How many bytes there is room for.
#[derive(Debug)]
struct RoomForTemplates(usize);

impl RoomForTemplates {
    fn take(&mut self, job: &Job) -> Result<(), SoftwareError> {
        let bytes: usize = job.templates.values().chain(job.monit.values()).map(String::len).sum();
        self.0 = self.0.checked_sub(bytes).ok_or(SoftwareError::TooMuch)?;
        Ok(())
    }
}

impl Library {
    pub(crate) fn new(store: Store, blobs: Arc<Blobstore>, renderer: Backends) -> Self {
        let (hashes, ruby_needs) = (Arc::default(), Arc::default());
        Self { store, blobs, read: Mutex::default(), renderer, hashes, ruby_needs }
    }

    /// Renders for one purpose: a plan, or a task. A user who may plan could poison a Ruby process, so no other user's deploy asks it.
    pub(crate) fn renderer(&self) -> Arc<Backends> {
        Arc::new(self.renderer.apart())
    }

    /// Renders these jobs for a plan.
    pub(crate) async fn rendering<'j>(
        &self,
        jobs: impl IntoIterator<Item = &'j JobOfGroup>,
    ) -> Result<Rendering, SoftwareError> {
        self.rendering_by(self.renderer(), jobs).await
    }

    /// Renders these jobs.
    pub(crate) async fn rendering_by<'j>(
        &self,
        renderer: Arc<Backends>,
        jobs: impl IntoIterator<Item = &'j JobOfGroup>,
    ) -> Result<Rendering, SoftwareError> {
        let (mut read, mut room) = (HashMap::new(), RoomForTemplates(MOST_TEMPLATES));
        // Thousands of groups may have the same.
        for key in jobs.into_iter().map(key).collect::<HashSet<_>>() {
            let job = self.job(key.clone()).await?;
            room.take(&job)?;
            read.insert(key, job);
        }
        let (hashes, ruby_needs, time) = (self.hashes.clone(), self.ruby_needs.clone(), TemplateTime::default());
        Ok(Rendering { jobs: read, renderer, hashes, ruby_needs, time, variables: Arc::default(), task: None })
    }

    /// What a job of a release on record needs Ruby for. One that cannot be read tells nothing of it.
    pub(crate) async fn needs_ruby(
        &self,
        limits: &Limits,
        release: &str,
        job: &JobRecord,
        wait: WaitForRubyNeeds,
    ) -> Option<String> {
        let key = (release.to_owned(), job.name.clone(), job.version.clone());
        let read = self.job(key.clone()).await.ok()?;
        let needs = self.ruby_needs.of(limits, (&key, &read), wait).await;
        needs.unwrap_or_else(|late| Some(late.to_string()))
    }

    /// The files that say how a job's processes run, as its release has them; none if it cannot be read.
    pub(crate) async fn monit_files(&self, job: &JobOfGroup) -> Vec<String> {
        let read = self.job(key(job)).await;
        read.map(|job| job.monit.values().cloned().collect()).unwrap_or_default()
    }

    async fn job(&self, key: JobKey) -> Result<Arc<Job>, SoftwareError> {
        if let Some(known) = self.read.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(known);
        }
        let (release, job, version) = &key;
        let gone = || SoftwareError::Gone { what: format!("job '{job}'"), release: release.clone() };
        let record = self.store.job_of_release(release, job, version).await?.ok_or_else(gone)?;
        let file = archive(&self.blobs, &record.blob, &record.sha1).await?;
        let name = job.clone();
        let read = tokio::task::spawn_blocking(move || Job::read(file.as_ref(), &name)).await;
        let read = read.map_err(|_| SoftwareError::Panicked)?.map_err(|source| SoftwareError::Damaged {
            job: job.clone(),
            release: release.clone(),
            source: Box::new(source),
        })?;
        let read = Arc::new(read);
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(key, read.clone());
        Ok(read)
    }
}

/// Jobs that are in memory, so that rendering them needs nothing else.
#[derive(Debug)]
pub(crate) struct Rendering {
    jobs: HashMap<JobKey, Arc<Job>>,
    renderer: Arc<Backends>,
    hashes: Arc<KnownHashes>,
    ruby_needs: Arc<RubyNeeds>,
    time: TemplateTime,
    variables: Arc<KnownValues>,
    /// Nothing more is rendered once this task is asked to stop.
    task: Option<TaskLog>,
}

/// How many bytes the files of an instance may have together. A plan holds them in memory while it looks for what changes.
const LARGEST_INSTANCE: usize = 64 << 20;

/// The files of an instance, by job in the manifest's order.
#[derive(Debug)]
pub(crate) struct RenderedInstance(Vec<(String, RenderedJob)>);

impl RenderedInstance {
    pub(crate) fn jobs(&self) -> Vec<(&str, &RenderedJob)> {
        self.0.iter().map(|(name, job)| (name.as_str(), job)).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(_, job)| job.bytes()).sum()
    }

    pub(crate) fn configuration_hash(&self) -> String {
        configuration_hash(&self.jobs())
    }
}

impl Rendering {
    /// The same; the templates of all instances together may take so long.
    pub(crate) fn within(self, most: Duration) -> Self {
        Self { time: TemplateTime::of(most), ..self }
    }

    /// The same; templates see these values of variables.
    pub(crate) fn knowing(self, variables: Arc<KnownValues>) -> Self {
        Self { variables, ..self }
    }

    /// The same, until a task is asked to stop.
    pub(crate) fn until_cancelled(self, task: Option<TaskLog>) -> Self {
        Self { task, ..self }
    }

    /// Each job that needs Ruby, and for what; sorted.
    pub(crate) async fn needs_ruby(&self, limits: &Limits) -> Vec<String> {
        let (mut told, mut late, wait) = (Vec::new(), 0, WaitForRubyNeeds::begin());
        for (key, job) in &self.jobs {
            let (release, name, _) = key;
            match self.ruby_needs.of(limits, (key, job), wait).await {
                Ok(Some(why)) => told.push(format!("job '{name}' of release '{release}': {why}")),
                Ok(None) => {}
                Err(NotKnownYet) => late += 1,
            }
        }
        told.sort();
        if late > 0 {
            told.push(format!("{late} jobs: {NotKnownYet}"));
        }
        told
    }

    /// The jobs that were read, each with what its templates see, or with the variables that have no value for it.
    fn seen<'a>(
        &'a self,
        software: &'a Software,
        instance: &'a TemplateInstance<'_>,
    ) -> impl Iterator<Item = (&'a JobOfGroup, &'a Job, Result<serde_json::Value, BTreeSet<FillError>>)> {
        software.jobs.iter().filter_map(|job| {
            let read = self.jobs.get(&key(job))?;
            let filled = self.variables.fill(job, instance.variables);
            Some((job, &**read, filled.map(|job| template_spec::of(software, &job, instance))))
        })
    }

    fn is_cancelled(&self) -> bool {
        self.task.as_ref().is_some_and(TaskLog::is_cancelled)
    }

    /// The files of an instance, or everything that is wrong with its templates.
    pub(crate) fn render(
        &self,
        software: &Software,
        instance: &TemplateInstance<'_>,
    ) -> Result<RenderedInstance, NotRendered> {
        let mut rendered = Vec::new();
        let mut errors = Vec::new();
        let mut bytes = 0;
        let (mut lacks_ruby, mut is_redacted, mut lacks_values) = (false, false, false);
        let mut all = self.seen(software, instance);
        // What templates see takes its time as well.
        while let Some((job, read, spec)) = self.time.spend(|| all.next()) {
            if self.is_cancelled() {
                return Err(NotRendered { text: "the task was cancelled".to_owned(), lacks_ruby: false });
            }
            let spec = match spec {
                Ok(spec) => spec,
                Err(lacking) => {
                    lacks_values = true;
                    errors.push(unfilled(&job.name, &lacking));
                    continue;
                }
            };
            if let Some(text) = self.time.is_over() {
                return Err(NotRendered { text, lacks_ruby: false });
            }
            match self.time.spend(|| self.renderer.render(read, &spec)) {
                Ok(mut files) => {
                    files.provide(&job.provides.iter().map(provided).collect::<Vec<_>>());
                    bytes += files.bytes();
                    if bytes > LARGEST_INSTANCE {
                        let (group, most) = (instance.group, LARGEST_INSTANCE >> 20);
                        let text = format!(
                            "the files of an instance of group '{group}' have more than {most} MiB together; let its jobs write less"
                        );
                        return Err(NotRendered { text, lacks_ruby: false });
                    }
                    rendered.push((job.name.clone(), files));
                }
                Err(error) => {
                    lacks_ruby |= matches!(error, RenderError::NoRuby { .. });
                    // It goes to logs, events and tasks, which more people read than may know properties.
                    let told = error.without_values(read);
                    is_redacted |= told != error;
                    errors.push(told.to_string());
                }
            }
        }
        if errors.is_empty() {
            return Ok(RenderedInstance(rendered));
        }
        let indented: Vec<_> = errors.iter().map(|error| format!("  - {}", error.replace('\n', "\n  "))).collect();
        let group = instance.group;
        let mut errors = indented.join("\n");
        if let Some((at, _)) = errors.char_indices().nth(LONGEST) {
            errors.truncate(at);
            errors.push_str("…\n  - there are more; mend these first");
        }
        let mut text = format!("Unable to render jobs for instance group '{group}'. Errors are:\n{errors}");
        if lacks_values {
            text.push_str("\nGive such values to the client with -v or --vars-store, define them under 'variables', or set them with 'windlass import-variables'.");
        }
        if is_redacted {
            text.push_str("\nWhat may be the value of a property is not shown; 'windlass render' shows it.");
        }
        Err(NotRendered { text, lacks_ruby })
    }
}

/// In BOSH's words.
fn unfilled(job: &str, errors: &BTreeSet<FillError>) -> String {
    let lines: String = errors.iter().map(|error| format!("\n  - {error}")).collect();
    format!("Unable to render templates for job '{job}'. Errors are:{lines}")
}

fn provided(link: &ProvidedLink) -> windlass_render::ProvidedLink {
    let group = link.group.unsigned_abs();
    windlass_render::ProvidedLink { name: link.name.clone(), kind: link.link_type.clone(), group }
}

impl Templates for Rendering {
    fn rendered_at_deploy(&self, software: &Software) -> Option<RenderedAtDeploy> {
        self.variables.rendered_at_deploy(software)
    }

    fn env_values(&self, env: &Object, variables: Option<VariableSet>) -> Result<Option<String>, String> {
        self.variables.env_values(env, variables)
    }

    fn configuration_hash(&self, software: &Software, instance: &TemplateInstance<'_>) -> Result<String, String> {
        // One job after the other: what templates see of all of them together may take far more memory.
        let mut all = true;
        let seen = self.seen(software, instance).map_while(|(job, _, spec)| {
            let seen = spec.ok().filter(|_| !self.is_cancelled()).map(|spec| (job, spec));
            all &= seen.is_some();
            seen
        });
        let key = Some(self.hashes.key(seen)).filter(|_| all);
        if let Some(known) = key.and_then(|key| self.hashes.get(&key)) {
            return Ok(known);
        }
        let hash = self.render(software, instance).map_err(|error| error.text)?.configuration_hash();
        self.time.rendered();
        if let Some(key) = key.filter(|_| !self.renderer.asked_ruby()) {
            self.hashes.insert(key, hash.clone());
        }
        Ok(hash)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::LazyLock;

    use serde_json::json;
    use windlass_contract::Networks;
    use windlass_planning::names::InstanceId;
    use windlass_release::JobSpec;
    use windlass_variables::{Scope, Values};

    use super::*;

    /// What renders a job with one template, without Ruby.
    fn rendering(template: &str) -> (Rendering, Software) {
        let job = JobOfGroup {
            name: "app".into(),
            release: "web".into(),
            release_version: "1".into(),
            version: "fp".into(),
            properties: json!({"password": "secret"}),
            links: BTreeMap::new(),
            provides: Vec::new(),
        };
        let read = Job {
            spec: JobSpec::parse("name: app\ntemplates: {t.erb: t}\n", "app").unwrap(),
            templates: BTreeMap::from([("t.erb".to_owned(), template.to_owned())]),
            monit: BTreeMap::from([("monit".to_owned(), String::new())]),
        };
        let jobs = HashMap::from([(key(&job), Arc::new(read))]);
        let (renderer, time) = (Arc::new(Backends::new(None)), TemplateTime::default());
        let (hashes, ruby_needs, variables) = (Arc::default(), Arc::default(), Arc::default());
        let rendering = Rendering { jobs, renderer, hashes, ruby_needs, time, variables, task: None };
        (rendering, Software { jobs: vec![job], packages: Vec::new() })
    }

    fn networks(ip: Option<&str>) -> Networks {
        serde_json::from_value(json!({"a": {"type": "dynamic", "ip": ip, "default": ["gateway"]}})).unwrap()
    }

    static ID: LazyLock<InstanceId> = LazyLock::new(|| "uuid".into());

    fn instance(networks: &Networks) -> TemplateInstance<'_> {
        let persistent_disk = None;
        let (deployment, group) = ("shop", "web");
        let variables = None;
        TemplateInstance {
            deployment,
            group,
            index: 0,
            id: &ID,
            az: None,
            bootstrap: true,
            networks,
            persistent_disk,
            variables,
            dns_address: None,
        }
    }

    #[test]
    fn what_needs_ruby_only_with_the_address_of_its_vm_leaves_that_vm_there() {
        let (rendering, software) = rendering("<%= spec.ip == '127.0.0.1' ? 'planned' : 1.upcase %>");
        let (before, after) = (networks(None), networks(Some("10.0.0.7")));
        rendering.configuration_hash(&software, &instance(&before)).unwrap();
        let error = rendering.render(&software, &instance(&after)).unwrap_err().of_vm().to_string();
        let expected = "Unable to render jobs for instance group 'web'. Errors are:\n  - job 'app' cannot be rendered: template \
            't.erb' (line 1) needs Ruby for 'upcase' of Integer";
        assert!(error.starts_with(expected), "{error}");
        assert!(error.ends_with("The VM is kept. Once Ruby can be asked, deploy again."), "{error}");
    }

    #[test]
    fn the_templates_of_a_plan_have_so_much_time_in_sum_and_what_is_known_costs_nothing() {
        let (rendering, software) = rendering("<% 20000.times { 1 } %>");
        let networks = networks(None);
        let group = |index| TemplateInstance { index, ..instance(&networks) };
        let rendering = rendering.within(Duration::from_millis(50));
        let mut hashes = 0;
        let refused = loop {
            match rendering.configuration_hash(&software, &group(hashes)) {
                Ok(_) => hashes += 1,
                Err(refused) => break refused,
            }
            assert!(hashes < 100_000, "nothing bounds it");
        };
        assert!(hashes > 0);
        let expected =
            format!("the templates of this plan took more than 0.05 s, and {hashes} instances were rendered");
        assert!(refused.starts_with(&expected), "{refused}");
        assert!(refused.contains("template_time"), "{refused}");
        rendering.configuration_hash(&software, &group(0)).unwrap();
    }

    #[test]
    fn the_files_of_an_instance_have_a_limit_in_sum() {
        let (mut rendering, mut software) = rendering("<%= 'x' * 16_000_000 %>");
        let (job, read) = (software.jobs.remove(0), rendering.jobs.values().next().unwrap().clone());
        for number in 0..5 {
            let job = JobOfGroup { name: format!("app{number}"), ..job.clone() };
            rendering.jobs.insert(key(&job), read.clone());
            software.jobs.push(job);
        }
        let networks = networks(None);
        let error = rendering.configuration_hash(&software, &instance(&networks)).unwrap_err();
        let expected =
            "the files of an instance of group 'web' have more than 64 MiB together; let its jobs write less";
        assert_eq!(error, expected);
        software.jobs.truncate(4);
        rendering.configuration_hash(&software, &instance(&networks)).unwrap();
    }

    #[test]
    fn errors_of_templates_have_no_values_and_an_end() {
        let (rendering, software) = self::rendering("\n<% raise \"no #{p('password')} here\" %>");
        let networks = networks(None);
        let error = rendering.configuration_hash(&software, &instance(&networks)).unwrap_err();
        let expected = "Unable to render jobs for instance group 'web'. Errors are:\n  - Unable to render templates for job \
            'app'. Errors are:\n    - Error filling in template 't.erb' (line 2: no <redacted> here)\nWhat may be the value of a \
            property is not shown; 'windlass render' shows it.";
        assert_eq!(error, expected);
    }

    #[test]
    fn values_of_variables_are_put_in_when_files_are_rendered_and_those_that_are_missing_are_named() {
        let (rendering, mut software) = rendering("<%= p('password') %>");
        software.jobs[0].properties = json!({"password": "x-((pass))", "other": "((gone))"});
        let networks = networks(None);
        let scope = Scope::of("boss", "shop");
        let known = |values: &[(&str, &str)]| {
            let mut found = Values::new(scope.clone());
            values.iter().for_each(|(name, value)| found.insert((*name).to_owned(), json!(value)));
            Arc::new(KnownValues::of_set(scope.clone(), None, Arc::new(found)))
        };
        let rendering = rendering.knowing(known(&[("/boss/shop/pass", "hunter2")]));
        let error = rendering.configuration_hash(&software, &instance(&networks)).unwrap_err();
        assert!(
            error.contains(
                "Unable to render templates for job 'app'. Errors are:\n    - Failed to find variable '/boss/shop/gone'"
            ),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
        software.jobs[0].properties = json!({"password": "x-((pass))"});
        let hash = rendering.configuration_hash(&software, &instance(&networks)).unwrap();
        let plain = {
            let mut plain = software.clone();
            plain.jobs[0].properties = json!({"password": "x-hunter2"});
            plain
        };
        assert_eq!(rendering.configuration_hash(&plain, &instance(&networks)).unwrap(), hash);
        let rendering = rendering.knowing(known(&[("/boss/shop/pass", "other")]));
        assert_ne!(rendering.configuration_hash(&software, &instance(&networks)).unwrap(), hash);
    }

    #[test]
    fn what_templates_gave_is_known_by_all_that_went_in_and_a_secret() {
        let (rendering, mut software) = rendering("<%= spec.ip %>");
        let networks = networks(None);
        let key_of = |rendering: &Rendering, software: &Software| {
            let instance = instance(&networks);
            rendering.hashes.key(rendering.seen(software, &instance).map(|(job, _, spec)| (job, spec.unwrap())))
        };
        let key = key_of(&rendering, &software);
        let hash = rendering.configuration_hash(&software, &instance(&networks)).unwrap();
        assert_eq!(rendering.hashes.get(&key), Some(hash.clone()));
        // A second time nothing is rendered: what is known counts.
        rendering.hashes.insert(key, "known".to_owned());
        assert_eq!(rendering.configuration_hash(&software, &instance(&networks)).unwrap(), "known");
        software.jobs[0].properties = json!({"password": "other"});
        assert_eq!(rendering.configuration_hash(&software, &instance(&networks)).unwrap(), hash);
        let (other_process, software) = self::rendering("<%= spec.ip %>");
        assert_ne!(key_of(&other_process, &software), key);
        // Ruby runs templates of strangers in one process: what it may have changed is not remembered.
        let (with_ruby, _) = self::rendering("<%= eval('1') %>");
        for job in with_ruby.jobs.values() {
            assert!(other_process.renderer.render(job, &json!({})).is_err());
        }
        other_process.configuration_hash(&software, &instance(&networks)).unwrap();
        assert_eq!(other_process.hashes.get(&key_of(&other_process, &software)), None);
    }

    #[tokio::test]
    async fn a_task_that_is_cancelled_renders_no_further_job() {
        let bench = crate::testing::TestDirector::new().await;
        let log = TaskLog::open(&bench.director, 1).unwrap();
        let (rendering, software) = rendering("<%= spec.index %>");
        let rendering = rendering.until_cancelled(Some(log.clone()));
        let networks = networks(None);
        rendering.configuration_hash(&software, &instance(&networks)).unwrap();
        log.cancel();
        let next = TemplateInstance { index: 1, ..instance(&networks) };
        assert_eq!(rendering.configuration_hash(&software, &next).unwrap_err(), "the task was cancelled");
    }

    /// A job with so many bytes of templates, as a release has it.
    fn packed_job(bytes: usize) -> Vec<u8> {
        let packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut archive = tar::Builder::new(packed);
        let spec = b"name: app\ntemplates: {t: t}\n".to_vec();
        for (path, content) in [("job.MF", spec), ("monit", Vec::new()), ("templates/t", vec![b' '; bytes])] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, content.as_slice()).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    /// Seventy releases of two kilobytes took a gigabyte of memory in one plan, and somebody may use three hundred.
    #[tokio::test]
    async fn the_templates_of_the_jobs_of_a_plan_have_a_limit_in_sum() {
        let test = crate::testing::TestDirector::new().await;
        let director = &test.director;
        let archive = director.folders.temporary().join("job");
        std::fs::write(&archive, packed_job(15_000_000)).unwrap();
        director.blobs.keep(RELEASES, "packed", &archive).await.unwrap();
        let (_, Software { mut jobs, .. }) = rendering("");
        for number in 0..5 {
            let record = JobRecord {
                id: 0,
                name: "app".into(),
                version: "fp".into(),
                fingerprint: "fp".into(),
                sha1: String::new(),
                blob: "packed".into(),
                spec: json!({"name": "app"}),
            };
            let name = format!("web{number}");
            let release = windlass_planning::records::ReleaseRecord {
                name: name.clone(),
                version: "1".into(),
                jobs: vec![record],
                ..Default::default()
            };
            director.store.take_release(&release, &[]).await.unwrap();
            jobs.push(JobOfGroup { release: name, ..jobs[0].clone() });
        }
        jobs.remove(0);
        let refused = director.library.rendering(&jobs).await.unwrap_err().to_string();
        assert!(refused.contains("the templates of all jobs have more than 64 MiB together"), "{refused}");
        director.library.rendering(&jobs[1..]).await.unwrap();
    }
}
