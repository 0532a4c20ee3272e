//! `windlass logs --follow` and `--num`: the ends of log files, and what is added to them: through agents, or over ssh where a
//! gateway is named or an agent is BOSH's.

use std::process::Command;

use windlass_contract::way_in::{Logs, WayIn, Work};

use crate::cli::{KeyArgs, LogsArgs};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::session::Session;
use crate::visit::{self, Host, Visit, programs, quoted};
use crate::way_in;

pub(super) async fn run(session: &mut Session<'_>, arguments: &LogsArgs) -> Result<(), Failure> {
    if !arguments.gateway.is_named() {
        let deployment = session.using_deployment()?;
        let places = way_in::places(session, &deployment, arguments.instances.as_ref()).await?;
        let wanted = WayIn { root: true, work: Work::Logs(wanted(arguments)) };
        match way_in::on_each(session.screen, &session.director, &deployment, &places, &wanted).await {
            Ok(()) => return Ok(()),
            Err((_, lost)) if lost.needs_ssh() => {}
            Err((number, lost)) => return Err(lost.at(&places[number])),
        }
    }
    let selected = [arguments.instances.as_ref()];
    visit::during(session, &arguments.gateway, &KeyArgs::default(), &selected, |screen, visit, hosts| {
        on(screen, visit, arguments, hosts)
    })
    .await
}

/// What agents are told.
fn wanted(arguments: &LogsArgs) -> Logs {
    let (agent, system) = (arguments.agent || arguments.all_logs, arguments.system || arguments.all_logs);
    Logs {
        of_jobs: arguments.all_logs || !(arguments.agent || arguments.system),
        jobs: arguments.jobs.clone(),
        filters: if arguments.jobs.is_empty() { arguments.filters.clone() } else { Vec::new() },
        agent,
        system,
        // Ten lines come first, as with tail.
        lines: if arguments.num == 0 { 10 } else { arguments.num },
        follow: arguments.follow,
        quiet: arguments.quiet,
    }
}

/// On hosts that let the user in.
pub(super) fn on(screen: &mut Screen, visit: &Visit<'_>, arguments: &LogsArgs, hosts: &[Host]) -> Result<(), Failure> {
    let program = |host: &Host| {
        let mut ssh = Command::new("ssh");
        // With a terminal, what runs there ends with the connection.
        ssh.arg("-tt").args(visit.options(host)).args(["-l", &host.user, "--"]);
        ssh.arg(host.address.to_string()).arg(command(arguments));
        (host.name(), ssh)
    };
    programs::run(screen, visit, hosts.iter().map(program).collect())
}

/// Among the system's logs are compressed, rotated and binary ones, which nobody wants to see.
const SYSTEM_LOGS: &str = "$(find /var/log -type f -not -name \\*.gz -and -not -name \\*.xz -and -not -name \\*.\\[1-9] \
                           -and -not -path /var/log/sysstat/\\* -and -not -wholename /var/log/wtmp \
                           -and -not -wholename /var/log/lastlog)";

/// As BOSH's client says it.
fn command(arguments: &LogsArgs) -> String {
    const JOBS: &str = "/var/vcap/sys/log";
    let mut tail = vec!["exec tail".to_owned()];
    tail.extend(arguments.follow.then(|| "-F".to_owned()));
    tail.extend((arguments.num > 0).then(|| format!("-n {}", arguments.num)));
    tail.extend(arguments.quiet.then(|| "-q".to_owned()));
    tail.extend((arguments.system || arguments.all_logs).then(|| SYSTEM_LOGS.to_owned()));
    tail.extend((arguments.agent || arguments.all_logs).then(|| "/var/vcap/bosh/log/current".to_owned()));
    if !arguments.jobs.is_empty() {
        tail.extend(arguments.jobs.iter().map(|job| format!("{JOBS}/{job}/*.log")));
    } else if !arguments.filters.is_empty() {
        tail.extend(arguments.filters.iter().map(|filter| format!("{JOBS}/{filter}")));
    } else if arguments.all_logs || !(arguments.agent || arguments.system) {
        tail.push(format!("{JOBS}/**/*.log $(if [ -f {JOBS}/*.log ]; then echo {JOBS}/*.log ; fi)"));
    }
    format!("sudo bash -c {}", quoted(&tail.join(" ")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, RemoteVerb, Verb};

    fn asked(line: &str) -> String {
        let Verb::Remote(RemoteVerb::Logs(arguments)) = Cli::parse_from(line.split(' ')).verb else { panic!("{line}") };
        command(&arguments)
    }

    #[test]
    fn hosts_are_asked_as_by_the_original() {
        assert_eq!(
            asked("windlass logs db -f --num 5 -q --job a --job b"),
            "sudo bash -c 'exec tail -F -n 5 -q /var/vcap/sys/log/a/*.log /var/vcap/sys/log/b/*.log'"
        );
        assert_eq!(asked("windlass logs --num 1 --agent"), "sudo bash -c 'exec tail -n 1 /var/vcap/bosh/log/current'");
        assert!(asked("windlass logs -f --only x'y").ends_with(r"/var/vcap/sys/log/x'\''y'"));
        assert!(asked("windlass logs -f").contains("/var/vcap/sys/log/**/*.log $(if"));
    }
}
