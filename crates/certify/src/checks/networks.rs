//! Networks that the director manages.

use serde_json::{Value, json};
use windlass_contract::cpi::ErrorType;

use super::unknown_cid;
use crate::answer::Answer;
use crate::check::Level::Optional;
use crate::check::{Check, NotPassed, Verdict, check};
use crate::scene::{Scene, vm_cid};

pub(super) const CHECKS: &[Check] = &[
    check(
        "networks.create",
        &[56],
        Optional,
        "the director stores all three elements and cannot use the network without them",
        create,
    ),
    check(
        "networks.usable",
        &[56],
        Optional,
        "VMs are put into the network by the properties that it answered with",
        usable,
    ),
    check(
        "networks.by-size",
        &[57],
        Optional,
        "where the operator names only a size, the director needs range and gateway from the cloud",
        by_size,
    ),
    check(
        "networks.delete-twice",
        &[58],
        Optional,
        "after any other error the director forgets the network, and it is leaked",
        delete_twice,
    ),
    check(
        "networks.delete-unknown",
        &[58],
        Optional,
        "a network that is gone is what the director wants",
        delete_unknown,
    ),
];

struct Created {
    cid: String,
    addresses: Value,
    properties: Value,
    answer: Answer,
}

fn make(scene: &Scene, network: Value) -> Result<Created, NotPassed> {
    let answer = scene.answer("create_network", json!([network]))?;
    match answer.success()? {
        Value::Array(elements) => match elements.as_slice() {
            [Value::String(cid), addresses @ Value::Object(_), properties @ Value::Object(_)] if !cid.is_empty() => {
                let (cid, addresses, properties) = (cid.clone(), addresses.clone(), properties.clone());
                Ok(Created { cid, addresses, properties, answer })
            }
            _ => Err(answer.fail("expected a non-empty string and two objects")),
        },
        other => Err(answer.fail(format!("expected an array of three, got {other}"))),
    }
}

fn ranged(scene: &Scene) -> Value {
    let network = &scene.profile.managed_network;
    json!({"type": "manual", "range": network.range, "gateway": network.gateway,
        "cloud_properties": network.cloud_properties})
}

fn create(scene: &Scene) -> Verdict {
    make(scene, ranged(scene)).map(|_| ())
}

fn usable(scene: &Scene) -> Verdict {
    let created = make(scene, ranged(scene))?;
    let network = &scene.profile.managed_network;
    let ip = network.range.hosts().nth(19);
    let mut arguments = scene.vm_arguments()?;
    arguments[3] = json!({"default": {"type": "manual", "ip": ip, "netmask": network.range.netmask(),
        "gateway": network.gateway, "default": ["dns", "gateway"], "cloud_properties": created.properties}});
    let vm = vm_cid(&scene.answer("create_vm", arguments)?)?;
    scene.must("delete_vm", json!([vm]))?;
    scene.must("delete_network", json!([created.cid]))?;
    Ok(())
}

fn by_size(scene: &Scene) -> Verdict {
    let network = &scene.profile.managed_network;
    let asked = json!({"type": "manual", "netmask_bits": network.netmask_bits,
        "cloud_properties": network.cloud_properties});
    let created = make(scene, asked)?;
    let range = created.addresses["range"].as_str().and_then(|range| range.parse::<ipnet::IpNet>().ok());
    let gateway = created.addresses["gateway"].as_str().and_then(|ip| ip.parse::<std::net::IpAddr>().ok());
    match (range, gateway) {
        (Some(range), Some(gateway)) if range.contains(&gateway) => Ok(()),
        _ => Err(created.answer.fail("the second element must have a range and a gateway in it")),
    }
}

fn delete_twice(scene: &Scene) -> Verdict {
    let created = make(scene, ranged(scene))?;
    scene.must("delete_network", json!([created.cid]))?;
    let again = scene.answer("delete_network", json!([created.cid]))?;
    again.success_or(&[ErrorType::NetworkNotFound])?;
    Ok(())
}

fn delete_unknown(scene: &Scene) -> Verdict {
    scene.answer("delete_network", json!([unknown_cid()]))?.success_or(&[ErrorType::NetworkNotFound])?;
    Ok(())
}
