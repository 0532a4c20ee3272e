//! Releases of others, where somebody has them at hand: `WINDLASS_CORPUS` names a folder with one folder per release, each with
//! `jobs/JOB/spec`, `monit` and `templates/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use windlass_release::{Job, JobSpec};
use windlass_render::{Native, RenderError, Renderer as _, Ruby};

use crate::ruby::told;

fn folders(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// A job as its author has it.
fn read(folder: &Path) -> Option<Job> {
    let name = folder.file_name()?.to_str()?;
    let text = |path: &str| std::fs::read_to_string(folder.join(path)).ok();
    let spec = JobSpec::parse(&text("spec")?, name).ok()?;
    let template = |source: &String| Some((source.clone(), text(&format!("templates/{source}"))?));
    let templates = spec.templates.keys().filter_map(template).collect();
    let monit = BTreeMap::from([("monit".to_owned(), text("monit").unwrap_or_default())]);
    Some(Job { spec, templates, monit })
}

/// A spec with every property set: to its default, or to what its name lets one guess.
fn spec(job: &Job, all: bool) -> Value {
    let mut properties = json!({});
    for (name, property) in &job.spec.properties {
        let guess = if all { guess(name) } else { Value::Null };
        let value = property.default.clone().filter(|value| !value.is_null()).unwrap_or(guess);
        let mut at = &mut properties;
        for part in name.split('.') {
            if !at.is_object() {
                *at = json!({});
            }
            at = at.as_object_mut().unwrap().entry(part.to_owned()).or_insert(Value::Null);
        }
        *at = value;
    }
    let mut spec = crate::spec();
    let mut links = Map::new();
    for link in job.spec.raw["consumes"].as_array().into_iter().flatten() {
        let mut content = spec["links"]["db"].clone();
        content["properties"] = properties.clone();
        links.insert(link["name"].as_str().unwrap_or_default().to_owned(), content);
    }
    spec["properties"] = properties;
    spec["links"] = Value::Object(links);
    spec
}

fn guess(name: &str) -> Value {
    match name.rsplit(['.', '_']).next().unwrap_or_default() {
        "port" => json!(8080),
        "enabled" | "enable" => json!(true),
        "count" | "seconds" | "size" | "max" | "limit" => json!(7),
        "servers" | "urls" | "hosts" | "domains" | "ips" | "machines" => json!(["a.example", "b.example"]),
        "cert" | "certificate" | "key" | "ca" => json!("-----BEGIN X-----\nabc\n-----END X-----\n"),
        "users" => json!([{ "name": "ann", "password": "secret" }]),
        _ => json!("a value"),
    }
}

#[derive(Default)]
struct Tally {
    jobs: usize,
    native: usize,
    rendered: usize,
    failed: usize,
    at_run_time: BTreeMap<String, usize>,
    reasons: BTreeMap<String, usize>,
    different: Vec<String>,
}

impl Tally {
    fn add(&mut self, job: &Job, release: &str, ruby: Option<&Ruby>) {
        self.jobs += 1;
        if let Err(why) = Native.check(job) {
            *self.reasons.entry(why.construct.clone()).or_default() += 1;
            let by_ruby = ruby.map(|ruby| match ruby.render(job, &spec(job, true)) {
                Ok(_) => "Ruby renders it".to_owned(),
                Err(RenderError::Failed(errors)) => format!("by Ruby: {}", errors.errors[0]),
                Err(error) => panic!("{error}"),
            });
            eprintln!("{release}/{}: {why}; {}", job.spec.name, by_ruby.unwrap_or_default());
            return;
        }
        self.native += 1;
        let Some(ruby) = ruby else { return };
        for all in [true, false] {
            let spec = spec(job, all);
            for (source, content) in &job.templates {
                let single = crate::job(&job.spec.name, "", &[(source, content)]);
                let theirs = told(ruby.render(&single, &spec));
                let ours = match Native.render(&single, &spec) {
                    Err(RenderError::NeedsRuby(why)) => {
                        if theirs.is_ok() {
                            *self.at_run_time.entry(why.construct).or_default() += 1;
                        }
                        continue;
                    }
                    ours => told(ours),
                };
                match ours {
                    Ok(_) => self.rendered += 1,
                    Err(_) => self.failed += 1,
                }
                if ours != theirs {
                    self.different.push(format!("{release}/{}/{source}\n{ours:?}\n{theirs:?}", job.spec.name));
                }
            }
        }
    }
}

#[test]
fn jobs_of_public_releases_become_what_ruby_makes_of_them() {
    let Some(corpus) = std::env::var_os("WINDLASS_CORPUS") else {
        eprintln!("not run: WINDLASS_CORPUS does not name a folder of releases");
        return;
    };
    let ruby = crate::ruby::ruby();
    let mut tally = Tally::default();
    for release in folders(Path::new(&corpus)) {
        let name = release.file_name().unwrap().to_string_lossy().into_owned();
        for job in folders(&release.join("jobs")).iter().filter_map(|folder| read(folder)) {
            tally.add(&job, &name, ruby.as_ref());
        }
    }
    let Tally { jobs, native, rendered, failed, at_run_time, mut reasons, different } = tally;
    eprintln!("{native} of {jobs} jobs are native; {rendered} templates were the same as Ruby's, {failed} errors, too");
    eprintln!("needs Ruby when rendered, where Ruby renders it: {at_run_time:#?}");
    reasons.retain(|_, count| *count > 1);
    eprintln!("more than one job needs Ruby for: {reasons:#?}");
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n\n"));
    assert!(jobs > 0, "WINDLASS_CORPUS has no jobs");
}
