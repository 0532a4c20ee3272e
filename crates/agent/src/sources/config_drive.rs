//! A config drive: files that the cloud puts beside the VM, on a device with a label or in a folder.

use std::path::PathBuf;

use serde_json::Value;
use windlass_contract::explain;

use super::drive;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigDrive {
    /// Where it may be; the first that has the file is used.
    pub(crate) disk_paths: Vec<PathBuf>,
    /// The file that tells the VM's name and who may come over ssh.
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
        let (document, origin) = self.meta_data()?;
        document["instance-id"].as_str().map(str::to_owned).ok_or_else(|| format!("{origin} has no instance-id"))
    }

    /// The first public key in the meta data.
    pub(super) fn public_key(&self) -> Result<Option<String>, String> {
        if self.meta_data_path.is_none() {
            return Ok(None);
        }
        let (document, _) = self.meta_data()?;
        Ok(document["public-keys"]["0"]["openssh-key"].as_str().map(str::to_owned))
    }

    fn meta_data(&self) -> Result<(Value, String), String> {
        let path = self.meta_data_path.as_deref().ok_or("the source of type 'ConfigDrive' has no MetaDataPath")?;
        let (bytes, origin) = self.find(path)?;
        match serde_json::from_slice(&bytes) {
            Ok(document) => Ok((document, origin)),
            Err(_) => Err(format!("{origin} is no JSON")),
        }
    }

    fn find(&self, name: &str) -> Result<(Vec<u8>, String), String> {
        let mut failures = Vec::new();
        for path in &self.disk_paths {
            match drive::read_file(path, name) {
                Ok(bytes) => return Ok((bytes, format!("{name} on {}", path.display()))),
                Err(error) => failures.push(explain(&error)),
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
        let meta_data = r#"{"instance-id": "i-1", "public-keys": {"0": {"openssh-key": "ssh-rsa A"}}}"#;
        std::fs::write(folder.path().join("ec2/meta-data.json"), meta_data).unwrap();
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "no file system").unwrap();
        let mut drive = ConfigDrive {
            disk_paths: vec!["/nonexistent".into(), empty.clone(), folder.path().to_owned()],
            meta_data_path: Some("ec2/meta-data.json".into()),
            user_data_path: "/ec2/user-data".into(),
        };
        assert_eq!(drive.user_data().unwrap().0, b"data");
        assert_eq!(drive.instance_id().unwrap(), "i-1");
        assert_eq!(drive.public_key().unwrap().as_deref(), Some("ssh-rsa A"));
        drive.disk_paths.truncate(2);
        let failures = drive.user_data().unwrap_err();
        assert!(failures.contains("/nonexistent cannot be read"), "{failures}");
        assert!(failures.contains(&format!("{} holds no file system", empty.display())), "{failures}");
    }
}
