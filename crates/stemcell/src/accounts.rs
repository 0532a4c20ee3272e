//! The users and groups that an agent expects, added to those that a root file system has.

/// The user of jobs, and the number of its user and group in every stemcell.
const USER: &str = "vcap";
const NUMBER: u32 = 1000;

/// `/etc/passwd`, `/etc/group` and `/etc/shadow`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Accounts {
    pub(crate) passwd: String,
    pub(crate) group: String,
    pub(crate) shadow: String,
    /// The group that may read the third.
    pub(crate) shadow_group: u32,
}

/// a root file system whose users are in the way
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{file} gives the number {NUMBER} to '{name}', but stemcells give it to '{USER}'; remove '{name}' first")]
pub struct AccountTaken {
    pub file: &'static str,
    /// The account that has the number.
    pub name: String,
}

impl Accounts {
    /// Those of a root file system that has none.
    pub(crate) fn minimal() -> Self {
        Self {
            passwd: "root:x:0:0:root:/root:/bin/sh\n".into(),
            group: "root:x:0:\n".into(),
            shadow: "root:*:1:0:99999:7:::\n".into(),
            shadow_group: 0,
        }
    }

    /// With the user and the groups of stemcells. Those that are there stay as they are.
    pub(crate) fn with_vcap(self, shell: &str) -> Result<Self, AccountTaken> {
        let Self { mut passwd, mut group, mut shadow, shadow_group } = self;
        let number = NUMBER.to_string();
        if !has(&passwd, USER) {
            free(&passwd, &number).map_err(|name| AccountTaken { file: "/etc/passwd", name })?;
            add(&mut passwd, &format!("{USER}:x:{NUMBER}:{NUMBER}:{USER}:/home/{USER}:{shell}"));
        }
        if !has(&group, USER) {
            free(&group, &number).map_err(|name| AccountTaken { file: "/etc/group", name })?;
            add(&mut group, &format!("{USER}:x:{NUMBER}:"));
        }
        if !has(&shadow, USER) {
            // No password fits; the agent sets one if it is told to.
            add(&mut shadow, &format!("{USER}:*:1:0:99999:7:::"));
        }
        let mut next = NUMBER;
        // The last two have no members: the agent gives them files of the system's log.
        for (name, member) in
            [("admin", USER), ("bosh_sshers", USER), ("bosh_sudoers", USER), ("syslog", ""), ("utmp", "")]
        {
            if !has(&group, name) {
                next = (next + 1..).find(|number| free(&group, &number.to_string()).is_ok()).unwrap_or(next);
                add(&mut group, &format!("{name}:x:{next}:{member}"));
            }
        }
        Ok(Self { passwd, group, shadow, shadow_group })
    }
}

fn has(text: &str, name: &str) -> bool {
    text.lines().any(|line| line.split(':').next() == Some(name))
}

/// The error is the name of the account that has the number.
fn free(text: &str, number: &str) -> Result<(), String> {
    let holder = text.lines().find(|line| line.split(':').nth(2) == Some(number));
    holder.map_or(Ok(()), |line| Err(line.split(':').next().unwrap_or_default().to_owned()))
}

fn add(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcap_is_added_once_and_nobody_is_changed() {
        let before = Accounts { group: "root:x:0:\nadmin:x:1001:\nbuilder:x:1002:".into(), ..Accounts::minimal() };
        let after = before.clone().with_vcap("/bin/bash").unwrap();
        assert_eq!(after.passwd, format!("{}vcap:x:1000:1000:vcap:/home/vcap:/bin/bash\n", before.passwd));
        assert_eq!(
            after.group,
            "root:x:0:\nadmin:x:1001:\nbuilder:x:1002:\nvcap:x:1000:\nbosh_sshers:x:1003:vcap\nbosh_sudoers:x:1004:vcap\n\
             syslog:x:1005:\nutmp:x:1006:\n"
        );
        assert_eq!(after.clone().with_vcap("/bin/sh"), Ok(after));
    }

    #[test]
    fn somebody_elses_number_is_not_taken() {
        let taken = Accounts { passwd: "debian:x:1000:1000::/home/debian:/bin/sh\n".into(), ..Accounts::minimal() };
        assert_eq!(taken.with_vcap("/bin/sh"), Err(AccountTaken { file: "/etc/passwd", name: "debian".into() }));
    }
}
