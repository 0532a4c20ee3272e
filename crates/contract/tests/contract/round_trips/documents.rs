//! Documents that travel beside requests: what an agent boots from, and what it is told.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use windlass_contract::agent::{Message, Reply};
use windlass_contract::registry::{RegistryEnvelope, RegistryLocation, RegistryUserData, ServerName};
use windlass_contract::settings::{AgentSettings, BoshEnv, Disks, Env, Mbus, MbusCert, Vm};
use windlass_contract::stemcell::StemcellManifest;

use super::survives;
use super::words::{hint, id, json, networks, object, secret, some_text, text, unknown_keys, version};

fn mbus() -> impl Strategy<Value = Mbus> {
    let cert = (text(), text(), secret(), unknown_keys(&["ca", "certificate", "private_key"]))
        .prop_map(|(ca, certificate, private_key, other)| MbusCert { ca, certificate, private_key, other });
    let other = unknown_keys(&["urls", "cert", "require_client_cert"]);
    (option::of(vec(secret(), 0..3)), option::of(cert), any::<bool>(), other)
        .prop_map(|(urls, cert, require_client_cert, other)| Mbus { urls, cert, require_client_cert, other })
}

fn env() -> impl Strategy<Value = Env> {
    let bosh = (
        option::of(mbus()),
        option::of(vec(json(), 0..3)),
        option::of(vec(text(), 0..3)),
        option::of(text()),
        option::of(vec(text(), 0..3)),
        unknown_keys(&["mbus", "blobstores", "ntp", "group", "groups"]),
    )
        .prop_map(|(mbus, blobstores, ntp, group, groups, other)| BoshEnv {
            mbus,
            blobstores,
            ntp,
            group,
            groups,
            other,
        });
    (bosh, unknown_keys(&["bosh"])).prop_map(|(bosh, other)| Env::new(bosh, other))
}

fn settings() -> impl Strategy<Value = AgentSettings> {
    let disks = (
        text(),
        option::of(hint()),
        btree_map(id(), hint(), 0..3),
        unknown_keys(&["system", "ephemeral", "persistent"]),
    )
        .prop_map(|(system, ephemeral, persistent, other)| Disks { system, ephemeral, persistent, other });
    let fallbacks = (
        option::of(secret()),
        option::of(vec(text(), 0..3)),
        option::of(json().prop_filter("null is absent", |json| !json.is_null())),
    );
    let other = unknown_keys(&["agent_id", "vm", "networks", "disks", "env", "mbus", "ntp", "blobstore"]);
    (id(), text(), networks(), disks, env(), fallbacks, other).prop_map(
        |(agent_id, name, networks, disks, env, (mbus, ntp, blobstore), other)| AgentSettings {
            agent_id,
            vm: Vm { name },
            networks,
            disks,
            env,
            mbus,
            ntp,
            blobstore,
            other,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn an_agent_boots_from_what_the_cpi_meant(settings in settings()) {
        survives(&settings)?;
    }

    #[test]
    fn settings_come_out_of_a_registry_as_they_went_in(settings in settings()) {
        let envelope = RegistryEnvelope::wrap(&settings).unwrap();
        survives(&envelope)?;
        prop_assert_eq!(envelope.decode().unwrap(), settings);
    }

    #[test]
    fn a_vm_is_told_where_its_registry_is(
        endpoint in secret(), user in option::of(text()), password in option::of(secret()),
        name in option::of(text()), dns in object(), networks in networks(),
    ) {
        let registry = RegistryLocation { endpoint, user, password };
        survives(&RegistryUserData { registry, server: name.map(|name| ServerName { name }), dns, networks })?;
    }

    #[test]
    fn a_stemcell_is_what_its_manifest_says(
        name in some_text(), number in text(), operating_system in option::of(text()), api_version in option::of(version()),
        sha1 in "[0-9a-f]{40}", stemcell_formats in vec(text(), 0..3), cloud_properties in object(),
    ) {
        survives(&StemcellManifest {
            name, version: number, operating_system, api_version, sha1, stemcell_formats, cloud_properties,
        })?;
    }

    #[test]
    fn an_agent_does_what_it_is_told(
        method in text(), arguments in vec(json(), 0..4), reply_to in text(), protocol in option::of(any::<u32>()),
        value in json(), complaint in text(),
    ) {
        survives(&Message { method, arguments, reply_to, protocol })?;
        survives(&Reply::value(value))?;
        survives(&Reply::exception(complaint))?;
    }
}
