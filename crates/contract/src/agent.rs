//! Messages to an agent and its replies.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::null::or_default;

/// A message to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The action. The original decodes keys whatever their case.
    #[serde(alias = "Method")]
    pub method: String,
    /// Positional arguments.
    #[serde(default, alias = "Arguments", deserialize_with = "or_default")]
    pub arguments: Vec<Value>,
    /// Where the reply goes on a message bus; just an id over HTTPS.
    #[serde(default, alias = "Reply_To")]
    pub reply_to: String,
    /// 3 from a director; the command line sends none.
    #[serde(default, alias = "Protocol", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u32>,
}

/// What a director's message says its protocol is.
pub const DIRECTOR_PROTOCOL: u32 = 3;

/// The exit code of our agent after `shutdown`: the VM is powered off, so its supervisor must not start the agent again.
/// After any other exit, success included, it must.
pub const POWERED_OFF: u8 = 86;

/// What an agent answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reply {
    /// The action failed.
    Exception { exception: Exception },
    /// The action's result, or a [`TaskHandle`].
    Value {
        /// Any JSON.
        value: Value,
    },
}

/// Why an action failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exception {
    /// One line. `unknown message <method>` means that the agent does not know the action.
    pub message: String,
}

impl Exception {
    /// Whether the agent does not know the action, in the original's words.
    pub fn is_unknown_message(&self) -> bool {
        self.message.contains("unknown message")
    }
}

impl Reply {
    /// A successful reply.
    pub fn value(value: impl Into<Value>) -> Self {
        Self::Value { value: value.into() }
    }

    /// A failed one.
    pub fn exception(message: impl Into<String>) -> Self {
        Self::Exception { exception: Exception { message: message.into() } }
    }
}

/// What a long-running action answers at once; `get_task` asks for the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskHandle {
    pub agent_task_id: String,
    /// Always `running`.
    pub state: String,
}

/// The argument of `update_settings`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateSettings {
    /// PEM certificates that the VM trusts. Absent clears them.
    #[serde(default, deserialize_with = "or_default")]
    pub trusted_certs: String,
    /// Names of disks. Absent clears them.
    #[serde(default, deserialize_with = "or_default")]
    pub disk_associations: Vec<DiskAssociation>,
    /// New message bus settings; replaced only when given and different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbus: Option<crate::settings::Mbus>,
    /// New blob stores; replaced only when given and different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blobstores: Option<Vec<Value>>,
}

/// The name of a disk in the manifest and its cid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskAssociation {
    /// Name in the manifest.
    pub name: String,
    pub cid: String,
}

/// The public key that an agent says its machine has, as `TYPE BASE64` without a comment; none if it is anything else, such as
/// two lines, of which the second would vouch for another machine.
pub fn host_key(told: &str) -> Option<String> {
    let told = told.trim_end_matches(['\r', '\n']);
    let mut words = told.split([' ', '\t']).filter(|word| !word.is_empty());
    let (kind, key) = (words.next()?, words.next()?);
    let is_kind = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '@');
    let is_key = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '/' | '=');
    let is_whole = !told.contains(char::is_control) && kind.chars().all(is_kind) && key.chars().all(is_key);
    let is_known = ["ssh-", "ecdsa-", "sk-", "rsa-"].iter().any(|beginning| kind.starts_with(beginning));
    (is_whole && is_known).then(|| format!("{kind} {key}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_arguments_and_no_protocol_are_understood() {
        let message: Message = serde_json::from_value(json!({"Method": "ping", "arguments": null})).unwrap();
        assert_eq!((message.method.as_str(), message.arguments.len(), message.protocol), ("ping", 0, None));
        assert!(serde_json::from_value::<Message>(json!({"method": "ping", "protocol": "3"})).is_err());
    }

    #[test]
    fn replies_are_told_apart() {
        let reply: Reply = serde_json::from_value(json!({"exception": {"message": "unknown message nope"}})).unwrap();
        assert!(matches!(reply, Reply::Exception { exception } if exception.is_unknown_message()));
        let reply: Reply = serde_json::from_value(json!({"value": null})).unwrap();
        assert_eq!(reply, Reply::value(Value::Null));
    }

    #[test]
    fn a_host_key_is_one_line_and_vouches_for_nobody_else() {
        assert_eq!(host_key("ssh-ed25519 AAAA+/= root@db\n").as_deref(), Some("ssh-ed25519 AAAA+/="));
        assert_eq!(host_key("ecdsa-sha2-nistp256  AAAA").as_deref(), Some("ecdsa-sha2-nistp256 AAAA"));
        let hostile = [
            "ssh-ed25519 AAAA\n* ssh-ed25519 ATTACKER",
            "ssh-rsa AAAA\r* x",
            "* ssh-rsa AAAA",
            "ssh-rsa",
            "",
            "ssh-rsa A,B",
        ];
        for told in hostile {
            assert_eq!(host_key(told), None, "{told:?}");
        }
    }
}
