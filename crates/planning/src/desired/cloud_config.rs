//! The cloud config: what the clouds offer.

use std::collections::BTreeSet;

use windlass_contract::{MiB, Object};
use windlass_manifest::fields::meant;
use windlass_manifest::{At, Document};

use super::compilation::Compilation;
use super::fields::Fields;
use super::findings::{Findings, Placed};
use super::instance_group::VmSize;
use super::networks::{NetworkDefinition, read_network};

/// All cloud configs together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CloudConfig {
    pub azs: Vec<Az>,
    /// Sizes of VMs.
    pub vm_types: Vec<VmType>,
    /// Extra properties of VMs.
    pub vm_extensions: Vec<VmType>,
    /// Sizes of disks.
    pub disk_types: Vec<DiskType>,
    pub networks: Vec<NetworkDefinition>,
    /// How packages are compiled.
    pub compilation: Option<Compilation>,
    /// References from one part to another, with the documents that they stand in: they may cross documents.
    references: Vec<(String, Section, Placed<String>)>,
    /// Sections with an entry that could not be read, about which "there is no such thing" would be misleading.
    unreadable: BTreeSet<Section>,
}

/// A part of the cloud config that is looked into by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    Azs,
    VmTypes,
    VmExtensions,
    DiskTypes,
    Networks,
}

impl Section {
    const ALL: [Self; 5] = [Self::Azs, Self::VmTypes, Self::VmExtensions, Self::DiskTypes, Self::Networks];

    fn key(self) -> &'static str {
        match self {
            Self::Azs => "azs",
            Self::VmTypes => "vm_types",
            Self::VmExtensions => "vm_extensions",
            Self::DiskTypes => "disk_types",
            Self::Networks => "networks",
        }
    }

    fn one(self) -> &'static str {
        match self {
            Self::Azs => "az",
            Self::VmTypes => "vm_type",
            Self::VmExtensions => "vm_extension",
            Self::DiskTypes => "disk_type",
            Self::Networks => "network",
        }
    }
}

/// An availability zone.
#[derive(Debug, Clone, PartialEq)]
pub struct Az {
    pub name: String,
    /// The CPI that serves it; the default one when it does not say.
    pub cpi: Option<String>,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

/// A size of VM, or an extension of one.
#[derive(Debug, Clone, PartialEq)]
pub struct VmType {
    pub name: String,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

/// A size of disk.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskType {
    pub name: String,
    pub size: MiB,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

/// What a cloud config may have.
const KEYS: [&str; 6] = ["azs", "vm_types", "vm_extensions", "disk_types", "networks", "compilation"];

/// 4 PiB. What is larger is a mistake, such as bytes instead of MiB.
pub(super) const LARGEST_DISK: u64 = 1 << 32;

impl CloudConfig {
    /// Reads and adds one config; several are concatenated key by key. `document` is its name for [`check`](Self::check).
    pub fn read(&mut self, document_name: &str, document: &Document, findings: &mut Findings) {
        let at = document.root();
        let Some(keys) = findings.check(at.entries()) else { return };
        if !keys.iter().any(|(key, _)| KEYS.contains(key)) {
            findings.push(at.problem(format!("is no cloud config: it has none of {}", KEYS.join(", "))));
            return;
        }
        let Some(mut root) = Fields::of(&at, &KEYS, findings) else { return };
        for section in Section::ALL {
            let problems = root.findings().problems().len();
            for at in root.list(section.key()) {
                self.read_entry(section, document_name, &at, root.findings());
            }
            if root.findings().problems().len() > problems {
                self.unreadable.insert(section);
            }
        }
        if let Some(at) = root.optional("compilation") {
            if self.compilation.is_some() {
                root.findings().push(at.problem("another cloud config has 'compilation' already; keep it in one"));
            }
            self.read_compilation(document_name, &at, root.findings());
        }
    }

    fn read_entry(&mut self, section: Section, document_name: &str, at: &At<'_>, findings: &mut Findings) {
        let known: &[&str] = match section {
            Section::Azs => &["name", "cpi", "cloud_properties"],
            Section::VmTypes | Section::VmExtensions => &["name", "cloud_properties"],
            Section::DiskTypes => &["name", "disk_size", "cloud_properties"],
            Section::Networks => {
                if let Some((name, network)) = read_network(at, findings)
                    && self.is_new(section, &name, findings)
                {
                    let azs = network.azs().into_iter().cloned();
                    self.references.extend(azs.map(|az| (document_name.to_owned(), Section::Azs, az)));
                    self.networks.push(network);
                }
                return;
            }
        };
        let Some(mut fields) = Fields::of(at, known, findings) else { return };
        let name = fields.name();
        let cloud_properties = fields.object("cloud_properties");
        let (mut cpi, mut size) = (None, MiB(0));
        match section {
            Section::Azs => cpi = fields.optional_text("cpi").map(|cpi| cpi.value),
            Section::DiskTypes => size = MiB(fields.number("disk_size", 1, LARGEST_DISK).unwrap_or(1)),
            _ => {}
        }
        let Some(name) = name.filter(|name| self.is_new(section, name, fields.findings())) else { return };
        let name = name.value;
        match section {
            Section::Azs => self.azs.push(Az { name, cpi, cloud_properties }),
            Section::VmTypes => self.vm_types.push(VmType { name, cloud_properties }),
            Section::VmExtensions => self.vm_extensions.push(VmType { name, cloud_properties }),
            Section::DiskTypes => self.disk_types.push(DiskType { name, size, cloud_properties }),
            Section::Networks => {}
        }
    }

    fn is_new(&self, section: Section, name: &Placed<String>, findings: &mut Findings) -> bool {
        let is_taken = self.names(section).contains(&name.value.as_str());
        if is_taken {
            findings.push(name.problem(format!("the name '{}' is taken already", name.value)));
        }
        !is_taken
    }

    fn read_compilation(&mut self, document_name: &str, at: &At<'_>, findings: &mut Findings) {
        let Some(compilation) = Compilation::read(document_name, at, findings) else { return };
        let workers = &compilation.workers;
        let references = workers.networks.iter().map(|network| (Section::Networks, &network.name));
        let references = references.chain(workers.azs.iter().map(|az| (Section::Azs, az)));
        let extensions = workers.vm_extensions.iter().map(|extension| (Section::VmExtensions, extension));
        let kinds = workers.vm_size.iter().filter_map(|size| match size {
            VmSize::Type(name) => Some((Section::VmTypes, name)),
            VmSize::Resources(_) | VmSize::Properties(_) => None,
        });
        for (section, name) in references.chain(extensions).chain(kinds) {
            self.references.push((document_name.to_owned(), section, name.clone()));
        }
        self.compilation = Some(compilation);
    }

    /// Checks what one part says about another, once all configs were read.
    pub fn check(&self, findings: &mut Findings) {
        for (document, section, name) in &self.references {
            findings.begin(document.clone());
            self.find(*section, name, findings);
        }
    }

    /// Whether everything in a section could be read.
    pub(super) fn is_readable(&self, section: Section) -> bool {
        !self.unreadable.contains(&section)
    }

    fn names(&self, section: Section) -> Vec<&str> {
        match section {
            Section::Azs => self.azs.iter().map(|az| az.name.as_str()).collect(),
            Section::VmTypes => self.vm_types.iter().map(|vm_type| vm_type.name.as_str()).collect(),
            Section::VmExtensions => self.vm_extensions.iter().map(|extension| extension.name.as_str()).collect(),
            Section::DiskTypes => self.disk_types.iter().map(|disk_type| disk_type.name.as_str()).collect(),
            Section::Networks => self.networks.iter().map(|network| network.name.as_str()).collect(),
        }
    }

    /// Whether there is something of that name; if not, the finding stands where it was named.
    pub(super) fn find(&self, section: Section, name: &Placed<String>, findings: &mut Findings) -> bool {
        if findings.is_full() {
            return false;
        }
        let names = self.names(section);
        let found = names.contains(&name.value.as_str());
        if !found && self.is_readable(section) {
            let hint = what_there_is(&name.value, &names);
            let message = format!("the {} '{}' is not in the cloud config{hint}", section.one(), name.value);
            findings.push(name.problem(message));
        }
        found
    }
}

/// How many names are listed; more do not help.
const LISTED: usize = 10;

/// ` (did you mean 'default'?)`, or the names that there are.
fn what_there_is(name: &str, names: &[&str]) -> String {
    if let Some(meant) = meant(name, names) {
        return format!(" (did you mean '{meant}'?)");
    }
    let listed = names.iter().take(LISTED).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => ", which has none".to_owned(),
        count if count > LISTED => format!(", which has {listed} and {} more", count - LISTED),
        _ => format!(", which has {listed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::networks::NetworkPlacement;
    use super::*;

    fn read(documents: &[&str]) -> (CloudConfig, String) {
        let (mut config, mut findings) = (CloudConfig::default(), Findings::new());
        for (number, yaml) in documents.iter().enumerate() {
            findings.begin(format!("cloud config '{number}'"));
            config.read(&format!("cloud config '{number}'"), &Document::parse(yaml).unwrap(), &mut findings);
        }
        config.check(&mut findings);
        (config, findings.to_string())
    }

    #[test]
    fn a_cloud_config_is_read() {
        let (config, problems) = read(&[
            "azs:\n- name: z1\n  cloud_properties: {zone: a}\nvm_types:\n- name: small\ndisk_types:\n- name: d\n  disk_size: 1024\nnetworks:\n- name: n\n  subnets:\n  - range: 10.0.0.0/24\n    gateway: 10.0.0.1\n    reserved: [10.0.0.2 - 10.0.0.9]\n    static: 10.0.0.20\n    azs: [z1]\n- name: d\n  type: dynamic\n- name: pub\n  type: vip\n  subnets: [{static: [203.0.113.10 - 203.0.113.12]}]\n",
        ]);
        assert_eq!(problems, "");
        assert_eq!(config.azs[0].cloud_properties["zone"], "a");
        let NetworkPlacement::Manual(subnets) = &config.networks[0].placement else { panic!("manual") };
        let pool: Vec<_> = subnets[0].pool().iter().map(ToString::to_string).collect();
        assert_eq!(pool, ["10.0.0.10 - 10.0.0.19", "10.0.0.21 - 10.0.0.254"]);
        assert!(matches!(config.networks[1].placement, NetworkPlacement::Dynamic(_)));
        let NetworkPlacement::Vip { pool, .. } = &config.networks[2].placement else { panic!("vip") };
        assert_eq!(pool[0].size(), 3);
    }

    #[test]
    fn another_document_is_not_taken_for_a_cloud_config() {
        assert!(read(&["name: redis\n"]).1.contains("is no cloud config"));
        assert_eq!(read(&[""]).1.lines().count(), 1);
    }

    #[test]
    fn all_problems_are_named_at_once_with_path_and_line() {
        let (_, problems) = read(&[
            "azs:\n- name: z1\n- name: z1\ndisk_types:\n- name: d\n  disk_size: -5\nnetworks:\n- name: n\n  subnets:\n  - range: 10.0.0.0/24\n    gateway: 10.1.0.1\n  - range: 10.0.0.128/25\n",
        ]);
        for expected in [
            "azs[1].name: the name 'z1' is taken already (line 3)",
            "disk_types[0].disk_size: expected a whole number from 1 to 4294967296, found -5 (line 6)",
            "networks[0].subnets[0].gateway: 10.1.0.1 is not in the range 10.0.0.0/24 (line 11)",
            "networks[0].subnets[1]: the range 10.0.0.128/25 overlaps 10.0.0.0/24 (line 12)",
        ] {
            assert!(problems.contains(&format!("in the cloud config '0': {expected}")), "{expected} in: {problems}");
        }
        assert_eq!(problems.lines().count(), 4, "one line each, and each once: {problems}");
    }

    #[test]
    fn every_wrong_subnet_is_refused_where_it_is_wrong() {
        for (subnet, path, message) in [
            ("range: 10.0.0.5/32", "range", "is a single address"),
            ("range: 10.0.0.0/33", "range", "expected a range"),
            ("range: [1]", "range", "expected a string"),
            ("gateway: 10.0.0.1", "range", "is required"),
            ("{range: 10.0.0.0/24, gateway: 10.0.0.0}", "gateway", "is the id"),
            ("{range: 10.0.0.0/24, gateway: 10.0.0.255}", "gateway", "is the id or the broadcast"),
            ("{range: 10.0.0.0/24, gateway: 10.0.0.1-10.0.0.2}", "gateway", "a single address"),
            ("{range: 10.0.0.0/24, reserved: [10.0.1.0/30]}", "reserved[0]", "is not in the subnet's range"),
            ("{range: 10.0.0.0/24, static: 10.0.1.4}", "static", "is not in the subnet's range"),
            ("{range: 10.0.0.0/24, reserved: [10.0.0.4 - 10.0.0.9], static: [10.0.0.9]}", "static[0]", "overlaps"),
            ("{range: 10.0.0.0/24, gateway: 10.0.0.1, static: [10.0.0.1]}", "static[0]", "overlaps 10.0.0.1"),
            ("{range: 10.0.0.0/24, static: [10.0.0.9 - 10.0.0.1]}", "static[0]", "from a lower to a higher"),
            ("{range: 10.0.0.0/24, az: z1, azs: [z1]}", "azs", "either 'az' or 'azs'"),
            ("{range: 10.0.0.0/24, azs: []}", "azs", "is empty"),
            ("{range: 10.0.0.0/24, azs: [z9]}", "azs[0]", "the az 'z9' is not in the cloud config"),
            ("{range: 10.0.0.0/24, dns: [nowhere]}", "dns[0]", "is not an address"),
            ("{range: 'fd00::/64', gateway: 10.0.0.1}", "gateway", "is not in the range"),
            ("{range: 10.0.0.0/24, prefix: 28}", "prefix", "not supported"),
            ("7", "", "expected an object"),
        ] {
            let subnet =
                if subnet.starts_with('{') || subnet == "7" { subnet.to_owned() } else { format!("{{{subnet}}}") };
            let (_, problems) =
                read(&[&format!("azs: [{{name: z1}}]\nnetworks: [{{name: n, subnets: [{subnet}]}}]\n")]);
            let path = if path.is_empty() { String::new() } else { format!(".{path}") };
            let expected = format!("networks[0].subnets[0]{path}: ");
            assert!(problems.contains(&expected) && problems.contains(message), "{expected}{message} in: {problems}");
            assert_eq!(problems.lines().count(), 1, "{problems}");
        }
    }

    #[test]
    fn several_configs_make_one_and_may_name_each_others_zones() {
        let networks = "networks: [{name: n, subnets: [{range: 10.0.0.0/24, azs: [z1]}]}]\n";
        assert_eq!(read(&[networks, "azs: [{name: z1}]\n"]).1, "");
        let (_, problems) = read(&[networks, "azs: [{name: z2}]\nnetworks: [{name: n, type: dynamic}]\n"]);
        assert!(problems.contains("in the cloud config '1': networks[0].name: the name 'n' is taken"), "{problems}");
        assert!(problems.contains("in the cloud config '0': networks[0].subnets[0].azs[0]: the az 'z1'"), "{problems}");
        let twice = "compilation: {workers: 1, network: n}\nazs: [{name: z1}]\n";
        assert!(read(&[networks, twice, "compilation: {workers: 0, network: x}\n"]).1.contains("keep it in one"));
    }
}
