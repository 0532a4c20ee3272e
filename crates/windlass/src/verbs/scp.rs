//! `windlass scp`: copies files to instances or from them.

use std::path::Path;
use std::process::Command;

use crate::cli::{ScpArgs, Selection};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::session::Session;
use crate::visit::{self, Host, Visit, programs};

/// Stands for the id of each instance in a path, so that files of several do not overwrite each other.
pub(super) const INSTANCE_ID: &str = "((instance_id))";

pub(super) async fn run(session: &mut Session<'_>, arguments: &ScpArgs) -> Result<(), Failure> {
    let selection = selected(&arguments.paths)?;
    visit::during(session, &arguments.gateway, &arguments.key, &[selection.as_ref()], |screen, visit, hosts| {
        on(screen, visit, arguments, hosts)
    })
    .await
}

/// On hosts that let the user in.
pub(super) fn on(screen: &mut Screen, visit: &Visit<'_>, arguments: &ScpArgs, hosts: &[Host]) -> Result<(), Failure> {
    let program = |host: &Host| Ok((host.name(), program(visit, &arguments.paths, arguments.recursive, host)?));
    programs::run(screen, visit, hosts.iter().map(program).collect::<Result<_, Failure>>()?)
}

/// Fetches one file of one host.
pub(super) fn copy(
    screen: &mut Screen,
    visit: &Visit<'_>,
    host: &Host,
    remote: &str,
    local: &Path,
) -> Result<(), Failure> {
    let paths = [format!(":{remote}"), local.display().to_string()];
    programs::run(screen, visit, vec![(host.name(), program(visit, &paths, false, host)?)])
}

fn program(visit: &Visit<'_>, paths: &[String], recursive: bool, host: &Host) -> Result<Command, Failure> {
    let mut scp = Command::new("scp");
    scp.args(words(visit, paths, recursive, host)?);
    Ok(scp)
}

/// A path with an instance's id where it is to stand. What a director calls an instance leads to no other file, here or there.
pub(super) fn with_id(path: &str, id: &str) -> Result<String, Failure> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if path.contains(INSTANCE_ID) && (id.is_empty() || id.starts_with(['-', '.']) || !id.chars().all(is_plain)) {
        return Err(Failure::OddInstanceId(id.to_owned()));
    }
    Ok(path.replace(INSTANCE_ID, id))
}

/// The instances that remote paths name; none for all of them.
pub(super) fn selected(paths: &[String]) -> Result<Option<Selection>, Failure> {
    let mut named = paths.iter().filter_map(|path| path.split_once(':')).map(|(instances, _)| instances);
    let first = named.next().ok_or(Failure::ScpNoRemote)?;
    if let Some(other) = named.find(|other| *other != first) {
        return Err(Failure::ScpSeveral { first: first.to_owned(), other: other.to_owned() });
    }
    match first {
        "" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|why: &str| Failure::ScpInstances { text: text.to_owned(), why: why.to_owned() }),
    }
}

/// What the scp program is started with.
fn words(visit: &Visit<'_>, paths: &[String], recursive: bool, host: &Host) -> Result<Vec<String>, Failure> {
    let mut words = visit.options(host);
    words.extend(recursive.then(|| "-r".to_owned()));
    words.push("--".to_owned());
    let address = if host.address.is_ipv6() { format!("[{}]", host.address) } else { host.address.to_string() };
    for path in paths {
        let path = with_id(path, &host.id)?;
        words.push(match path.split_once(':') {
            Some((_, remote)) => format!("{}@{address}:{remote}", host.user),
            None => path,
        });
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(paths: &[&str]) -> Result<Option<Selection>, String> {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        selected(&paths).map_err(|error| error.to_string())
    }

    /// `scp` and `cp` wrote to any file of the operator that a director named.
    #[test]
    fn an_id_that_is_no_plain_name_leads_to_no_file() {
        let with = |id: &str| with_id("out/((instance_id))", id).map_err(|error| error.to_string());
        assert_eq!(with("a1b2-c_3.d").unwrap(), "out/a1b2-c_3.d");
        for id in ["../../.ssh/authorized_keys", "..", ".", "", ".ssh", "-o", "a/b", "a:b", "a\nb", "a b", "\u{202e}a"]
        {
            assert!(with(id).unwrap_err().contains("no plain name"), "{id:?}");
        }
        assert_eq!(with_id("out", "a/b").unwrap(), "out", "it stands nowhere");
    }

    #[test]
    fn remote_paths_name_the_instances() {
        assert_eq!(named(&["db/1:/x", "."]).unwrap(), Some("db/1".parse().unwrap()));
        assert_eq!(named(&["a", "db:/x"]).unwrap(), Some("db".parse().unwrap()));
        assert_eq!(named(&["a", ":/x"]).unwrap(), None);
        assert!(named(&["a", "b"]).unwrap_err().contains("GROUP/ID:PATH"));
        assert!(named(&["db/1:/x", "web:/y"]).unwrap_err().contains("'db/1' and 'web'"));
        assert!(named(&["db/:/x", "y"]).unwrap_err().contains("db/"));
    }
}
