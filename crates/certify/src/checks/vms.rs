//! VMs.

use serde_json::{Value, json};
use windlass_contract::cpi::ErrorType;

use super::unknown_cid;
use super::versions::v1_create;
use crate::check::Level::{Optional, Required, Warning};
use crate::check::{Check, NotPassed, Verdict, check};
use crate::made::Kind;
use crate::scene::{Scene, vm_cid};
use crate::settings::refusal;

pub(super) const CHECKS: &[Check] = &[
    check(
        "vms.v2-array",
        &[27],
        Required,
        "the director takes the first element; of a bare string that is its first letter, and the VM is lost",
        v2_array,
    ),
    check(
        "vms.v1-string",
        &[28],
        Required,
        "callers of version 1 store the whole answer as cid; a CPI without version 1 must say so",
        v1_string,
    ),
    check("vms.manual-network", &[29], Optional, "a VM must get the address that was planned for it", manual_network),
    check(
        "vms.manual-network-inside",
        &[29],
        Optional,
        "an agent with a wrong netmask, gateway or name server cannot be reached",
        manual_network_inside,
    ),
    check(
        "vms.prefix-and-nic-group",
        &[30],
        Optional,
        "current directors send prefix and nic_group as strings with every network",
        prefix_and_nic_group,
    ),
    check(
        "vms.dynamic-network",
        &[31],
        Optional,
        "a dynamic network has no address until the cloud gives one",
        dynamic_network,
    ),
    check(
        "vms.one-default-gateway",
        &[32],
        Optional,
        "two default routes make a VM unreachable in ways that are hard to find",
        one_default_gateway,
    ),
    check(
        "vms.unknown-stemcell",
        &[33],
        Required,
        "a VM that cannot be made must be an error before anything exists",
        unknown_stemcell,
    ),
    check(
        "vms.failed-create-leaves-nothing",
        &[33],
        Optional,
        "a VM that a failed call left runs, costs money and holds its address, and nobody knows its cid",
        failed_create_leaves_nothing,
    ),
    check(
        "vms.failed-create-frees-address",
        &[33, 74],
        Optional,
        "the director tries again with the same address; a leftover that holds it blocks the deployment",
        failed_create_frees_address,
    ),
    check(
        "vms.disk-cids",
        &[34],
        Required,
        "the fifth argument says which disks come later; one that is attached at once is attached twice",
        disk_cids,
    ),
    check("vms.env", &[35], Required, "create-env sends an empty env, the director a full one", env),
    check(
        "vms.env-verbatim",
        &[35],
        Optional,
        "the agent finds its message bus and its blobstores in env; what is lost there, it never learns",
        env_verbatim,
    ),
    check(
        "vms.settings",
        &[36],
        Optional,
        "without a registry the agent has nothing but these settings; one wrong type and it does not start",
        settings,
    ),
    check("vms.has-vm", &[37], Required, "the cloud check decides by this answer whether a VM is recreated", has_vm),
    check("vms.reboot", &[38], Optional, "the cloud check offers a reboot; the VM must be there afterwards", reboot),
    check(
        "vms.reboot-unknown",
        &[38],
        Optional,
        "a reboot of nothing that is said to have worked hides that the VM is lost",
        reboot_unknown,
    ),
    check(
        "vms.disk-survives",
        &[39],
        Required,
        "every recreate deletes a VM with its disk attached; the disk holds the data",
        disk_survives,
    ),
    check("vms.data-survives", &[39, 49], Optional, "a disk that comes back empty is lost data", |_| {
        Err(NotPassed::not_observed("needs an agent that mounts the disk in the VM"))
    }),
    check(
        "vms.calculate",
        &[40],
        Optional,
        "deployments that name CPU, RAM and disk need the cloud's own properties for them",
        calculate,
    ),
    check(
        "vms.calculate-absurd",
        &[40],
        Optional,
        "a size that the cloud does not have must be an error now, not a smaller VM later",
        calculate_absurd,
    ),
    check(
        "vms.answers-networks",
        &[27],
        Warning,
        "callers learn addresses that the cloud chose from the second element",
        answers_networks,
    ),
    check("vms.no-networks", &[33], Warning, "a VM without a network can never be reached", no_networks),
];

fn v2_array(scene: &Scene) -> Verdict {
    let answer = scene.answer("create_vm", scene.vm_arguments()?)?;
    vm_cid(&answer)?;
    match answer.success()?.get(1) {
        Some(Value::Object(_)) => Ok(()),
        other => Err(answer.fail(format!("the second element must be an object, not {}", json!(other)))),
    }
}

fn v1_string(scene: &Scene) -> Verdict {
    v1_create(scene, |ask| ask.version(1).stemcell(1))?;
    v1_create(scene, |ask| ask.no_version().stemcell(Value::Null))
}

/// A VM in these networks, with the networks that it answered.
fn in_networks(scene: &Scene, networks: Value) -> Result<(String, Value), NotPassed> {
    let mut arguments = scene.vm_arguments()?;
    arguments[3] = networks;
    let answer = scene.answer("create_vm", arguments)?;
    Ok((vm_cid(&answer)?, answer.success()?.get(1).cloned().unwrap_or_default()))
}

fn manual_network(scene: &Scene) -> Verdict {
    let network = scene.manual_network()?;
    let (_, answered) = in_networks(scene, json!({"default": network}))?;
    match answered.pointer("/default/ip") {
        Some(ip) if *ip != network["ip"] => {
            Err(NotPassed::failed(format!("asked for the address {}, it answered {ip}", network["ip"])))
        }
        _ => Ok(()),
    }
}

fn manual_network_inside(scene: &Scene) -> Verdict {
    let mut network = scene.manual_network()?;
    network["prefix"] = json!("32");
    let (vm, _) = in_networks(scene, json!({"default": network}))?;
    let settings = scene.settings(&vm)?;
    for key in ["ip", "netmask", "gateway", "dns"] {
        let told = settings.pointer(&format!("/networks/default/{key}")).unwrap_or(&Value::Null);
        if *told != network[key] {
            return Err(NotPassed::failed(format!("the agent is told {key} {told}, not {}", network[key])));
        }
    }
    Ok(())
}

fn prefix_and_nic_group(scene: &Scene) -> Verdict {
    let mut network = scene.manual_network()?;
    network["prefix"] = json!("32");
    network["nic_group"] = json!("0");
    in_networks(scene, json!({"default": network})).map(|_| ())
}

fn dynamic_network(scene: &Scene) -> Verdict {
    let (vm, answered) = in_networks(scene, json!({"default": scene.dynamic_network()?}))?;
    let has_address = |value: Option<&Value>| value.and_then(Value::as_str).is_some_and(|ip| !ip.is_empty());
    if has_address(answered.pointer("/default/ip")) {
        return Ok(());
    }
    let settings = scene.settings(&vm);
    if settings.is_ok_and(|settings| has_address(settings.pointer("/networks/default/ip"))) {
        return Ok(());
    }
    Err(NotPassed::not_observed("the VM was made; which address it has is not in the answer"))
}

fn one_default_gateway(scene: &Scene) -> Verdict {
    let mut second = scene.manual_network()?;
    if let Some(network) = second.as_object_mut() {
        network.shift_remove("default");
    }
    let (vm, _) = in_networks(scene, json!({"first": scene.network(), "second": second}))?;
    let settings = scene.settings(&vm)?;
    let networks = settings["networks"].as_object().cloned().unwrap_or_default();
    let is_default =
        |network: &Value| network["default"].as_array().is_some_and(|default| default.contains(&json!("gateway")));
    let defaults: Vec<_> = networks.iter().filter(|(_, network)| is_default(network)).map(|(name, _)| name).collect();
    if defaults == ["first"] {
        Ok(())
    } else {
        Err(NotPassed::failed(format!("the default gateways are {defaults:?}")))
    }
}

fn unknown_stemcell(scene: &Scene) -> Verdict {
    let mut arguments = scene.vm_arguments()?;
    arguments[1] = json!(unknown_cid());
    scene.answer("create_vm", arguments)?.refusal("although there is no such stemcell")?;
    Ok(())
}

fn failed_create_leaves_nothing(scene: &Scene) -> Verdict {
    let mut arguments = scene.vm_arguments()?;
    let before = scene.list()?;
    arguments[1] = json!(unknown_cid());
    let answer = scene.answer("create_vm", arguments)?;
    answer.error("although there is no such stemcell")?;
    let left: Vec<_> = scene.list()?.difference(&before).cloned().collect();
    if left.is_empty() { Ok(()) } else { Err(answer.fail(format!("the failed call left {}", left.join(", ")))) }
}

fn failed_create_frees_address(scene: &Scene) -> Verdict {
    let mut arguments = scene.vm_arguments()?;
    arguments[3] = json!({"default": scene.manual_network()?});
    let stemcell = std::mem::replace(&mut arguments[1], json!(unknown_cid()));
    let failed = scene.answer("create_vm", arguments.clone())?;
    failed.error("although there is no such stemcell")?;
    arguments[1] = stemcell;
    let again = scene.answer("create_vm", arguments)?;
    match &again.valid()?.error {
        None => Ok(()),
        Some(error) => {
            let what = format!("after a failed call the same VM could not be made: {}", error.message);
            Err(NotPassed::Failed(what, vec![failed, again]))
        }
    }
}

fn disk_cids(scene: &Scene) -> Verdict {
    let disk = scene.new_disk_near(&scene.vm()?)?;
    for disks in [json!([]), json!(null), json!([disk])] {
        let mut arguments = scene.vm_arguments()?;
        arguments[4] = disks;
        let vm = vm_cid(&scene.answer("create_vm", arguments)?)?;
        let listed = scene.answer("get_disks", json!([vm]))?;
        // Some list the disks that are the VM's own as well.
        if let Some(attached) = listed.success_or(&[ErrorType::NotImplemented])?
            && attached.as_array().is_some_and(|attached| attached.contains(&json!(disk)))
        {
            return Err(listed.fail("a disk was attached that create_vm only announced"));
        }
    }
    Ok(())
}

fn full_env() -> Value {
    json!({"bosh": {
        "mbus": {"urls": ["https://mbus:certify-password@0.0.0.0:6868"],
            "cert": {"ca": "-----BEGIN CERTIFICATE-----\nY2VydGlmeQ==\n-----END CERTIFICATE-----\n",
                "certificate": "-----BEGIN CERTIFICATE-----\nY2VydGlmeQ==\n-----END CERTIFICATE-----\n",
                "private_key": "-----BEGIN PRIVATE KEY-----\nY2VydGlmeQ==\n-----END PRIVATE KEY-----\n"}},
        "blobstores": [{"provider": "local", "options": {"blobstore_path": "/var/vcap/micro_bosh/data/cache"}}],
        "ntp": ["0.pool.ntp.org"], "password": "$6$certify$hash", "group": "certify-shop-web",
        "groups": ["certify", "shop", "web", "certify-shop", "shop-web", "certify-shop-web"],
        "tags": {"owner": "größe"}, "keep_root_password": true, "remove_dev_tools": false,
        "certify_key": {"deep": [1, 2.5, null, true]},
    }, "certify": {"a": "b"}})
}

fn env(scene: &Scene) -> Verdict {
    for env in [json!({}), json!(null), full_env()] {
        let mut arguments = scene.vm_arguments()?;
        arguments[5] = env;
        vm_cid(&scene.answer("create_vm", arguments)?)?;
    }
    Ok(())
}

fn env_verbatim(scene: &Scene) -> Verdict {
    let mut arguments = scene.vm_arguments()?;
    let mut env = full_env();
    // A cloud may say where the agent listens; everything else is none of its business.
    if let Some(bosh) = env["bosh"].as_object_mut() {
        bosh.shift_remove("mbus");
    }
    arguments[5] = env.clone();
    let vm = vm_cid(&scene.answer("create_vm", arguments)?)?;
    let settings = scene.settings(&vm)?;
    let told = &settings["env"];
    let lost: Vec<_> = [&env, &env["bosh"]]
        .iter()
        .zip([told, &told["bosh"]])
        .flat_map(|(sent, told)| {
            let entries = sent.as_object().into_iter().flatten();
            entries.filter(|(key, value)| *key != "bosh" && told.get(key) != Some(value)).map(|(key, _)| key.clone())
        })
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    Err(NotPassed::failed(format!("the agent's settings lack or change these keys of env: {}", lost.join(", "))))
}

fn settings(scene: &Scene) -> Verdict {
    let arguments = scene.vm_arguments()?;
    let vm = vm_cid(&scene.answer("create_vm", arguments.clone())?)?;
    let settings = scene.settings(&vm)?;
    let at = |path: &str| settings.pointer(path).cloned().unwrap_or_default();
    let wrong = |what: &str, path: &str| NotPassed::failed(format!("{what}, not {}", at(path)));
    if at("/agent_id") != arguments[0] {
        return Err(wrong(&format!("agent_id must be {}", arguments[0]), "/agent_id"));
    }
    if at("/vm/name").as_str().is_none_or(str::is_empty) {
        return Err(wrong("vm.name must be a non-empty string", "/vm/name"));
    }
    if !at("/networks/default").is_object() {
        return Err(wrong("networks must have the networks of create_vm", "/networks"));
    }
    if let Some(why) = refusal(&settings) {
        return Err(NotPassed::failed(why));
    }
    if at("/disks/persistent") != json!({}) && !at("/disks/persistent").is_null() {
        return Err(wrong("disks.persistent must be empty in a new VM", "/disks/persistent"));
    }
    Ok(())
}

fn has_vm(scene: &Scene) -> Verdict {
    let vm = scene.new_vm()?;
    let asked = |cid: &str, expected: bool, when: &str| {
        let answer = scene.answer("has_vm", json!([cid]))?;
        if answer.boolean()? == expected { Ok(()) } else { Err(answer.fail(format!("expected {expected} {when}"))) }
    };
    asked(&vm, true, "for a VM that was just made")?;
    scene.must("delete_vm", json!([vm]))?;
    asked(&vm, false, "for a VM that was deleted")?;
    asked(&unknown_cid(), false, "for a VM that never was")
}

fn reboot(scene: &Scene) -> Verdict {
    let vm = scene.new_vm()?;
    let answer = scene.answer("reboot_vm", json!([vm]))?;
    answer.success()?;
    if scene.exists(Kind::Vm, &vm)? { Ok(()) } else { Err(answer.fail("after the reboot has_vm says false")) }
}

fn reboot_unknown(scene: &Scene) -> Verdict {
    scene.answer("reboot_vm", json!([unknown_cid()]))?.refusal("although there is no such VM")?;
    Ok(())
}

fn disk_survives(scene: &Scene) -> Verdict {
    let vm = scene.new_vm()?;
    let (disk, _) = scene.new_attached_disk(&vm)?;
    scene.must("delete_vm", json!([vm]))?;
    let there = scene.answer("has_disk", json!([disk]))?;
    if there.success_or(&[ErrorType::NotImplemented])? == Some(json!(false)) {
        return Err(there.fail("deleting the VM deleted its disk"));
    }
    let other = scene.new_vm()?;
    scene.must("attach_disk", json!([other, disk]))?;
    Ok(())
}

fn calculate(scene: &Scene) -> Verdict {
    let answer = scene.answer("calculate_vm_cloud_properties", json!([scene.profile.vm.resources]))?;
    let properties = answer.success()?;
    let Value::Object(properties) = properties else {
        return Err(answer.fail(format!("expected an object, got {properties}")));
    };
    // Over those of the availability zone, as directors do it.
    let mut arguments = scene.vm_arguments()?;
    if let Some(given) = arguments[2].as_object_mut() {
        given.extend(properties);
    }
    vm_cid(&scene.answer("create_vm", arguments)?)?;
    Ok(())
}

fn calculate_absurd(scene: &Scene) -> Verdict {
    let absurd = json!({"cpu": 1_000_000, "ram": 1_000_000_000_000_u64, "ephemeral_disk_size": 1_000_000_000_000_u64});
    let answer = scene.answer("calculate_vm_cloud_properties", json!([absurd]))?;
    answer.refusal("although no cloud has a VM of this size")?;
    Ok(())
}

fn answers_networks(scene: &Scene) -> Verdict {
    let answer = scene.answer("create_vm", scene.vm_arguments()?)?;
    vm_cid(&answer)?;
    if answer.success()?[1].get("default").is_some() {
        return Ok(());
    }
    Err(answer.fail("the second element does not have the networks that were asked for"))
}

fn no_networks(scene: &Scene) -> Verdict {
    let mut arguments = scene.vm_arguments()?;
    arguments[3] = json!({});
    scene.answer("create_vm", arguments)?.refusal("although there is no network")?;
    Ok(())
}
