//! A config drive: files that the cloud puts beside the VM. On the platforms of this agent it is a folder.

use std::path::PathBuf;

use serde_json::Value;

use super::read;

/// A config drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigDrive {
    /// Where it may be; the first that has the file is used.
    pub(crate) disk_paths: Vec<PathBuf>,
    /// The file that tells the VM's name.
    pub(crate) meta_data_path: Option<String>,
    /// The file with the settings.
    pub(crate) user_data_path: String,
}

impl ConfigDrive {
    /// The settings, and where they are.
    pub(super) fn user_data(&self) -> Result<(Vec<u8>, String), String> {
        self.find(&self.user_data_path)
    }

    /// The instance id in the meta data.
    pub(super) fn instance_id(&self) -> Result<String, String> {
        let path = self.meta_data_path.as_deref().ok_or("the source of type 'ConfigDrive' has no MetaDataPath")?;
        let (bytes, origin) = self.find(path)?;
        let id = serde_json::from_slice::<Value>(&bytes)
            .ok()
            .and_then(|found| found["instance-id"].as_str().map(str::to_owned));
        id.ok_or_else(|| format!("{origin} has no instance-id"))
    }

    fn find(&self, name: &str) -> Result<(Vec<u8>, String), String> {
        let mut failures = Vec::new();
        for folder in &self.disk_paths {
            let path = folder.join(name.trim_start_matches('/'));
            match read(&path) {
                Ok(bytes) => return Ok((bytes, path.display().to_string())),
                Err(failure) => failures.push(failure),
            }
        }
        Err(failures.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_drive_that_has_the_file_is_used() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("ec2")).unwrap();
        std::fs::write(folder.path().join("ec2/user-data"), "data").unwrap();
        std::fs::write(folder.path().join("ec2/meta-data.json"), r#"{"instance-id": "i-1"}"#).unwrap();
        let mut drive = ConfigDrive {
            disk_paths: vec!["/nonexistent".into(), folder.path().to_owned()],
            meta_data_path: Some("ec2/meta-data.json".into()),
            user_data_path: "/ec2/user-data".into(),
        };
        assert_eq!(drive.user_data().unwrap().0, b"data");
        assert_eq!(drive.instance_id().unwrap(), "i-1");
        drive.disk_paths.truncate(1);
        assert!(drive.user_data().unwrap_err().contains("/nonexistent/ec2/user-data cannot be read"));
    }
}
