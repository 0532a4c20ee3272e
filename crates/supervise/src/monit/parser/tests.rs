use proptest::prelude::*;

use super::*;
use crate::monit::{Condition, Connection, Endpoint, Operator, Property, Reaction, Resource, Test};

fn one(text: &str) -> Service {
    let file = parse("job.monitrc", text).unwrap();
    assert_eq!(file.services.len(), 1);
    file.services.into_iter().next().unwrap()
}

fn process(clauses: &str) -> Service {
    one(&format!("check process web with pidfile /var/vcap/sys/run/web/web.pid\n{clauses}"))
}

fn refused(clauses: &str) -> MonitError {
    parse("job.monitrc", &format!("check process web\nwith pidfile /p\n{clauses}\n")).unwrap_err()
}

#[test]
fn a_file_of_a_job_as_releases_write_it() {
    let service = process(
        "  start program \"/var/vcap/jobs/bpm/bin/bpm start web -p 'a b'\" as uid vcap and gid vcap with timeout 60 seconds\n  \
         stop program = \"/var/vcap/jobs/bpm/bin/bpm stop web\"\n  group vcap\n  depends on db, cache\n",
    );
    let start = service.start.unwrap();
    assert_eq!(start.arguments, ["/var/vcap/jobs/bpm/bin/bpm", "start", "web", "-p", "a b"]);
    assert_eq!((start.uid.as_deref(), start.gid.as_deref()), (Some("vcap"), Some("vcap")));
    assert_eq!(start.timeout, Duration::from_secs(60));
    assert_eq!(service.stop.unwrap().timeout, PATIENCE);
    assert_eq!(service.groups, ["vcap"]);
    assert_eq!(service.depends, ["db", "cache"]);
    assert_eq!(service.kind, Kind::Process { pidfile: "/var/vcap/sys/run/web/web.pid".into() });
}

/// Every form of a service that was counted in public releases, and how many tests it has.
const COUNTED: [(&str, usize); 23] = [
    ("check process a with pidfile /p start program \"/b start\" stop program \"/b stop\" group vcap", 0),
    ("check process a with pidfile /p start program \"/b start\" with timeout 60 seconds stop program \"/b stop\" group vcap", 0),
    ("check process a with pidfile /p start program \"/b start\" stop program \"/b stop\" with timeout 60 seconds group vcap", 0),
    (
        "check process a with pidfile /p start program \"/b start\" with timeout 9 seconds stop program \"/b stop\" with timeout 9 seconds group vcap",
        0,
    ),
    ("check process a with pidfile /p start program \"/b start\" stop program \"/b stop\" group vcap depends on b", 0),
    ("check process a with pidfile /p start program \"/b start\" stop program \"/b stop\" depends on b group vcap", 0),
    (
        "check process a with pidfile /p start program \"/b start\" as uid vcap and gid vcap timeout 60 seconds stop program \"/b stop\" group vcap",
        0,
    ),
    (
        "check process a with pidfile /p start program \"/b\" as uid vcap and gid vcap timeout 60 seconds stop program \"/b\" depends on b group vcap",
        0,
    ),
    (
        "check process a with pidfile /p start program \"/b start\" stop program \"/b stop\" group vcap
         if totalmem > 80 % for 3 cycles then alert if totalmem > 3500 Mb for 3 cycles then alert
         if totalmem > 90 % for 15 cycles then restart if totalmem > 3750 Mb for 15 cycles then restart
         if totalmem > 4000 Mb for 3 cycles then restart",
        5,
    ),
    (
        "check process a with pidfile /p start program \"/b start\" stop program \"/b stop\" group vcap
         if totalmem > 80 % for 3 cycles then alert if totalmem > 90 % 15 cycles then restart",
        2,
    ),
    (
        "check process a with pidfile /p start program \"/b start\" stop program \"/b stop\" group vcap
         if totalmem > 384 Mb for 15 cycles then exec \"/b restart\"",
        1,
    ),
    (
        "check process a with pidfile /p start program \"/b start\" stop program \"/b stop\" group vcap
         if totalmem > 500000 for 5 cycles then alert if totalmem > 1000000 then restart",
        2,
    ),
    (
        "check process a with pidfile /p start program \"/b start\" stop program \"/b stop\" group vcap
         if totalmem > 500 Mb for 2 cycles then alert if totalmem > 1000 Mb then restart if failed host 10.0.0.1 port 4222 type tcp then alert",
        3,
    ),
    (
        "check process a with pidfile /p start program \"/b start\" stop program \"/b stop\" group vcap
         if failed port 8080 protocol http request \"/healthz\" then exec \"/b restart\"",
        1,
    ),
    (
        "check process a with pidfile /p start program \"/b start\" stop program \"/b stop\" group vcap
         if failed host 127.0.0.1 port 8080 protocol HTTP with timeout 20 seconds for 5 cycles then restart",
        1,
    ),
    (
        "check process a with pidfile /p start program \"/b start\" with timeout 60 seconds stop program \"/b stop\"
         if 3 restarts within 10 cycles then exec \"/b stop all\" depends on b group vcap",
        1,
    ),
    (
        "check process a with pidfile /p start program \"/b start\" stop program \"/b stop\"
         if 1 restart within 3 cycles then exec \"/b stop all\" depends on b group vcap",
        1,
    ),
    (
        "check process a with pidfile /p start program \"/b start\" stop program \"/b stop\"
         if failed unixsocket /s.sock then restart if 1 restarts within 3 cycles then exec \"/b stop\" depends on b group vcap",
        2,
    ),
    ("check file a path /etc/cron.d/mounter start program \"/b mount\" stop program \"/b unmount\" group vcap", 0),
    ("check file a with path /p start program \"/b start\" stop program \"/b stop\" group vcap", 0),
    ("check file a with path /etc/hosts if changed timestamp then exec \"/bin/bash -c 'kill -s HUP $(cat /p)'\"", 1),
    (
        "check host a address localhost depends on b
         if failed host localhost port 80 protocol http and request \"/health\" with timeout 60 seconds then alert group vcap",
        1,
    ),
    (
        "check process a\n  with pidfile   /p\n  start program  \"/b start\"\n  stop program  \"/b stop\"\n  if failed host 10.0.0.1 port 80\n    with timeout 5 seconds for 3 cycles\n    then restart\n  group vcap",
        1,
    ),
];

#[test]
fn every_form_of_a_service_that_was_counted_in_public_releases_is_understood() {
    for (text, tests) in COUNTED {
        let service = one(text);
        assert_eq!((service.name.as_str(), service.tests.len()), ("a", tests), "{text}");
        let is_watched = service.start.is_some() && service.stop.is_some() && service.groups == ["vcap"];
        assert!(is_watched || !matches!(service.kind, Kind::Process { .. }), "{text}");
        // The same in other letters, and on one line or many.
        let shouted = text.replace("check", "CHECK").replace("group", "Group").replace(" if ", "\n\tIF ");
        assert_eq!(one(&shouted).tests.len(), tests, "{shouted}");
    }
    // All files of a folder that somebody has, without their templates' marks.
    let folder = std::env::var_os("WINDLASS_MONIT_FILES").map(std::path::PathBuf::from);
    let files = folder.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let refused: Vec<String> = files
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            parse(path.file_name()?.to_str()?, &std::fs::read_to_string(&path).unwrap()).err()
        })
        .map(|error| error.to_string())
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn empty_files_and_comments_check_nothing() {
    for text in ["", "# empty\n", "\n\n  # a\n#b"] {
        assert!(parse("f", text).unwrap().services.is_empty(), "{text:?}");
    }
}

#[test]
fn every_kind_of_clause_that_releases_use_is_understood() {
    let resource = |clause: &str| match process(clause).tests.remove(0) {
        Test { condition: Condition::Resource { resource, operator, limit }, rate, .. } => {
            (resource, operator, limit, rate.matches, rate.cycles)
        }
        other => panic!("{other:?}"),
    };
    use Operator::*;
    assert_eq!(
        resource("if totalmem > 200 Mb for 3 cycles then alert"),
        (Resource::TotalMemory, Greater, 204_800.0, 3, 3)
    );
    assert_eq!(
        resource("IF TOTALMEM is greater than 200Mb then restart"),
        (Resource::TotalMemory, Greater, 204_800.0, 1, 1)
    );
    assert_eq!(
        resource("if totalmem > 90 % 15 cycles then restart"),
        (Resource::TotalMemoryShare, Greater, 90.0, 15, 15)
    );
    assert_eq!(
        resource("if mem >= 5 % for 2 times within 5 cycles then alert"),
        (Resource::MemoryShare, AtLeast, 5.0, 2, 5)
    );
    assert_eq!(resource("if cpu usage > 80% for 2 cycles then alert"), (Resource::Cpu, Greater, 80.0, 2, 2));
    assert_eq!(resource("if total cpu gt 60 then stop"), (Resource::TotalCpu, Greater, 60.0, 1, 1));
    assert_eq!(resource("if children 250 then restart"), (Resource::Children, Greater, 250.0, 1, 1));
    assert_eq!(resource("if loadavg(5min) > 10 for 8 cycles then stop"), (Resource::Load(5), Greater, 10.0, 8, 8));
    assert_eq!(resource("if mem > 1024 then alert"), (Resource::Memory, Greater, 1024.0, 1, 1));

    let connection = |clause: &str| match process(clause).tests.remove(0) {
        Test { condition: Condition::Connection(connection), rate, .. } => (connection, rate.cycles),
        other => panic!("{other:?}"),
    };
    let tcp = |host: &str, port| Endpoint::Tcp { host: host.into(), port };
    let plain = |to| Connection { to, http: None, timeout: Duration::from_secs(5) };
    assert_eq!(
        connection("if failed port 80 with timeout 5 seconds for 3 cycles then restart"),
        (plain(tcp("localhost", 80)), 3)
    );
    assert_eq!(
        connection(
            "if failed host 127.0.0.1 port 8080 protocol http and request '/health' with timeout 60 seconds for 2 cycles then restart"
        ),
        (Connection { to: tcp("127.0.0.1", 8080), http: Some("/health".into()), timeout: Duration::from_secs(60) }, 2)
    );
    assert_eq!(
        connection("if failed unixsocket /var/run/a.sock then restart").0,
        plain(Endpoint::Unix("/var/run/a.sock".into()))
    );
    assert_eq!(
        connection("if failed host 10.0.0.1 port 53 type udp then alert").0.to,
        Endpoint::Udp { host: "10.0.0.1".into(), port: 53 }
    );

    let test = process("if 5 restarts within 10 cycles then timeout").tests.remove(0);
    assert_eq!((test.condition, test.rate.cycles, test.action), (Condition::Restarts(5), 10, Reaction::Unmonitor));
    let test =
        process("if does not exist for 2 cycles then exec '/bin/note gone' as uid vcap else if succeeded then alert")
            .tests
            .remove(0);
    assert!(
        matches!(&test.action, Reaction::Exec(program) if program.arguments == ["/bin/note", "gone"] && program.uid.as_deref() == Some("vcap"))
    );
    assert_eq!((test.condition, test.otherwise), (Condition::Missing, Some(Reaction::Alert)));

    let file = one(
        "check file cert with path /etc/cert.pem if changed timestamp then restart if timestamp > 2 hours then alert group vcap",
    );
    assert_eq!(file.kind, Kind::File { path: "/etc/cert.pem".into() });
    assert_eq!(file.tests[0].condition, Condition::Changed(Property::Timestamp));
    assert_eq!(file.tests[1].condition, Condition::Age { operator: Greater, limit: 7200 });
    let host = one("check host gw address 10.0.0.1 if failed port 22 then alert");
    assert!(matches!(&host.tests[0].condition, Condition::Connection(it) if it.to == tcp("10.0.0.1", 22)));
    let moded = process("mode manual every 3 cycles");
    assert_eq!((moded.mode, moded.every), (Mode::Manual, 3));
}

#[test]
fn statements_are_not_bound_to_lines_and_several_services_follow_each_other() {
    let text = "check process a pidfile /a start\nprogram\n\"/a start\" check process b\npidfile /b group x group y";
    let file = parse("f", text).unwrap();
    assert_eq!(file.services.iter().map(|service| service.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(file.services[1].line, 3);
    assert_eq!(file.services[1].groups, ["x", "y"]);
}

#[test]
fn what_only_concerns_mail_is_passed_over_and_said() {
    let text = "set daemon 10 with start delay 3\ncheck process a pidfile /a\n  alert me@example.com only on { timeout, restart }\n  noalert you@example.com\n  group vcap";
    let file = parse("f", text).unwrap();
    // `start delay` looks like a clause; it is one of the daemon's settings, which no job has.
    assert_eq!(file.services.len(), 1);
    assert_eq!(file.services[0].groups, ["vcap"]);
    assert_eq!(file.ignored.len(), 3, "{:?}", file.ignored);
}

#[test]
fn what_is_not_understood_is_refused_with_file_line_and_clause() {
    let error = refused("  group vcap\n  onreboot laststate");
    assert_eq!((error.line, error.clause.as_str()), (4, "onreboot laststate"));
    assert_eq!(error.to_string(), "job.monitrc, line 4: this clause is not known: onreboot laststate");
    for (clauses, expected) in [
        ("if uptime > 3 days then alert", "this test is not known"),
        ("if totalmem > 200 Parsec then alert", "'then' is expected"),
        ("if totalmem > 200Parsec then alert", "B, KB, MB, GB or % is expected"),
        ("if cpu > 3 MB then alert", "this is counted without a unit"),
        ("if failed port 80 protocol mysql then alert", "only the protocol http"),
        ("if failed port 80 send 'x' then alert", "this part of a connection test"),
        ("if failed port 70000 then alert", "1 to 65535"),
        ("if failed type tcp then alert", "a port or a unixsocket"),
        ("if cpu > 3 for 100 cycles then alert", "1 to 64 cycles"),
        ("if cpu > 3 for 5 times within 3 cycles then alert", "more often"),
        ("if cpu > 3 then explode", "unmonitor, timeout or exec"),
        ("start program \"ctl start\"", "begins with /"),
        ("start program", "a program is expected"),
        ("if changed size then alert", "processes have a pid"),
        ("\"loose text\"", "a clause is expected"),
        ("include /etc/x", "'include' is not for jobs"),
    ] {
        let error = refused(clauses);
        assert!(error.message.contains(expected), "{clauses}: {error}");
        assert_eq!(error.line, 3, "{clauses}: {error}");
    }
    assert!(parse("f", "check program x with path /a").unwrap_err().message.contains("only process"));
    assert!(parse("f", "check process x matching 'y'").unwrap_err().message.contains("'pidfile' is expected"));
    assert!(parse("f", "check process x pidfile run/x").unwrap_err().message.contains("begins with /"));
    assert!(parse("f", " {\"processes\": []}").unwrap_err().message.contains("Windows"));
    assert!(parse("f", "check process x pidfile /x start \"/a").unwrap_err().message.contains("quotes without an end"));
}

proptest! {
    #[test]
    fn any_text_is_understood_or_refused(text in "\\PC{0,200}") {
        let _ = parse("f", &text);
    }

    #[test]
    fn any_order_of_known_words_is_understood_or_refused_with_a_line(
        words in proptest::collection::vec(proptest::sample::select(vec![
            "check", "process", "file", "web", "pidfile", "/p", "start", "stop", "program", "=", "\"/a b\"", "group", "if",
            "failed", "port", "80", "then", "alert", "restart", "else", "for", "3", "cycles", "times", "within", "totalmem",
            ">", "200", "MB", "%", "depends", "on", ",", "{", "}", "set", "mode", "every", "\n", "does", "not", "exist",
        ]), 0..60)
    ) {
        let text = words.join(" ");
        if let Err(error) = parse("f", &text) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count().max(1));
        }
    }
}
