//! What a stemcell's image is: looked at once, when it is uploaded, and noted in the image's properties, so that making a VM
//! needs no look into it.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use windlass_archive::{Tarball, decompressed};
use windlass_contract::Object;
use windlass_contract::cpi::{CpiError, ErrorType};

use crate::client::{Settings, hex};

const AGENT: &str = "var/vcap/bosh/bin/bosh-agent";
const AGENT_CONFIG: &str = "var/vcap/bosh/agent.json";
/// Longer files are no configuration of an agent.
const LONGEST_CONFIG: u64 = 1024 * 1024;

/// What runs first in a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boot {
    /// The image's own init.
    Init,
    /// runit, which starts the agent; we start runit.
    Runit,
    /// The agent alone; we start it, and again when it ends.
    Agent,
}

/// What puts an address on a VM's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addressing {
    /// systemd-networkd, as in BOSH's stemcells.
    Networkd,
    /// systemd-networkd, which the image does not start by itself.
    NetworkdIsOff,
    /// `/etc/network/interfaces`.
    Interfaces,
    /// What runs first, because it is ours.
    Init,
}

/// What of an image decides about how its VMs are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nature {
    pub(crate) boot: Boot,
    pub(crate) addressing: Addressing,
    /// Where the agent looks for its settings.
    pub(crate) settings_path: String,
    /// What the agent is started with, if we start it.
    pub(crate) agent_flags: String,
    /// Whether `/sbin` is there.
    pub(crate) has_sbin: bool,
    /// Whether the agent asks a registry that it is told of.
    pub(crate) asks_registry: bool,
    /// Whether the agent is BOSH's, which wants some things to be otherwise than they are here.
    pub(crate) has_boshs_agent: bool,
    /// Whether systemd-networkd would wait for a udev that is not there.
    pub(crate) lacks_udev: bool,
}

const WORDS: [(&str, Boot, Addressing); 7] = [
    ("init-networkd", Boot::Init, Addressing::Networkd),
    ("init-networkd-off", Boot::Init, Addressing::NetworkdIsOff),
    ("init-interfaces", Boot::Init, Addressing::Interfaces),
    ("runit", Boot::Runit, Addressing::Init),
    ("agent", Boot::Agent, Addressing::Init),
    ("runit-without-sbin", Boot::Runit, Addressing::Init),
    ("agent-without-sbin", Boot::Agent, Addressing::Init),
];

impl Nature {
    /// As properties of the image.
    pub(crate) fn properties(&self) -> Settings {
        let suffix = if self.has_sbin || self.boot == Boot::Init { "" } else { "-without-sbin" };
        let fits = |(word, boot, addressing): &&(&str, Boot, Addressing)| {
            (*boot, *addressing) == (self.boot, self.addressing) && word.ends_with("-without-sbin") != suffix.is_empty()
        };
        let boot = WORDS.iter().find(fits).map_or("agent", |(word, ..)| word);
        let word = |is_so: bool| if is_so { "yes" } else { "no" };
        [
            ("windlass.boot", boot),
            ("windlass.settings", &self.settings_path),
            ("windlass.agent_flags", &self.agent_flags),
            ("windlass.registry", word(self.asks_registry)),
            ("windlass.remounts", word(self.has_boshs_agent)),
            ("windlass.lacks_udev", word(self.lacks_udev)),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    /// From the properties of an image; none if it is not one of ours.
    pub(crate) fn of(properties: &Settings) -> Option<Self> {
        let boot = properties.get("windlass.boot")?;
        let (word, boot, addressing) = WORDS.iter().find(|(word, ..)| word == boot)?;
        let is_so = |key: &str| properties.get(key).is_some_and(|word| word == "yes");
        Some(Self {
            boot: *boot,
            addressing: *addressing,
            settings_path: properties.get("windlass.settings")?.clone(),
            agent_flags: properties.get("windlass.agent_flags").cloned().unwrap_or_default(),
            has_sbin: !word.ends_with("-without-sbin"),
            asks_registry: is_so("windlass.registry"),
            has_boshs_agent: is_so("windlass.remounts"),
            lacks_udev: is_so("windlass.lacks_udev"),
        })
    }
}

/// What was seen while the image was read.
#[derive(Debug, Default)]
struct Seen {
    has_agent: bool,
    has_init: bool,
    has_sbin: bool,
    has_shell: bool,
    has_runit: bool,
    has_monit: bool,
    has_networkd: bool,
    has_udev: bool,
    networkd_is_on: bool,
    has_interfaces: bool,
    agent_config: Option<Vec<u8>>,
    platform: Option<String>,
}

impl Seen {
    fn entry(&mut self, path: &str, content: &mut impl Read) -> io::Result<()> {
        match path {
            AGENT => self.has_agent = true,
            "sbin/init" | "usr/sbin/init" => self.has_init = true,
            "bin/sh" | "usr/bin/sh" => self.has_shell = true,
            "usr/sbin/runsvdir-start" => self.has_runit = true,
            "var/vcap/bosh/bin/monit" => self.has_monit = true,
            "lib/systemd/systemd-networkd" | "usr/lib/systemd/systemd-networkd" => self.has_networkd = true,
            "lib/systemd/systemd-udevd" | "usr/lib/systemd/systemd-udevd" => self.has_udev = true,
            "etc/systemd/system/multi-user.target.wants/systemd-networkd.service" => self.networkd_is_on = true,
            "etc/network" | "etc/network/interfaces" => self.has_interfaces = true,
            "var/vcap/bosh/etc/operating_system" => {
                let mut text = String::new();
                content.take(LONGEST_CONFIG).read_to_string(&mut text)?;
                self.platform = Some(text.trim().to_owned());
            }
            AGENT_CONFIG => {
                let mut config = Vec::new();
                content.take(LONGEST_CONFIG).read_to_end(&mut config)?;
                self.agent_config = Some(config);
            }
            _ => {}
        }
        self.has_sbin |= path == "sbin" || path.starts_with("sbin/");
        Ok(())
    }

    fn nature(self) -> Result<Nature, String> {
        if !self.has_agent {
            return Err(format!("there is no agent at /{AGENT}; use a stemcell for containers"));
        }
        let config = self.agent_config.ok_or(format!("there is no /{AGENT_CONFIG}; use a stemcell for containers"))?;
        let config: Value =
            serde_json::from_slice(&config).map_err(|error| format!("/{AGENT_CONFIG} is not understood: {error}"))?;
        let settings = &config["Infrastructure"]["Settings"];
        let mut files = settings["Sources"].as_array().into_iter().flatten().filter(|source| source["Type"] == "File");
        let path = files.find_map(|source| source["SettingsPath"].as_str()).filter(|path| path.starts_with('/'));
        let settings_path = path.ok_or(format!(
            "its agent does not look for settings in a file, as /{AGENT_CONFIG} says; use a stemcell for containers"
        ))?;
        let (boot, addressing) = if self.has_init {
            let addressing = match (self.has_networkd, self.networkd_is_on, self.has_interfaces) {
                (true, true, _) => Addressing::Networkd,
                (true, false, false) => Addressing::NetworkdIsOff,
                (_, _, true) => Addressing::Interfaces,
                (false, ..) => {
                    return Err("nothing in it could set an address: it has neither systemd-networkd nor /etc/network; add one of \
                         them to the stemcell"
                        .to_owned());
                }
            };
            (Boot::Init, addressing)
        } else if self.has_shell {
            (if self.has_runit { Boot::Runit } else { Boot::Agent }, Addressing::Init)
        } else {
            return Err("it has neither /sbin/init nor /bin/sh, so nothing could run first; add one of them".to_owned());
        };
        let platform = self.platform.filter(|platform| !platform.is_empty()).unwrap_or_else(|| "ubuntu".to_owned());
        // An agent that needs monit to run jobs would not start without it.
        let without_monit = if self.has_monit || config["RunsJobs"] == true { "" } else { " -M dummy" };
        Ok(Nature {
            boot,
            addressing,
            settings_path: settings_path.to_owned(),
            agent_flags: format!("-P {platform} -C /{AGENT_CONFIG}{without_monit}"),
            has_sbin: self.has_sbin,
            asks_registry: settings["UseRegistry"] == true,
            has_boshs_agent: config["RunsJobs"] != true,
            lacks_udev: matches!(addressing, Addressing::Networkd | Addressing::NetworkdIsOff) && !self.has_udev,
        })
    }
}

/// Counts every byte of the file, whatever of it is decoded.
struct Hashed<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}

/// Reads the image at `path` once, to see what it is.
pub(crate) fn inspect(path: &Path) -> Result<Nature, CpiError> {
    let unusable = |reason: &str| CpiError::cloud(format!("the stemcell's image cannot be used: {reason}"));
    let file = File::open(path).map_err(|error| unusable(&format!("cannot read {}: {error}", path.display())))?;
    let mut file = BufReader::with_capacity(256 * 1024, file);
    let start = io::BufRead::fill_buf(&mut file).map_err(|error| unusable(&error.to_string()))?;
    refuse_others(start)?;
    let start = start.to_owned();
    let seen =
        scan(decompressed(&start, file)).map_err(|error| unusable(&format!("it is no tar, or is cut off: {error}")))?;
    seen.nature().map_err(|reason| unusable(&reason))
}

/// Images of virtual machines, and empty ones.
fn refuse_others(start: &[u8]) -> Result<(), CpiError> {
    if start.is_empty() {
        return Err(CpiError::new(
            ErrorType::NotSupported,
            "this is a light stemcell, and nothing is fetched from elsewhere; use a stemcell that has its image",
        ));
    }
    if start.starts_with(b"QFI\xfb") || start.starts_with(b"KDMV") {
        return Err(virtual_machines());
    }
    Ok(())
}

/// VMs that are no containers come later.
pub(crate) fn virtual_machines() -> CpiError {
    CpiError::new(
        ErrorType::NotSupported,
        "virtual machines ('instance_type: virtual-machine') are not supported yet; use a stemcell for containers \
         (warden-tar) and 'instance_type: container'",
    )
}

fn scan(reader: impl Read) -> io::Result<Seen> {
    let mut seen = Seen::default();
    Tarball::new(reader).each(
        |error| error,
        |entry| {
            let path = entry.path()?.to_string_lossy().into_owned();
            let path = path.trim_start_matches("./").trim_matches('/').to_owned();
            if path == "root.img" || path == "root.qcow2" {
                return Err(io::Error::other("it is the disk of a virtual machine; use a stemcell for containers"));
            }
            seen.entry(&path, entry)
        },
    )?;
    Ok(seen)
}

/// The metadata that stand beside an image, the same bytes for the same properties.
pub(crate) fn metadata(architecture: &str, properties: &Settings) -> io::Result<Vec<u8>> {
    // JSON is YAML, too. The date is part of the fingerprint, so it cannot be today's.
    let document = json!({"architecture": architecture, "creation_date": 1, "properties": properties}).to_string();
    let mut header = tar::Header::new_ustar();
    header.set_size(document.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    let gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::fast());
    let mut builder = tar::Builder::new(gzip);
    builder.append_data(&mut header, "metadata.yaml", document.as_bytes())?;
    builder.into_inner()?.finish()
}

/// What a daemon will know the image by: the hash of both parts.
pub(crate) fn fingerprint(metadata: &[u8], rootfs: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    hash.update(metadata);
    let mut hashed = Hashed { inner: File::open(rootfs)?, hash };
    io::copy(&mut hashed, &mut io::sink())?;
    Ok(hex(&hashed.hash.finalize()))
}

/// The architecture as daemons call it.
pub(crate) fn architecture(properties: &Object) -> Result<&'static str, CpiError> {
    match properties.get("architecture").and_then(Value::as_str).unwrap_or("x86_64") {
        "x86_64" | "amd64" => Ok("x86_64"),
        "aarch64" | "arm64" => Ok("aarch64"),
        other => {
            Err(CpiError::cloud(format!("the stemcell's architecture is '{other}'; use one of x86_64 and aarch64")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const CONFIG: &str = r#"{"Infrastructure": {"Settings": {"Sources": [{"Type": "File", "SettingsPath": "/s.json"}],
        "UseRegistry": true}}, "RunsJobs": true}"#;

    fn image(entries: &[(&str, &str)]) -> Result<Nature, CpiError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o755);
            builder.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        fs::write(&path, builder.into_inner().unwrap().finish().unwrap()).unwrap();
        inspect(&path)
    }

    #[test]
    fn each_kind_of_stemcell_is_known_and_its_properties_say_it_again() {
        let agent = (AGENT, "");
        let config = (AGENT_CONFIG, CONFIG);
        let minimal = image(&[agent, config, ("bin/sh", "")]).unwrap();
        assert_eq!((minimal.boot, minimal.addressing, minimal.has_sbin), (Boot::Agent, Addressing::Init, false));
        assert_eq!(minimal.agent_flags, "-P ubuntu -C /var/vcap/bosh/agent.json");
        let runit =
            image(&[agent, config, ("./usr/bin/sh", ""), ("usr/sbin/runsvdir-start", ""), ("sbin/x", "")]).unwrap();
        assert_eq!((runit.boot, runit.has_sbin), (Boot::Runit, true));
        let on = "etc/systemd/system/multi-user.target.wants/systemd-networkd.service";
        let systemd = [agent, config, ("sbin/init", ""), ("lib/systemd/systemd-networkd", "")];
        let ubuntu = image(&[&systemd[..], &[(on, "")]].concat()).unwrap();
        assert_eq!((ubuntu.boot, ubuntu.addressing), (Boot::Init, Addressing::Networkd));
        let debian = image(&systemd).unwrap();
        assert_eq!(debian.addressing, Addressing::NetworkdIsOff);
        let alpine = image(&[agent, config, ("sbin/init", ""), ("etc/network/interfaces", "")]).unwrap();
        assert_eq!(alpine.addressing, Addressing::Interfaces);
        let theirs = CONFIG.replace(r#", "RunsJobs": true"#, "");
        let original = image(&[agent, (AGENT_CONFIG, &theirs), ("bin/sh", "")]).unwrap();
        assert!(original.has_boshs_agent && !minimal.has_boshs_agent);
        let with_udev = image(&[&systemd[..], &[("usr/lib/systemd/systemd-udevd", "")]].concat()).unwrap();
        assert!(debian.lacks_udev && !with_udev.lacks_udev && !alpine.lacks_udev && !minimal.lacks_udev);
        for nature in [minimal, runit, ubuntu, debian, alpine, original, with_udev] {
            assert_eq!(Nature::of(&nature.properties()), Some(nature));
        }
        assert_eq!(Nature::of(&Settings::new()), None);
    }

    #[test]
    fn what_is_no_stemcell_for_containers_is_refused_with_the_reason() {
        let agent = (AGENT, "");
        for (entries, reason) in [
            (vec![("bin/sh", "")], "no agent"),
            (vec![agent], "no /var/vcap/bosh/agent.json"),
            (vec![agent, (AGENT_CONFIG, "{")], "not understood"),
            (vec![agent, (AGENT_CONFIG, "{}")], "settings in a file"),
            (vec![agent, (AGENT_CONFIG, CONFIG)], "nothing could run first"),
            (vec![agent, (AGENT_CONFIG, CONFIG), ("sbin/init", "")], "nothing in it could set an address"),
            (vec![("root.img", "")], "virtual machine"),
            (vec![agent, (&"x".repeat(8 << 20), "")], "more than 4 MiB"),
        ] {
            let error = image(&entries).unwrap_err();
            assert!(error.message.contains(reason), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        for (content, reason) in [
            (&b""[..], "light stemcell"),
            (b"QFI\xfb....", "virtual machines"),
            (b"\x1f\x8bgarbage", "no tar, or is cut off"),
        ] {
            fs::write(&path, content).unwrap();
            let error = inspect(&path).unwrap_err();
            assert!(error.message.contains(reason), "{error}");
        }
    }

    #[test]
    fn metadata_have_the_same_bytes_each_time() {
        let properties = Settings::from([("windlass.id".to_owned(), "a: \"b\"".to_owned())]);
        let once = metadata("x86_64", &properties).unwrap();
        assert_eq!(once, metadata("x86_64", &properties).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let rootfs = folder.path().join("image");
        fs::write(&rootfs, b"abc").unwrap();
        let expected = hex(&Sha256::digest([&once[..], b"abc"].concat()));
        assert_eq!(fingerprint(&once, &rootfs).unwrap(), expected);
    }
}
