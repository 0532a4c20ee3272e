//! Amazon's credentials of the environment or of a profile, which BOSH calls `env_or_profile`.

use std::path::PathBuf;

use windlass_contract::Secret;

/// A key and its secret, and a token where they are of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

impl Key {
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        [Some(&self.id), Some(&self.secret), self.token.as_ref()].into_iter().flatten().map(Secret::new).collect()
    }
}

/// Those of the environment, else those of the profile; none where the machine itself has some.
pub(crate) fn find() -> Option<Key> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
        return Some(Key { id, secret, token: variable("AWS_SESSION_TOKEN") });
    }
    let usual = || Some(std::env::home_dir()?.join(".aws/credentials"));
    let path = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from).or_else(usual)?;
    let profile = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    in_file(&std::fs::read_to_string(path).ok()?, &profile)
}

fn in_file(text: &str, profile: &str) -> Option<Key> {
    let header = format!("[{profile}]");
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != header);
    lines.next()?;
    let section: Vec<(&str, &str)> = lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let value = |key: &str| section.iter().find(|(found, _)| *found == key).map(|(_, value)| (*value).to_owned());
    Some(Key {
        id: value("aws_access_key_id")?,
        secret: value("aws_secret_access_key")?,
        token: value("aws_session_token"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_found_by_its_name() {
        let text = "[default]\naws_access_key_id = a\naws_secret_access_key=b\n\n[ci]\naws_access_key_id=c\n\
            aws_secret_access_key=d\naws_session_token=e\n[half]\naws_access_key_id=f\n";
        let key = |id: &str, secret: &str, token: Option<&str>| {
            Some(Key { id: id.into(), secret: secret.into(), token: token.map(Into::into) })
        };
        assert_eq!(in_file(text, "default"), key("a", "b", None));
        assert_eq!(in_file(text, "ci"), key("c", "d", Some("e")));
        assert_eq!((in_file(text, "half"), in_file(text, "nobody")), (None, None));
    }
}
