//! Values of variables in what a CPI is asked: put in just before, and taken out of what is recorded after.

use std::error::Error;

use serde_json::{Value, json};
use windlass_contract::Object;
use windlass_planning::software::has_variables;

use crate::clouds::{LateValues, Owner};
use crate::ledger::{Change, Fact, NewDisk, NewVm};

type Failure = Box<dyn Error + Send + Sync>;

/// A change with values in the places of variables; none if it has no variables.
pub(crate) async fn filled(change: &Change, values: &dyn LateValues) -> Result<Option<Change>, Failure> {
    Ok(Some(match change {
        Change::CreateVm { vm } => {
            let networks: Object =
                vm.networks.iter().map(|(name, it)| (name.clone(), json!(it.cloud_properties))).collect();
            let late = json!({"env": vm.env, "cloud_properties": vm.cloud_properties, "networks": networks});
            if !has_variables(&late) {
                return Ok(None);
            }
            let mut late = values.put_in(Owner::Instance(&vm.instance), vm.variables, &late).await?;
            let mut filled = NewVm {
                env: object(late["env"].take())?,
                cloud_properties: object(late["cloud_properties"].take())?,
                ..(**vm).clone()
            };
            for (name, network) in &mut filled.networks {
                network.cloud_properties = object(late["networks"][name].take())?;
            }
            Change::CreateVm { vm: Box::new(filled) }
        }
        Change::CreateDisk { disk, near } => {
            let late = json!(disk.cloud_properties);
            if !has_variables(&late) {
                return Ok(None);
            }
            let cloud_properties = object(values.put_in(Owner::Instance(&disk.instance), None, &late).await?)?;
            Change::CreateDisk { disk: NewDisk { cloud_properties, ..disk.clone() }, near: near.clone() }
        }
        Change::SetVmMetadata { cid, metadata } => match tags(metadata, values).await? {
            Some(metadata) => Change::SetVmMetadata { cid: cid.clone(), metadata },
            None => return Ok(None),
        },
        Change::SetDiskMetadata { cid, metadata } => match tags(metadata, values).await? {
            Some(metadata) => Change::SetDiskMetadata { cid: cid.clone(), metadata },
            None => return Ok(None),
        },
        Change::SnapshotDisk { disk, cpi, clean, metadata } => match tags(metadata, values).await? {
            Some(metadata) => Change::SnapshotDisk { disk: disk.clone(), cpi: cpi.clone(), clean: *clean, metadata },
            None => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

/// Metadata names the deployment whose tags it has.
async fn tags(metadata: &Object, values: &dyn LateValues) -> Result<Option<Object>, Failure> {
    let late = json!(metadata);
    let deployment = metadata.get("deployment").and_then(Value::as_str);
    let Some(deployment) = deployment.filter(|_| has_variables(&late)) else { return Ok(None) };
    object(values.put_in(Owner::Deployment(deployment), None, &late).await?).map(Some)
}

fn object(value: Value) -> Result<Object, Failure> {
    match value {
        Value::Object(object) => Ok(object),
        _ => Err("a variable stands for a whole object that is none".into()),
    }
}

/// What is recorded of a change whose values were put in: the variables, as before.
pub(crate) fn without_values(fact: Fact, change: &Change) -> Fact {
    match (fact, change) {
        (Fact::VmCreated { mut vm }, Change::CreateVm { vm: planned }) => {
            vm.cloud_properties = planned.cloud_properties.clone();
            for (name, network) in &mut vm.networks {
                if let Some(planned) = planned.networks.get(name) {
                    network.cloud_properties = planned.cloud_properties.clone();
                }
            }
            Fact::VmCreated { vm }
        }
        (Fact::DiskCreated { mut disk }, Change::CreateDisk { disk: planned, .. }) => {
            disk.cloud_properties = planned.cloud_properties.clone();
            Fact::DiskCreated { disk }
        }
        (fact, _) => fact,
    }
}

/// Shorter values are words that also mean something else, and are not removed from texts.
const SHORTEST: usize = 4;

/// Values that were put into a change, to be kept out of what is told about it.
#[derive(Debug, Default)]
pub(crate) struct Hidden(Vec<String>);

impl Hidden {
    /// All texts of `filled` that `change` does not have.
    pub(crate) fn of(change: &Change, filled: &Change) -> Self {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        texts(&json!(change), &mut before);
        texts(&json!(filled), &mut after);
        after.retain(|text| text.len() >= SHORTEST && !before.contains(text));
        // The longest first, so that no part of one is left.
        after.sort_by_key(|text| std::cmp::Reverse(text.len()));
        after.dedup();
        Self(after)
    }

    pub(crate) fn out_of(&self, line: &str) -> String {
        self.0
            .iter()
            .fold(line.to_owned(), |line, value| line.replace(value.as_str(), windlass_contract::secret::REDACTED))
    }
}

fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(elements) => elements.iter().for_each(|element| texts(element, found)),
        Value::Object(members) => members.iter().for_each(|(key, member)| {
            found.push(key.clone());
            texts(member, found);
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use windlass_contract::{DiskCid, MiB, VmCid};
    use windlass_planning::names::DiskName;
    use windlass_planning::records::DiskRecord;
    use windlass_planning::software::VariableSet;

    use super::*;

    /// Every variable has the value `hunter2`.
    #[derive(Debug)]
    struct Hunter;

    #[async_trait]
    impl LateValues for Hunter {
        async fn put_in(&self, _: Owner<'_>, _: Option<VariableSet>, value: &Value) -> Result<Value, Failure> {
            Ok(serde_json::from_str(&value.to_string().replace("((/x))", "hunter2"))?)
        }
    }

    fn object_of(value: Value) -> Object {
        object(value).unwrap()
    }

    /// The cloud would get a placeholder, or the records a secret.
    #[tokio::test]
    async fn a_cpi_gets_values_and_records_and_logs_do_not() {
        let disk = NewDisk {
            instance: "i".into(),
            name: DiskName::Managed,
            cpi: "c".into(),
            size: MiB(1),
            cloud_properties: object_of(json!({"key": "((/x))", "deep": ["a ((/x))"]})),
        };
        let change = Change::CreateDisk { disk: disk.clone(), near: None };
        let filled = filled(&change, &Hunter).await.unwrap().unwrap();
        let Change::CreateDisk { disk: sent, .. } = &filled else { panic!("{filled:?}") };
        assert_eq!(Value::Object(sent.cloud_properties.clone()), json!({"key": "hunter2", "deep": ["a hunter2"]}));
        let record = DiskRecord {
            cid: DiskCid::new("d").unwrap(),
            instance: "i".into(),
            name: DiskName::Managed,
            cpi: "c".into(),
            size: MiB(1),
            cloud_properties: sent.cloud_properties.clone(),
            active: false,
            vm: None,
            mounted: false,
            hint: None,
        };
        let Fact::DiskCreated { disk: kept } = without_values(Fact::DiskCreated { disk: record }, &change) else {
            panic!("another fact")
        };
        assert_eq!(kept.cloud_properties, disk.cloud_properties);
        let hidden = Hidden::of(&change, &filled);
        assert!(!hidden.out_of("the cloud got 'a hunter2' and 'hunter2'").contains("hunter2"));
    }

    #[tokio::test]
    async fn tags_go_by_the_deployment_that_metadata_names_and_the_rest_is_left_alone() {
        let cid = VmCid::new("v").unwrap();
        let metadata = |tag: &str| object_of(json!({"deployment": "d", "tag": tag}));
        let change = Change::SetVmMetadata { cid: cid.clone(), metadata: metadata("((/x))") };
        let expected = Change::SetVmMetadata { cid: cid.clone(), metadata: metadata("hunter2") };
        assert_eq!(filled(&change, &Hunter).await.unwrap(), Some(expected));
        let plain = Change::SetVmMetadata { cid: cid.clone(), metadata: metadata("plain") };
        assert_eq!(filled(&plain, &Hunter).await.unwrap(), None);
        assert_eq!(filled(&Change::DeleteVm { cid }, &Hunter).await.unwrap(), None);
    }
}
