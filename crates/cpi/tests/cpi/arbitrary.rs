//! Arbitrary input: requests of every method, broken in every way that a loop comes up with. A few thousand in each run;
//! `WINDLASS_INPUTS=1000000` for a million.

use serde_json::{Value, json};
use windlass_contract::cpi::methods::{AttachDisk, CreateDisk, CreateNetwork, CreateVm, HasVm, NAMES, SetVmMetadata};
use windlass_contract::cpi::{CpiError, CreatedNetwork, CreatedVm};
use windlass_contract::{DiskCid, DiskHint, VmCid};
use windlass_cpi::{Call, Cloud, Config, UserData};

/// Says yes to everything, so that whatever passes the decoder goes all the way.
struct Yes;

impl Cloud for Yes {
    fn stemcell_formats(&self) -> Vec<String> {
        vec![]
    }

    async fn create_vm(&self, _: &Call, vm: CreateVm, user_data: &mut UserData) -> Result<CreatedVm, CpiError> {
        serde_json::to_value(user_data).unwrap();
        Ok(CreatedVm { cid: VmCid::new("vm-1").unwrap(), networks: vm.networks, disks: None })
    }

    async fn has_vm(&self, _: &Call, _: HasVm) -> Result<bool, CpiError> {
        Ok(true)
    }

    async fn set_vm_metadata(&self, _: &Call, _: SetVmMetadata) -> Result<(), CpiError> {
        Ok(())
    }

    async fn create_disk(&self, _: &Call, _: CreateDisk) -> Result<DiskCid, CpiError> {
        Ok(DiskCid::new("disk-1").unwrap())
    }

    async fn attach_disk(&self, _: &Call, disk: AttachDisk) -> Result<DiskHint, CpiError> {
        Ok(DiskHint::path(disk.disk_cid.to_string()))
    }

    async fn create_network(&self, _: &Call, network: CreateNetwork) -> Result<CreatedNetwork, CpiError> {
        Err(CpiError::cloud(format!("no network {:?}", network.definition)))
    }
}

/// Sound requests of every method, in the forms of every version.
fn sound() -> Vec<Vec<u8>> {
    let networks =
        json!({"a": {"type": "manual", "ip": "10.0.0.5", "prefix": "32", "dns": ["10.0.0.1"], "default": ["dns"]}});
    let env = json!({"bosh": {"mbus": {"urls": ["https://u:p@0.0.0.0:6868"], "cert": {"private_key": "k"}}, "groups": ["g"]}});
    let mut requests = Vec::new();
    for method in NAMES {
        let arguments = match *method {
            "create_vm" => json!(["a-1", "sc-1", {"x": 1}, networks, ["disk-1"], env]),
            "create_stemcell" => json!(["/tmp/image", {"name": "n"}, {"tags": {}}]),
            "create_disk" => json!([1024, {"type": "gp3"}, null]),
            "attach_disk" | "detach_disk" => json!(["vm-1", "disk-1"]),
            "resize_disk" => json!(["disk-1", 2048]),
            "update_disk" => json!(["disk-1", 2048, {}]),
            "create_network" => json!([{"type": "manual", "range": "10.0.0.0/24", "netmask_bits": 24}]),
            "calculate_vm_cloud_properties" => json!([{"cpu": 1, "ram": 1024, "ephemeral_disk_size": 1024}]),
            "info" | "current_vm_id" => json!([]),
            _ => json!(["vm-1", {"name": "n"}]),
        };
        let context = json!({"director_uuid": "d-1", "request_id": "cpi-123456", "vm": {"stemcell": {"api_version": 3}},
            "debug": {"cpi": {"api_version": 2}}, "password": "hunter2"});
        for version in [Value::Null, json!(1), json!(2)] {
            let request = json!({"method": method, "arguments": arguments, "context": context, "api_version": version});
            requests.push(request.to_string().into_bytes());
        }
    }
    requests
}

/// What is put in between.
const PIECES: [&[u8]; 20] = [
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"\"\"",
    b"0",
    b"-1",
    b"1e999",
    b"1.5",
    b"18446744073709551616",
    b"{\"a\":",
    b"[[[[",
    b"\\u0000",
    b"\\ud800",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b",",
    b":",
    b"\"",
    b"}",
];

/// A generator of numbers, because a failure must be repeatable.
struct Numbers(u64);

impl Numbers {
    /// Below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn broken(numbers: &mut Numbers, sound: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = sound[numbers.below(sound.len())].clone();
    for _ in 0..numbers.below(5) {
        let at = numbers.below(bytes.len() + 1);
        let end = (at + numbers.below(16)).min(bytes.len());
        match numbers.below(7) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => drop(bytes.splice(at..end, PIECES[numbers.below(PIECES.len())].iter().copied())),
            3 if at < bytes.len() => bytes[at] = numbers.below(256) as u8,
            4 => bytes.extend_from_slice(&sound[numbers.below(sound.len())][..at.min(40)]),
            5 => {
                // Two values change places, so that what is sound elsewhere is wrong here.
                let commas: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b',').collect();
                if let (Some(first), Some(second)) = (commas.first(), commas.last()) {
                    let piece = bytes[*first..(*first + 12).min(bytes.len())].to_vec();
                    drop(bytes.splice(*second..*second, piece));
                }
            }
            _ => drop(bytes.splice(at..at, PIECES[numbers.below(PIECES.len())].iter().copied())),
        }
    }
    bytes
}

#[test]
fn every_input_gets_one_valid_answer_and_none_a_panic() {
    let inputs = std::env::var("WINDLASS_INPUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(3000);
    let config = Config::from_json(br#"{"cloud":{"plugin":"yes"}}"#).unwrap();
    let sound = sound();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut answered = 0;
    for number in 0..inputs {
        let bytes = broken(&mut numbers, &sound);
        let response = windlass_cpi::answer(&config, &bytes, |_| Ok(Yes));
        let input = || format!("input {number}: {}", String::from_utf8_lossy(&bytes));
        let wire = serde_json::to_value(&response).unwrap();
        assert!(wire.as_object().unwrap().len() == 3 && wire["log"] == "", "{}: {wire}", input());
        match response.error {
            None => answered += 1,
            Some(error) => {
                let known = error.kind.as_str().starts_with("Bosh::Clouds::") && !error.message.is_empty();
                assert!(known && response.result.is_null(), "{}: {error}", input());
                assert!(!error.message.contains("did not expect"), "{} panicked", input());
                assert!(!error.message.contains('\n') && !error.message.contains("hunter2"), "{}: {error}", input());
            }
        }
    }
    assert!(answered > inputs / 20, "the inputs are not all nonsense: {answered} of {inputs} were served");
}
