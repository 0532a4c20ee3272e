//! What BOSH made of the same job: contents, hashes and archives.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde_json::json;
use sha1::{Digest as _, Sha1};
use windlass_render::{Native, ProvidedLink, RenderedFile, RenderedJob, Renderer as _, archive, configuration_hash};

/// The templates of a job that BOSH rendered and sent to an agent.
const RECORDED: &[(&str, &str, &str)] = &[
    ("ctl.erb", "bin/ctl", "#!/bin/bash\necho ctl\n"),
    (
        "pre-start.erb",
        "bin/pre-start",
        "#!/bin/bash\necho pre-start <%= spec.index %>\n<% if p('fail_pre_start') %>\necho \"cannot start\" >&2\nexit 1\n<% end %>\n",
    ),
    ("post-start.erb", "bin/post-start", "#!/bin/bash\necho post-start <%= spec.index %>\n"),
    ("post-deploy.erb", "bin/post-deploy", "#!/bin/bash\necho post-deploy <%= spec.index %>\n"),
    ("pre-stop.erb", "bin/pre-stop", "#!/bin/bash\necho pre-stop <%= spec.index %>\n"),
    ("post-stop.erb", "bin/post-stop", "#!/bin/bash\necho post-stop <%= spec.index %>\n"),
    ("drain.erb", "bin/drain", "#!/bin/bash\necho 0\n"),
    (
        "conf.yml.erb",
        "config/conf.yml",
        "port: <%= p('port') %>\ngreeting: <%= p('greeting') %>\npassword: <%= p('password') %>\nid: <%= spec.id %>\n\
         address: <%= spec.address %>\n<% if_p('port') { |v| %>p: <%= v %><% } %>\n\
         <% if_link('web') do |l| %>peers: <%= l.instances.map(&:address).join(',') %><% end %>\n",
    ),
];

#[test]
fn a_recorded_job_has_the_files_hashes_and_archive_of_bosh() {
    let id = "f885b92f-f103-49a6-96e5-edda9a433ff9";
    let address = format!("{id}.db.a.misc.bosh");
    let spec = json!({
        "name": "db", "index": 0, "id": id, "address": address,
        "properties": { "port": 8080, "greeting": "hello", "password": "none", "fail_pre_start": false },
        "links": { "web": { "instances": [{ "name": "db", "address": address }] } },
    });
    let templates: Vec<_> = RECORDED.iter().map(|(source, _, content)| (*source, *content)).collect();
    let mut job = crate::job("web", "# empty\n", &templates);
    for (source, destination, _) in RECORDED {
        job.spec.templates.insert((*source).to_owned(), (*destination).to_owned());
    }
    let mut rendered = Native.render(&job, &spec).unwrap();
    rendered.provide(&[ProvidedLink { name: "dbweb".to_owned(), kind: "http".to_owned(), group: 7 }]);
    assert_eq!(rendered.template_hash(), "27f75d77db45742d5dfa49277dbf4706467b97a2");
    assert_eq!(configuration_hash(&[("web", &rendered)]), "add4f6df9ddfdedfa7a5ac64cff01a8e66593005");
    let packed = archive(&[("web", &rendered)]).unwrap();
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut unpacked).unwrap();
    let hash: String = Sha1::digest(&unpacked).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hash, "fd150ce483bf836d473c13530af692e2fe3ea308");
}

fn rendered() -> RenderedJob {
    let file = |source: &str, destination: &str, content: &str| RenderedFile {
        source: source.to_owned(),
        destination: destination.to_owned(),
        content: content.to_owned(),
    };
    RenderedJob { monit: "# empty\n".to_owned(), files: vec![file("ctl.erb", "bin/ctl", "#!/bin/bash\necho ctl\n")] }
}

#[test]
fn an_archive_is_what_agents_unpack_and_always_the_same() {
    let job = rendered();
    let packed = archive(&[("web", &job), ("app", &job)]).unwrap();
    assert_eq!(packed, archive(&[("app", &job), ("web", &job)]).unwrap());
    let mut entries = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
    let mut found = BTreeMap::new();
    for entry in entries.entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().mode().unwrap(), 0o644);
        assert_eq!(entry.header().mtime().unwrap(), 315_619_200);
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        found.insert(entry.path().unwrap().to_str().unwrap().to_owned(), content);
    }
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["app/bin/ctl", "app/monit", "web/bin/ctl", "web/monit"]);
    assert_eq!(found["web/monit"], "# empty\n");
}

#[test]
fn long_paths_are_packed_too() {
    let mut job = rendered();
    let long = format!("config/{}/{}", "folder".repeat(30), "name".repeat(40));
    job.files[0].destination.clone_from(&long);
    let packed = archive(&[("web", &job)]).unwrap();
    let mut unpacked = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
    let names = unpacked.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned());
    assert_eq!(names.last().unwrap().to_str().unwrap(), format!("web/{long}"));
}

#[test]
fn files_come_in_the_order_of_the_job_and_say_what_they_are_made_of() {
    let job = crate::job("app", "check", &[("z.erb", "1"), ("a.erb", "<%= spec.index %>")]);
    let rendered = Native.render(&job, &json!({ "index": 3 })).unwrap();
    let files: Vec<_> = rendered.files.iter().map(|file| [&*file.source, &*file.destination, &*file.content]).collect();
    let links = [".bosh/links.json", ".bosh/links.json", "[]\n"];
    assert_eq!(files, [["z.erb", "config/z.erb", "1"], ["a.erb", "config/a.erb", "3"], links]);
    assert_eq!(rendered.monit, "check");
}

#[test]
fn hashes_cover_contents_by_source_and_destinations() {
    let job = rendered();
    let other = RenderedJob { monit: "x".to_owned(), ..job.clone() };
    assert_ne!(job.template_hash(), other.template_hash());
    assert_ne!(configuration_hash(&[("web", &job)]), configuration_hash(&[("app", &job)]));
    assert_eq!(
        configuration_hash(&[("a", &job), ("b", &other)]),
        configuration_hash(&[("b", &other), ("a", &job)]),
        "the order of jobs does not matter"
    );
}
