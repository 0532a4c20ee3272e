//! Names that must not pass for each other. Some may be left out: on record and in messages, what has no name has the empty one.

use serde::{Deserialize, Serialize};

macro_rules! name {
    ($kind:ident, $without:ident) => {
        impl $kind {
            /// As it is on record.
            pub fn as_str(&self) -> &str {
                match self {
                    Self::$without => "",
                    Self::Named(name) => name,
                }
            }
        }

        impl From<&str> for $kind {
            fn from(name: &str) -> Self {
                if name.is_empty() { Self::$without } else { Self::Named(name.to_owned()) }
            }
        }

        impl From<String> for $kind {
            fn from(name: String) -> Self {
                if name.is_empty() { Self::$without } else { Self::Named(name) }
            }
        }

        impl From<$kind> for String {
            fn from(name: $kind) -> Self {
                match name {
                    $kind::$without => Self::new(),
                    $kind::Named(name) => name,
                }
            }
        }
    };
}

/// A text that can be read as one, but no other text passes for it.
macro_rules! text {
    ($(#[$doc:meta])* $kind:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $kind(String);

        impl $kind {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::ops::Deref for $kind {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.0)
            }
        }

        impl From<&str> for $kind {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $kind {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<$kind> for String {
            fn from(text: $kind) -> Self {
                text.0
            }
        }

        impl PartialEq<str> for $kind {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $kind {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }
    };
}

text! {
    /// The name of a deployment.
    DeploymentName
}

text! {
    /// The UUID of an instance; `0` for the one of create-env.
    InstanceId
}

text! {
    /// `group/uuid`, as people and events call an instance.
    InstanceName
}

text! {
    /// How clients choose one instance of a group: by its index or its UUID.
    IndexOrId
}

impl InstanceName {
    pub fn of(group: &str, id: &InstanceId) -> Self {
        Self(format!("{group}/{id}"))
    }
}

/// Which disk of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum DiskName {
    /// The one that the agent mounts by itself: `persistent_disk` or `persistent_disk_type` in the manifest.
    #[default]
    Managed,
    /// One of `persistent_disks`, which jobs mount.
    Named(String),
}

name!(DiskName, Managed);

impl DiskName {
    pub fn is_managed(&self) -> bool {
        *self == Self::Managed
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum CpiName {
    /// The one of the director's settings, or of create-env's manifest.
    #[default]
    Default,
    /// One of the cpi config.
    Named(String),
}

name!(CpiName, Default);

impl std::fmt::Display for CpiName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("the director's default CPI"),
            Self::Named(name) => write!(f, "the CPI '{name}'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_ids_are_plain_texts_on_record() {
        assert_eq!(json!(DeploymentName::from("shop")), json!("shop"));
        assert_eq!(serde_json::from_value::<DeploymentName>(json!("shop")).unwrap(), "shop");
        let id: InstanceId = serde_json::from_value(json!("1f2e")).unwrap();
        assert_eq!(json!([id, InstanceName::of("web", &id)]), json!(["1f2e", "web/1f2e"]));
    }

    /// Databases and state files of earlier versions have these texts.
    #[test]
    fn what_has_no_name_is_the_empty_text_on_record() {
        for (disk, cpi, text) in [
            (DiskName::Managed, CpiName::Default, ""),
            (DiskName::Named("data".into()), CpiName::Named("data".into()), "data"),
        ] {
            assert_eq!((disk.as_str(), cpi.as_str()), (text, text));
            assert_eq!((json!(disk), json!(cpi)), (json!(text), json!(text)));
            assert_eq!(serde_json::from_value::<DiskName>(json!(text)).unwrap(), disk);
            assert_eq!(serde_json::from_value::<CpiName>(json!(text)).unwrap(), cpi);
            assert_eq!((String::from(disk), String::from(cpi)), (text.to_owned(), text.to_owned()));
        }
    }
}
