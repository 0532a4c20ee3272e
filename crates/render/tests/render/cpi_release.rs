//! The release of our own CPI is rendered without Ruby, into what the CPI reads.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass_release::{Job, JobSpec};
use windlass_render::{Native, Renderer as _};

const SPEC: &str = include_str!("../../../../releases/windlass-cpi/jobs/windlass_cpi/spec");
const PROGRAM: &str = include_str!("../../../../releases/windlass-cpi/jobs/windlass_cpi/templates/cpi.erb");
const CONFIGURATION: &str = include_str!("../../../../releases/windlass-cpi/jobs/windlass_cpi/templates/cpi.json.erb");

fn rendered(properties: Value) -> (String, Value) {
    let templates = [("cpi.erb", PROGRAM), ("cpi.json.erb", CONFIGURATION)];
    let job = Job {
        spec: JobSpec::parse(SPEC, "windlass_cpi").unwrap(),
        templates: templates.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
        monit: BTreeMap::from([("monit".to_owned(), String::new())]),
    };
    assert_eq!(Native.check(&job), Ok(()));
    let rendered = Native.render(&job, &json!({"properties": properties})).unwrap();
    let file = |destination: &str| {
        let found = rendered.files.iter().find(|file| file.destination == destination);
        found.map(|file| file.content.clone()).unwrap()
    };
    (file("bin/cpi"), serde_json::from_str(&file("config/cpi.json")).unwrap())
}

#[test]
fn the_cpi_gets_a_registry_and_a_version_where_they_are_set() {
    let base = json!({"windlass": {"path": "/opt/windlass"}, "local": {"state_dir": "/state"}, "agent": {}});
    let (program, configuration) = rendered(base.clone());
    assert!(program.contains("windlass=/opt/windlass\n"), "{program}");
    let plain = json!({"cloud": {"plugin": "local", "properties": {"local": {"state_dir": "/state"}, "agent": {}}}});
    assert_eq!(configuration, plain);
    let registry = json!({"endpoint": "http://127.0.0.1:1", "user": "u", "password": "p"});
    let mut set = base;
    set["registry"] = registry.clone();
    set["debug"] = json!({"cpi": {"api_version": 1}});
    let (_, configuration) = rendered(set);
    assert_eq!(configuration["cloud"]["properties"]["registry"], registry);
    assert_eq!(configuration["cloud"]["properties"]["debug"], json!({"cpi": {"api_version": 1}}));
}
