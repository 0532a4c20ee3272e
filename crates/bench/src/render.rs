//! `windlass bench render`: ten templates of many instances, natively and by a caged Ruby, beside one plain Ruby that does nothing
//! else, and beside a Ruby process for each file, as BOSH's client has it for `create-env`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_release::{Job, JobSpec};
use windlass_render::{Native, Renderer, Ruby, RubySetup};

use crate::arguments::BenchRenderArgs;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table, milliseconds};

const PLAIN: &str = include_str!("render.rb");

/// As jobs have them: most print a few properties, some go through lists.
pub(super) const TEMPLATES: [&str; 10] = [
    "#!/bin/bash\nset -e\nexport PORT=<%= p('port') %>\nexec /var/vcap/packages/web/bin/web\n",
    "port: <%= p('port') %>\nhost: <%= p('db.host') %>\nuser: <%= p('db.user') %>\npassword: <%= p('db.password') %>\n",
    "<% p('servers').each do |server| -%>\nserver <%= server %>;\n<% end -%>\n",
    "<%= JSON.generate('port' => p('port'), 'servers' => p('servers')) %>\n",
    "<% if p('tls.enabled') -%>\ncert: /var/vcap/jobs/web/config/cert\n<% else -%>\nplain: true\n<% end -%>\n",
    "<% if_p('db.host', 'db.port') do |host, port| -%>\n<%= host %>:<%= port %>\n<% end -%>\n",
    "name: <%= spec.name %>/<%= spec.index %>\nid: <%= spec.id %>\naddress: <%= spec.address %>\n",
    "<%= p('servers').map { |server| server.upcase }.join(',') %>\n<%= p('servers').length %>\n",
    "<% users = p('users').sort_by { |user| user['name'] } %><% users.each do |user| %><%= user['name'] %>:<%= user['role'] %>\n<% end %>",
    "#!/bin/bash\necho <%= name %> <%= index %>\n",
];

pub(crate) fn measure(arguments: &BenchRenderArgs) -> Result<Report, BenchError> {
    let failed = |source| BenchError::Failed { doing: "render templates", source };
    let job = job().map_err(failed)?;
    let specs: Vec<Value> = (0..arguments.instances).map(spec).collect();
    let program = std::env::current_exe().map_err(failed)?;
    let ruby = Ruby::new(RubySetup::caged(program));
    let files = specs.len() * TEMPLATES.len();
    let native = time(|| Native::for_many(|| all(&Native, &job, &specs))).map_err(failed)?;
    let mut measured = vec![("native", native.0, files)];
    let title = match ruby.version() {
        Err(error) => format!("Templates, natively alone: {error}"),
        Ok(version) => {
            let caged = time(|| all(&ruby, &job, &specs)).map_err(failed)?;
            let plain = time(|| plain(&specs)).map_err(failed)?;
            if native.1 != caged.1 || native.1 != plain.1 {
                return Err(failed(io::Error::other("they do not give the same files")));
            }
            let some = &specs[..arguments.processes.div_ceil(TEMPLATES.len()).min(specs.len())];
            let each = time(|| process_per_file(some)).map_err(failed)?;
            measured.push(("caged Ruby", caged.0, files));
            measured.push(("plain Ruby", plain.0, files));
            measured.push(("a Ruby process per file", each.0, some.len() * TEMPLATES.len()));
            format!("Templates, with Ruby {version}, whose start counts")
        }
    };
    Ok(report(&measured, title))
}

fn report(measured: &[(&str, Duration, usize)], title: String) -> Report {
    let per_file = |time: &Duration, files: usize| time.as_secs_f64() / files as f64;
    let plain = measured.iter().find(|(name, ..)| *name == "plain Ruby").map(|(_, time, files)| per_file(time, *files));
    let ratio = |time: &Duration, files: usize| {
        plain.map(|plain| format!("{:.2} of plain Ruby", per_file(time, files) / plain)).unwrap_or_default()
    };
    let row = |(name, time, files): &(&str, Duration, usize)| {
        let each = format!("{:.1} µs", per_file(time, *files) * 1e6);
        vec![(*name).to_owned(), files.to_string(), milliseconds(*time), each, ratio(time, *files)]
    };
    let figure = |(name, time, files): &(&str, Duration, usize)| {
        let figure = Figure::new(format!("a template, {name}"), format!("{:.1} µs", per_file(time, *files) * 1e6));
        figure.against(ratio(time, *files))
    };
    let table = Table {
        content: "renderers",
        title: Some(title),
        header: vec!["Renderer", "Files", "Time", "A file", "Against"],
        rows: measured.iter().map(row).collect(),
        notes: DEBUG_BUILD.into_iter().collect(),
    };
    Report { tables: vec![table], figures: measured.iter().map(figure).collect() }
}

fn time<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<(Duration, T)> {
    let started = Instant::now();
    let done = work()?;
    Ok((started.elapsed(), done))
}

fn job() -> io::Result<Job> {
    let source = |at: usize| format!("{at}.erb");
    let listed: BTreeMap<String, String> =
        (0..TEMPLATES.len()).map(|at| (source(at), format!("config/{at}"))).collect();
    let text = json!({ "name": "web", "templates": listed }).to_string();
    let spec = JobSpec::parse(&text, "web").map_err(io::Error::other)?;
    let templates = TEMPLATES.iter().enumerate().map(|(at, text)| (source(at), (*text).to_owned())).collect();
    Ok(Job { spec, templates, monit: BTreeMap::from([("monit".to_owned(), String::new())]) })
}

fn spec(index: usize) -> Value {
    json!({
        "deployment": "bench", "name": "web", "index": index, "id": format!("instance-{index}"), "az": "z1",
        "address": format!("10.0.{}.{}", index / 250, index % 250), "bootstrap": index == 0,
        "networks": { "default": { "ip": "10.0.0.1", "netmask": "255.255.0.0", "gateway": "10.0.0.254" } },
        "properties": properties(),
        "links": {},
    })
}

/// What the templates ask for.
pub(super) fn properties() -> Value {
    json!({
        "port": 8080, "servers": (0..10).map(|at| format!("server-{at}.example")).collect::<Vec<_>>(),
        "db": { "host": "db.example", "port": 5432, "user": "web", "password": "secret" }, "tls": { "enabled": true },
        "users": (0..10).map(|at| json!({ "name": format!("user-{}", 9 - at), "role": "reader" })).collect::<Vec<_>>(),
    })
}

/// Renders everything; the files of the last instance.
fn all(renderer: &dyn Renderer, job: &Job, specs: &[Value]) -> io::Result<Vec<String>> {
    let mut last = Vec::new();
    for spec in specs {
        let rendered = renderer.render(job, spec).map_err(io::Error::other)?;
        last = rendered.files.into_iter().take(TEMPLATES.len()).map(|file| file.content).collect();
    }
    Ok(last)
}

/// The same by one Ruby, without a cage and without what BOSH adds.
fn plain(specs: &[Value]) -> io::Result<Vec<String>> {
    let mut command = Command::new("ruby");
    let mut child =
        command.args(["--disable-gems", "-W0", "-e", PLAIN]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("no pipes"));
    };
    let mut from = BufReader::new(from);
    writeln!(to, "{}", json!(TEMPLATES))?;
    let mut line = String::new();
    for spec in specs {
        writeln!(to, "{spec}")?;
        line.clear();
        from.read_line(&mut line)?;
    }
    drop(to);
    child.wait()?;
    Ok(serde_json::from_str(&line)?)
}

fn process_per_file(specs: &[Value]) -> io::Result<()> {
    for spec in specs {
        for template in TEMPLATES {
            let mut command = Command::new("ruby");
            let mut child = command
                .args(["--disable-gems", "-W0", "-e", PLAIN])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()?;
            if let Some(mut to) = child.stdin.take() {
                writeln!(to, "{}\n{spec}", json!([template]))?;
            }
            if !child.wait()?.success() {
                return Err(io::Error::other("Ruby failed"));
            }
        }
    }
    Ok(())
}
