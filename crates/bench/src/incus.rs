//! `windlass bench incus`: what VMs on an Incus or LXD server cost, beside the bare calls for the same image in the same breath: make
//! the container, push its init and its settings, start it. The bare one's init opens a port, as the agent does.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use windlass_agent_client::{AGENT_PORT, Agent, AgentAccess, AgentClient, ClientTls};
use windlass_cloud_incus::client::{Client, Devices, Kind, NewInstance, Power, Pushed, Settings};
use windlass_cloud_incus::operator;
use windlass_contract::{AgentId, explain};
use windlass_installation::own_programs;
use windlass_pki::Authority;

use crate::arguments::BenchIncusArgs;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table, milliseconds, percentile};
use crate::scratch_cloud::{build_image, call_cpi, first_pong, request, result, text};
use crate::stop::Stop;

/// How often a bare container is asked whether it is there.
const PAUSE: Duration = Duration::from_millis(1);
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The room that settings of a real VM take.
const SETTINGS: usize = 4096;
/// Bare containers have addresses from here on, in the last byte.
const FIRST_BARE: u8 = 200;
const AIM: f64 = 1.3;

pub(crate) async fn measure(arguments: &BenchIncusArgs) -> Result<Report, BenchError> {
    let failed = |source| BenchError::Failed { doing: "measure VMs on Incus or LXD", source };
    if arguments.at_once > usize::from(u8::MAX - FIRST_BARE) {
        return Err(failed(io::Error::other("at most 55 at once have addresses")));
    }
    let held = operator::list(&arguments.config).await?;
    if let Some(found) = held.first() {
        let words = format!("the project has a {} '{}'; give an empty one", found.kind, found.cid);
        return Err(failed(io::Error::other(words)));
    }
    let mut stop = Stop::listen()?;
    let rig = IncusRig::new(arguments).await.map_err(failed)?;
    let measured = stop.or(rig.all(arguments)).await;
    let cleared = rig.clear(arguments).await;
    let figures = measured.map_err(failed)?;
    cleared.map_err(failed)?;
    Ok(figures.report(arguments))
}

struct IncusRig {
    _folder: tempfile::TempDir,
    command: Vec<OsString>,
    client: Client,
    authority: Authority,
    agents: AgentClient,
    stemcell: String,
}

/// A VM that the CPI made.
struct Vm {
    cid: String,
    agent: Agent,
    address: IpAddr,
}

#[derive(Default)]
struct IncusFigures {
    create_vm: Vec<Duration>,
    bare: Vec<Duration>,
    pong: Vec<Duration>,
    port: Vec<Duration>,
    at_once: Duration,
    bare_at_once: Duration,
}

impl IncusRig {
    async fn new(arguments: &BenchIncusArgs) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (executable, before) = own_programs::cpi_command()?;
        let config = std::path::absolute(&arguments.config)?;
        let command = std::iter::once(executable.into()).chain(before);
        let command = command.chain(["incus".into(), "--config".into(), config.into()]).collect();
        let authority = Authority::new().map_err(io::Error::other)?;
        let identity = authority.new_client().map_err(io::Error::other)?;
        let agents = AgentClient::new(ClientTls::new(&authority, &identity)).map_err(io::Error::other)?;
        let client = operator::client(&arguments.config).map_err(io::Error::other)?;
        build_image(folder.path())?;
        let image = folder.path().join("stemcell/image");
        let mut rig = Self { _folder: folder, command, client, authority, agents, stemcell: String::new() };
        let stemcell = rig.ok("create_stemcell", json!([image, {"name": "windlass-minimal", "version": "1"}])).await?;
        rig.stemcell = text(&stemcell)?;
        Ok(rig)
    }

    async fn ok(&self, method: &str, arguments: Value) -> io::Result<Value> {
        let answer = call_cpi(&self.command, &request(method, arguments), None).await?;
        answer.ok_or_else(|| io::Error::other("the CPI was killed")).and_then(|answer| result(method, &answer))
    }

    async fn vm(&self) -> io::Result<Vm> {
        let agent_id = AgentId::random();
        let access = AgentAccess::new(&self.authority, &agent_id, &[]).map_err(io::Error::other)?;
        let networks = json!({"default": {"type": "dynamic", "default": ["dns", "gateway"]}});
        let arguments = json!([agent_id, self.stemcell, {}, networks, [], {"bosh": access.env}]);
        let created = self.ok("create_vm", arguments).await?;
        let address: IpAddr = text(&created[1]["default"]["ip"])?.parse().map_err(io::Error::other)?;
        let agent = self.agents.agent(access.endpoint(agent_id, vec![address]));
        Ok(Vm { cid: text(&created[0])?, agent, address })
    }

    async fn all(&self, arguments: &BenchIncusArgs) -> io::Result<IncusFigures> {
        let mut figures = IncusFigures::default();
        let pattern = self.pattern().await?;
        // The first one unpacks the image into the pool.
        for round in 0..=arguments.runs {
            let begun = Instant::now();
            let vm = self.vm().await?;
            let created = begun.elapsed();
            first_pong(&vm.agent).await?;
            let pong = begun.elapsed();
            self.ok("delete_vm", json!([vm.cid])).await?;
            let begun = Instant::now();
            let address = self.bare(&pattern, 0).await?;
            let bare = begun.elapsed();
            first_connection(address).await?;
            let port = begun.elapsed();
            self.delete_bare(0).await?;
            if round > 0 {
                figures.create_vm.push(created);
                figures.pong.push(pong);
                figures.bare.push(bare);
                figures.port.push(port);
            }
        }
        let begun = Instant::now();
        let made = join_all((0..arguments.at_once).map(|_| async {
            let vm = self.vm().await?;
            first_pong(&vm.agent).await?;
            Ok::<_, io::Error>(vm)
        }))
        .await;
        figures.at_once = begun.elapsed();
        let made = made.into_iter().collect::<io::Result<Vec<Vm>>>()?;
        for deleted in join_all(made.iter().map(|vm| self.ok("delete_vm", json!([vm.cid])))).await {
            deleted?;
        }
        let (begun, pattern) = (Instant::now(), &pattern);
        let numbers: Vec<u8> = (0..arguments.at_once).filter_map(|number| u8::try_from(number).ok()).collect();
        let made = join_all(numbers.iter().map(|number| async move {
            let address = self.bare(pattern, *number).await?;
            first_connection(address).await
        }))
        .await;
        figures.bare_at_once = begun.elapsed();
        made.into_iter().collect::<io::Result<Vec<()>>>()?;
        for deleted in join_all(numbers.iter().map(|number| self.delete_bare(*number))).await {
            deleted?;
        }
        Ok(figures)
    }

    /// A container like those of the CPI, from one of them.
    async fn pattern(&self) -> io::Result<Pattern> {
        let vm = self.vm().await?;
        let read = self.client.instance(&vm.cid).await.map_err(io::Error::other)?.value;
        let mut config: Settings = serde_json::from_value(read["config"].clone())?;
        config.retain(|key, _| !key.starts_with("volatile.") && !key.starts_with("image."));
        let mut devices: Devices = serde_json::from_value(read["devices"].clone())?;
        for device in devices.values_mut() {
            device.retain(|key, _| key != "ipv4.address" && key != "hwaddr");
        }
        self.ok("delete_vm", json!([vm.cid])).await?;
        Ok(Pattern { config, devices, address: vm.address })
    }

    /// The bare calls: make, push, start. Answers where its port will be.
    async fn bare(&self, pattern: &Pattern, number: u8) -> io::Result<SocketAddr> {
        let IpAddr::V4(near) = pattern.address else { return Err(io::Error::other("the network has no IPv4")) };
        let [a, b, c, _] = near.octets();
        let address = IpAddr::from([a, b, c, FIRST_BARE + number]);
        let name = bare_name(number);
        let init = format!(
            "#!/bin/sh\nPATH=/bin:/sbin:/usr/bin:/usr/sbin\nip link set lo up\nip link set eth0 up\nip address add \
             {address}/24 dev eth0\nwhile :; do nc -l -p {AGENT_PORT} < /dev/null; done\n"
        );
        let new = NewInstance {
            name: name.clone(),
            kind: "container".to_owned(),
            profiles: Vec::new(),
            source: json!({"type": "image", "fingerprint": self.stemcell}),
            config: pattern.config.clone(),
            devices: pattern.devices.clone(),
        };
        self.client.create_instance(&new, None).await.map_err(io::Error::other)?;
        let file =
            |path: &str, mode, content: Vec<u8>| Pushed { path: path.to_owned(), kind: Kind::File, mode, content };
        // The stemcell has no such folder; the CPI makes it, too.
        let sbin = Pushed { path: "/sbin".to_owned(), kind: Kind::Directory, mode: "0755", content: Vec::new() };
        for pushed in [
            sbin,
            file("/sbin/init", "0755", init.into_bytes()),
            file("/var/vcap/bosh/warden-cpi-agent-env.json", "0600", vec![b' '; SETTINGS]),
        ] {
            self.client.push(&name, &pushed).await.map_err(io::Error::other)?;
        }
        self.client.power(&name, Power::Start).await.map_err(io::Error::other)?;
        Ok(SocketAddr::new(address, AGENT_PORT))
    }

    async fn delete_bare(&self, number: u8) -> io::Result<()> {
        let name = bare_name(number);
        // One that does not run is stopped.
        let _ = self.client.power(&name, Power::Stop).await;
        match self.client.delete_instance(&name).await {
            Err(error) if !error.is_missing() => Err(io::Error::other(explain(&error))),
            _ => Ok(()),
        }
    }

    /// Deletes everything, also after a failure: the project was empty.
    async fn clear(&self, arguments: &BenchIncusArgs) -> io::Result<()> {
        let held = operator::list(&arguments.config).await.map_err(io::Error::other)?;
        for vm in held.iter().filter(|held| held.kind == "vm") {
            match vm.cid.strip_prefix("bare-").and_then(|number| number.parse().ok()) {
                Some(number) => self.delete_bare(number).await?,
                None => self.ok("delete_vm", json!([vm.cid])).await.map(drop)?,
            }
        }
        self.ok("delete_stemcell", json!([self.stemcell])).await.map(drop)
    }
}

struct Pattern {
    config: Settings,
    devices: Devices,
    address: IpAddr,
}

fn bare_name(number: u8) -> String {
    format!("bare-{number}")
}

async fn first_connection(address: SocketAddr) -> io::Result<()> {
    let begun = Instant::now();
    while let Err(error) = tokio::net::TcpStream::connect(address).await {
        if begun.elapsed() > PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

impl IncusFigures {
    fn rows(&self, arguments: &BenchIncusArgs) -> [(String, Duration, Duration); 3] {
        let median = |times: &[Duration]| percentile(times, 50);
        [
            ("create_vm".to_owned(), median(&self.create_vm), median(&self.bare)),
            ("until the agent answers".to_owned(), median(&self.pong), median(&self.port)),
            (format!("{} at once, until all answer", arguments.at_once), self.at_once, self.bare_at_once),
        ]
    }

    fn report(&self, arguments: &BenchIncusArgs) -> Report {
        let ratio = |ours: Duration, bare: Duration| ours.as_secs_f64() / bare.as_secs_f64();
        let rows = self.rows(arguments);
        let quoted = rows.iter().map(|(what, ours, bare)| {
            let against = format!("{:.2} times the bare calls", ratio(*ours, *bare));
            Figure::new(format!("a VM on Incus or LXD: {what}"), milliseconds(*ours)).against(against)
        });
        let figures = quoted.collect();
        let mut notes = vec!["The aim: create_vm takes at most 1.3 times as long as the bare calls."];
        notes.extend(DEBUG_BUILD);
        let row = |(what, ours, bare): &(String, Duration, Duration)| {
            let ratio = ratio(*ours, *bare);
            let verdict = if what == "create_vm" && ratio > AIM { "missed" } else { "" };
            vec![
                what.clone(),
                milliseconds(*ours),
                milliseconds(*bare),
                format!("{ratio:.2} {verdict}").trim().to_owned(),
            ]
        };
        let table = Table {
            title: Some(format!("Medians of {} rounds, each way in turn", arguments.runs)),
            header: vec!["What", "By the CPI", "Bare Calls", "Ratio"],
            rows: rows.iter().map(row).collect(),
            notes,
            ..Table::default()
        };
        Report { tables: vec![table], figures }
    }
}
