//! The methods of VMs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Answered, Toy, cid, refuse, text};

impl Toy {
    pub(super) fn create_vm(&self, request: &Value, version: i64, arguments: &[Value]) -> Answered {
        let agent =
            text(arguments, 0).or_else(|error| if self.is("any-agent") { Ok("any".into()) } else { Err(error) })?;
        let stemcell = cid(arguments, 1)?;
        if self.is("slow-create") {
            std::thread::sleep(Duration::from_millis(200));
        }
        let Some(networks) = arguments.get(3).and_then(Value::as_object) else {
            return refuse("CpiError", "argument 4 must be networks");
        };
        if arguments.len() < 6 {
            return refuse("CpiError", "create_vm needs six arguments");
        }
        let sv = request.pointer("/context/vm/stemcell/api_version").and_then(Value::as_u64).unwrap_or(1);
        let keeps_records = self.is("records-vms-of-version-1");
        if !self.is("v1-answers-arrays") && !keeps_records && (version < 2 || sv < 2) {
            let message = format!("request version {version} and stemcell version {sv}; both must be at least 2");
            return if self.is("v1-without-reason") {
                refuse("CloudError", "no")
            } else {
                refuse("CloudError", message)
            };
        }
        if self.is("reserves-agents") {
            let reserved = self.folder.join(format!("agent-{agent}"));
            if reserved.exists() {
                return refuse("CloudError", "there is a VM of this agent already");
            }
            fs::write(reserved, "").unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        if self.is("needs-env") && arguments[5].is_null() {
            return refuse("CpiError", "argument 6 must be an object");
        }
        let mut settings = json!({"agent_id": agent, "vm": {"name": "toy"}, "networks": networks,
            "disks": {"system": "/dev/sda", "persistent": {}}, "env": arguments[5]});
        match self.defect.as_str() {
            "system-disk-is-an-object" => settings["disks"]["system"] = json!({"path": "/dev/sda"}),
            "settings-without-agent-id" => settings["agent_id"] = Value::Null,
            "dns-is-a-string" => settings["networks"]["default"]["dns"] = json!("127.0.0.1"),
            "number-in-ephemeral-hint" => settings["disks"]["ephemeral"] = json!({"lun": 1}),
            "nulls-for-nothing" => {
                settings["disks"]["persistent"] = Value::Null;
                settings["disks"]["ephemeral"] = Value::Null;
                settings["env"]["bosh"]["ntp"] = Value::Null;
            }
            "settings-without-env" => settings["env"] = json!({}),
            "netmask-of-the-prefix" if !networks["default"]["prefix"].is_null() => {
                settings["networks"]["default"]["netmask"] = json!("255.255.255.255");
            }
            "gateway-everywhere" => {
                for network in settings["networks"].as_object_mut().unwrap().values_mut() {
                    network["default"] = json!(["dns", "gateway"]);
                }
            }
            _ => {}
        }
        let default = &networks.get("default").cloned().unwrap_or_default();
        if self.is("crashes-on-null-dns") && default.get("dns") == Some(&Value::Null) {
            panic!("dns is null");
        }
        if self.is("refuses-its-own-networks") && !default["cloud_properties"]["name"].is_null() {
            return refuse("CloudError", "there is no such network");
        }
        if self.is("knows-one-network") && default["cloud_properties"]["name"] != "red-network" {
            let name = default["cloud_properties"]["name"].as_str().unwrap_or("nothing");
            return refuse(
                "CloudError",
                format!("agent {agent} cannot have the network '{name}': there is no such one"),
            );
        }
        if networks.is_empty() && !self.is("no-network-is-fine") {
            return refuse("CloudError", "a VM needs a network");
        }
        for (number, network) in settings["networks"].as_object_mut().unwrap().values_mut().enumerate() {
            if !network.is_object() || network["type"] == "no-such-type" {
                if self.is("leaks-on-odd-networks") {
                    self.put("vms", &json!({"settings": {}, "disks": []}));
                }
                return refuse("CloudError", "this is no network");
            }
            if self.is("prefix-is-a-number") && network["prefix"].is_string() {
                return refuse("CloudError", "prefix must be a number");
            }
            if self.is("no-dynamic-networks") && network["type"] == "dynamic" {
                return refuse("CloudError", "there are no dynamic networks");
            }
            let ip = network["ip"].as_str().map_or(format!("192.0.2.{number}"), str::to_owned);
            if ip.parse::<std::net::IpAddr>().is_err() {
                return refuse("CloudError", "this is no address");
            }
            let taken =
                |vm: &Value| vm["settings"]["networks"].as_object().into_iter().flatten().any(|(_, it)| it["ip"] == ip);
            if network["type"] == "manual" && self.all("vms").iter().any(|(_, vm)| taken(vm)) {
                return refuse("CloudError", "the address is in use");
            }
            network["ip"] = json!(ip);
        }
        if self.is("other-address") {
            settings["networks"]["default"]["ip"] = json!("192.0.2.77");
        }
        let networks = settings["networks"].clone();
        if self.is("needs-a-zone") && arguments[2]["zone"].is_null() {
            return refuse("CloudError", "in which zone");
        }
        let mut vm = json!({"settings": settings, "disks": []});
        if self.is("attaches-announced-disks") {
            vm["disks"] = if arguments[4].is_null() { json!([]) } else { arguments[4].clone() };
        }
        if self.is("leaks-vm") {
            self.put("vms", &vm);
        }
        let image = self.read("stemcells", &stemcell);
        let Some(image) = image.or_else(|| self.is("any-stemcell").then(|| json!({}))) else {
            return refuse("CloudError", "there is no such stemcell");
        };
        if self.is("needs-the-image") && !Path::new(image["image"].as_str().unwrap()).exists() {
            return refuse("CloudError", "the image is gone");
        }
        if keeps_records && version < 2 {
            vm["recorded"] = json!(true);
            return Ok(json!(self.put("vms", &vm)));
        }
        let cid = self.put("vms", &vm);
        Ok(match self.defect.as_str() {
            "bare-string" => json!(cid),
            "lower-version-changes-shapes" if request.pointer("/context/debug").is_some() => json!(cid),
            "cid-only" => json!([cid]),
            "empty-vm-cid" => json!(["", networks]),
            "networks-not-answered" => json!([cid, {}]),
            _ => json!([cid, networks]),
        })
    }

    pub(super) fn delete_vm(&self, cid: &str) -> Answered {
        if self.is("keeps-vms") {
            return refuse("CloudError", "the VM does not go");
        }
        if self.is("slow-create") {
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.is("deletes-disks-with-vm") {
            for disk in self.read("vms", cid).iter().flat_map(|vm| vm["disks"].as_array().unwrap().clone()) {
                self.delete("disks", disk.as_str().unwrap(), None)?;
            }
        }
        let missing = if self.is("delete-vm-not-found-is-cloud-error") { "CloudError" } else { "VMNotFound" };
        if self.is("deletes-no-vm") {
            return Ok(Value::Null);
        }
        self.delete("vms", cid, Some(missing))
    }

    pub(super) fn has_vm(&self, cid: &str) -> Answered {
        let there = self.read("vms", cid).is_some();
        match self.defect.as_str() {
            "has-vm-is-text" => Ok(json!(there.to_string())),
            "has-vm-unknown-is-error" if !there => refuse("VMNotFound", "there is no such VM"),
            _ => Ok(json!(there)),
        }
    }

    pub(super) fn calculate(&self, arguments: &[Value]) -> Answered {
        let Some(cpu) = arguments.first().and_then(|wanted| wanted["cpu"].as_u64()) else {
            return refuse("CpiError", "cpu is missing");
        };
        if cpu > 64 && !self.is("any-size-of-vm") {
            return refuse("CloudError", "no VM is this large");
        }
        Ok(if self.is("calculates-a-list") { json!(["small"]) } else { json!({"size": "small"}) })
    }
}
