//! Requests and answers of every method, in every version.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};
use windlass_contract::cpi::answer::Extensions;
use windlass_contract::cpi::methods::*;
use windlass_contract::cpi::{
    Answer, AttachedDisk, Context, CpiError, CpiInfo, CreatedNetwork, CreatedVm, ErrorType, Method, Request, Response,
    UpdatedDisk,
};
use windlass_contract::{ApiVersion, DiskCid, Object, SnapshotCid, StemcellCid, VmCid};

use super::survives;
use super::words::{address, context, hint, id, json, network, networks, object, size, text, version};

/// What of an answer can be said in a version.
trait Sayable: Answer + PartialEq + Debug + Clone {
    fn what_remains_in(self, _: ApiVersion) -> Self {
        self
    }
}

impl Sayable for () {}
impl Sayable for bool {}
impl Sayable for StemcellCid {}
impl Sayable for VmCid {}
impl Sayable for DiskCid {}
impl Sayable for SnapshotCid {}
impl Sayable for Vec<DiskCid> {}
impl Sayable for Object {}
impl Sayable for CpiInfo {}
impl Sayable for UpdatedDisk {}
impl Sayable for CreatedNetwork {}

/// Version 1 names the VM only.
impl Sayable for CreatedVm {
    fn what_remains_in(mut self, version: ApiVersion) -> Self {
        if version < ApiVersion::V2 {
            self.networks.clear();
        }
        self
    }
}

/// Version 1 says nothing: the hint goes through the registry.
impl Sayable for AttachedDisk {
    fn what_remains_in(self, version: ApiVersion) -> Self {
        Self { hint: self.hint.filter(|_| version >= ApiVersion::V2) }
    }
}

fn request_survives<M: Method + PartialEq + Debug>(
    call: &M,
    context: Context,
    api_version: Option<ApiVersion>,
) -> Result<(), TestCaseError> {
    let request = Request { method: M::NAME.into(), arguments: call.to_arguments(), context, api_version };
    survives(&request)?;
    let read: Request = serde_json::from_str(&serde_json::to_string(&request).unwrap()).unwrap();
    let understood = M::from_arguments(read.arguments).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&understood, call);
    Ok(())
}

fn answer_survives<M: Method<Answer: Sayable>>(
    call: &M,
    answer: M::Answer,
    api_version: Option<ApiVersion>,
) -> Result<(), TestCaseError> {
    let version = api_version.unwrap_or(ApiVersion::V1);
    let response = Response::success(answer.to_wire(version));
    survives(&response)?;
    let read: Response = serde_json::from_str(&serde_json::to_string(&response).unwrap()).unwrap();
    let understood = M::read_answer(&call.to_arguments(), read.result, version).map_err(TestCaseError::fail)?;
    prop_assert_eq!(understood, answer.what_remains_in(version));
    Ok(())
}

macro_rules! every_request_and_answer_survives {
    ($($test:ident: $method:ident, $calls:expr => $answers:expr;)*) => {
        $(proptest! {
            #![proptest_config(ProptestConfig::with_cases(96))]
            #[test]
            fn $test(call in $calls, answer in $answers, context in context(), version in option::of(version())) {
                let call: $method = call;
                request_survives(&call, context, version)?;
                answer_survives(&call, answer, version)?;
            }
        })*

        const TESTED: &[&str] = &[$($method::NAME),*];
    };
}

fn network_definition() -> impl Strategy<Value = NetworkDefinition> {
    (text(), option::of(text()), address(), option::of(any::<u8>()), object()).prop_map(
        |(kind, range, gateway, netmask_bits, cloud_properties)| NetworkDefinition {
            kind,
            range,
            gateway,
            netmask_bits,
            cloud_properties,
        },
    )
}

fn any_create_vm() -> impl Strategy<Value = CreateVm> {
    let names = (id(), id());
    (names, object(), networks(), option::of(vec(id(), 0..3)), option::of(object()), option::of(object())).prop_map(
        |((agent_id, stemcell_cid), cloud_properties, networks, disk_cids, env, bootstrap_settings)| CreateVm {
            agent_id,
            stemcell_cid,
            cloud_properties,
            networks,
            disk_cids,
            env,
            bootstrap_settings,
        },
    )
}

every_request_and_answer_survives! {
    info: Info, Just(Info {}) => (vec(text(), 0..3), option::of(version()), option::of(any::<bool>())).prop_map(
        |(stemcell_formats, api_version, replay)| CpiInfo {
            stemcell_formats,
            api_version,
            windlass: replay.map(|replay| Extensions { replay, ..Extensions::default() }),
        });
    create_stemcell: CreateStemcell,
        (text(), option::of(object()), option::of(object())).prop_map(|(image, cloud_properties, env)| CreateStemcell {
            image_path: PathBuf::from(image), cloud_properties, env,
        }) => id();
    delete_stemcell: DeleteStemcell, id().prop_map(|stemcell_cid| DeleteStemcell { stemcell_cid }) => Just(());
    create_vm: CreateVm, any_create_vm() =>
        (id(), networks()).prop_map(|(cid, networks)| CreatedVm { cid, networks, disks: None });
    delete_vm: DeleteVm, id().prop_map(|vm_cid| DeleteVm { vm_cid }) => Just(());
    has_vm: HasVm, id().prop_map(|vm_cid| HasVm { vm_cid }) => any::<bool>();
    reboot_vm: RebootVm, id().prop_map(|vm_cid| RebootVm { vm_cid }) => Just(());
    set_vm_metadata: SetVmMetadata,
        (id(), object()).prop_map(|(vm_cid, metadata)| SetVmMetadata { vm_cid, metadata }) => Just(());
    configure_networks: ConfigureNetworks,
        (id(), networks()).prop_map(|(vm_cid, networks)| ConfigureNetworks { vm_cid, networks }) => Just(());
    calculate_vm_cloud_properties: CalculateVmCloudProperties,
        (any::<u64>(), size(), size()).prop_map(|(cpu, ram, ephemeral_disk_size)| CalculateVmCloudProperties {
            desired: VmResources { cpu, ram, ephemeral_disk_size },
        }) => object();
    create_disk: CreateDisk,
        (size(), object(), option::of(id())).prop_map(|(size, cloud_properties, vm_cid)| CreateDisk {
            size, cloud_properties, vm_cid,
        }) => id();
    delete_disk: DeleteDisk, id().prop_map(|disk_cid| DeleteDisk { disk_cid }) => Just(());
    has_disk: HasDisk, id().prop_map(|disk_cid| HasDisk { disk_cid }) => any::<bool>();
    attach_disk: AttachDisk, (id(), id()).prop_map(|(vm_cid, disk_cid)| AttachDisk { vm_cid, disk_cid }) =>
        hint().prop_map(|hint| AttachedDisk { hint: Some(hint) });
    detach_disk: DetachDisk,
        (id(), id()).prop_map(|(vm_cid, disk_cid)| DetachDisk { vm_cid, disk_cid }) => Just(());
    set_disk_metadata: SetDiskMetadata,
        (id(), object()).prop_map(|(disk_cid, metadata)| SetDiskMetadata { disk_cid, metadata }) => Just(());
    get_disks: GetDisks, id().prop_map(|vm_cid| GetDisks { vm_cid }) => vec(id(), 0..4);
    resize_disk: ResizeDisk,
        (id(), size()).prop_map(|(disk_cid, new_size)| ResizeDisk { disk_cid, new_size }) => Just(());
    update_disk: UpdateDisk,
        (id(), size(), object()).prop_map(|(disk_cid, new_size, cloud_properties)| UpdateDisk {
            disk_cid, new_size, cloud_properties,
        }) => option::of(id()).prop_map(|replaced_by| UpdatedDisk { replaced_by });
    snapshot_disk: SnapshotDisk,
        (id(), object()).prop_map(|(disk_cid, metadata)| SnapshotDisk { disk_cid, metadata }) => id();
    delete_snapshot: DeleteSnapshot, id().prop_map(|snapshot_cid| DeleteSnapshot { snapshot_cid }) => Just(());
    create_network: CreateNetwork, network_definition().prop_map(|definition| CreateNetwork { definition }) =>
        (id(), object(), object()).prop_map(|(cid, address_properties, cloud_properties)| CreatedNetwork {
            cid, address_properties, cloud_properties,
        });
    delete_network: DeleteNetwork, id().prop_map(|network_cid| DeleteNetwork { network_cid }) => Just(());
    current_vm_id: CurrentVmId, Just(CurrentVmId {}) => id();
}

#[test]
fn no_method_is_left_out() {
    assert_eq!(TESTED.iter().collect::<BTreeSet<_>>(), NAMES.iter().collect());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn an_error_keeps_its_type_message_and_whether_to_retry(kind in text(), message in text(), ok_to_retry: bool) {
        survives(&Response::failure(CpiError { kind: ErrorType::from(kind), message, ok_to_retry }))?;
    }

    #[test]
    fn a_network_keeps_keys_that_nobody_knows(network in network(), key in "[a-z]{9}_[a-z]{3}", value in json()) {
        let mut wire = serde_json::to_value(&network).unwrap();
        wire[&key] = value;
        let read: windlass_contract::Network = serde_json::from_value(wire.clone()).unwrap();
        prop_assert_eq!(serde_json::to_value(&read).unwrap(), wire);
    }

    #[test]
    fn a_hint_is_passed_on_as_it_came(hint in hint()) {
        survives(&hint)?;
    }

    /// The first draft: `[stemcell, properties, agent settings, networks, disks, env]`.
    #[test]
    fn create_vm_means_the_same_in_the_order_of_the_first_draft(call in any_create_vm(), settings in object()) {
        let mut settings = settings;
        settings.insert("agent_id".into(), json!(call.agent_id));
        let arguments = vec![
            json!(call.stemcell_cid), json!(call.cloud_properties), Value::Object(settings.clone()),
            json!(call.networks), json!(call.disk_cids), json!(call.env),
        ];
        settings.shift_remove("agent_id");
        let expected = CreateVm { bootstrap_settings: Some(settings), ..call };
        prop_assert_eq!(CreateVm::from_arguments(arguments).unwrap(), expected);
    }

    /// Whatever comes as arguments, the answer is a call or a reason, never a crash.
    #[test]
    fn arbitrary_arguments_are_understood_or_explained(arguments in vec(json(), 0..8)) {
        macro_rules! explain {
            ($($method:ident)*) => {$(
                if let Err(error) = $method::from_arguments(arguments.clone()) {
                    prop_assert!(error.to_string().contains($method::NAME));
                }
            )*};
        }
        explain!(Info CreateStemcell DeleteStemcell CreateVm DeleteVm HasVm RebootVm SetVmMetadata ConfigureNetworks
            CalculateVmCloudProperties CreateDisk DeleteDisk HasDisk AttachDisk DetachDisk SetDiskMetadata GetDisks
            ResizeDisk UpdateDisk SnapshotDisk DeleteSnapshot CreateNetwork DeleteNetwork CurrentVmId);
    }
}
