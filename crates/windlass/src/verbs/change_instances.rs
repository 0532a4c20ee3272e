//! `windlass start`, `stop`, `restart` and `recreate`.

use reqwest::Method;
use windlass_director_client::{escape, query};

use crate::cli::{ChangeArgs, DrainArgs, RecreateArgs, Selection, selected_path};
use crate::failure::Failure;
use crate::session::{Call, Session};

/// What becomes of instances.
#[derive(Debug)]
pub(super) struct Change {
    verb: &'static str,
    /// The state that the whole deployment converges to.
    state: &'static str,
    query: Vec<(&'static str, String)>,
    /// The same for one instance alone.
    alone: Vec<(&'static str, String)>,
}

fn switch(name: &'static str, on: bool) -> Option<(&'static str, String)> {
    on.then(|| (name, "true".to_owned()))
}

impl Change {
    fn new(verb: &'static str, state: &'static str, skip_drain: bool) -> Self {
        let query: Vec<_> = switch("skip_drain", skip_drain).into_iter().collect();
        Self { verb, state, alone: query.clone(), query }
    }

    pub(super) fn start() -> Self {
        Self::new("start", "started", false)
    }

    pub(super) fn stop(hard: bool, drain: &DrainArgs) -> Self {
        let mut change = Self::new("stop", if hard { "detached" } else { "stopped" }, drain.skip_drain);
        change.alone.extend(switch("hard", hard));
        change
    }

    pub(super) fn restart(drain: &DrainArgs) -> Self {
        Self::new("restart", "restart", drain.skip_drain)
    }

    pub(super) fn recreate(arguments: &RecreateArgs) -> Self {
        let mut change = Self::new("recreate", "recreate", arguments.drain.skip_drain);
        change.query.extend(switch("fix", arguments.fix));
        change.query.extend(switch("dry_run", arguments.dry_run));
        let before = arguments.vms_created_before.clone();
        change.query.extend(before.map(|time| ("recreate_vms_created_before", time)));
        change.alone.extend(switch("ignore_unresponsive_agent", arguments.fix));
        change
    }

    fn doing(&self, deployment: &str) -> String {
        let doing = match self.verb {
            "stop" => "stopping",
            "restart" => "restarting",
            "recreate" => "recreating",
            _ => "starting",
        };
        format!("{doing} instances of deployment '{deployment}'")
    }
}

pub(super) async fn run(session: &mut Session<'_>, arguments: &ChangeArgs, change: &Change) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let call = call(&deployment, arguments, change)?;
    session.confirm()?;
    session.carry_out(call, &change.doing(&deployment)).await.map(|_| ())
}

fn call(deployment: &str, arguments: &ChangeArgs, change: &Change) -> Result<Call<'static>, Failure> {
    let deployment = escape(deployment);
    if arguments.no_converge {
        let Some(Selection::Instance(instance)) = &arguments.instances else {
            return Err(Failure::NoConvergeNeedsInstance);
        };
        let (instance, asked) = (instance.path(), query(change.alone.clone()));
        let path = format!("/deployments/{deployment}/instance_groups/{instance}/actions/{}{asked}", change.verb);
        return Ok(Call::new(Method::POST, path).with_yaml(""));
    }
    let mut asked = vec![("state", change.state.to_owned())];
    asked.extend(change.query.clone());
    asked.extend(arguments.pace.query());
    let path =
        format!("/deployments/{deployment}/jobs/{}{}", selected_path(arguments.instances.as_ref()), query(asked));
    // Without a manifest, the stored one counts.
    Ok(Call::new(Method::PUT, path).with_yaml(""))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, RemoteVerb, Verb};

    fn path(words: &str) -> String {
        let verb = Cli::parse_from(["windlass"].into_iter().chain(words.split(' '))).verb;
        let (arguments, change) = match verb {
            Verb::Remote(RemoteVerb::Start(arguments)) => (arguments, Change::start()),
            Verb::Remote(RemoteVerb::Stop { change, hard, drain, .. }) => (change, Change::stop(hard, &drain)),
            Verb::Remote(RemoteVerb::Restart { change, drain }) => (change, Change::restart(&drain)),
            Verb::Remote(RemoteVerb::Recreate(arguments)) => {
                let change = Change::recreate(&arguments);
                (arguments.change, change)
            }
            other => panic!("{other:?}"),
        };
        match call("shop", &arguments, &change) {
            Ok(call) => format!("{call:?}"),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn the_director_is_asked_as_by_the_original() {
        for (words, expected) in [
            ("start", "PUT, path: \"/deployments/shop/jobs/*?state=started\""),
            ("stop web --skip-drain", "PUT, path: \"/deployments/shop/jobs/web?state=stopped&skip_drain=true\""),
            ("stop web/1 --hard", "PUT, path: \"/deployments/shop/jobs/web/1?state=detached\""),
            ("restart --max-in-flight 50%", "\"/deployments/shop/jobs/*?state=restart&max_in_flight=50%25\""),
            ("recreate --fix --dry-run", "\"/deployments/shop/jobs/*?state=recreate&fix=true&dry_run=true\""),
            (
                "stop web/1 --hard --no-converge",
                "POST, path: \"/deployments/shop/instance_groups/web/1/actions/stop?hard=true\"",
            ),
            (
                "recreate web/1 --fix --no-converge",
                "\"/deployments/shop/instance_groups/web/1/actions/recreate?ignore_unresponsive_agent=true\"",
            ),
            ("restart web --no-converge", "name it: GROUP/ID"),
        ] {
            let found = path(words);
            assert!(found.contains(expected), "{words}: {found}");
        }
    }
}
