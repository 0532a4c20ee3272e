//! The verbs in the order in which people look for them.

use clap::builder::StyledStr;
use clap::{Command, CommandFactory};

use super::Cli;
use crate::formats;
use crate::screen::terminal_width;

/// What people want to do, and with which verbs.
const GROUPS: [(&str, &[&str]); 9] = [
    ("Start here", &["demo", "up", "status", "down", "doctor"]),
    (
        "Deploy",
        &[
            "plan",
            "deploy",
            "deployments",
            "deployment",
            "manifest",
            "errands",
            "run-errand",
            "delete-deployment",
            "variables",
            "import-variables",
            "export-variables",
        ],
    ),
    (
        "Look",
        &[
            "instances",
            "vms",
            "disks",
            "explain",
            "tasks",
            "task",
            "events",
            "event",
            "locks",
            "logs",
            "exec",
            "cp",
            "ssh",
            "scp",
            "pcap",
            "snapshots",
            "networks",
            "orphaned-vms",
            "leaks",
        ],
    ),
    (
        "Change and repair",
        &[
            "start",
            "stop",
            "restart",
            "recreate",
            "cloud-check",
            "create-recovery-plan",
            "recover",
            "cancel-task",
            "cancel-tasks",
            "unlock",
            "ignore",
            "unignore",
            "update-resurrection",
            "take-snapshot",
            "delete-snapshot",
            "delete-snapshots",
            "attach-disk",
            "orphan-disk",
            "delete-disk",
            "delete-vm",
            "delete-network",
            "clean-up",
        ],
    ),
    (
        "Stemcells and releases",
        &[
            "stemcell",
            "upload-stemcell",
            "stemcells",
            "delete-stemcell",
            "inspect-local-stemcell",
            "repack-stemcell",
            "upload-release",
            "releases",
            "inspect-release",
            "export-release",
            "delete-release",
        ],
    ),
    (
        "Make releases",
        &[
            "init-release",
            "generate-job",
            "generate-package",
            "vendor-package",
            "create-release",
            "finalize-release",
            "inspect-local-release",
            "reset-release",
            "sha1ify-release",
            "sha2ify-release",
            "render",
            "blobs",
            "add-blob",
            "remove-blob",
            "sync-blobs",
            "upload-blobs",
        ],
    ),
    (
        "Configs",
        &[
            "update-cloud-config",
            "cloud-config",
            "update-runtime-config",
            "runtime-config",
            "update-cpi-config",
            "cpi-config",
            "configs",
            "config",
            "update-config",
            "delete-config",
            "diff-config",
            "interpolate",
        ],
    ),
    (
        "Directors, and single VMs without one",
        &[
            "env",
            "environments",
            "alias-env",
            "unalias-env",
            "log-in",
            "log-out",
            "director",
            "registry",
            "test-webhook",
            "curl",
            "create-env",
            "delete-env",
            "stop-env",
            "start-env",
        ],
    ),
    (
        "For authors of CPIs, and under the hood",
        &["certify", "sim", "local", "cpi", "agent", "bench", "completion", "man-pages", "help"],
    ),
];

/// The command line, whose help has the verbs in groups.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let template = template(&command, terminal_width().min(WIDEST));
    command.help_template(template)
}

/// As wide as help becomes.
const WIDEST: usize = 100;
/// What verbs do is not told in narrower lines.
const NARROWEST: usize = 20;

fn template(command: &Command, columns: usize) -> StyledStr {
    let about = |name: &str| match command.find_subcommand(name).and_then(Command::get_about) {
        Some(about) => about.to_string(),
        None => "Print help of a verb".to_owned(),
    };
    let width = GROUPS.iter().flat_map(|(_, verbs)| *verbs).map(|verb| verb.len()).max().unwrap_or(0);
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (title, verbs) in GROUPS {
        text.push_str(&format!("\n{title}:\n"));
        for verb in verbs {
            let about = formats::folded(&about(verb), columns.saturating_sub(width + 4).max(NARROWEST), 0);
            let about = about.replace('\n', &format!("\n{}", " ".repeat(width + 4)));
            text.push_str(&format!("  {verb:width$}  {about}\n"));
        }
    }
    text.push_str("\nOptions:\n{options}{after-help}");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_has_every_verb_once() {
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        let mut sorted = listed.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), listed.len(), "a verb stands there twice");
        let mut command = Cli::command();
        command.build();
        let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let missing: Vec<&str> = shown.map(Command::get_name).filter(|verb| !listed.contains(verb)).collect();
        assert!(missing.is_empty(), "in no group: {missing:?}");
        for verb in listed {
            assert!(command.find_subcommand(verb).is_some(), "there is no verb '{verb}'");
        }
        let narrow = Cli::command().help_template(template(&Cli::command(), 80)).render_help().to_string();
        let (verbs, _) = narrow.split_once("\nOptions:\n").unwrap();
        assert!(verbs.lines().all(|line| line.chars().count() <= 80), "{verbs}");
        let help = super::command().render_help().to_string();
        let (start, rest) = help.split_once("\nDeploy:\n").unwrap();
        assert!(start.contains("  demo ") && rest.contains("--state-dir") && rest.contains("First steps:"), "{help}");
    }
}
