//! The keys that every object carries, and what they mean.
//!
//! A record of an instance is there before its root file system is, and stays if the daemon dies meanwhile: only
//! [`STAGE`], which is written after the operation succeeded, says that a thing is whole.

use serde_json::Value;
use windlass_contract::Object;
use windlass_cpi::Call;

use crate::client::Settings;

/// The director that made it.
pub(crate) const DIRECTOR: &str = "user.windlass.director";
/// The id in its name.
pub(crate) const ID: &str = "user.windlass.id";
/// The caller's request.
pub(crate) const REQUEST: &str = "user.windlass.request";
/// The agent of a VM.
pub(crate) const AGENT: &str = "user.windlass.agent";
/// `<director>-<deployment>-<group>`, as the director says it at a VM's creation.
pub(crate) const GROUP: &str = "user.windlass.group";
/// The project that a network is for: networks of all projects may be in one list.
pub(crate) const PROJECT: &str = "user.windlass.project";
/// How far it is; see [`Stage`].
pub(crate) const STAGE: &str = "user.windlass.stage";
/// The VM that a disk is claimed for.
pub(crate) const ATTACHED_TO: &str = "user.windlass.attached_to";
/// Of a disk: a VM had it, so it may have data.
pub(crate) const USED: &str = "user.windlass.used";
/// Before what directors name VMs and disks by.
const METADATA: &str = "user.bosh.";
/// Of an image: the director that uploaded it.
pub(crate) const IMAGE_DIRECTOR: &str = "windlass.director";

/// How far an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is being made, or its maker died.
    Unfinished,
    /// It is whole.
    Made,
    /// A VM has its settings, too, and may be started.
    Ready,
    /// A disk's content is being copied here.
    Copying,
    /// A disk's content was copied to that member or pool, and this one may go.
    MovedTo(String),
}

const MADE: &str = "made";
const READY: &str = "ready";
const COPYING: &str = "copying";
const MOVED_TO: &str = "moved-to:";

impl Stage {
    pub(crate) fn of(config: &Settings) -> Self {
        match config.get(STAGE).map(String::as_str) {
            Some(MADE) => Self::Made,
            Some(READY) => Self::Ready,
            Some(COPYING) => Self::Copying,
            Some(text) => match text.strip_prefix(MOVED_TO) {
                Some(place) => Self::MovedTo(place.to_owned()),
                None => Self::Unfinished,
            },
            None => Self::Unfinished,
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unfinished => Ok(()),
            Self::Made => f.write_str(MADE),
            Self::Ready => f.write_str(READY),
            Self::Copying => f.write_str(COPYING),
            Self::MovedTo(place) => write!(f, "{MOVED_TO}{place}"),
        }
    }
}

/// What every object of a call carries.
pub(crate) fn of_call(call: &Call) -> Settings {
    let mut tags = Settings::from([
        (DIRECTOR.to_owned(), call.context.director_uuid.clone()),
        (ID.to_owned(), call.id.to_string()),
    ]);
    if let Some(request) = &call.context.request_id {
        tags.insert(REQUEST.to_owned(), request.as_str().to_owned());
    }
    tags
}

/// Longer values are cut: every list answers them.
const LONGEST: usize = 1024;

/// What a director says of a VM or disk, as keys of ours.
pub(crate) fn of_metadata(metadata: &Object) -> Settings {
    let key = |key: &str| -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' };
        format!("{METADATA}{}", key.chars().map(plain).collect::<String>().to_ascii_lowercase())
    };
    let value = |value: &Value| -> String {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        text[..text.floor_char_boundary(LONGEST)].to_owned()
    };
    metadata.iter().map(|(name, text)| (key(name), value(text))).collect()
}

/// How people see a VM, disk or snapshot: `group/index` of a deployment.
pub(crate) fn description(metadata: &Object) -> String {
    let text =
        |key: &str| metadata.get(key).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let name = text("name").or_else(|| match (text("job"), text("index")) {
        (Some(job), Some(index)) => Some(format!("{job}/{index}")),
        (job, _) => job,
    });
    let words: Vec<String> = [text("director"), text("deployment"), name].into_iter().flatten().collect();
    words.join(" ")
}

/// What a director said of a VM or disk, by its own keys.
pub(crate) fn metadata(config: &Settings) -> Settings {
    let plain = |(key, value): (&String, &String)| Some((key.strip_prefix(METADATA)?.to_owned(), value.clone()));
    config.iter().filter_map(plain).collect()
}

/// What a disk takes over from the VM that it is made for: whose it is.
pub(crate) fn inherited(vm: &Settings) -> Settings {
    vm.iter()
        .filter(|(key, _)| key.starts_with(METADATA) || key.as_str() == GROUP)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stages_are_read_as_they_are_written_and_unknown_ones_are_unfinished() {
        for stage in [Stage::Made, Stage::Ready, Stage::Copying, Stage::MovedTo("n2".to_owned())] {
            assert_eq!(Stage::of(&Settings::from([(STAGE.to_owned(), stage.to_string())])), stage);
        }
        assert_eq!(Stage::of(&Settings::new()), Stage::Unfinished);
        assert_eq!(Stage::of(&Settings::from([(STAGE.to_owned(), "later".to_owned())])), Stage::Unfinished);
    }

    #[test]
    fn what_directors_say_becomes_keys_that_daemons_take() {
        let metadata = json!({"deployment": "d", "Name": "web/0", "index": 3, "my key/ü": "x".repeat(2000)});
        let tags = of_metadata(metadata.as_object().unwrap());
        assert_eq!(tags["user.bosh.deployment"], "d");
        assert_eq!(tags["user.bosh.name"], "web/0");
        assert_eq!(tags["user.bosh.index"], "3");
        assert_eq!(tags["user.bosh.my_key__"].len(), 1024);
        let said = json!({"director": "dir", "deployment": "d", "job": "web", "index": 0});
        assert_eq!(description(said.as_object().unwrap()), "dir d web/0");
    }
}
