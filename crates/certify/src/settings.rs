//! Settings as agents read them: what one of them refuses keeps a VM from ever answering.

use serde_json::Value;
use windlass_contract::settings::AgentSettings;

/// What BOSH's agent reads; anything else at such a place, but null, and it reads nothing at all.
#[derive(Debug, Clone, Copy)]
enum Form {
    Text,
    Texts,
    Flag,
    Number,
    Object,
    Objects,
    /// A string or an object of strings; a number in it ends the process.
    Hint,
}

/// Places in the settings; `*` is every key.
const FORMS: &[(&str, Form)] = &[
    ("agent_id", Form::Text),
    ("vm", Form::Object),
    ("vm/name", Form::Text),
    ("mbus", Form::Text),
    ("ntp", Form::Texts),
    ("blobstore", Form::Object),
    ("blobstore/provider", Form::Text),
    ("blobstore/options", Form::Object),
    ("networks", Form::Object),
    ("networks/*", Form::Object),
    ("networks/*/type", Form::Text),
    ("networks/*/ip", Form::Text),
    ("networks/*/netmask", Form::Text),
    ("networks/*/gateway", Form::Text),
    ("networks/*/prefix", Form::Text),
    ("networks/*/mac", Form::Text),
    ("networks/*/alias", Form::Text),
    ("networks/*/default", Form::Texts),
    ("networks/*/dns", Form::Texts),
    ("networks/*/use_dhcp", Form::Flag),
    ("networks/*/resolved", Form::Flag),
    ("networks/*/preconfigured", Form::Flag),
    ("networks/*/routes", Form::Objects),
    ("disks", Form::Object),
    ("disks/system", Form::Text),
    ("disks/ephemeral", Form::Hint),
    ("disks/persistent", Form::Object),
    ("disks/persistent/*", Form::Hint),
    ("disks/raw_ephemeral", Form::Objects),
    ("env", Form::Object),
    ("env/persistent_disk_fs", Form::Text),
    ("env/persistent_disk_mount_options", Form::Texts),
    ("env/bosh", Form::Object),
    ("env/bosh/password", Form::Text),
    ("env/bosh/keep_root_password", Form::Flag),
    ("env/bosh/remove_dev_tools", Form::Flag),
    ("env/bosh/authorized_keys", Form::Texts),
    ("env/bosh/swap_size", Form::Number),
    ("env/bosh/parallel", Form::Number),
    ("env/bosh/ntp", Form::Texts),
    ("env/bosh/blobstores", Form::Objects),
    ("env/bosh/mbus", Form::Object),
    ("env/bosh/mbus/urls", Form::Texts),
    ("env/bosh/mbus/cert", Form::Object),
];

/// Why an agent refuses these settings. Null is the same as no key, to all of them.
pub(crate) fn refusal(settings: &Value) -> Option<String> {
    for (place, form) in FORMS {
        if let Some(path) = first_of_another_form(settings, place, *form) {
            return Some(format!("{path} must be {}; an agent reads nothing else", form.as_str()));
        }
    }
    let error = serde_json::from_value::<AgentSettings>(settings.clone()).err()?.to_string();
    // What it quotes may be a secret.
    let said: Vec<&str> = error.split('"').step_by(2).collect();
    Some(format!("Windlass' agent refuses them: {}", said.join("…")))
}

fn first_of_another_form(value: &Value, place: &str, form: Form) -> Option<String> {
    let Some((key, rest)) = place.split_once('/') else {
        return children(value, place).find(|(_, child)| !form.fits(child)).map(|(name, _)| name.to_owned());
    };
    children(value, key)
        .find_map(|(name, child)| first_of_another_form(child, rest, form).map(|path| format!("{name}.{path}")))
}

fn children<'a>(value: &'a Value, key: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter(move |(name, _)| key == "*" || *name == key).map(|(name, child)| (name.as_str(), child))
}

impl Form {
    fn as_str(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Texts => "an array of strings",
            Self::Flag => "true or false",
            Self::Number => "a whole number",
            Self::Object => "an object",
            Self::Objects => "an array of objects",
            Self::Hint => "a string or an object of strings",
        }
    }

    fn fits(self, value: &Value) -> bool {
        let all = |value: &Value, fits: fn(&Value) -> bool| {
            value.as_array().is_some_and(|elements| elements.iter().all(|element| element.is_null() || fits(element)))
        };
        let strings = |value: &Value| {
            value.as_object().is_some_and(|object| object.values().all(|leaf| leaf.is_string() || leaf.is_null()))
        };
        value.is_null()
            || match self {
                Self::Text => value.is_string(),
                Self::Texts => all(value, Value::is_string),
                Self::Flag => value.is_boolean(),
                Self::Number => value.is_u64(),
                Self::Object => value.is_object(),
                Self::Objects => all(value, Value::is_object),
                Self::Hint => {
                    let is_leaf =
                        |key: &str, leaf: &Value| leaf.is_string() || key == "iscsi_settings" && strings(leaf);
                    let object = value.as_object();
                    value.is_string()
                        || object
                            .is_some_and(|leaves| leaves.iter().all(|(key, leaf)| leaf.is_null() || is_leaf(key, leaf)))
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_no_key_at_all_as_agents_read_it() {
        let settings = json!({"agent_id": "a", "vm": {"name": null}, "networks": {"default": {"ip": null, "dns": null}},
            "disks": {"system": "", "ephemeral": null, "persistent": null, "raw_ephemeral": null},
            "env": {"bosh": null}, "mbus": null, "ntp": null, "blobstore": {"provider": null, "options": null}});
        assert_eq!(refusal(&settings), None);
    }

    #[test]
    fn what_an_agent_cannot_read_is_named() {
        for (settings, place) in [
            (json!({"agent_id": 7}), "agent_id must be a string"),
            (json!({"agent_id": "a", "networks": {"one": {}, "two": {"dns": "10.0.0.2"}}}), "networks.two.dns must be"),
            (json!({"agent_id": "a", "disks": {"system": {"path": "/dev/sda"}}}), "disks.system must be a string"),
            (json!({"agent_id": "a", "disks": {"ephemeral": {"lun": 1}}}), "disks.ephemeral must be"),
            (json!({"agent_id": "a", "disks": {"persistent": {"d": {"lun": 1}}}}), "disks.persistent.d must be"),
            (json!({"agent_id": "a", "env": {"bosh": {"mbus": {"urls": "x"}}}}), "env.bosh.mbus.urls must be"),
            (json!({"agent_id": ""}), "Windlass' agent refuses them"),
            (json!({"agent_id": "a", "networks": {"one": {"type": "odd"}}}), "Windlass' agent refuses them"),
            (json!({"agent_id": "a", "env": {"bosh": {"groups": "hunter2"}}}), "Windlass' agent refuses them"),
        ] {
            let said = refusal(&settings).unwrap_or_default();
            assert!(said.starts_with(place) && !said.contains("hunter2"), "{settings}: {said}");
        }
    }
}
