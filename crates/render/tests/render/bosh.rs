//! What BOSH made of the same job: contents, hashes and archives.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde_json::json;
use windlass_render::{Native, RenderedFile, RenderedJob, Renderer as _, archive, configuration_hash};

/// The job that BOSH rendered, as it was sent to an agent.
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
