//! `windlass instances`: what should run, and how it is.

use reqwest::Method;
use windlass_director_client::answers::{Deployment, InstanceInfo, Named};
use windlass_director_client::{ClientError, escape};

use crate::cli::InstancesArgs;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;
use crate::task_view;
use crate::verbs::instance_table::Columns;

pub(crate) async fn run(session: &mut Session<'_>, arguments: &InstancesArgs) -> Result<(), Failure> {
    for (deployment, mut found) in ask_all(session, "instances").await? {
        if arguments.failing {
            mark_errands(session, &deployment, &mut found).await?;
        }
        session.screen.table(&table(&deployment, found, arguments));
    }
    Ok(())
}

/// What the `vms` or `instances` tasks of the named deployment find, or those of all. Several are asked at once.
pub(super) async fn ask_all(
    session: &mut Session<'_>,
    what: &str,
) -> Result<Vec<(String, Vec<InstanceInfo>)>, Failure> {
    let mut found = Vec::new();
    for names in deployments_to_list(session).await?.chunks(session.parallel) {
        let mut tasks = Vec::new();
        for name in names {
            let doing = format!("listing the {what} of deployment '{name}'");
            let path = format!("/deployments/{}/{what}?format=full", escape(name));
            let task = session.director.begin(Method::GET, &path, None).await.while_(&doing)?;
            tasks.push((name.clone(), task, doing));
        }
        for (name, task, doing) in tasks {
            task_view::follow(session, task, &doing).await?;
            found.push((name, read(&task_view::result(session, task, &doing).await?).while_(&doing)?));
        }
    }
    Ok(found)
}

/// Marks the instances of errands: they have no VM while they do not run.
pub(super) async fn mark_errands(
    session: &Session<'_>,
    deployment: &str,
    instances: &mut [InstanceInfo],
) -> Result<(), Failure> {
    if !instances.iter().any(|instance| instance.is_wanted() && instance.vm_cid.is_empty()) {
        return Ok(());
    }
    let path = format!("/deployments/{}/errands", escape(deployment));
    let errands: Vec<Named> = session.director.get(&path).await.while_("listing errands")?;
    for instance in instances {
        instance.is_errand = errands.iter().any(|errand| errand.name == instance.job_name);
    }
    Ok(())
}

async fn deployments_to_list(session: &Session<'_>) -> Result<Vec<String>, Failure> {
    if let Some(name) = session.named_deployment() {
        return Ok(vec![name.to_owned()]);
    }
    let path = "/deployments?exclude_configs=true&exclude_releases=true&exclude_stemcells=true";
    let mut all = session.director.get::<Vec<Deployment>>(path).await.while_("listing deployments")?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all.into_iter().map(|deployment| deployment.name).collect())
}

/// One JSON object per line.
pub(super) fn read(result: &str) -> Result<Vec<InstanceInfo>, ClientError> {
    let lines = result.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).map_err(ClientError::from_json)).collect()
}

fn table(deployment: &str, mut instances: Vec<InstanceInfo>, arguments: &InstancesArgs) -> Table {
    instances.sort_by_key(InstanceInfo::slug);
    instances.retain(|instance| !(arguments.failing && instance.is_healthy()));
    let columns = Columns {
        processes: arguments.ps,
        deployment: true,
        details: arguments.details,
        vitals: arguments.vitals,
        ..Columns::default()
    };
    let (mut rows, mut shown_rows) = (Vec::new(), Vec::new());
    for instance in &instances {
        let row = columns.instance(deployment, instance);
        shown_rows.push(columns.shown(row.clone(), instance));
        rows.push(row);
        let mut processes: Vec<_> = instance.processes.iter().filter(|_| arguments.ps).collect();
        processes.retain(|process| !(arguments.failing && process.state == "running"));
        processes.sort_by(|a, b| a.name.cmp(&b.name));
        let processes = processes.into_iter().map(|process| columns.process(instance.slug(), process));
        let processes: Vec<_> = processes.collect();
        shown_rows.extend(processes.clone());
        rows.extend(processes);
    }
    Table {
        content: "instances",
        title: Some(format!("Deployment '{deployment}'")),
        header: columns.header(),
        rows,
        shown_rows,
        counted: Some(instances.len()),
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DETACHED: &str = r#"{"vm_cid":null,"active":null,"disk_cids":["6b60"],"ips":[],"agent_id":null,"job_name":"web","index":0,"job_state":null,"state":"detached","vm_type":"small","az":"z1","id":"3298","bootstrap":true,"ignore":false,"stemcell":null,"processes":[]}"#;
    const FAILING: &str = r#"{"vm_cid":"vm-1","active":true,"vm_created_at":"2026-11-15T19:15:31Z","cloud_properties":{"b":1,"a":[2]},"disk_cids":[],"ips":["10.0.0.2"],"agent_id":"a","job_name":"db","index":0,"job_state":"failing","state":"started","vm_type":"small","az":"z1","id":"1","bootstrap":true,"ignore":false,"stemcell":{"name":"s","version":"1","api_version":3},"vitals":{"cpu":{"sys":"0.1","user":"0.2","wait":"0.0"},"mem":{"kb":"2048","percent":"3"},"swap":{"kb":"0","percent":"0"},"load":["0.1","0.2","0.3"],"uptime":{"secs":90061},"disk":{"system":{"percent":"2","inode_percent":"1"},"ephemeral":{},"persistent":{"percent":"5","inode_percent":"4"}}},"processes":[{"name":"z","state":"running","uptime":{"secs":9},"mem":{"kb":12000,"percent":0.15},"cpu":{"total":0.2}},{"name":"a","state":"failing","uptime":{},"mem":{},"cpu":{}}]}"#;

    fn shown(line: &str, flags: &str) -> Table {
        let has = |flag: &str| flags.contains(flag);
        let arguments = InstancesArgs { details: has("i"), vitals: has("v"), ps: has("p"), failing: has("f") };
        table("shop", read(line).unwrap(), &arguments)
    }

    #[test]
    fn details_are_those_of_the_original() {
        assert_eq!(shown(DETACHED, "").for_scripts(), "web/3298\t-\tz1\t-\tshop\t\n");
        let expected = "web/3298\t-\tz1\t-\tshop\tdetached\t-\tsmall\t6b60\t-\t0\ttrue\tfalse\t\n";
        assert_eq!(shown(DETACHED, "i").for_scripts(), expected);
    }

    #[test]
    fn processes_stand_below_their_instance_and_are_not_counted() {
        let table = shown(FAILING, "p");
        let expected = "db/1\t-\tfailing\tz1\t10.0.0.2\tshop\t\ndb/1\ta\tfailing\t- \t-       \t-\t\ndb/1\tz\trunning\t- \t-       \t-\t\n";
        assert_eq!(table.for_scripts(), expected);
        assert!(table.for_people(str::to_owned).ends_with("\n1 instances\n"));
        assert_eq!(shown(FAILING, "pf").rows.len(), 2);
        assert_eq!(shown(FAILING, "f").rows.len(), 1);
    }

    /// Without processes BOSH shows no state, and such an instance is not failing all the same.
    #[test]
    fn nothing_fails_when_all_is_well() {
        let idle = FAILING.replace("\"job_state\":\"failing\"", "\"job_state\":\"running\"");
        let (idle, _) = idle.split_once("\"processes\"").unwrap();
        let idle = format!("{idle}\"processes\":[]}}");
        assert_eq!(shown(&idle, "").for_scripts(), "db/1\t-\tz1\t10.0.0.2\tshop\t\n");
        assert!(shown(&idle, "f").rows.is_empty());
        assert_eq!(shown(&idle.replace("\"running\"", "\"unresponsive agent\""), "f").rows.len(), 1);
        assert!(shown(DETACHED, "f").rows.is_empty(), "it is detached because somebody wanted that");
        assert_eq!(shown(&DETACHED.replace("detached", "started"), "f").rows.len(), 1, "it should run and has no VM");
        let mut errand = read(&DETACHED.replace("detached", "started")).unwrap();
        errand[0].is_errand = true;
        assert!(errand[0].is_healthy(), "it rests until somebody runs it");
        let stopped =
            idle.replace("\"state\":\"started\"", "\"state\":\"stopped\"").replace("\"running\"", "\"stopped\"");
        assert!(shown(&stopped, "f").rows.is_empty());
    }

    #[test]
    fn vitals_are_those_of_the_original() {
        let table = shown(FAILING, "v");
        let cells = table.rows[0].join("|");
        let expected = "db/1|failing|z1|10.0.0.2|shop|Sun Nov 15 19:15:31 UTC 2026|1d 1h 1m 1s|0.1, 0.2, 0.3||0.2%|0.1%|0.0%|3% (2.0 MB)|0% (0 B)|2% (1i%)||5% (4i%)";
        assert_eq!(cells, expected);
        let json = table.to_json().to_string();
        assert!(json.contains("\"load_1m_5m_15m\":\"Load\\n(1m, 5m, 15m)\""), "{json}");
        let process = Columns { processes: true, vitals: true, ..Columns::default() };
        let info = &read(FAILING).unwrap()[0];
        assert_eq!(
            process.process("db/1".into(), &info.processes[0]).join("|"),
            "db/1|z|running||||0d 0h 0m 9s||0.2%||||0.1% (12 MB)||||"
        );
    }
}
