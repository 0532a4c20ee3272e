//! What stands in for the command `monit`: the same words, and answers in the form that scripts of releases look for.
//!
//! ```text
//! The Monit daemon 5.2.5 uptime: 3h 2m
//!
//! Process 'web'                       running
//! Process 'worker'                    not monitored
//! System 'system_vm-1'                running
//! ```

use std::io::{self, Write};
use std::process::ExitCode;

use crate::client::{Client, ClientError};
use crate::machine::commands::{Command, Selection};
use crate::machine::status::{Health, ServiceStatus};

/// The version of monit whose output this is.
const VERSION: &str = "5.2.5";

const USAGE: &str =
    "Usage: monit [-g group] {start|stop|restart|monitor|unmonitor} {name|all} | summary | status | reload | -V
This is the supervisor of this VM, by the words of monit. It starts by itself, and reads the files of the jobs.
";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Verb {
    Summary,
    Status,
    Reload,
    Command(Command, Selection),
    Version,
    Usage,
}

/// Does what `arguments` say, those after the program's name, to the supervisor of `client`. `reload` gives it the files of the
/// jobs again.
pub fn run(
    arguments: &[String],
    client: &Client,
    reload: impl FnOnce() -> Result<(), String>,
    output: &mut dyn Write,
    errors: &mut dyn Write,
) -> ExitCode {
    let done = match parse(arguments) {
        Ok(verb) => perform(verb, client, reload, output),
        Err(reason) => Err(format!("{reason}\n{USAGE}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let _ = writeln!(errors, "monit: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Verb, String> {
    let (mut words, mut group) = (Vec::new(), None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "-V" | "--version" => return Ok(Verb::Version),
            "-h" | "--help" => return Ok(Verb::Usage),
            "-g" => group = Some(rest.next().ok_or("-g needs a group")?.clone()),
            // Where monit's own files are, which there are none of.
            "-c" | "-d" | "-l" | "-p" | "-s" => drop(rest.next()),
            "-v" | "-t" | "-I" | "-i" => {}
            word => words.push(word),
        }
    }
    let command = |name: &str| {
        Some(match name {
            "start" => Command::Start,
            "stop" => Command::Stop,
            "restart" => Command::Restart,
            "monitor" => Command::Monitor,
            "unmonitor" => Command::Unmonitor,
            _ => return None,
        })
    };
    match (&words[..], group) {
        (["summary"], _) => Ok(Verb::Summary),
        (["status"], _) => Ok(Verb::Status),
        (["reload"], _) => Ok(Verb::Reload),
        ([], _) => Ok(Verb::Usage),
        ([verb, rest @ ..], group) => {
            let Some(command) = command(verb) else { return Err(format!("invalid argument -- {verb}")) };
            match (rest, group) {
                ([] | ["all"], Some(group)) => Ok(Verb::Command(command, Selection::Group(group))),
                (["all"], None) => Ok(Verb::Command(command, Selection::All)),
                ([name], None) => Ok(Verb::Command(command, Selection::Service((*name).to_owned()))),
                ([], None) => Err(format!("please specify the configured service name or 'all' after {verb}")),
                _ => Err(format!("{verb} takes one service, or all, or the services of one group")),
            }
        }
    }
}

fn perform(
    verb: Verb,
    client: &Client,
    reload: impl FnOnce() -> Result<(), String>,
    output: &mut dyn Write,
) -> Result<(), String> {
    let failed = |error: ClientError| match error {
        ClientError::Unreachable { .. } => {
            "Status not available -- the monit daemon is not running; the agent starts it with the first job".to_owned()
        }
        other => other.to_string(),
    };
    let told = |written: io::Result<()>| written.map_err(|error| format!("cannot write: {error}"));
    match verb {
        Verb::Summary => told(summary(&client.status().map_err(failed)?, output)),
        Verb::Status => told(status(&client.status().map_err(failed)?, output)),
        Verb::Command(command, of) => client.command(command, of).map_err(failed),
        Verb::Reload => reload(),
        Verb::Version => {
            told(writeln!(output, "This is Monit version {VERSION}, as the supervisor of this VM speaks it"))
        }
        Verb::Usage => told(write!(output, "{USAGE}")),
    }
}

fn summary(services: &[ServiceStatus], output: &mut dyn Write) -> io::Result<()> {
    header(services, output)?;
    for service in services {
        writeln!(output, "{:<35} {}", title(service), in_words(service))?;
    }
    writeln!(output, "{:<35} {}", system(), of_system(services))
}

fn status(services: &[ServiceStatus], output: &mut dyn Write) -> io::Result<()> {
    header(services, output)?;
    for service in services {
        writeln!(output, "{}", title(service))?;
        let monitoring = match service.health {
            Health::Unmonitored => "not monitored",
            Health::Starting => "initializing",
            Health::Running | Health::Failing => "monitored",
        };
        let mut lines = vec![("status", in_words(service)), ("monitoring status", monitoring.to_owned())];
        if let Some(pid) = service.pid {
            lines.push(("pid", pid.to_string()));
            lines.push(("uptime", duration(service.uptime.unwrap_or_default() / 1000)));
        }
        if let Some(usage) = service.usage {
            lines.push(("memory kilobytes total", usage.memory.to_string()));
            lines.push(("memory percent total", format!("{:.1}%", usage.memory_share)));
            lines.push(("cpu percent total", format!("{:.1}%", usage.cpu)));
        }
        if let Some(fault) = &service.fault {
            lines.push(("last event", fault.clone()));
        }
        for (name, value) in lines {
            writeln!(output, "  {name:<33} {value}")?;
        }
        writeln!(output)?;
    }
    writeln!(output, "{}\n  {:<33} {}\n", system(), "status", of_system(services))
}

fn header(services: &[ServiceStatus], output: &mut dyn Write) -> io::Result<()> {
    let longest = services.iter().filter_map(|service| service.uptime).max().unwrap_or_default();
    writeln!(output, "The Monit daemon {VERSION} uptime: {} \n", duration(longest / 1000))
}

fn title(service: &ServiceStatus) -> String {
    let kind = if service.is_process { "Process" } else { "File" };
    format!("{kind} '{}'", service.name)
}

fn system() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("System 'system_{name}'")
}

/// With `stop all`, monit leaves the system alone, too; scripts wait for that.
fn of_system(services: &[ServiceStatus]) -> &'static str {
    let is_left = |service: &ServiceStatus| service.health == Health::Unmonitored && !service.is_pending;
    if !services.is_empty() && services.iter().all(is_left) { "not monitored" } else { "running" }
}

/// Only a service that runs and is to go on running ends in `running`: that is what scripts wait for.
fn in_words(service: &ServiceStatus) -> String {
    let up = if service.is_process { "running" } else { "accessible" };
    match service.health {
        Health::Unmonitored if service.has_stop_failed => "Execution failed".to_owned(),
        Health::Unmonitored if service.is_pending && service.pid.is_some() => format!("{up} - stop pending"),
        Health::Unmonitored if service.is_pending => "not monitored - stop pending".to_owned(),
        Health::Unmonitored => "not monitored".to_owned(),
        Health::Starting if service.is_pending => "not monitored - start pending".to_owned(),
        Health::Starting => "initializing".to_owned(),
        Health::Running => up.to_owned(),
        Health::Failing => service.event.clone().unwrap_or_else(|| "Does not exist".to_owned()),
    }
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}m"),
        (0, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h {minutes}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::status::Usage;

    fn parsed(line: &str) -> Result<Verb, String> {
        parse(&line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>())
    }

    fn service(name: &str, health: Health) -> ServiceStatus {
        ServiceStatus {
            name: name.into(),
            groups: vec!["vcap".into()],
            is_process: true,
            health,
            is_pending: false,
            is_stopped: false,
            has_stop_failed: false,
            pid: Some(7),
            uptime: Some(90_061_000),
            fault: None,
            event: None,
            usage: None,
        }
    }

    #[test]
    fn every_way_in_which_scripts_call_monit_is_understood() {
        let group = || Selection::Group("vcap".into());
        let web = || Selection::Service("web".into());
        for (line, verb) in [
            ("summary", Verb::Summary),
            ("-g vcap summary", Verb::Summary),
            ("status", Verb::Status),
            ("reload", Verb::Reload),
            ("start all", Verb::Command(Command::Start, Selection::All)),
            ("stop -g vcap", Verb::Command(Command::Stop, group())),
            ("-g vcap stop all", Verb::Command(Command::Stop, group())),
            ("stop -g vcap all", Verb::Command(Command::Stop, group())),
            ("restart web", Verb::Command(Command::Restart, web())),
            ("monitor web", Verb::Command(Command::Monitor, web())),
            ("-c /var/vcap/bosh/etc/monitrc -v unmonitor web", Verb::Command(Command::Unmonitor, web())),
            ("-V", Verb::Version),
            ("", Verb::Usage),
        ] {
            assert_eq!(parsed(line).unwrap(), verb, "{line}");
        }
        for (line, words) in [
            ("explode", "invalid argument -- explode"),
            ("start", "please specify"),
            ("start a b", "takes one service"),
            ("start web -g vcap", "takes one service"),
            ("start -g", "-g needs a group"),
        ] {
            assert!(parsed(line).unwrap_err().contains(words), "{line}");
        }
    }

    #[test]
    fn a_summary_has_the_words_that_scripts_wait_for() {
        let stopping = ServiceStatus { is_pending: true, is_stopped: true, ..service("b", Health::Unmonitored) };
        let failing = ServiceStatus { event: Some("Connection failed".into()), ..service("e", Health::Failing) };
        let services = [
            service("web", Health::Running),
            stopping.clone(),
            ServiceStatus { pid: None, ..stopping },
            service("c", Health::Unmonitored),
            ServiceStatus { is_pending: true, ..service("d", Health::Starting) },
            failing,
            service("f", Health::Failing),
        ];
        let mut output = Vec::new();
        summary(&services, &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "The Monit daemon 5.2.5 uptime: 1d 1h 1m ");
        assert_eq!(lines[1], "");
        assert_eq!(lines[2], "Process 'web'                       running");
        let ends: Vec<&str> = lines[3..9].iter().map(|line| line[36..].trim()).collect();
        let expected = [
            "running - stop pending",
            "not monitored - stop pending",
            "not monitored",
            "not monitored - start pending",
            "Connection failed",
            "Does not exist",
        ];
        assert_eq!(ends, expected);
        assert!(
            lines[9].starts_with("System 'system_") && lines[9].ends_with("' running")
                || lines[9].ends_with(" running")
        );
        let mut output = Vec::new();
        summary(&[service("c", Health::Unmonitored)], &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        assert!(text.lines().last().is_some_and(|line| line.starts_with("System") && line.ends_with("not monitored")));
    }

    #[test]
    fn a_status_tells_pid_uptime_and_what_processes_take() {
        let usage = Some(Usage { memory: 3248, memory_share: 0.25, cpu: 1.0 });
        let mut output = Vec::new();
        status(&[ServiceStatus { usage, ..service("web", Health::Running) }], &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        for line in [
            "Process 'web'\n",
            "  status                            running\n",
            "  monitoring status                 monitored\n",
            "  pid                               7\n",
            "  uptime                            1d 1h 1m\n",
            "  memory kilobytes total            3248\n",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
    }
}
