//! The job of `bench deploy --jobs`: the templates of `bench render`, and a process that sleeps.

use std::io;

use serde_json::json;

use crate::render;
use crate::scratch_director::ScratchDirector;
use crate::scratch_release;

const MONIT: &str = "check process node\n  with pidfile /var/vcap/sys/run/node/node.pid\n  \
    start program \"/var/vcap/jobs/node/bin/ctl start\"\n  stop program \"/var/vcap/jobs/node/bin/ctl stop\"\n  group vcap\n";
const CTL: &str = "#!/bin/sh\npidfile=/var/vcap/sys/run/node/node.pid\ncase $1 in\nstart)\n  sleep 100000 &\n  \
    echo $! > $pidfile\n  ;;\nstop)\n  kill \"$(cat $pidfile)\"\n  rm -f $pidfile\n  ;;\nesac\n";

/// What a group says to have the job; it goes into the manifest's group.
pub(super) fn of_group() -> String {
    format!("jobs: [{{name: node, release: bench, properties: {}}}], ", render::properties())
}

/// Makes the release and uploads it.
pub(super) async fn upload(director: &ScratchDirector) -> io::Result<()> {
    let templates = render::TEMPLATES;
    let source = |at: usize| format!("{at}.erb");
    let mut listed = serde_json::Map::from_iter([("ctl".to_owned(), json!("bin/ctl"))]);
    listed.extend((1..templates.len()).map(|at| (source(at), json!(format!("config/{at}")))));
    let names: serde_json::Map<_, _> = ["port", "servers", "db", "tls.enabled", "users"]
        .map(|name| (name.to_owned(), json!({})))
        .into_iter()
        .collect();
    let spec = json!({ "name": "node", "templates": listed, "packages": [], "properties": names }).to_string();
    let paths: Vec<String> = (1..templates.len()).map(|at| format!("jobs/node/templates/{}", source(at))).collect();
    let mut sources = vec![
        ("config/final.yml", "name: bench\n"),
        ("config/blobs.yml", "--- {}\n"),
        ("jobs/node/spec", spec.as_str()),
        ("jobs/node/monit", MONIT),
        ("jobs/node/templates/ctl", CTL),
    ];
    sources.extend(paths.iter().map(String::as_str).zip(templates.iter().skip(1).copied()));
    let tarball = director.file("bench.tgz");
    scratch_release::write(&director.file("release"), &sources, &tarball).map_err(io::Error::other)?;
    director.ok(&["upload-release", &tarball.display().to_string()]).await.map(drop)
}
