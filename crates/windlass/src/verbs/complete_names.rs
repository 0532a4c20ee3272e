//! `windlass complete-names`: what a shell may complete a word to, as far as only the director knows that.

use std::time::Duration;

use windlass_director_client::DirectorClient;
use windlass_director_client::known_environments::KnownEnvironments;
use windlass_director_client::known_names::{self, Kind};

use crate::cli::Global;
use crate::screen::Screen;

/// A shell that waits longer feels broken.
const PATIENCE: Duration = Duration::from_secs(2);

/// `words` are those of the command line behind the program's name; the last is the one to complete. Whatever goes wrong, there
/// is just nothing to complete.
pub(super) async fn run(screen: &mut Screen, flags: &Global, words: &[String]) {
    let Some(wanted) = wanted(words) else { return };
    let names = match wanted.what {
        Completed::Environment => aliases(flags),
        Completed::Named(kind) => tokio::time::timeout(PATIENCE, ask(flags, kind, &wanted)).await.ok().flatten(),
    };
    let begun = words.last().map_or("", String::as_str);
    let names = names.unwrap_or_default().into_iter().filter(|name| name.starts_with(begun) && is_harmless(name));
    screen.block(&names.map(|name| format!("{name}\n")).collect::<String>());
}

/// Whether a shell takes a name for nothing but a word. Bash puts what it completes into the command line as it is, and teams choose
/// names of deployments, groups and releases: one with `$(…)` in it would be carried out by the shell that completes it.
fn is_harmless(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || "._-/+:@%,=".contains(letter);
    !name.starts_with('-') && name.chars().all(is_letter)
}

/// What is to be completed, and for which director and deployment.
#[derive(Debug, PartialEq, Eq)]
struct WantedNames {
    what: Completed,
    environment: Option<String>,
    deployment: Option<String>,
    state_dir: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Completed {
    Environment,
    Named(Kind),
}

fn wanted(words: &[String]) -> Option<WantedNames> {
    let (current, before) = words.split_last()?;
    let mut found = WantedNames { what: Completed::Environment, environment: None, deployment: None, state_dir: None };
    let mut verb: Option<&str> = None;
    let mut positionals = 0;
    let mut rest = before.iter().map(String::as_str).peekable();
    while let Some(word) = rest.next() {
        let flag = match word {
            "-e" | "--environment" => &mut found.environment,
            "-d" | "--deployment" => &mut found.deployment,
            "--state-dir" => &mut found.state_dir,
            _ if word.starts_with('-') => continue,
            _ => {
                positionals += usize::from(verb.is_some());
                verb = verb.or(Some(word));
                continue;
            }
        };
        match rest.next() {
            Some(value) => *flag = Some(value.to_owned()),
            // It is the value that is to be completed.
            None => {
                let what = match word {
                    "-e" | "--environment" => Completed::Environment,
                    "-d" | "--deployment" => Completed::Named(Kind::Deployment),
                    _ => return None,
                };
                return Some(WantedNames { what, ..found });
            }
        }
    }
    if current.starts_with('-') || positionals > 0 {
        return None;
    }
    let kind = match verb? {
        "start" | "stop" | "restart" | "recreate" | "ssh" | "exec" | "logs" | "explain" | "ignore" | "unignore"
        | "attach-disk" | "take-snapshot" | "pcap" => Kind::Instance,
        "task" | "t" | "cancel-task" | "ct" => Kind::Task,
        "run-errand" => Kind::Errand,
        "delete-stemcell" | "dels" => Kind::Stemcell,
        "inspect-release" | "delete-release" | "delr" | "export-release" | "expr" => Kind::Release,
        "unlock" => Kind::Deployment,
        _ => return None,
    };
    Some(WantedNames { what: Completed::Named(kind), ..found })
}

fn aliases(flags: &Global) -> Option<Vec<String>> {
    let known = KnownEnvironments::open(|name| flags.variable(name)).ok()?;
    Some(known.all().into_iter().map(|known| known.alias).filter(|alias| !alias.is_empty()).collect())
}

async fn ask(flags: &Global, kind: Kind, wanted: &WantedNames) -> Option<Vec<String>> {
    let named = Global {
        environment: wanted.environment.clone().or_else(|| flags.environment.clone()),
        state_dir: wanted.state_dir.clone().map(Into::into).or_else(|| flags.state_dir.clone()),
        ..flags.clone()
    };
    let environment = named.environment().ok()?;
    let director = DirectorClient::new(&environment).ok()?;
    let deployment = wanted.deployment.clone().or_else(|| flags.variable("BOSH_DEPLOYMENT"));
    if matches!(kind, Kind::Instance | Kind::Errand) && deployment.is_none() {
        return None;
    }
    known_names::all(&director, kind, deployment.as_deref()).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<WantedNames> {
        wanted(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn names_that_a_shell_would_carry_out_are_not_completed() {
        for good in ["shop", "redis_z1.2", "db/0a1b-2c", "größe", "windlass-minimal/1", "web/1+dev.2"] {
            assert!(is_harmless(good), "{good}");
        }
        for bad in
            ["$(touch x)", "a;b", "a`b`", "a b", "a|b", "a&b", "a>b", "a\nb", "~", "a'b", "a\"b", "a\\b", "*", "--help"]
        {
            assert!(!is_harmless(bad), "{bad}");
        }
    }

    #[test]
    fn it_is_known_which_names_fit_where() {
        let named = |line: &str| of(line).map(|wanted| wanted.what);
        assert_eq!(named("-d "), Some(Completed::Named(Kind::Deployment)));
        assert_eq!(named("vms -d sh"), Some(Completed::Named(Kind::Deployment)));
        assert_eq!(named("-e "), Some(Completed::Environment));
        assert_eq!(named("-d shop recreate "), Some(Completed::Named(Kind::Instance)));
        assert_eq!(named("task 1"), Some(Completed::Named(Kind::Task)));
        assert_eq!(named("-d shop run-errand "), Some(Completed::Named(Kind::Errand)));
        assert_eq!(named("delete-stemcell "), Some(Completed::Named(Kind::Stemcell)));
        for line in ["rec", "deploy ", "recreate --", "task 1 ", "--state-dir "] {
            assert_eq!(named(line), None, "{line}");
        }
        let wanted = of("--state-dir s -d shop -e prod explain db").unwrap();
        assert_eq!(wanted.deployment.as_deref(), Some("shop"));
        assert_eq!((wanted.environment.as_deref(), wanted.state_dir.as_deref()), (Some("prod"), Some("s")));
    }
}
