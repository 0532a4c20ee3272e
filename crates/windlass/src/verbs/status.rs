//! `windlass status`: what runs on this machine, in one screen.

use std::path::Path;

use reqwest::Method;
use windlass_cloud_local::LocalCloud;
use windlass_cloud_local::operator::Resource;
use windlass_director_client::answers::{CloudConfig, Deployment, InstanceInfo, OrphanedDisk, Stemcell, Task};
use windlass_director_client::environment;
use windlass_director_client::escape;

use crate::background_director::{BackgroundDirector, log_of};
use crate::cli::Global;
use crate::failure::Failure;
use crate::formats;
use crate::screen::Screen;
use crate::session::{Session, While};
use crate::table::Table;
use crate::task_view;
use crate::verbs::{instances, up};

pub(super) async fn run(screen: &mut Screen, flags: &Global) -> Result<(), Failure> {
    let state_dir = up::state_dir(flags)?;
    let director = BackgroundDirector::found(&state_dir);
    let Some(director) = director else {
        screen.table(&resting(&state_dir));
        return Err(Failure::NoDirectorRuns);
    };
    let url = environment::in_state_dir(&state_dir)?.url;
    let here = Global { state_dir: Some(state_dir.clone()), environment: None, deployment: None, ..flags.clone() };
    let mut session = Session::open_quietly(&here, screen)?;
    let found = Found::ask(&mut session).await;
    let since = director.started_at().map(|time| format!(", started {}", formats::relative(time, formats::now())));
    let process = format!("{}{}", director.pid(), since.unwrap_or_default());
    let found = match found {
        Ok(found) => found,
        // A director with a full disk does not answer, and this says where its log is.
        Err(failure) => {
            screen.table(&single(of_machine(format!("running at {url}"), process, &state_dir)));
            return Err(failure);
        }
    };
    screen.table(&one(format!("running at {url}"), process, &state_dir, &found));
    screen.table(&deployments(&found.deployments));
    Ok(())
}

/// What the director told.
struct Found {
    deployments: Vec<(String, Vec<InstanceInfo>)>,
    stemcells: Vec<Stemcell>,
    has_cloud_config: bool,
    orphaned_disks: usize,
    tasks: Vec<Task>,
}

impl Found {
    async fn ask(session: &mut Session<'_>) -> Result<Self, Failure> {
        let path = "/deployments?exclude_configs=true&exclude_releases=true&exclude_stemcells=true";
        let director = &session.director;
        let mut names: Vec<Deployment> = director.get(path).await.while_("listing deployments")?;
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let running = "/tasks?state=processing,cancelling,queued&verbose=2";
        let tasks = director.get(running).await.while_("listing tasks")?;
        let stemcells = director.get("/stemcells").await.while_("listing stemcells")?;
        let configs: Vec<CloudConfig> =
            director.get("/cloud_configs?name=&limit=1").await.while_("reading the cloud config")?;
        let orphans: Vec<OrphanedDisk> = director.get("/disks").await.while_("listing orphaned disks")?;
        let mut begun = Vec::new();
        for Deployment { name, .. } in names {
            let doing = format!("listing the instances of deployment '{name}'");
            let path = format!("/deployments/{}/instances?format=full", escape(&name));
            let task = director.begin(Method::GET, &path, None).await.while_(&doing)?;
            begun.push((name, task, doing));
        }
        let mut deployments = Vec::new();
        for (name, task, doing) in begun {
            task_view::wait(session, task, &doing).await?;
            let result = task_view::result(session, task, &doing).await?;
            let mut found = instances::read(&result).while_(&doing)?;
            instances::mark_errands(session, &name, &mut found).await?;
            deployments.push((name, found));
        }
        let (has_cloud_config, orphaned_disks) = (!configs.is_empty(), orphans.len());
        Ok(Self { deployments, stemcells, has_cloud_config, orphaned_disks, tasks })
    }
}

fn one(director: String, process: String, state_dir: &Path, found: &Found) -> Table {
    let stemcells: Vec<String> = found.stemcells.iter().map(|it| format!("{}/{}", it.name, it.version)).collect();
    let none = |text: String, otherwise: &str| if text.is_empty() { otherwise.to_owned() } else { text };
    let tasks: Vec<String> = found
        .tasks
        .iter()
        .map(|task| {
            let about = if task.deployment.is_empty() { String::new() } else { format!(" of {}", task.deployment) };
            format!("{}: {}{about}, {}", task.id, task.description, task.state)
        })
        .collect();
    let cloud_config = if found.has_cloud_config { "there" } else { "none: 'windlass update-cloud-config FILE'" };
    let mut columns = of_machine(director, process, state_dir);
    columns.extend([
        ("Stemcell(s)", none(stemcells.join("\n"), "none: 'windlass stemcell build', 'windlass upload-stemcell'")),
        ("Cloud config", cloud_config.to_owned()),
        ("Tasks", none(tasks.join("\n"), "none runs")),
    ]);
    if found.orphaned_disks > 0 {
        let kept = format!("{}, kept for a while: 'windlass disks --orphaned'", found.orphaned_disks);
        columns.push(("Orphaned disks", kept));
    }
    single(columns)
}

/// What can be told of a director without its answers.
fn of_machine(director: String, process: String, state_dir: &Path) -> Vec<(&'static str, String)> {
    let vms = Some(kinds_of_vms(state_dir)).filter(|vms| !vms.is_empty());
    vec![
        ("Director", director),
        ("Process", process),
        ("State", state_dir.display().to_string()),
        ("Log", log_of(state_dir).display().to_string()),
        ("VMs", vms.unwrap_or_else(|| "none on this machine".to_owned())),
    ]
}

/// Without a director.
fn resting(state_dir: &Path) -> Table {
    single(vec![
        ("Director", "not running".to_owned()),
        ("State", state_dir.display().to_string()),
        ("VMs", Some(kinds_of_vms(state_dir)).filter(|vms| !vms.is_empty()).unwrap_or_else(|| "none".to_owned())),
    ])
}

fn single(columns: Vec<(&'static str, String)>) -> Table {
    let (header, row) = columns.into_iter().unzip();
    Table { header, rows: vec![row], transpose: true, ours: true, ..Table::default() }
}

/// `3 containers, 1 stopped`.
fn kinds_of_vms(state_dir: &Path) -> String {
    let config = state_dir.join("cpi/local.json");
    let cloud = config.exists().then(|| LocalCloud::configured(&config).ok()).flatten();
    let resources = cloud.and_then(|cloud| cloud.status().ok()).map(|status| status.resources).unwrap_or_default();
    counted(&resources)
}

fn counted(resources: &[Resource]) -> String {
    let vms: Vec<&Resource> = resources.iter().filter(|it| it.kind == "vm").collect();
    let count = |word: &str| vms.iter().filter(|vm| vm.details.split(", ").any(|part| part == word)).count();
    let parts = [
        (count("container"), "container", "containers"),
        (count("process"), "process", "processes"),
        (count("stopped"), "of them stopped", "of them stopped"),
    ];
    let shown = parts.iter().filter(|(count, ..)| *count > 0);
    let shown = shown.map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }));
    shown.collect::<Vec<_>>().join(", ")
}

fn deployments(found: &[(String, Vec<InstanceInfo>)]) -> Table {
    let row = |(name, instances): &(String, Vec<InstanceInfo>)| {
        let wanted: Vec<_> = instances.iter().filter(|instance| instance.is_wanted()).collect();
        let healthy = wanted.iter().filter(|instance| instance.is_healthy()).count();
        let failing: Vec<String> =
            wanted.iter().filter(|instance| !instance.is_healthy()).map(|instance| instance.slug()).collect();
        let health = match (failing.is_empty(), wanted.is_empty()) {
            (true, true) => "stopped",
            (true, false) => "running",
            (false, _) => "failing",
        };
        let of = format!("{healthy} of {}", wanted.len());
        vec![name.clone(), health.to_owned(), of, failing.join("\n")]
    };
    Table {
        content: "deployments",
        header: vec!["Deployment", "Health", "Running", "Failing"],
        rows: found.iter().map(row).collect(),
        ours: true,
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(details: &str) -> Resource {
        Resource {
            kind: "vm",
            cid: "vm-1".into(),
            size_mib: None,
            vm: None,
            details: details.into(),
            metadata: Default::default(),
        }
    }

    #[test]
    fn one_sees_how_many_vms_there_are_and_of_which_kind() {
        assert_eq!(counted(&[]), "");
        let vms = [vm("container, running, 10.0.0.2"), vm("container, stopped, 10.0.0.3"), vm("process, running")];
        assert_eq!(counted(&vms), "2 containers, 1 process, 1 of them stopped");
    }

    #[test]
    fn a_deployment_is_healthy_when_everything_runs_that_should() {
        let instance = |id: &str, state: &str, job_state: &str| -> InstanceInfo {
            let line = format!(
                r#"{{"vm_cid":"v","active":true,"disk_cids":[],"ips":[],"agent_id":"a","job_name":"db","index":0,"job_state":{job_state},"state":"{state}","vm_type":"s","az":"z1","id":"{id}","bootstrap":true,"ignore":false,"stemcell":null,"processes":[]}}"#
            );
            serde_json::from_str(&line).unwrap()
        };
        let running = r#""running""#;
        let of = |instances| deployments(&[("shop".to_owned(), instances)]).rows.remove(0).join("|");
        assert_eq!(of(vec![instance("1", "started", running)]), "shop|running|1 of 1|");
        assert_eq!(of(vec![instance("1", "stopped", r#""stopped""#)]), "shop|stopped|0 of 0|");
        let failing = r#""unresponsive agent""#;
        assert_eq!(
            of(vec![instance("1", "started", running), instance("2", "started", failing)]),
            "shop|failing|1 of 2|db/2"
        );
        let table = deployments(&[(
            "shop".to_owned(),
            vec![instance("1", "started", failing), instance("2", "started", failing)],
        )]);
        assert_eq!(table.plain().rows[0].last().map(String::as_str), Some("db/1\ndb/2"), "one below the other");
    }
}
