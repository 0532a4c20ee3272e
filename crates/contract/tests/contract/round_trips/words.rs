//! Arbitrary words of the contract.

use std::fmt::Debug;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_contract::cpi::Context;
use windlass_contract::network::NetworkKind;
use windlass_contract::{ApiVersion, DiskHint, MiB, Network, Networks, Object, RequestId, Secret};

/// Any text: quotes, line breaks, controls, letters of all planes.
pub(crate) fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..12).prop_map(String::from_iter)
}

pub(crate) fn some_text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 1..24).prop_map(String::from_iter)
}

/// An id of any kind: opaque, but never empty, and without zero bytes.
pub(crate) fn id<T: TryFrom<String> + Debug>() -> impl Strategy<Value = T>
where
    T::Error: Debug,
{
    some_text().prop_map(|id| T::try_from(id.replace('\0', "0")).unwrap())
}

pub(crate) fn secret() -> impl Strategy<Value = Secret> {
    text().prop_map(Secret::new)
}

pub(crate) fn size() -> impl Strategy<Value = MiB> {
    any::<u64>().prop_map(MiB)
}

pub(crate) fn version() -> impl Strategy<Value = ApiVersion> {
    prop_oneof![1u32..4, any::<u32>()].prop_map(ApiVersion)
}

/// Any JSON that only one side understands. Fractions are such as every parser reads exactly.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i32>().prop_map(|quarters| Value::from(f64::from(quarters) / 4.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

pub(crate) fn object() -> impl Strategy<Value = Object> {
    btree_map(text(), json(), 0..4).prop_map(|map| map.into_iter().collect())
}

/// Keys that a later version may add beside `known` ones.
pub(crate) fn unknown_keys(known: &'static [&'static str]) -> impl Strategy<Value = Object> {
    object().prop_map(move |mut object| {
        object.retain(|key, _| !known.contains(&key.as_str()));
        object
    })
}

const NETWORK: &[&str] =
    &["type", "ip", "prefix", "netmask", "gateway", "dns", "default", "cloud_properties", "preconfigured"];

pub(crate) fn network() -> impl Strategy<Value = Network> {
    let kind = prop_oneof![Just(NetworkKind::Manual), Just(NetworkKind::Dynamic), Just(NetworkKind::Vip)];
    let addresses = (address(), option::of("[0-9]{1,3}"), option::of("[0-9.:]{1,15}"), address());
    let lists = (option::of(vec(text(), 0..3)), option::of(vec(text(), 0..3)));
    (kind, addresses, lists, object(), option::of(any::<bool>()), unknown_keys(NETWORK)).prop_map(
        |(kind, (ip, prefix, netmask, gateway), (dns, default), cloud_properties, preconfigured, other)| Network {
            kind,
            ip,
            prefix,
            netmask,
            gateway,
            dns,
            default,
            cloud_properties,
            preconfigured,
            other,
        },
    )
}

/// IPv4, IPv6 or none.
pub(crate) fn address() -> impl Strategy<Value = Option<String>> {
    let v4 = any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string());
    let v6 = any::<std::net::Ipv6Addr>().prop_map(|address| address.to_string());
    option::of(prop_oneof![v4, v6])
}

pub(crate) fn networks() -> impl Strategy<Value = Networks> {
    // The names that early documents give to disks are names of networks, too.
    let name = prop_oneof![text(), Just("system".to_owned()), Just("ephemeral".to_owned())];
    btree_map(name, network(), 0..4)
}

/// Hints of every shape that documents name, with keys that a later version may add.
pub(crate) fn hint() -> impl Strategy<Value = DiskHint> {
    let iscsi = (some_text(), text(), text(), text()).prop_map(|(target, username, password, initiator_name)| {
        json!({"iscsi_settings": {"initiator_name": initiator_name, "username": username, "password": password,
            "target": target}})
    });
    let lun = (any::<u8>(), text()).prop_map(|(lun, device)| json!({"lun": lun.to_string(), "host_device_id": device}));
    let shapes = prop_oneof![
        some_text().prop_map(Value::from),
        text().prop_map(|path| json!({ "path": path })),
        text().prop_map(|volume| json!({ "volume_id": volume })),
        text().prop_map(|id| json!({ "id": id })),
        lun,
        iscsi,
    ];
    // `persistent` is left out: an answer that has it is the list of all disks of the first draft.
    let later = btree_map(text().prop_filter("taken", |key| key != "persistent"), text(), 0..3);
    (shapes, later).prop_map(|(mut shape, later)| {
        if let Value::Object(object) = &mut shape {
            for (key, value) in later {
                object.entry(key).or_insert(value.into());
            }
        }
        DiskHint::try_from(shape).unwrap()
    })
}

pub(crate) fn context() -> impl Strategy<Value = Context> {
    let properties = unknown_keys(&["director_uuid", "request_id", "vm"]);
    let request_id = option::of(prop_oneof![
        id::<RequestId>(),
        "cpi-[0-9]{6}".prop_map(|id| RequestId::new(id).unwrap()),
        any::<u128>().prop_map(|id| RequestId::new(uuid::Uuid::from_u128(id).to_string()).unwrap()),
    ]);
    (text(), request_id, option::of(version()), properties).prop_map(
        |(director_uuid, request_id, stemcell, properties)| {
            Context { director_uuid, request_id, vm: None, properties }.with_stemcell(stemcell)
        },
    )
}
