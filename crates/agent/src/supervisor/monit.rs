//! BOSH's monit, for stemcells that bring it: a program of its own, driven over HTTP as the original agent does.
//!
//! - [`report`]: what it says about services.
//! - [`mail`]: what it says by itself.

mod mail;
mod report;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use windlass_durable::{file, kill_point};
use windlass_supervise::ServiceStatus;
use windlass_supervise::monit::fleet::Fleet;
use windlass_supervise::monit::{Kind, Service};
use windlass_supervise::protocol::Happening;

use super::{GROUP, STOP, SupervisorError, files, state_of};
use crate::layout::Base;
use crate::spec::Spec;
use crate::tasks::Tasks;
use mail::Letters;
use report::{MonitReport, Reported};

/// Where it listens, and where it sends mail to.
const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 2822);
const MAIL: ([u8; 4], u16) = ([127, 0, 0, 1], 2825);

/// The agent's credentials for monit, which listens to this machine alone.
const USER: &str = "vcap:random-password";

/// What newer ones want to hear twice, so that no page of a browser can ask. It need not be secret: the password is.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// How often it is asked before it counts as silent, and how often when it says that it is busy.
const TRIES: u32 = 20;
const TRIES_WHEN_BUSY: u32 = 300;

/// How often monit is restarted, and how often we look each time whether it did.
const RELOADS: u32 = 3;
const LOOKS: u32 = 10;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long an answer may be.
const LONGEST: u64 = 16 << 20;

/// monit, and what starts it.
#[derive(Debug)]
pub(crate) struct Monit {
    base: Base,
    address: SocketAddr,
    mail: SocketAddr,
    /// What ends it, and what starts it.
    commands: [Vec<String>; 2],
    /// Between two attempts.
    pause: Duration,
    letters: Arc<Letters>,
}

impl Monit {
    pub(super) fn new(base: Base, service_manager: &str) -> Self {
        let words = |words: [&str; 3]| words.map(str::to_owned).to_vec();
        let commands = match service_manager {
            "systemd" => [words(["systemctl", "kill", "monit"]), words(["systemctl", "start", "monit"])],
            _ => [words(["sv", "kill", "monit"]), words(["sv", "start", "monit"])],
        };
        let (address, mail) = (ADDRESS.into(), MAIL.into());
        Self { base, address, mail, commands, pause: Duration::from_secs(1), letters: Arc::default() }
    }

    /// Starts it, with what it needs to know the agent by, and listens for its mail.
    pub(super) fn resume(&self) -> Result<(), SupervisorError> {
        let user = self.base.path().join("monit/monit.user");
        file::write(&user, USER.as_bytes(), file::PRIVATE).map_err(files::failed(&user))?;
        Letters::receive(&self.letters, self.mail).map_err(SupervisorError::Mail)?;
        run(&self.commands[1])
    }

    /// Removes the files and restarts monit, so that it forgets all processes.
    pub(super) fn forget(&self) -> Result<(), SupervisorError> {
        files::remove(&self.base)?;
        self.reload()
    }

    pub(super) fn start(&self, spec: &Spec) -> Result<(), SupervisorError> {
        files::write(&self.base, &files::of_jobs(&self.base.jobs(), spec)?)?;
        self.reload()?;
        for service in self.report()?.in_group() {
            self.tell(&service.name, "start")?;
        }
        let stopped = self.base.stopped();
        file::remove_file(&stopped).map_err(files::failed(&stopped))
    }

    pub(super) fn stop(&self, tasks: &Tasks) -> Result<(), SupervisorError> {
        let deadline = Instant::now() + STOP;
        self.until(tasks, deadline, |services| names(services, |service| service.pending))?;
        for service in self.report()?.in_group() {
            self.tell(&service.name, "stop")?;
        }
        let stopped = self.base.stopped();
        file::write(&stopped, b"", file::PRIVATE).map_err(files::failed(&stopped))?;
        self.until(tasks, deadline, |services| {
            let errored = names(services, Reported::has_failed)?;
            if !errored.is_empty() {
                return Err(SupervisorError::NotStopped(errored));
            }
            names(services, |service| service.pending || service.monitor > 0)
        })?;
        self.stop_what_runs(tasks, deadline)
    }

    /// Newer ones run no stop program of a service that they do not look after, as none is after a drain. So it is run here.
    fn stop_what_runs(&self, tasks: &Tasks, deadline: Instant) -> Result<(), SupervisorError> {
        let files = files::read(&self.base)?;
        let fleet = Fleet::read(files.iter().map(|(name, text)| (name.as_str(), text.as_str())))?;
        let mut begun: BTreeMap<&str, Child> = BTreeMap::new();
        loop {
            let left: Vec<&Service> =
                fleet.services().filter(|it| it.groups.iter().any(|group| group == GROUP) && runs(it)).collect();
            if left.is_empty() {
                begun.into_values().for_each(wait_for);
                return Ok(());
            }
            for service in &left {
                let waits = fleet.dependants(&service.name).any(runs);
                if let (Some(stop), false, false) = (&service.stop, waits, begun.contains_key(service.name.as_str())) {
                    kill_point("before a stop program");
                    let failed = |reason| SupervisorError::StopProgram { service: service.name.clone(), reason };
                    begun.insert(&service.name, windlass_supervise::run_program(stop).map_err(failed)?);
                }
            }
            let can_stop = |service: &&Service| service.stop.is_some();
            if Instant::now() >= deadline || !left.iter().any(can_stop) {
                let names: Vec<String> =
                    left.into_iter().filter(can_stop).map(|service| service.name.clone()).collect();
                return if names.is_empty() { Ok(()) } else { Err(SupervisorError::Slow(names)) };
            }
            if tasks.pause(self.pause / 2) {
                return Err(SupervisorError::Cancelled);
            }
        }
    }

    /// Waits until `left` names nobody.
    fn until(
        &self,
        tasks: &Tasks,
        deadline: Instant,
        left: impl Fn(&[&Reported]) -> Result<Vec<String>, SupervisorError>,
    ) -> Result<(), SupervisorError> {
        loop {
            let report = self.report()?;
            let left = left(&report.in_group().collect::<Vec<_>>())?;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(SupervisorError::Slow(left));
            }
            if tasks.pause(self.pause / 2) {
                return Err(SupervisorError::Cancelled);
            }
        }
    }

    pub(super) fn unmonitor(&self) -> Result<(), SupervisorError> {
        self.report()?.in_group().try_for_each(|service| self.tell(&service.name, "unmonitor"))
    }

    pub(super) fn state(&self) -> &'static str {
        match self.services() {
            Err(error) => {
                tracing::warn!("{}", windlass_contract::explain(&error));
                "unknown"
            }
            Ok(_) if self.base.stopped().exists() => "stopped",
            Ok(services) => state_of(&services),
        }
    }

    pub(super) fn services(&self) -> Result<Vec<ServiceStatus>, SupervisorError> {
        Ok(self.report()?.in_group().map(Reported::status).collect())
    }

    pub(super) fn events(&self) -> Vec<Happening> {
        self.letters.all()
    }

    /// Restarts monit, so that it reads its files at once: a reload waits for the end of its cycle.
    fn reload(&self) -> Result<(), SupervisorError> {
        let before = self.report()?.incarnation;
        for _ in 0..RELOADS {
            kill_point("before monit is started anew");
            let restarted = run(&self.commands[0]).and_then(|()| run(&self.commands[1]));
            if let Err(error) = restarted {
                tracing::warn!("{}", windlass_contract::explain(&error));
            }
            for _ in 0..LOOKS {
                if self.try_report().is_ok_and(|report| report.incarnation != before) {
                    return Ok(());
                }
                std::thread::sleep(self.pause);
            }
        }
        Err(SupervisorError::NotReloaded(before))
    }

    fn report(&self) -> Result<MonitReport, SupervisorError> {
        let answer = self.insist("GET", "/_status2?format=xml", "", TRIES)?;
        Ok(MonitReport::read(&answer))
    }

    fn try_report(&self) -> Result<MonitReport, SupervisorError> {
        self.insist("GET", "/_status2?format=xml", "", 1).map(|answer| MonitReport::read(&answer))
    }

    fn tell(&self, service: &str, action: &str) -> Result<(), SupervisorError> {
        let path = percent_encoding::utf8_percent_encode(service, percent_encoding::NON_ALPHANUMERIC);
        self.insist("POST", &format!("/{path}"), &format!("action={action}&securitytoken={TOKEN}"), TRIES).map(drop)
    }

    /// Asks until it answers. Being busy is an answer that may be given for longer.
    fn insist(&self, method: &str, path: &str, body: &str, mut tries: u32) -> Result<String, SupervisorError> {
        let mut tries_when_busy = if tries > 1 { TRIES_WHEN_BUSY } else { 0 };
        loop {
            let source = match self.ask(method, path, body) {
                // Newer ones send a browser on to the page of the service when it is done.
                Ok((200 | 302 | 303, answer)) => return Ok(answer),
                Ok((503, _)) if tries_when_busy > 0 => {
                    tries_when_busy -= 1;
                    std::thread::sleep(self.pause);
                    continue;
                }
                Ok((status, answer)) => io::Error::other(format!("Request failed with {status}: {}", answer.trim())),
                Err(error) => error,
            };
            tries -= 1;
            if tries == 0 {
                return Err(SupervisorError::Monit { address: self.address, source });
            }
            std::thread::sleep(self.pause);
        }
    }

    /// One request over a connection of its own: the status and the body of the answer.
    fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let user = base64::engine::general_purpose::STANDARD.encode(USER);
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Basic {user}\r\nCookie: securitytoken={TOKEN}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
    }
}

/// Collects a program when it ends, however late.
fn wait_for(mut program: Child) {
    // Without a thread it stays a zombie until the agent ends.
    let _ = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || program.wait());
}

/// Whether the process of a service is there.
fn runs(service: &Service) -> bool {
    matches!(&service.kind, Kind::Process { pidfile } if windlass_supervise::process_of(pidfile).is_some())
}

fn names(services: &[&Reported], chosen: impl Fn(&Reported) -> bool) -> Result<Vec<String>, SupervisorError> {
    Ok(services.iter().filter(|service| chosen(service)).map(|service| service.name.clone()).collect())
}

fn run(words: &[String]) -> Result<(), SupervisorError> {
    let [program, arguments @ ..] = words else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let line = words.join(" ");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(SupervisorError::Start(io::Error::other(format!("'{line}' ended with {status}")))),
        Err(error) => Err(SupervisorError::Start(io::Error::new(error.kind(), format!("'{line}': {error}")))),
    }
}

#[cfg(test)]
mod tests;
