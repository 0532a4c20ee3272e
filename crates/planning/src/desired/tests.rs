//! Documents together: everything that is wrong is told at once, and nothing that anybody writes makes reading panic.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_contract::{MiB, StemcellCid};
use windlass_manifest::{Document, to_yaml};

use super::*;
use crate::records::{ConfigRecord, StemcellRecord};

const CLOUD: &str = "
azs: [{name: z1, cloud_properties: {zone: a}}, {name: z2}]
vm_types: [{name: small, cloud_properties: {cpu: 1}}]
vm_extensions: [{name: lb, cloud_properties: {lb: one, cpu: 2}}, {name: spot, cloud_properties: {lb: two}}]
disk_types: [{name: d, disk_size: 64, cloud_properties: {type: ssd}}]
networks:
- name: n
  subnets:
  - {range: 10.0.1.0/24, gateway: 10.0.1.1, reserved: [10.0.1.2 - 10.0.1.9], static: [10.0.1.20 - 10.0.1.29], azs: [z1]}
  - {range: 10.0.2.0/24, gateway: 10.0.2.1, static: [10.0.2.20 - 10.0.2.29], azs: [z2]}
- {name: dyn, type: dynamic}
- {name: pub, type: vip}
";
const MANIFEST: &str = "
name: d
stemcells: [{alias: default, os: os, version: latest}]
update: {canaries: 1, max_in_flight: 2, canary_watch_time: 1000-2000, update_watch_time: 1000}
tags: {team: a, level: deployment}
instance_groups:
- name: g
  instances: 2
  azs: [z1, z2]
  vm_type: small
  vm_extensions: [lb, spot]
  stemcell: default
  persistent_disk_type: d
  networks: [{name: n, default: [dns, gateway]}, {name: dyn}]
  tags: {level: group}
";

fn config(kind: &str, content: &str) -> ConfigRecord {
    ConfigRecord {
        id: 1,
        kind: kind.into(),
        name: "default".into(),
        content: content.into(),
        created_at: 0,
        team: None,
    }
}

fn stemcells(cpi: &str) -> Vec<StemcellRecord> {
    vec![StemcellRecord {
        id: 7,
        name: "s".into(),
        version: "1".into(),
        operating_system: "os".into(),
        cpi: cpi.into(),
        cid: StemcellCid::new("sc").unwrap(),
        api_version: None,
        deployments: Vec::new(),
    }]
}

fn resolved_with(manifest: &str, configs: &[ConfigRecord], stemcells: &[StemcellRecord]) -> (Desired, Findings) {
    let mut findings = Findings::new();
    let manifest = DeploymentManifest::read(&Document::parse(manifest).unwrap(), &mut findings);
    let Configs { cloud, runtime, cpis } = Configs::read(configs, &mut findings);
    let (links, compiled) = (LinksFrom::Records, BTreeSet::new());
    let wanted = Wanted {
        manifest: &manifest,
        cloud: &cloud,
        runtime: &runtime,
        cpis: &cpis,
        stemcells,
        releases: &[],
        compiled: &compiled,
        teams: &[],
        links,
        names: Default::default(),
    };
    let desired = resolve(wanted, &mut findings);
    (desired, findings)
}

fn with(manifest: &str) -> (Desired, Findings) {
    resolved_with(manifest, &[config("cloud", CLOUD)], &stemcells(""))
}

#[test]
fn names_are_looked_up_and_tags_and_extensions_merged_in_their_order() {
    let runtime = config("runtime", "tags: {level: runtime, from: runtime}\n");
    let (desired, findings) = resolved_with(MANIFEST, &[config("cloud", CLOUD), runtime], &stemcells(""));
    assert!(findings.is_clean() && findings.warnings().is_empty(), "{findings}");
    let group = &desired.groups[0];
    assert_eq!(Value::from(group.tags.clone()), json!({"level": "group", "from": "runtime", "team": "a"}));
    assert_eq!(Value::from(group.vm_extensions.clone()), json!({"lb": "two", "cpu": 2}));
    assert_eq!((group.disks[0].size, &group.disks[0].cloud_properties["type"]), (MiB(64), &json!("ssd")));
    assert_eq!(group.networks[0].default, ["dns", "gateway"]);
    assert_eq!(desired.stemcells, [7]);
}

#[test]
fn problems_of_manifest_cloud_config_and_lookups_are_told_at_once_and_each_once() {
    let manifest = MANIFEST
        .replace("azs: [z1, z2]", "azs: [z1, z9]")
        .replace("vm_type: small", "vm_type: huge")
        .replace("[lb, spot]", "[nope]")
        .replace("instances: 2", "instances: -2")
        .replace("persistent_disk_type: d", "persistent_disk_type: none")
        .replace("version: latest", "version: 9")
        .replace("{name: dyn}", "{name: nowhere}");
    let cloud = CLOUD.replace("disk_size: 64", "disk_size: big");
    let (_, findings) = resolved_with(&manifest, &[config("cloud", &cloud)], &stemcells(""));
    let problems = findings.to_string();
    for expected in [
        "instance_groups[0].instances: expected a whole number from 0 to 100000, found -2 (line 8)",
        "instance_groups[0].azs[1]: the az 'z9' is not in the cloud config, which has 'z1', 'z2' (line 9)",
        "instance_groups[0].vm_type: the vm_type 'huge' is not in the cloud config, which has 'small' (line 10)",
        "instance_groups[0].vm_extensions[0]: the vm_extension 'nope' is not in the cloud config, which has 'lb', 'spot' (line 11)",
        "instance_groups[0].networks[1].name: the network 'nowhere' is not in the cloud config, which has 'n', 'dyn', 'pub' (line 14)",
        "Stemcell version '9' for OS 'os' doesn't exist; uploaded: ",
        "in the cloud config 'default': disk_types[0].disk_size: expected a whole number from 1 to 4294967296, found a string (line 5)",
    ] {
        assert!(problems.contains(expected), "{expected} in:\n{problems}");
    }
    assert!(
        !problems.contains("the disk_type 'none'"),
        "disk types could not be read, so nothing is said about theirs"
    );
    assert_eq!(problems.lines().count(), 7, "{problems}");
}

#[test]
fn static_addresses_must_be_had_one_per_instance() {
    for (network, message) in [
        ("{name: n, static_ips: [10.0.1.20]}", "there are 1 static_ips for 2 instances"),
        ("{name: n, static_ips: [10.0.0.0/8]}", "there are 16777216 static_ips for 2 instances"),
        ("{name: n, static_ips: [10.0.1.20, 10.0.1.20]}", "10.0.1.20 is there already"),
        ("{name: n, static_ips: [10.0.1.20, 10.9.1.20]}", "10.9.1.20 is in no subnet"),
        ("{name: n, static_ips: [10.0.1.20, 10.0.1.5]}", "10.0.1.5 is reserved"),
        ("{name: n, static_ips: [10.0.1.20, 10.0.1.1]}", "10.0.1.1 is reserved, the gateway"),
        ("{name: n, static_ips: [10.0.1.20, 10.0.1.99]}", "not in 'static' of the subnet 10.0.1.0/24; add it there"),
        ("{name: n, static_ips: [10.0.1.20, here]}", "'here' is not an address"),
        ("{name: dyn, static_ips: [10.0.1.20, 10.0.1.21]}", "is dynamic"),
        ("{name: pub}", "the vip network 'pub' needs static_ips"),
    ] {
        let manifest = MANIFEST.replace("[{name: n, default: [dns, gateway]}, {name: dyn}]", &format!("[{network}]"));
        let (_, findings) = with(&manifest);
        assert!(findings.to_string().contains(message), "{message} in {findings}");
        assert!(findings.to_string().contains("instance_groups[0].networks[0]."), "{findings}");
    }
    let only_z1 = MANIFEST
        .replace("azs: [z1, z2]", "azs: [z1]")
        .replace("{name: dyn}", "{name: pub, static_ips: [10.7.0.1 - 10.7.0.2]}");
    assert!(with(&only_z1).1.is_clean());
    let elsewhere = only_z1.replace("{name: n,", "{name: n, static_ips: [10.0.1.20, 10.0.2.20],");
    assert!(with(&elsewhere).1.to_string().contains("10.0.2.20 is for other azs than the group's"));
}

#[test]
fn one_network_is_the_default_for_everything_and_of_several_the_manifest_says_which() {
    let networks = |networks: &str| {
        with(&MANIFEST.replace("[{name: n, default: [dns, gateway]}, {name: dyn}]", networks)).1.to_string()
    };
    assert_eq!(networks("[{name: n}]"), "");
    let problems = networks("[{name: n}, {name: dyn}]");
    assert!(problems.contains("default for 'dns'") && problems.contains("default for 'gateway'"), "{problems}");
    let problems = networks("[{name: n, default: [dns, gateway]}, {name: dyn, default: [dns]}]");
    assert!(problems.contains("instance_groups[0].networks[1].default[0]: another network"), "{problems}");
    assert!(networks("[{name: n, default: [everything]}]").contains("found 'everything'"));
    let many = |count: usize| (0..count).map(|it| format!("{{name: n{it}}}, ")).collect::<String>();
    assert!(networks(&format!("[{}]", many(65))).contains("has at most 64 networks"));
    assert!(!networks(&format!("[{}]", many(64))).contains("has at most 64 networks"));
    assert!(networks("[{name: n}, {name: n}]").contains("the network 'n' is there already"));
}

#[test]
fn zones_that_networks_do_not_reach_and_networks_that_need_zones_are_refused() {
    let narrow = CLOUD.replace("azs: [z2]}", "azs: [z1]}");
    let (_, findings) = resolved_with(MANIFEST, &[config("cloud", &narrow)], &stemcells(""));
    let expected = "instance_groups[0].networks[0].name: no subnet of 'n' reaches the az 'z2' (line 14)";
    assert_eq!(findings.to_string(), expected);
    let without = MANIFEST.replace("  azs: [z1, z2]\n", "");
    assert!(with(&without).1.to_string().contains("the subnets of 'n' name azs, so the group must name its own"));
}

#[test]
fn each_az_has_its_cpi_and_the_stemcell_must_be_there() {
    let cloud = CLOUD.replace("{name: z1, ", "{name: z1, cpi: a, ").replace("{name: z2}", "{name: z2, cpi: b}");
    let cpis = "cpis: [{name: a, type: x, migrated_from: [{name: ''}]}, {name: b, type: y}]\n";
    let configs = [config("cloud", &cloud), config("cpi", cpis)];
    let both: Vec<_> = [stemcells(""), stemcells("b")].concat();
    let (desired, findings) = resolved_with(MANIFEST, &configs, &both);
    assert!(findings.is_clean(), "{findings}");
    let zones: Vec<_> = desired.groups[0].zones.iter().map(|zone| zone.cpi.as_str()).collect();
    assert_eq!(zones, ["a", "b"]);
    assert_eq!(desired.groups[0].stemcells[0].cpi.as_str(), "a", "what the default CPI had is its successor's");
    let is_a = |name: &str| desired.is_same_cpi(&name.into(), &"a".into());
    assert!(is_a("") && !is_a("b"));
    let (_, findings) = resolved_with(MANIFEST, &configs, &stemcells(""));
    assert!(findings.to_string().contains("was not uploaded to the CPI 'b'"), "{findings}");
    let (_, findings) = resolved_with(MANIFEST, &configs[..1], &both);
    assert!(findings.to_string().contains("names the CPI 'a', but there is no cpi config"), "{findings}");
    let (_, findings) = resolved_with(MANIFEST, &[config("cloud", CLOUD), configs[1].clone()], &both);
    assert!(findings.to_string().contains("the az 'z1' names no 'cpi'"), "{findings}");
}

#[test]
fn hot_swap_falls_back_with_a_warning_where_addresses_are_given() {
    let swap = MANIFEST.replace("update: {", "update: {vm_strategy: create-swap-delete, ");
    let (desired, findings) = with(&swap);
    assert_eq!((desired.groups[0].strategy, findings.warnings().len()), (VmStrategy::CreateSwapDelete, 0));
    let fixed = swap.replace("{name: n,", "{name: n, static_ips: [10.0.1.20, 10.0.2.20],");
    let (desired, findings) = with(&fixed);
    assert_eq!(desired.groups[0].strategy, VmStrategy::DeleteCreate, "{findings}");
    assert!(findings.warnings()[0].to_string().contains("because of static_ips"));
}

fn leaves() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!("99999999999999999999")),
        prop::sample::select(vec![
            "",
            "z1",
            "n",
            "latest",
            "1.latest",
            "10.0.1.0/24",
            "10.0.1.5 - 10.0.1.2",
            "0.0.0.0/0",
            "::/0",
            "fd00::/64",
            "255.255.255.255",
            "10.0.1.20",
            "-1%",
            "50%",
            "300%",
            "1000-",
            "((x))",
            "a/b",
            "create-swap-delete",
            "errand",
        ])
        .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    leaves().prop_recursive(4, 32, 5, |inner| {
        let keys = prop::sample::select(vec![
            "name",
            "instances",
            "azs",
            "az",
            "vm_type",
            "networks",
            "subnets",
            "range",
            "static",
            "reserved",
            "gateway",
            "static_ips",
            "default",
            "instance_groups",
            "stemcells",
            "update",
            "persistent_disks",
            "type",
            "migrated_from",
            "cpis",
            "addons",
            "include",
            "tags",
            "variables",
            "features",
            "env",
            "vm_resources",
            "cpu",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..5).prop_map(|entries| {
                Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

/// Puts something else in the place of the `number`th value.
fn replace(value: &mut Value, number: &mut usize, with: &Value) {
    if *number == 0 {
        *value = with.clone();
        *number = usize::MAX;
        return;
    }
    if *number == usize::MAX {
        return;
    }
    *number -= 1;
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| replace(value, number, with)),
        Value::Object(object) => object.values_mut().for_each(|value| replace(value, number, with)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_document_makes_reading_panic(manifest in values(), cloud in values(), other in values()) {
        let configs = [
            config("cloud", &to_yaml(&cloud)), config("runtime", &to_yaml(&other)), config("cpi", &to_yaml(&other)),
        ];
        resolved_with(&to_yaml(&manifest), &configs, &stemcells(""));
    }

    #[test]
    fn a_good_document_with_something_else_in_one_place_is_read_or_refused(
        at in 0_usize..60, with in values(), in_cloud in any::<bool>(),
    ) {
        let (mut manifest, mut cloud) =
            (Document::parse(MANIFEST).unwrap().node().to_json(), Document::parse(CLOUD).unwrap().node().to_json());
        let mut number = at;
        replace(if in_cloud { &mut cloud } else { &mut manifest }, &mut number, &with);
        let (desired, findings) = resolved_with(&to_yaml(&manifest), &[config("cloud", &to_yaml(&cloud))], &stemcells(""));
        for finding in findings.problems() {
            prop_assert!(!finding.message.contains('\n'), "one line each: {finding:?}");
        }
        prop_assert!(!findings.is_clean() || desired.groups.len() <= 1);
    }
}

#[test]
fn who_misspells_a_name_of_the_cloud_config_is_told_which_one_was_meant() {
    let manifest = MANIFEST.replace("vm_type: small", "vm_type: smal");
    let (_, findings) = resolved_with(&manifest, &[config("cloud", CLOUD)], &stemcells(""));
    let problems = findings.to_string();
    assert!(
        problems.contains("the vm_type 'smal' is not in the cloud config (did you mean 'small'?) (line 10)"),
        "{problems}"
    );
}
