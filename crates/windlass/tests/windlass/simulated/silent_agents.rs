//! VMs whose agents never answer.

use serde_json::{Value, json};

use super::site::{GROUP, Site};

/// Users see what is waited for and how long; the wait ends at the operator's limit, and the VM goes.
#[test]
fn the_wait_for_an_agent_tells_how_long_it_takes_and_ends_at_its_limit() {
    let site = Site::start(json!({"sim": {"agents": {"never_up": true}}}), "agent_wait: 3s\n");
    site.upload_stemcell("2");
    site.update_cloud_config("{}", "{}");
    let said = site.deploy_fails(&[GROUP]);
    let address = format!("{}.2", site.prefix);
    assert!(said.contains("L waiting for the agent at ") && said.contains(" s of at most 3 s"), "{said}");
    assert!(said.contains(&address) && said.contains("was not ready after "), "{said}");
    let id = site.rows(&["tasks", "--recent"])[0]["id"].as_str().unwrap().to_owned();
    let events = String::from_utf8(site.windlass(&["task", &id, "--event"]).stdout).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let waiting = |event: &&Value| event["data"]["status"].as_str().is_some_and(|it| it.contains("s of at most"));
    let reports: Vec<_> = events.iter().filter(waiting).collect();
    assert!((1..=3).contains(&reports.len()), "one each second: {events:#?}");
    assert!(reports.iter().all(|event| event["state"] == "in_progress" && event["stage"] == "Creating missing vms"));
    assert!(site.rows(&["-d", "example", "vms"]).is_empty(), "a VM without an agent is of no use");
}
